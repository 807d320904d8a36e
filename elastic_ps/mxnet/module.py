"""This module gives the Module API what it needs beyond the kvstore."""

from typing import Any

import mxnet as mx

from elastic_ps.core.errors import ConfigurationError
from elastic_ps.mxnet.kvstore import ElasticKVStore

AUXILIARY_PREFIX = "aux:"
"""The prefix of the keys that hold a module's auxiliary states; a Module's own keys are its parameters' names."""


def track_auxiliary(module: Any) -> Any:
    """Make a module's auxiliary states (batch norm's moving statistics) part of the job's state.

    Module gives its kvstore the arguments alone, so that each worker's moving statistics would stay its own and leave
    with it. Call this before `init_optimizer`, in the first batch of an elastic loop:

        module = elastic_ps.mxnet.track_auxiliary(mx.mod.Module(symbol))
        ...
        module.init_optimizer("dist_elastic", ...)

    In a static job, as `fit` makes one, all workers begin with the chief's and change their own from then on, and the
    job's checkpoints keep the first ones. With another kvstore it changes nothing.

    Args:
        module: an mx.mod.Module.

    Returns:
        The same module.

    Raises:
        ConfigurationError: not an mx.mod.Module, or its optimizer is already initialized.
    """
    if not isinstance(module, mx.mod.Module):
        raise ConfigurationError(f"track_auxiliary takes an mx.mod.Module, not {type(module).__name__}")
    if module.optimizer_initialized:
        raise ConfigurationError("track_auxiliary comes too late: call it before fit or init_optimizer")
    original = module.init_optimizer

    def init_optimizer(*args: Any, **kwargs: Any) -> None:
        before = module._kvstore
        original(*args, **kwargs)
        store = module._kvstore
        if isinstance(store, ElasticKVStore) and store is not before:
            arrays = module._exec_group.aux_arrays
            names = [AUXILIARY_PREFIX + name for name in module._aux_names]
            store.broadcast(names, [devices[0] for devices in arrays], out=arrays)

    module.init_optimizer = init_optimizer
    return module
