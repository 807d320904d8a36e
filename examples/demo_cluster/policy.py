"""A policy from what `dl2 fit` makes of a play: learnt on jobs like those, with the speeds that they reported."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from dl2_scheduler.cluster.jobs import Job, Node
from dl2_scheduler.cluster.speeds import Speeds
from dl2_scheduler.learning.bootstrap import BootstrapSettings, bootstrap
from dl2_scheduler.learning.lessons import Lessons
from dl2_scheduler.learning.online import Online, OnlineSettings
from dl2_scheduler.learning.rollout import Episode
from dl2_scheduler.learning.run_folder import RunFolder
from dl2_scheduler.policies.registry import make_policy
from dl2_scheduler.sim.lanes import ScalingCost
from dl2_scheduler.sim.speeds import interpolated, read_points
from dl2_scheduler.sim.trace import read_trace

SIMULATED_SLOT = 1200.0
"""Seconds of a slot in lessons. Live slots are shorter: speeds and arrivals are scaled, so that a slot is a slot."""

_COST = ScalingCost(start=SIMULATED_SLOT, change=0.5 * SIMULATED_SLOT)  # processes start slower than slots are long
_JOBS, _ARRIVAL_SLOTS = 8, 12.0  # of an episode; they arrive within so many slots
_IMITATION = BootstrapSettings(warm_up=0, episodes=24, epochs=8)
_EPOCHS_SPREAD = 0.3


@dataclass(frozen=True)
class PlayMeasurements:
    """These measurements are what a play has shown.

    Attributes:
        jobs: one of each kind.
        speeds: in samples of a simulated second.
    """

    jobs: tuple[Job, ...]
    speeds: Speeds


def read(table: Path, trace: Path, slot_seconds: float) -> PlayMeasurements:
    """Read what `dl2 fit` has written.

    Args:
        table: of speeds.
        trace: of the jobs.
        slot_seconds: of the live cluster.
    """
    kinds = {job.model: job for job in read_trace(trace)}
    part = slot_seconds / SIMULATED_SLOT
    points = {
        model: [replace(point, samples_per_second=point.samples_per_second * part) for point in measured]
        for model, measured in read_points(table).items()
    }
    return PlayMeasurements(tuple(kinds.values()), interpolated({model: points[model] for model in sorted(kinds)}))


@dataclass(frozen=True)
class SeenLessons(Lessons):
    """Episodes of jobs like those that were seen.

    Attributes:
        kinds: one job of each.
    """

    kinds: tuple[Job, ...] = ()

    def _episode(self, number: int, seed: int) -> Episode:
        random = np.random.default_rng(seed)
        arrivals = np.sort(random.uniform(0, _ARRIVAL_SLOTS * SIMULATED_SLOT, self.jobs))
        chosen = random.integers(len(self.kinds), size=self.jobs)
        factors = random.uniform(1 - _EPOCHS_SPREAD, 1 + _EPOCHS_SPREAD, size=self.jobs)
        jobs = [
            replace(self.kinds[kind], id=place, arrival=float(at), epochs=float(kind_epochs))
            for place, (kind, at, kind_epochs) in enumerate(
                zip(chosen, arrivals, factors * [self.kinds[kind].epochs for kind in chosen], strict=True), 1
            )
        ]
        return Episode(jobs, self.clusters[number % len(self.clusters)])


def learn(
    seen: PlayMeasurements,
    nodes: tuple[Node, ...],
    out: Path,
    seconds: float,
    updates: int,
    tell: Callable[[str], None],
) -> None:
    """Imitate DRF, then learn online, both simulated; the policy is written to a folder.

    Args:
        seen: jobs and speeds to learn on.
        nodes: of the cluster.
        out: folder of the run.
        seconds: of online learning, at most.
        updates: of online learning, at most.
        tell: told what is reached.
    """
    lessons = SeenLessons((nodes,), _JOBS, cost=_COST, kinds=seen.jobs)
    folder = RunFolder(out)
    folder.begin({"teacher": "drf", "clusters": ["as played"]})
    found = bootstrap(make_policy("drf", seen.speeds), lessons, seen.speeds, _IMITATION, folder, lambda *_: None)
    tell(f"imitated: {found['policy'][0]:.1f} slots a job in simulation, DRF {found['teacher'][0]:.1f}")
    online = Online(folder, lessons, seen.speeds, OnlineSettings(lanes=4), folder)
    online.run(seconds, updates, lambda *_: None)
    tell(f"learnt: {online.judge()[0]:.1f} slots after {online.updates} updates")
