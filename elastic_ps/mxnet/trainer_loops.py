"""This module makes each of MXNet's own loops of pushpulls one exchange.

`Trainer.step` and `Module.update` call `pushpull` once for each parameter and read nothing in between. An exchange for
each of them would be right and slow, and from the calls alone nobody can tell which one is the last.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack, nullcontext
from functools import wraps
from typing import Any

import mxnet as mx
from mxnet import gluon

from elastic_ps.mxnet.kvstore import ElasticKVStore
from elastic_ps.mxnet.trainer_checks import check_trainer

_Loop = Callable[..., None]


def combine_loops() -> None:
    """Wrap the loops of MXNet 1.9.1; with another kvstore they do what they did."""
    gluon.Trainer._allreduce_grads = _trainer_loop(gluon.Trainer._allreduce_grads)
    for users in (mx.model, mx.module.module):
        users._update_params_on_kvstore = _module_loop(users._update_params_on_kvstore)
        users._update_params = _module_loop_with_updater(users._update_params)


def _combined(kvstore: Any) -> AbstractContextManager[None]:
    return kvstore.combined(overlap=True) if isinstance(kvstore, ElasticKVStore) else nullcontext()


def _trainer_loop(loop: _Loop) -> _Loop:
    @wraps(loop)
    def combined(trainer: Any) -> None:
        check_trainer(trainer)
        with _combined(trainer._kvstore):
            loop(trainer)

    return combined


def _module_loop(loop: _Loop) -> _Loop:
    @wraps(loop)
    def combined(parameters: Any, gradients: Any, kvstore: Any, names: Any) -> None:
        with _combined(kvstore):
            loop(parameters, gradients, kvstore, names)

    return combined


def _module_loop_with_updater(loop: _Loop) -> _Loop:
    @wraps(loop)
    def combined(
        parameters: Any,
        gradients: Any,
        updater: _Loop,
        num_device: int,
        kvstore: Any = None,
        param_names: Any = None,
    ) -> None:
        with ExitStack() as pushing:
            pushing.enter_context(_combined(kvstore))

            def update(*arguments: Any) -> None:
                pushing.close()  # the updater reads what the pushpulls, which are over, write
                updater(*arguments)

            loop(parameters, gradients, update, num_device, kvstore, param_names)

    return combined
