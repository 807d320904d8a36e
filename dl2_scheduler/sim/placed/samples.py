"""This module draws samples for models of speeds: random jobs at random places, as many as a cluster holds."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from dl2_scheduler.cluster.errors import BadInput
from dl2_scheduler.cluster.free_resources import SLACK
from dl2_scheduler.cluster.hardware.machines import Floats, Ints, Machines, amounts
from dl2_scheduler.cluster.hardware.placements import SERVER, WORKER, PlacedSpeed, PlacementArrays
from dl2_scheduler.cluster.hardware.profiles import Profile

_REFUSALS = 3
"""Jobs in a row that found no place: then the cluster is full."""
_MOST_TASKS = 3  # of a role
_HOPELESS = 10_000
"""Jobs in a row that found no place in an empty cluster: then none ever does."""


@dataclass(frozen=True)
class PlacedSamples:
    """These `PlacedSamples` are clusters full of jobs, each with the speeds that its jobs measured.

    Attributes:
        clusters: where tasks lie, one for each sample.
        rates: samples a second of each job, by cluster.
    """

    clusters: Sequence[PlacementArrays]
    rates: Sequence[Floats]

    def __len__(self) -> int:
        return len(self.clusters)

    def part(self, which: Ints) -> "PlacedSamples":
        """Return some of them."""
        return PlacedSamples([self.clusters[each] for each in which], [self.rates[each] for each in which])

    def split(self, part: float, seed: int) -> tuple["PlacedSamples", "PlacedSamples"]:
        """Return two parts of them, drawn at random.

        Args:
            part: of the first one.
            seed: of the draw.
        """
        order = np.random.default_rng(seed).permutation(len(self))
        return self.part(order[: int(part * len(self))]), self.part(order[int(part * len(self)) :])


def draw_samples(
    machines: Machines, profiles: Mapping[str, Profile], world: PlacedSpeed, count: int, seed: int, noise: float = 0.03
) -> PlacedSamples:
    """Return samples of a world.

    Args:
        machines: of the cluster.
        profiles: of the models, each as likely.
        world: gives the speeds.
        count: of samples.
        seed: of the draws.
        noise: standard deviation of the logarithm of what is measured.

    Raises:
        BadInput: no job fits the cluster.
    """
    rng = np.random.default_rng(seed)
    demand = np.array([[amounts(profiles[name].worker), amounts(profiles[name].server)] for name in sorted(profiles)])
    clusters = [_full(machines, demand, rng) for _ in range(count)]
    rates = [world.rates(each) * rng.lognormal(sigma=noise, size=len(each.model)) for each in clusters]
    return PlacedSamples(clusters, rates)


def _full(machines: Machines, demand: Floats, rng: np.random.Generator) -> PlacementArrays:
    """Place jobs at random until several in a row find no place, or a random number of them is there."""
    free = machines.capacity.copy()
    models: list[int] = []
    rows: list[tuple[int, int, int]] = []
    refused, most = 0, rng.integers(1, 2 * len(free) + 1)
    while not models or (refused < _REFUSALS and len(models) < most):
        if refused >= _HOPELESS:
            raise BadInput("no job of any model fits the cluster: give it more cpus or GPUs")
        model = int(rng.integers(len(demand)))
        placed = _job(free, demand[model], rng)
        refused = refused + 1 if placed is None else 0
        if placed is not None:
            rows += [(len(models), role, group) for role, group in placed]
            models.append(model)
    job, role, group = np.array(rows, dtype=np.int64).reshape(-1, 3).T
    return PlacementArrays(np.array(models), job.copy(), role.copy(), group.copy(), np.arange(len(models)))


def _job(free: Floats, demand: Floats, rng: np.random.Generator) -> list[tuple[int, int]] | None:
    """Place a job, and return its tasks' roles and groups; None, and nothing is taken: they do not fit."""
    counts = rng.integers(1, _MOST_TASKS + 1, size=2)
    roles = [WORKER] * int(counts[0]) + [SERVER] * int(counts[1])
    tasks: list[tuple[int, int]] = []
    near = rng.choice(len(free), size=min(len(free), int(rng.integers(1, len(roles) + 1))), replace=False)
    for role in roles:
        fitting = near[(free[near] >= demand[role] - SLACK).all(axis=1)]
        if not len(fitting):
            for taken, group in tasks:
                free[group] += demand[taken]
            return None
        group = int(rng.choice(fitting))
        free[group] -= demand[role]
        tasks.append((role, group))
    return tasks
