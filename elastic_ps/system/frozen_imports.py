"""A worker's garbage collections pass over what it had imported when it began: modules stay as long as the process.

PyTorch makes 300,000 objects that a collection visits, and an interpreter that ends visits them several times: a second
of one core, beside the workers that train on when one is drained.
"""

import gc
from contextlib import suppress
from importlib import import_module


def freeze_imports(unless: tuple[type, ...], *more: str) -> bool:
    """Take all that there is out of garbage collections for good; return whether that was done.

    What nothing refers to is freed as before. But an object of now that comes to be in a cycle of garbage later is
    never freed, and `gc.get_objects` does not find it; so nothing is done where the script has begun already.

    Args:
        unless: types of which a script that only imports yet has made no object.
        more: modules that will be imported anyhow, and are now, where they exist.
    """
    for name in more:
        with suppress(ImportError):
            import_module(name)
    if any(issubclass(kind, unless) for kind in {type(each) for each in gc.get_objects()}):
        return False
    gc.freeze()
    return True
