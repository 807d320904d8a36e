"""A worker's garbage collections pass over what it had imported when it began: modules stay as long as the process.

PyTorch makes 200,000 objects that a collection visits, and an interpreter that ends visits them several times: half a
second of one core, beside the workers that train on when one is drained.
"""

import gc
import io
from typing import Any

_BUFFERS = (io.BufferedWriter, io.BufferedRandom)
_LAST_STANDARD = 2
"""File descriptor of stderr: standard streams are flushed anyway."""


def freeze_imports(unless: tuple[type, ...]) -> None:
    """Take all that there is out of garbage collections for good.

    What nothing refers to is freed as before. But an object of now that is in a cycle, or comes to be, is not finalised
    when the process ends, nor found by `gc.get_objects`. So nothing is done where the script has begun already, or has
    a file open that it writes.

    Args:
        unless: types of which a script that only imports yet has made no object.
    """
    if not any(issubclass(type(each), unless) or _may_lose(each) for each in gc.get_objects()):
        gc.freeze()


def _may_lose(each: Any) -> bool:
    """Return whether an object has data of a file that it may write when it is finalised."""
    if not issubclass(type(each), _BUFFERS):
        return False
    try:
        return not each.closed and each.fileno() > _LAST_STANDARD
    except (OSError, ValueError):  # it has no descriptor, or was detached
        return True
