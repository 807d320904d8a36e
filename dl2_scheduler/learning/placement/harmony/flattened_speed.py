"""This module is Harmony's own reward model (INFOCOM 2019, section V): a network over flattened matrices.

Its input is, for at most N jobs of L models on M servers: the models (N x L, one-hot), the workers and servers that
each job has (2N), and how many of them lie on each server (M x 2N). Three hidden layers with batch normalisation give
each job's speed; the loss is the mean of |c' - c| / c' over the jobs that are there.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from dl2_scheduler.cluster.errors import BadInput
from dl2_scheduler.cluster.hardware.machines import Floats
from dl2_scheduler.cluster.hardware.placements import SERVER, WORKER, PlacementArrays
from dl2_scheduler.cluster.hardware.profiles import Profile
from dl2_scheduler.learning.placement.reward_model import FitSettings, batches
from dl2_scheduler.policies.learnt.pooled_network import F32
from dl2_scheduler.policies.learnt.pooled_speed import base_speeds
from dl2_scheduler.sim.placed.samples import PlacedSamples

MOST_JOBS = 16
"""N, which the paper leaves out. Samples with more jobs are left out, too."""
_HIDDEN = (196, 196, 128)
_SLOWEST = 0.01
"""Of a job that runs, as a part of its profile's speed: the network may say less than nothing."""
PAPER = FitSettings(epochs=60, batch=32, rate=5e-3)


def flattened(placements: PlacementArrays, models: int, groups: int) -> F32:
    """Return the input of one cluster, (N L + 2N + 2MN,).

    Args:
        placements: of at most N jobs.
        models: L.
        groups: M.
    """
    jobs = len(placements.model)
    kinds = np.zeros((MOST_JOBS, models), dtype=np.float32)
    kinds[np.arange(jobs), placements.model] = 1
    where = np.zeros((groups, 2 * MOST_JOBS), dtype=np.float32)
    np.add.at(where, (placements.group, 2 * placements.job + placements.role), 1)
    counts = np.zeros((2, MOST_JOBS), dtype=np.float32)
    for role in (WORKER, SERVER):
        counts[role, :jobs] = placements.counts(role)
    return np.concatenate([kinds.ravel(), counts.ravel(), where.ravel()])


@dataclass(frozen=True)
class FlattenedSpeed:
    """See `PlacedSpeed`: predicted by Harmony's reward model.

    Attributes:
        net: fitted.
        base: what its outputs are in units of, of each model, (models,).
        groups: of the cluster.
    """

    net: nn.Module
    base: Floats
    groups: int

    def rates(self, placements: PlacementArrays) -> Floats:
        """See `PlacedSpeed.rates`. Raises BadInput for more jobs than the network has rows for."""
        if len(placements.model) > MOST_JOBS:
            raise BadInput(f"{len(placements.model)} jobs: Harmony's model of speeds knows {MOST_JOBS} at most")
        row = flattened(placements, len(self.base), self.groups)
        with torch.no_grad():
            found = self.net(torch.from_numpy(row)[None])[0, : len(placements.model)].numpy()
        whole = (placements.counts(WORKER) > 0) & (placements.counts(SERVER) > 0)
        return np.where(whole, np.maximum(found, _SLOWEST) * self.base[placements.model], 0.0)


def fit_flattened(
    samples: PlacedSamples, profiles: Mapping[str, Profile], groups: int, settings: FitSettings = PAPER
) -> FlattenedSpeed:
    """Fit Harmony's reward model.

    Args:
        samples: measured.
        profiles: of the models.
        groups: of the cluster.
        settings: of the fit: Adam 0.005 and batches of 32, as in the paper, which does not say for how long.
    """
    torch.manual_seed(settings.seed)
    base = base_speeds(profiles)
    net = _network(len(profiles) * MOST_JOBS + 2 * MOST_JOBS + 2 * groups * MOST_JOBS)
    optimizer = torch.optim.Adam(net.parameters(), lr=settings.rate)
    few = samples.part(np.flatnonzero([len(each.model) <= MOST_JOBS for each in samples.clusters]))
    for part in batches(few, settings):
        if len(part) == 1:
            continue  # what is left over for the last batch: one sample has no deviation to normalise by
        rows = np.stack([flattened(each, len(profiles), groups) for each in part.clusters])
        loss = _loss(net(torch.from_numpy(rows)), part, base)
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    return FlattenedSpeed(net.eval(), base, groups)


def _network(width: int) -> nn.Module:
    layers: list[nn.Module] = []
    for hidden in _HIDDEN:
        layers += [nn.Linear(width, hidden), nn.BatchNorm1d(hidden), nn.ReLU()]
        width = hidden
    return nn.Sequential(*layers, nn.Linear(width, MOST_JOBS))


def _loss(outputs: Tensor, samples: PlacedSamples, base: Floats) -> Tensor:
    """Return the mean relative error over all jobs that are there."""
    errors = []
    for row, (cluster, rates) in enumerate(zip(samples.clusters, samples.rates, strict=True)):
        target = torch.from_numpy((rates / base[cluster.model]).astype(np.float32))
        errors.append((outputs[row, : len(target)] - target).abs() / target)
    return torch.cat(errors).mean()
