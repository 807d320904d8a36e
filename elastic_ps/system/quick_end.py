"""A worker's process ends without taking apart what it had imported when it began.

PyTorch makes 200,000 objects that a garbage collection visits, and an interpreter that ends visits them several times:
half a second of one core, and a tenth for the destructors of its libraries. Both run beside the workers that train on
when one is drained, and all that they took apart is freed with the process.
"""

import ctypes
import gc
import io
import os
from collections.abc import Mapping
from typing import Any

_BUFFERS = (io.BufferedWriter, io.BufferedRandom)
_LAST_STANDARD = 2
"""File descriptor of stderr: standard streams are flushed anyway."""

_PRELOADED = "LD_PRELOAD"


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


def skip_exit_handlers(environment: Mapping[str, str] = os.environ) -> bool:
    """Let exit(3) run no handler that C and C++ libraries have registered by now; return whether it will.

    Python has ended by then, its own handlers (`atexit`) among the rest. Handlers that are registered later run, C's
    files are flushed, and the process has the status that it would have. Nothing is done where somebody has preloaded a
    library, as profilers and leak checkers do, which write what they found in such a handler, or where there is no
    glibc.

    Args:
        environment: of the process.
    """
    libc = ctypes.CDLL(None)
    if environment.get(_PRELOADED) or not (hasattr(libc, "on_exit") and hasattr(libc, "fcloseall")):
        return False
    for last in (libc._exit, libc.fcloseall):  # the one that is registered last runs first
        libc.on_exit(ctypes.cast(last, ctypes.c_void_p), None)
    return True
