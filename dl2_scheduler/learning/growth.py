"""More types of jobs for a run that has learnt: what it knows stays as it is, to the decision.

A job's features begin with its type, one-hot. A new type is a column more, which is 0 for all jobs of known types; its
weights begin as the mean of the known types', so that its jobs are first treated as a job usually is.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from dl2_scheduler.learning.networks import ProgressEnsemble, RemainingTime, SharedPolicy

_BY_TYPE: Mapping[str, int] = {"base.weight": 1, "rank.weight": 1, "layers.0.weight": 1, "weight0": 1, "prior0": 1}
"""Axis along which a network's array has the types first, by the array's name."""
_AVERAGED = "module."


def grown(state: Mapping[str, Any], models: Sequence[str]) -> dict[str, Any]:
    """Return a checkpoint that knows more types.

    Args:
        state: as `Online` and `bootstrap` write it: of the network that all jobs share.
        models: types that it has to know; those that it knows already are passed over, and keep their numbers.
    """
    known = tuple(state["models"])
    new = tuple(model for model in dict.fromkeys(models) if model not in known)
    if not new:
        return dict(state)
    at, count = len(known), len(new)
    found = {**state, "models": known + new}
    names = [name for name, _ in SharedPolicy(known).named_parameters()]
    found["policy"] = _grown_arrays(state["policy"], at, count)
    if "average" in state:
        found["average"] = _grown_arrays(state["average"], at, count)
        found["optimizer"] = _grown_optimizer(state["optimizer"], names, at, count)
        found["replay"] = [_grown_slots(slots, at, count) for slots in state["replay"]]
    if "critic" in state:
        found["critic"] = _grown_critic(state["critic"], at, count)
        found["experience"] = _grown_experience(state["experience"], at, count)
    return found


def _grown_critic(state: Mapping[str, Any], at: int, count: int) -> dict[str, Any]:
    networks: dict[str, Callable[[], nn.Module]] = {
        "progress": lambda: ProgressEnsemble(at, 1),
        "remaining": lambda: RemainingTime(at),
    }
    found = dict(state)
    for name, network in networks.items():
        names = [each for each, _ in network().named_parameters()]
        found[name] = _grown_arrays(state[name], at, count)
        found[f"{name}_optimizer"] = _grown_optimizer(state[f"{name}_optimizer"], names, at, count)
    found["top"] = np.append(state["top"], np.ones(count))
    for name in ("seen", "seen_without_servers"):
        if name in state:
            found[name] = np.append(state[name], np.zeros(count, dtype=bool))
    return found


def _grown_experience(state: Mapping[str, Any], at: int, count: int) -> dict[str, Any]:
    pending = {
        job: [(slot, _with_zeros(row, at, count)) for slot, row in slots] for job, slots in state["pending"].items()
    }
    rows = _with_zeros(state["rows"], at, count) if len(state["rows"]) else state["rows"]
    return {**state, "pending": pending, "rows": rows}


def _grown_arrays(arrays: Mapping[str, Tensor], at: int, count: int) -> dict[str, Tensor]:
    found = dict(arrays)
    for name, value in arrays.items():
        axis = _BY_TYPE.get(name.removeprefix(_AVERAGED))
        if axis is not None:
            mean = value.narrow(axis, 0, at).mean(dim=axis, keepdim=True)
            found[name] = _inserted(value, axis, at, torch.cat([mean] * count, dim=axis))
    return found


def _grown_optimizer(state: Mapping[str, Any], names: Sequence[str], at: int, count: int) -> dict[str, Any]:
    """Return the state of Adam for a larger network: nothing is known of how the new weights change."""
    moments = {}
    for number, of_parameter in state["state"].items():
        axis = _BY_TYPE.get(names[number])
        moments[number] = dict(of_parameter)
        if axis is not None:
            for name in ("exp_avg", "exp_avg_sq"):
                value = of_parameter[name]
                zeros = torch.zeros_like(value.narrow(axis, 0, 1))
                moments[number][name] = _inserted(value, axis, at, torch.cat([zeros] * count, dim=axis))
    return {**state, "state": moments}


def _inserted(value: Tensor, axis: int, at: int, more: Tensor) -> Tensor:
    after = value.shape[axis] - at
    return torch.cat([value.narrow(axis, 0, at), more, value.narrow(axis, at, after)], dim=axis).contiguous()


def _grown_slots(slots: Mapping[str, Any], at: int, count: int) -> dict[str, Any]:
    return {**slots, "rows": _with_zeros(slots["rows"], at, count)}


def _with_zeros(rows: NDArray[np.float32] | Tensor, at: int, count: int) -> NDArray[np.float32]:
    """Return features, (..., features), of jobs that are of none of the new types."""
    return np.insert(np.asarray(rows), [at] * count, 0.0, axis=-1)
