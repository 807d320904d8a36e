"""A worker's garbage collections pass over what it had imported when it began: modules stay as long as the process.

PyTorch makes 300,000 objects that a collection visits, and an interpreter that ends visits them several times: a second
of one core, beside the workers that train on when one is drained.
"""

import gc
from contextlib import suppress
from importlib import import_module


def freeze_imports(*more: str) -> None:
    """Take all that there is out of garbage collections for good; what nothing refers to is freed as before.

    For the end of an import: an object of now that comes to be in a cycle of garbage later is never freed.

    Args:
        more: modules that will be imported anyhow, and are now, where they exist.
    """
    for name in more:
        with suppress(ImportError):
            import_module(name)
    gc.freeze()
