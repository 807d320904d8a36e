"""This module compares the mechanistic world with what is published of real clusters: the anchors that it hangs on."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from dl2_scheduler.cluster.hardware.machines import HARMONY, Machines
from dl2_scheduler.cluster.hardware.placements import SERVER, WORKER, PlacedSpeed, PlacementArrays
from dl2_scheduler.cluster.hardware.profiles import HARMONY_MODELS, Profile
from dl2_scheduler.cluster.hardware.topologies.flat import flat_of
from dl2_scheduler.cluster.speeds import Grid, Speeds
from dl2_scheduler.sim.placed.placed_speed import Mechanistic

PlacedJob = tuple[str, Sequence[int], Sequence[int]]
"""A model, the groups of its workers, the groups of its servers."""

CNN = "cnn-text-classification"
"""What the 804 published speeds call the model that the placement papers call CTC."""


def placed(models: Sequence[str], jobs: Sequence[PlacedJob]) -> PlacementArrays:
    """Return the arrays of jobs that are written out.

    Args:
        models: names, in the order of the arrays' indices.
        jobs: where their tasks lie.
    """
    rows = [
        (index, role, group) for index, job in enumerate(jobs) for role in (WORKER, SERVER) for group in job[1 + role]
    ]
    job, role, group = np.array(rows, dtype=np.int64).reshape(-1, 3).T
    model = np.array([models.index(each[0]) for each in jobs])
    return PlacementArrays(model, job.copy(), role.copy(), group.copy(), np.arange(len(jobs)))


@dataclass(frozen=True)
class Anchors:
    """These `Anchors` are what Harmony's section II reports of its testbed, as a world has them.

    Attributes:
        losses: part of its speed that each of six jobs loses, two to a server, on the average of all pairings; the
            paper: 33% on the average of the jobs, and nearly twice the step for ResNeXt (figure 1).
        pairs: sum of both jobs' losses for each pair on one server; mild for ResNet with WLM or Seq2Seq (figure 2).
        packed: speed over that alone of CTC and another job packed on one of two servers, by the other's model.
        spread: the same with each job's server beside the other's worker: worse than packed for VGG, better for
            ResNeXt (figure 4).
        beside_ctc: speed over that alone beside none, one, two ... CTC jobs, by model (figure 5).
    """

    losses: Mapping[str, float]
    pairs: Mapping[tuple[str, str], float]
    packed: Mapping[str, tuple[float, ...]]
    spread: Mapping[str, tuple[float, ...]]
    beside_ctc: Mapping[str, tuple[float, ...]]

    @property
    def mean_loss(self) -> float:
        """Return the average of the jobs' losses."""
        return float(np.mean(list(self.losses.values())))


def anchors(profiles: Mapping[str, Profile], strength: float = 1.0) -> Anchors:
    """Return what the mechanistic world makes of the anchors.

    Args:
        profiles: of models, Harmony's six among them.
        strength: of the contention.
    """
    machines = Machines.alike(HARMONY, 2)
    world = Mechanistic(machines, flat_of(machines), profiles, strength)
    models = sorted(profiles)

    def speeds(*jobs: PlacedJob) -> tuple[float, ...]:
        """Return each job's speed over that of the job packed alone."""
        apart = [world.rates(placed(models, [(job[0], [0], [0])]))[0] for job in jobs]
        return tuple((world.rates(placed(models, jobs)) / apart).tolist())

    pairs = {(a, b): speeds((a, [0], [0]), (b, [0], [0])) for a, b in combinations(HARMONY_MODELS, 2)}
    each = {model: [1 - found[pair.index(model)] for pair, found in pairs.items() if model in pair] for model in models}
    others = ("vgg-16", "resnext-110")
    return Anchors(
        {model: float(np.mean(each[model])) for model in HARMONY_MODELS},
        {pair: 2 - sum(found) for pair, found in pairs.items()},
        {model: pairs[_sorted("ctc", model)] for model in others},
        {model: speeds(("ctc", [0], [1]), (model, [1], [0])) for model in others},
        {m: tuple(speeds((m, [0], [0]), *[("ctc", [0], [0])] * count)[0] for count in range(5)) for m in others},
    )


def _sorted(a: str, b: str) -> tuple[str, str]:
    return (a, b) if a < b else (b, a)


def count_errors(world: PlacedSpeed, models: Sequence[str], measured: Speeds, most: int = 4) -> dict[str, float]:
    """Return how far a world's speeds by counts are off, relative to one worker and one server, each task on its node.

    Args:
        world: of at least `2 * most` nodes.
        models: names, in the order of the arrays' indices.
        measured: speeds by counts; a model that is not among them is left out.
        most: workers, and servers.

    Returns:
        By model the mean of the absolute relative errors over all counts from 1 to `most` but (1, 1).
    """
    found = {}
    for model in models:
        name = CNN if model == "ctc" else model
        if name in measured.models:
            found[model] = float(np.mean(list(_errors(world, models, model, measured.grid(name), most))))
    return found


def _errors(world: PlacedSpeed, models: Sequence[str], model: str, grid: Grid, most: int) -> Iterator[float]:
    def speed(workers: int, servers: int) -> float:
        groups = list(range(workers + servers))
        return float(world.rates(placed(models, [(model, groups[:workers], groups[workers:])]))[0])

    for servers in range(1, most + 1):
        for workers in range(1, most + 1):
            if (servers, workers) != (1, 1):
                yield abs(speed(workers, servers) / speed(1, 1) / (grid[servers, workers] / grid[1, 1]) - 1)
