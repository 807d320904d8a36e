"""This package trains elastically with parameter servers; here is what a training script uses.

elastic_ps.init()                                            # joins the job
sampler = elastic_ps.Sampler(len(dataset), global_batch=64)
for epoch in elastic_ps.epochs(10):
    for step, indices, batch in sampler:
        ...
        ...                                                  # push the gradients, pull the new values

A script hands over gradients through its framework's adapter, which it imports beside this package.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from elastic_ps.script import Sampler, epochs, init, is_chief, num_workers, rank, report

__all__ = ["Sampler", "epochs", "init", "is_chief", "num_workers", "rank", "report"]


def __getattr__(name: str) -> Any:
    """Load the worker side when a script asks for it: servers and coordinators import this package too."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from elastic_ps import script

    return getattr(script, name)
