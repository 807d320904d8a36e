"""This module says an optimizer's state, which the servers keep, as PyTorch's `state_dict` has it, and back."""

import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch

from elastic_ps.optimizers.pytorch.adam import nesterov_product
from elastic_ps.optimizers.pytorch.averaged import averaging
from elastic_ps.torch.arrays import laid_out_as, on_host
from elastic_ps.torch.rules import Numbers, numbers_of

State = dict[str, Any]

_OF_COUNTS = ("step", "mu_product", "eta", "mu")
"""Parts of states that follow from how many updates there were."""


def to_torch(
    optimizer: torch.optim.Optimizer,
    found: Mapping[str, State],
    keys: Mapping[torch.Tensor, str],
    first: Sequence[Numbers] = (),
) -> None:
    """Put states that were collected from the servers into an optimizer.

    Args:
        optimizer: of PyTorch; its states are replaced.
        found: by key, {"count": updates, name: array} as `KeyStore.optimizer_states` gives them.
        keys: of the parameters.
        first: the groups' numbers in the job's first step, where they are known; (): they are not.
    """
    counts_itself = not isinstance(optimizer, torch.optim.SGD)  # which alone has no "step"
    for index, group in enumerate(optimizer.param_groups):
        for parameter in group["params"]:
            state = found.get(keys[parameter])
            if state is None or not state["count"]:
                continue
            arrays = {name: torch.from_numpy(array.copy()) for name, array in state.items() if name != "count"}
            own = {name: laid_out_as(parameter, array) for name, array in arrays.items()}
            if counts_itself:
                own["step"] = torch.tensor(float(state["count"]), device="cpu")
            if isinstance(optimizer, torch.optim.NAdam):
                numbers = numbers_of(group)
                product = nesterov_product(numbers["beta1"], numbers["momentum_decay"], state["count"])
                own["mu_product"] = torch.tensor(product, device="cpu")
            if isinstance(optimizer, torch.optim.ASGD):
                eta, mu = averaging(state["count"], numbers_of(group))
                own["eta"], own["mu"] = (torch.tensor(number, device="cpu") for number in (eta, mu))
            if isinstance(optimizer, torch.optim.Rprop):
                size, rate = own["step_size"], first[index]["lr"] if first else group.get("initial_lr", group["lr"])
                begun = min(max(rate, group["step_sizes"][0]), group["step_sizes"][1])
                own["step_size"] = torch.where(
                    size == 0, torch.as_tensor(begun, dtype=size.dtype, device=size.device), size
                )
            optimizer.state[parameter] = {name: placed(group, parameter, name, value) for name, value in own.items()}


def from_torch(optimizer: torch.optim.Optimizer, keys: Mapping[torch.Tensor, str]) -> dict[str, State]:
    """Return the states that an optimizer has loaded, as the servers take them: the inverse of `to_torch`.

    Args:
        optimizer: of PyTorch.
        keys: of the parameters.
    """
    states: dict[str, State] = {}
    for parameter, key in keys.items():
        own = optimizer.state.get(parameter) or {}
        count = int(own["step"]) if "step" in own else int(own.get("momentum_buffer") is not None)
        if count:
            arrays = {name: value for name, value in own.items() if name not in _OF_COUNTS}
            found = {name: on_host(value).numpy() for name, value in arrays.items() if isinstance(value, torch.Tensor)}
            states[key] = {"count": count, **found}
    return _alike(states, {key: tuple(parameter.shape) for parameter, key in keys.items()})


def _alike(states: dict[str, State], shapes: Mapping[str, tuple[int, ...]]) -> dict[str, State]:
    """Return states of which each has the arrays of all, zeros where PyTorch keeps none: servers have one rule for all.

    So it is with the momentum of RMSprop, which only some groups may have.

    Args:
        states: by key.
        shapes: of the parameters.
    """
    kinds = {name: each.dtype for state in states.values() for name, each in state.items() if name != "count"}
    zeros = {key: {name: np.zeros(shapes[key], kind) for name, kind in kinds.items()} for key in states}
    return {key: zeros[key] | state for key, state in states.items()}


def states_to_load(
    optimizer: torch.optim.Optimizer, keys: Mapping[torch.Tensor, str], held: Callable[[], Mapping[str, State] | None]
) -> dict[str, State]:
    """Return the states that an optimizer has loaded; a parameter that has none begins anew, as in PyTorch.

    Args:
        optimizer: of PyTorch.
        keys: of the parameters.
        held: returns the states that the servers have; None: none yet.
    """
    states = from_torch(optimizer, keys)
    if len(states) == len(keys):
        return states
    for key, state in (held() or {}).items():
        if key not in states and state["count"]:
            states[key] = {
                "count": 0,
                **{name: np.zeros_like(array) for name, array in state.items() if name != "count"},
            }
    return states


def follow_loads(optimizer: torch.optim.Optimizer, before: Callable[[], None], after: Callable[[], None]) -> None:
    """Call methods around each `load_state_dict` of an optimizer, as long as their object is there.

    Args:
        optimizer: of PyTorch; it makes its groups anew then.
        before: a method; what it raises is raised there, and nothing is loaded.
        after: a method.
    """

    def calling(method: Callable[[], None]) -> Callable[..., None]:
        kept = weakref.WeakMethod(method)  # no cycle: an elastic.Optimizer that is let go is gone

        def call(*_: Any) -> None:
            found = kept()
            if found is not None:
                found()

        return call

    optimizer.register_load_state_dict_pre_hook(calling(before))
    optimizer.register_load_state_dict_post_hook(calling(after))


def placed(group: Mapping[str, Any], parameter: torch.Tensor, name: str, value: Any) -> Any:
    """Return a part of a state on the device where `torch.optim` keeps it: the parameter's.

    Args:
        group: of the parameter.
        parameter: whose state it is.
        name: of the part; the count of steps is in this process's memory, but for optimizers that run on a GPU whole.
        value: the part; what is no tensor stays as it is.
    """
    if not isinstance(value, torch.Tensor):
        return value
    on_device = name != "step" or group.get("capturable") or group.get("fused")
    return value.to(parameter.device) if on_device else on_host(value)
