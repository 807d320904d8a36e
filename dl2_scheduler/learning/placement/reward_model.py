"""This module fits models of speeds to measured placements: Harmony's reward model, and ours that pools over groups.

Both read where all tasks lie and say how fast each job trains. Harmony's (INFOCOM 2019, section V) is a network over
the flattened matrices of its state, so that it has to learn every node and every row of the job table anew. Ours shares
its weights over jobs, groups and tasks (`policies.learnt.pooled_network`), and predicts the logarithm of the speed over
that of the job's profile.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from dl2_scheduler.cluster.hardware.machines import Floats, Ints
from dl2_scheduler.cluster.hardware.placements import SERVER, WORKER, PlacementArrays
from dl2_scheduler.cluster.hardware.profiles import Profile
from dl2_scheduler.policies.learnt.pooled_network import COUNTS, PooledInputs, pooled_inputs
from dl2_scheduler.policies.learnt.pooled_speed import PooledSpeed, base_speeds
from dl2_scheduler.sim.placed.samples import PlacedSamples, draw_samples
from dl2_scheduler.sim.placed.scenario import Scenario

_EMBEDDED, _TASK, _JOB = 24, 64, 96
_ROLES = (WORKER, SERVER)


@dataclass(frozen=True)
class FitSettings:
    """These `FitSettings` say how a model is fitted.

    Attributes:
        epochs: passes over all samples.
        batch: samples (clusters) of an update.
        rate: of Adam at the start; it falls to nothing along a cosine.
        seed: of the weights and the order.
    """

    epochs: int = 60
    batch: int = 128
    rate: float = 3e-3
    seed: int = 0


class PooledNet(nn.Module):
    """Our model: see `PooledNetwork`, which does the same without torch.

    Args:
        models: how many there are.
    """

    def __init__(self, models: int):
        super().__init__()
        self.kind = nn.Embedding(2 * models, _EMBEDDED)
        self.model = nn.Embedding(models, _EMBEDDED)
        self.task = nn.Sequential(nn.Linear(3 * _EMBEDDED, _TASK), nn.ReLU(), nn.Linear(_TASK, _TASK))
        width = COUNTS + _EMBEDDED + 5 * _TASK
        self.job = nn.Sequential(
            nn.Linear(width, _JOB), nn.ReLU(), nn.Linear(_JOB, _JOB), nn.ReLU(), nn.Linear(_JOB, 1)
        )

    def forward(self, inputs: PooledInputs) -> Tensor:
        """Compute the logarithm of each job's speed over its profile's, (jobs,)."""
        own = self.kind(torch.from_numpy(inputs.kind))
        of_own, of_group = _sums(own, inputs.own), _sums(own, inputs.group)
        tasks = torch.relu(self.task(torch.cat([own, of_own - own, of_group - of_own], dim=1)))
        jobs = len(inputs.model)
        pooled = [torch.from_numpy(inputs.counts), self.model(torch.from_numpy(inputs.model))]
        pooled.append(tasks[torch.from_numpy(inputs.first)])
        for role in _ROLES:
            which = torch.from_numpy(np.flatnonzero(inputs.role == role))
            of = torch.from_numpy(inputs.job)[which]
            mean = torch.zeros(jobs, _TASK).index_add(0, of, tasks[which])
            mean = mean / torch.bincount(of, minlength=jobs)[:, None]
            most = torch.zeros(jobs, _TASK).scatter_reduce(0, of[:, None].expand(-1, _TASK), tasks[which], "amax")
            pooled += [mean, most]
        found: Tensor = self.job(torch.cat(pooled, dim=1))[:, 0]
        return found


def _sums(values: Tensor, of: Ints) -> Tensor:
    """Return for each row the sum of all rows that have the same number.

    Args:
        values: rows.
        of: the number of each.
    """
    where = torch.from_numpy(of)
    sums = torch.zeros(int(of.max()) + 1, values.shape[1]).index_add(0, where, values)
    return torch.index_select(sums, 0, where)


def joined(clusters: list[PlacementArrays], groups: int) -> PlacementArrays:
    """Return several clusters as one, whose groups and jobs are numbered through.

    Args:
        clusters: with the same number of groups.
        groups: of each.
    """
    jobs = np.cumsum([0] + [len(each.model) for each in clusters])
    return PlacementArrays(
        np.concatenate([each.model for each in clusters]),
        np.concatenate([each.job + first for each, first in zip(clusters, jobs, strict=False)]),
        np.concatenate([each.role for each in clusters]),
        np.concatenate([each.group + groups * number for number, each in enumerate(clusters)]),
        np.concatenate([each.number for each in clusters]),
    )


def fit_pooled(
    samples: PlacedSamples, profiles: Mapping[str, Profile], groups: int, settings: FitSettings = FitSettings()
) -> PooledSpeed:
    """Fit our model; the loss is the mean absolute error of the logarithm.

    Args:
        samples: measured.
        profiles: of the models.
        groups: of the cluster.
        settings: of the fit.
    """
    torch.manual_seed(settings.seed)
    net, base = PooledNet(len(profiles)), base_speeds(profiles)
    optimizer = torch.optim.Adam(net.parameters(), lr=settings.rate)
    updates = settings.epochs * -(-len(samples) // settings.batch)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, updates)
    for part in batches(samples, settings):
        where = joined(list(part.clusters), groups)
        target = np.log(np.concatenate(part.rates) / base[where.model]).astype(np.float32)
        loss = (net(pooled_inputs(where)) - torch.from_numpy(target)).abs().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
    return PooledSpeed({name: value.detach().numpy() for name, value in net.state_dict().items()}, base)


def fit_world(scenario: Scenario, count: int, settings: FitSettings = FitSettings(epochs=30)) -> PooledSpeed:
    """Fit our model to noisy samples of a scenario's world, as a cluster would measure them.

    Args:
        scenario: whose jobs lie at random places in the samples.
        count: of samples.
        settings: of the fit; samples are drawn with its seed.
    """
    samples = draw_samples(scenario.machines, scenario.profiles, scenario.world, count, settings.seed)
    return fit_pooled(samples, scenario.profiles, len(scenario.machines.sockets), settings)


def batches(samples: PlacedSamples, settings: FitSettings) -> Iterator[PlacedSamples]:
    """Yield the samples of each update, all samples once in an epoch, in an order that the seed decides."""
    rng = np.random.default_rng(settings.seed)
    for _ in range(settings.epochs):
        order = rng.permutation(len(samples))
        for start in range(0, len(order), settings.batch):
            yield samples.part(order[start : start + settings.batch])


def relative_errors(predicted: list[Floats], measured: list[Floats]) -> Floats:
    """Return |predicted - measured| / measured of all jobs, (jobs,): Harmony's loss, before its mean.

    Args:
        predicted: speeds of each sample.
        measured: speeds of each sample.
    """
    one, other = np.concatenate(predicted), np.concatenate(measured)
    found: Floats = np.abs(one - other) / other
    return found
