"""This module refuses Trainers whose steps, with the optimizer on the servers, would train something else."""

import logging
from functools import cache, wraps
from operator import is_
from typing import Any
from weakref import WeakKeyDictionary, WeakSet

from mxnet import gluon

from elastic_ps.core.errors import ConfigurationError
from elastic_ps.mxnet.kvstore import ElasticKVStore

log = logging.getLogger(__name__)

_elastic: WeakSet[Any] = WeakSet()
"""Trainers with an elastic store that have stepped."""

_replaced: WeakKeyDictionary[Any, str] = WeakKeyDictionary()
"""Those of which a later Trainer trains a parameter, too, and its name."""

_arrays: WeakKeyDictionary[Any, list[list[Any]]] = WeakKeyDictionary()
"""The arrays of their parameters at their first step, to which the job's values go when a worker joins."""


def check_trainer(trainer: Any) -> None:
    """Look at a Trainer that is about to step: its store is made.

    Raises:
        ConfigurationError: it scales its loss, shares a parameter with another Trainer that has stepped since, or its
            parameters have other arrays than at its first step.
    """
    if not isinstance(trainer._kvstore, ElasticKVStore):
        if _elastic:
            _tell_of_another()
        return
    if trainer not in _elastic:
        _replace_others(trainer)
        _elastic.add(trainer)
        _look_at_loss(trainer)
        _arrays[trainer] = _present_arrays(trainer)
    elif trainer._kvstore.data is not None:
        _check_arrays(trainer)
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


def refuse_clipping() -> None:
    """Wrap `gluon.utils.clip_global_norm`, which in a shared step sees the gradient of a worker's own samples."""
    clip = gluon.utils.clip_global_norm

    @wraps(clip)
    def checked(arrays: Any, *arguments: Any, **options: Any) -> Any:
        given = {id(array) for array in arrays}
        for trainer in _elastic:
            if _shares_steps(trainer) and not given.isdisjoint(map(id, _gradients(trainer))):
                raise ConfigurationError(
                    "clip_global_norm of gradients that the workers add up: each has those of its own samples, so "
                    "their sum would be clipped otherwise by each number of workers. Leave it out, or give the "
                    "optimizer clip_gradient, which bounds each element of the sum; PyTorch's adapter has max_norm"
                )
        return clip(arrays, *arguments, **options)

    gluon.utils.clip_global_norm = checked


def _shares_steps(trainer: Any) -> bool:
    """Return whether the gradients of all workers make one step of a Trainer."""
    data = trainer._kvstore.data
    return data is not None and data.is_sync and trainer._update_on_kvstore


def _gradients(trainer: Any) -> list[Any]:
    return [gradient for parameter in _trained(trainer) for gradient in parameter.list_grad()]


def _look_at_loss(trainer: Any) -> None:
    """Tell of a mean over a worker's samples that would be added up: its step grows with the number of workers."""
    data = trainer._kvstore.data
    if _shares_steps(trainer) and data.loss == "sum" and data.global_batch > 1 and trainer._optimizer.rescale_grad == 1:
        log.warning(
            "trainer.step(1) adds up the gradients of the %d samples of a step: if the loss is their mean, give "
            'ElasticDataLoader loss="mean", as else the step grows with the number of workers; if it is their sum, '
            "call trainer.step(%d)",
            data.global_batch,
            data.global_batch,
        )


def _replace_others(trainer: Any) -> None:
    """Note which Trainers must not step any more: a script may go on with a new one in the place of another."""
    own = {id(parameter) for parameter in _trained(trainer)}
    for other in _elastic:
        shared = next((parameter for parameter in _trained(other) if id(parameter) in own), None)
        if shared is not None:
            _replaced[other] = shared.name


def _check_arrays(trainer: Any) -> None:
    for parameter, before, now in zip(trainer._params, _arrays[trainer], _present_arrays(trainer), strict=True):
        if before and not (len(before) == len(now) and all(map(is_, before, now))):
            raise ConfigurationError(
                f"parameter {parameter.name} has other arrays than at the Trainer's first step, to which a worker that "
                "joins gets the job's values: call reset_ctx and cast before the loop"
            )


def _present_arrays(trainer: Any) -> list[list[Any]]:
    """Return the arrays of each parameter, one for each device; none yet where its shape is not known."""
    return [list(parameter._data or ()) for parameter in trainer._params]


def _trained(trainer: Any) -> list[Any]:
    return [parameter for parameter in trainer._params if parameter.grad_req != "null"]


@cache
def _tell_of_another() -> None:
    log.warning(
        'a gluon.Trainer without kvstore="dist_elastic" steps beside one with it: each worker trains its parameters '
        "for itself, a worker that joins begins with untrained ones, and no checkpoint has them"
    )
