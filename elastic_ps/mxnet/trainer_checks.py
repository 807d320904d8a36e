"""This module refuses Trainers whose steps, with the optimizer on the servers, would train something else."""

import logging
from functools import cache
from typing import Any
from weakref import WeakKeyDictionary, WeakSet

from elastic_ps.core.errors import ConfigurationError
from elastic_ps.mxnet.kvstore import ElasticKVStore

log = logging.getLogger(__name__)

_elastic: WeakSet[Any] = WeakSet()
"""Trainers with an elastic store that have stepped."""

_replaced: WeakKeyDictionary[Any, str] = WeakKeyDictionary()
"""Those of which a later Trainer trains a parameter, too, and its name."""


def check_trainer(trainer: Any) -> None:
    """Look at a Trainer that is about to step: its store is made.

    Raises:
        ConfigurationError: it scales its loss, or shares a parameter with another Trainer that has stepped since.
    """
    if not isinstance(trainer._kvstore, ElasticKVStore):
        if _elastic:
            _tell_of_another()
        return
    if trainer not in _elastic:
        _replace_others(trainer)
        _elastic.add(trainer)
    if not trainer._update_on_kvstore:
        return
    if getattr(trainer, "_amp_loss_scaler", None) is not None:
        raise ConfigurationError(
            "a Trainer with amp.init_trainer's loss scaler, which keeps no gradient that overflows from servers that "
            "update: use amp.init(target_dtype='bfloat16') without amp.init_trainer; with data of its own (static) a "
            "script may make the Trainer with update_on_kvstore=False instead"
        )
    if trainer in _replaced:
        raise ConfigurationError(
            f"parameter {_replaced[trainer]} has two Trainers that both step: the servers keep a value for each, and "
            "each step would undo the other's. Give each parameter one Trainer"
        )


def _replace_others(trainer: Any) -> None:
    """Note which Trainers must not step any more: a script may go on with a new one in the place of another."""
    own = {id(parameter) for parameter in _trained(trainer)}
    for other in _elastic:
        shared = next((parameter for parameter in _trained(other) if id(parameter) in own), None)
        if shared is not None:
            _replaced[other] = shared.name


def _trained(trainer: Any) -> list[Any]:
    return [parameter for parameter in trainer._params if parameter.grad_req != "null"]


@cache
def _tell_of_another() -> None:
    log.warning(
        'a gluon.Trainer without kvstore="dist_elastic" steps beside one with it: each worker trains its parameters '
        "for itself, a worker that joins begins with untrained ones, and no checkpoint has them"
    )
