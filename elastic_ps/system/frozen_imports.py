"""A worker's garbage collections pass over what it had imported when it began: modules stay as long as the process.

PyTorch alone makes 200,000 objects that a collection visits, and an interpreter that ends visits them several times:
two thirds of a second of one core, beside the workers that train on when one is drained.
"""

import gc


def freeze_imports() -> None:
    """Take all that there is out of garbage collections for good; what nothing refers to is freed as before.

    For the end of an import: an object of now that comes to be in a cycle of garbage later is never freed.
    """
    gc.freeze()
