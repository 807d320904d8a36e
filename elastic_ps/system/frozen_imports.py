"""A worker's garbage collections pass over what it had imported when it began: modules stay as long as the process.

PyTorch makes 200,000 objects that a collection visits, and an interpreter that ends visits them several times: half a
second of one core, beside the workers that train on when one is drained.
"""

import gc


def freeze_imports(unless: tuple[type, ...]) -> bool:
    """Take all that there is out of garbage collections for good; return whether that was done.

    What nothing refers to is freed as before. But an object of now that is in a cycle, or comes to be, is not finalised
    when the process ends, nor found by `gc.get_objects`; so nothing is done where the script has begun already.

    Args:
        unless: types of which a script that only imports yet has made no object.
    """
    if any(issubclass(type(each), unless) for each in gc.get_objects()):
        return False
    gc.freeze()
    return True
