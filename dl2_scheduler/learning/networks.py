"""This module holds the policy network that all jobs share, and the networks that expect values."""

import math
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from dl2_scheduler.learning.experience import ScalingKind
from dl2_scheduler.policies.learnt.features import KNOTS, SLOT_FEATURES, count_basis, width
from dl2_scheduler.policies.learnt.weights import Weights

Ints = NDArray[np.int64]

HIDDEN = 96
_CRITIC_HIDDEN = 64
_STOP_HIDDEN = 16
_RANK_HIDDEN = 32


def _taken(values: Tensor, rows: Tensor) -> Tensor:
    """Take rows of a tensor.

    Unlike an index in brackets, this sums its gradient in one order, so that a seed gives the same numbers.
    """
    return torch.index_select(values, 0, rows)


class SharedPolicy(nn.Module):
    """Scores each job by itself, with weights that all jobs share, so that their number is free.

    Args:
        models: types that it knows.
        hidden: units of both hidden layers.
    """

    def __init__(self, models: Sequence[str], hidden: int = HIDDEN):
        super().__init__()
        self.models = tuple(models)
        self.base = nn.Linear(width(len(models)), hidden)
        self.workers = nn.Linear(len(KNOTS), hidden, bias=False)
        self.servers = nn.Linear(len(KNOTS), hidden, bias=False)
        self.share = nn.Parameter(torch.zeros(hidden))
        self.hidden = nn.Linear(hidden, hidden)
        self.out = nn.Linear(hidden, 3)
        self.rank = nn.Linear(width(len(models)), _RANK_HIDDEN)
        self.priority = nn.Linear(_RANK_HIDDEN, 3, bias=False)
        nn.init.zeros_(self.priority.weight)
        self.slot = nn.Linear(SLOT_FEATURES, _STOP_HIDDEN)
        self.stop = nn.Linear(_STOP_HIDDEN, 1)

    def forward(self, rows: Tensor, share: Tensor, job: Tensor, workers: Tensor, servers: Tensor) -> Tensor:
        """Compute the scores of jobs with counts, (visits, 3).

        Args:
            rows: features, (jobs, features).
            share: see `Scores.share`, (jobs, 2).
            job: of each visit, an index of `rows`.
            workers: of each visit.
            servers: of each visit.
        """
        most = int(max(workers.max(), servers.max()))
        basis = torch.from_numpy(count_basis(most))
        allotted = torch.maximum(workers * share[job, 0], servers * share[job, 1])
        first = (
            _taken(self.base(rows), job) + _taken(self.workers(basis), workers) + _taken(self.servers(basis), servers)
        )
        first = torch.relu(first + torch.log1p(allotted)[:, None] * self.share)
        scores: Tensor = self.out(torch.relu(self.hidden(first))) + _taken(self.priorities(rows), job)
        return scores

    def priorities(self, rows: Tensor) -> Tensor:
        """Compute what a job's scores get whatever it has been given, (jobs, 3): who goes first, to which role."""
        found: Tensor = self.priority(torch.relu(self.rank(rows)))
        return found

    def stops(self, rows: Tensor) -> Tensor:
        """Score of stopping, by any one job's features of each slot, (slots,)."""
        scores: Tensor = self.stop(torch.relu(self.slot(rows[:, -SLOT_FEATURES:]))).squeeze(-1)
        return scores

    def soften(self, factor: float) -> None:
        """Multiply all scores: the best action stays the best; a policy that is sure of everything learns slowly."""
        with torch.no_grad():
            for value in (*self.out.parameters(), *self.priority.parameters(), *self.stop.parameters()):
                value.mul_(factor)

    def weights(self) -> Weights:
        """Return the weights as inference takes them."""
        arrays = {name: value.detach().numpy().copy() for name, value in self.state_dict().items()}
        return Weights(self.models, arrays)


def new_policy(models: Sequence[str], seed: int) -> SharedPolicy:
    """Return a policy that has learnt nothing.

    Args:
        models: types that it is to know.
        seed: of the weights.
    """
    torch.manual_seed(seed)
    return SharedPolicy(models)


class RemainingTime(nn.Module):
    """This network says how long a job will take from a slot on, as a logarithm of slots.

    Args:
        models: number of types.
        hidden: units of both hidden layers.
    """

    def __init__(self, models: int, hidden: int = _CRITIC_HIDDEN):
        super().__init__()
        layers = nn.Linear(width(models), hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU()
        self.layers = nn.Sequential(*layers, nn.Linear(hidden, 1))

    def forward(self, rows: Tensor) -> Tensor:
        """Compute the log of the slots that each job will take still, (jobs,).

        Args:
            rows: features, (jobs, features).
        """
        found: Tensor = self.layers(rows).squeeze(-1)
        return found


class ProgressEnsemble(nn.Module):
    """This ensemble expects how fast jobs train, as a logarithm of their types' top speed.

    It has several networks, each with a random prior.

    Args:
        models: number of types.
        members: networks.
        hidden: units of both hidden layers.
    """

    def __init__(self, models: int, members: int, hidden: int = _CRITIC_HIDDEN):
        super().__init__()
        self._models = models
        self._members = members
        sizes = models + len(ScalingKind) + 2 * len(KNOTS) + 3, hidden, hidden, 1
        for layer, (inputs, outputs) in enumerate(pairwise(sizes)):
            scale = math.sqrt(2 / inputs)
            self.register_parameter(f"weight{layer}", nn.Parameter(scale * torch.randn(members, inputs, outputs)))
            self.register_parameter(f"bias{layer}", nn.Parameter(torch.zeros(members, 1, outputs)))
            self.register_buffer(f"prior{layer}", scale * torch.randn(members, inputs, outputs))

    def inputs(self, model: Ints, scaling: Ints, servers: Ints, workers: Ints) -> Tensor:
        """Return the inputs of configurations, (configurations, inputs).

        Args:
            model: number of the type of each.
            scaling: see `experience.ScalingKind`.
            servers: of jobs without servers 0, else at least 1.
            workers: at least 1.
        """
        basis = count_basis(int(KNOTS[-1]))
        logs = np.log(np.maximum(np.stack([servers, workers], axis=1), 1))
        each = [
            np.eye(self._models)[model],
            np.eye(len(ScalingKind))[scaling],
            *(basis[np.minimum(counts, len(basis) - 1)] for counts in (servers, workers)),
            np.column_stack([logs, logs[:, 0] - logs[:, 1]]),
        ]
        return torch.from_numpy(np.concatenate(each, axis=1)).float()

    def forward(self, inputs: Tensor) -> Tensor:
        """Compute what each member expects, (members, configurations).

        Args:
            inputs: of `inputs`.
        """
        learnt = prior = inputs.expand(self._members, *inputs.shape)
        for layer in range(3):
            if layer:
                learnt, prior = torch.relu(learnt), torch.relu(prior)
            learnt = torch.baddbmm(getattr(self, f"bias{layer}"), learnt, getattr(self, f"weight{layer}"))
            prior = torch.bmm(prior, getattr(self, f"prior{layer}"))
        found: Tensor = (learnt + prior).squeeze(-1)
        return found
