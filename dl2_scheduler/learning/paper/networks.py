"""This module holds the paper's policy network and its twin, the value network (DL2, sections 4.1 and 4.3)."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from dl2_scheduler.learning.plain import whole
from dl2_scheduler.policies.learnt.actions import ACTIONS
from dl2_scheduler.policies.learnt.array_files import MOST_MODELS, check_models
from dl2_scheduler.policies.learnt.features import F32
from dl2_scheduler.policies.learnt.paper.batched import row_width
from dl2_scheduler.policies.learnt.paper.weights import MOST_PLACES, PaperWeights

PAPER = "paper"
"""What a checkpoint of this network has as its "network"."""

_SMALL = 0.02  # standard deviation of first weights, cut at twice that

_LEAST_VARIANCE = 1e-3  # a unit that was never above 0 while imitating must not explode when it first is


class _Twin(nn.Module):
    """This network has two hidden layers of 2/3 of the input's size; each is a ReLU, then a batch normalisation.

    The published code has that order, too.

    Args:
        inputs: columns of the flat state.
        outputs: of the last layer, which is linear.
    """

    def __init__(self, inputs: int, outputs: int):
        super().__init__()
        units = inputs * 2 // 3
        self.first, self.second = nn.Linear(inputs, units), nn.Linear(units, units)
        self.first_norm = nn.BatchNorm1d(units, eps=_LEAST_VARIANCE)
        self.second_norm = nn.BatchNorm1d(units, eps=_LEAST_VARIANCE)
        self.out = nn.Linear(units, outputs)

    def begin_small(self) -> None:
        """Draw small weights, as the published code does: all actions are nearly as probable as each other at first."""
        for layer in (self.first, self.second, self.out):
            nn.init.trunc_normal_(layer.weight, std=_SMALL, a=-2 * _SMALL, b=2 * _SMALL)
            nn.init.zeros_(layer.bias)

    def forward(self, states: Tensor) -> Tensor:
        """Compute the outputs, (samples, outputs), of states, (samples, J, row_width)."""
        hidden = self.first_norm(torch.relu(self.first(states.flatten(1))))
        found: Tensor = self.out(self.second_norm(torch.relu(self.second(hidden))))
        return found


class PaperPolicy(_Twin):
    """Scores every action of all J jobs.

    Args:
        models: types that it knows.
        places: J.
        minimum: see `batched.slot_of`.
    """

    def __init__(self, models: Sequence[str], places: int, minimum: bool = True):
        super().__init__(places * row_width(len(models)), places * ACTIONS + 1)
        self.models, self.places, self.minimum = tuple(models), places, minimum

    def logs(self, states: Tensor, masks: Tensor) -> Tensor:
        """Log probability of each action, (samples, 3 J + 1); minus infinity where it is not allowed.

        Args:
            states: (samples, J, row_width).
            masks: what is allowed, (samples, 3 J + 1).
        """
        return torch.log_softmax(self(states).masked_fill(~masks, -torch.inf), dim=1)

    def weights(self) -> PaperWeights:
        """Return the weights as inference takes them: each normalisation is folded into the layer behind it."""
        first, first_bias = self.first.weight, self.first.bias
        second, second_bias = _folded(self.first_norm, self.second)
        out, out_bias = _folded(self.second_norm, self.out)
        arrays = {
            "first": _array(first.T),
            "first_bias": _array(first_bias),
            "second": _array(second.T),
            "second_bias": _array(second_bias),
            "out": _array(out.T),
            "out_bias": _array(out_bias),
        }
        return PaperWeights(self.models, self.minimum, arrays)


class PaperValue(_Twin):
    """This network says what is to be expected from a state on.

    Args:
        models: number of types.
        places: J.
    """

    def __init__(self, models: int, places: int):
        super().__init__(places * row_width(models), 1)

    def forward(self, states: Tensor) -> Tensor:
        """Compute the values, (samples,), of states, (samples, J, row_width)."""
        return super().forward(states).squeeze(1)


def _folded(norm: nn.BatchNorm1d, layer: nn.Linear) -> tuple[Tensor, Tensor]:
    """Return the weight and bias of a layer that takes what the normalisation before it takes."""
    assert norm.running_mean is not None
    assert norm.running_var is not None
    scale = norm.weight / torch.sqrt(norm.running_var + norm.eps)
    return layer.weight * scale, layer.bias + layer.weight @ (norm.bias - norm.running_mean * scale)


def _array(values: Tensor) -> F32:
    array: F32 = values.detach().float().contiguous().numpy().copy()
    return array


def policy_of(found: Mapping[str, Any]) -> PaperPolicy:
    """Return the policy of a checkpoint, see `described`. Raises what `plain.restored` expects."""
    places = whole(found["places"], 1)
    if places > MOST_PLACES:
        raise ValueError(f"{places} places: at most {MOST_PLACES} can be")
    policy = PaperPolicy(check_models(found["models"], MOST_MODELS), places, bool(found["minimum"]))
    policy.load_state_dict(found["policy"])
    return policy


def described(policy: PaperPolicy) -> dict[str, Any]:
    """Return what a checkpoint says of its network."""
    return {"network": PAPER, "models": policy.models, "places": policy.places, "minimum": policy.minimum}
