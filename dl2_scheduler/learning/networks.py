"""Policy and value networks."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from dl2_scheduler.policies.features import KNOTS, SLOT_FEATURES, count_basis, width
from dl2_scheduler.policies.weights import Weights

HIDDEN = 96
_STOP_HIDDEN = 16
_RANK_HIDDEN = 32


def _taken(values: Tensor, rows: Tensor) -> Tensor:
    """Rows; unlike an index in brackets its gradient is summed in one order, so that a seed gives the same numbers."""
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
        """Scores of jobs with counts, (visits, 3).

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
        """What is added to a job's scores whatever it has been given, (jobs, 3): who goes first, and to which role."""
        found: Tensor = self.priority(torch.relu(self.rank(rows)))
        return found

    def stops(self, rows: Tensor) -> Tensor:
        """Score of stopping, by any one job's features of each slot, (slots,)."""
        scores: Tensor = self.stop(torch.relu(self.slot(rows[:, -SLOT_FEATURES:]))).squeeze(-1)
        return scores

    def weights(self) -> Weights:
        """As inference takes them."""
        arrays = {name: value.detach().numpy().copy() for name, value in self.state_dict().items()}
        return Weights(self.models, arrays)


class Value(nn.Module):
    """What is to be expected from a slot on: a network of the sum over its jobs.

    Args:
        models: number of types.
        hidden: units of each layer.
    """

    def __init__(self, models: int, hidden: int = HIDDEN):
        super().__init__()
        self.job = nn.Sequential(nn.Linear(width(models), hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU())
        self.slot = nn.Sequential(nn.Linear(2 * hidden, hidden), nn.ReLU(), nn.Linear(hidden, 1))

    def forward(self, rows: Tensor, slot: Tensor, slots: int) -> Tensor:
        """By slot.

        Args:
            rows: features, (jobs, features).
            slot: of each job, ascending.
            slots: how many.
        """
        each = self.job(rows)
        total = torch.zeros(slots, each.shape[1]).index_add_(0, slot, each)
        count = torch.bincount(slot, minlength=slots).clamp(min=1)[:, None]
        found: Tensor = self.slot(torch.cat([total / count, total / 32.0], dim=1)).squeeze(-1)
        return found
