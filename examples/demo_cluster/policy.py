"""A policy from a play's history: speeds fitted to what its jobs reported, a policy learnt on jobs like them."""

from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from dl2_scheduler.cluster.document import UNKNOWN_SAMPLES
from dl2_scheduler.cluster.jobs import Job, Node
from dl2_scheduler.cluster.speeds import Speeds
from dl2_scheduler.learning.bootstrap import BootstrapSettings, bootstrap
from dl2_scheduler.learning.lessons import Lessons
from dl2_scheduler.learning.online import Online, OnlineSettings
from dl2_scheduler.learning.rollout import Episode
from dl2_scheduler.learning.run_folder import RunFolder
from dl2_scheduler.live.history import HISTORY_FILE, History
from dl2_scheduler.policies.registry import make_policy
from dl2_scheduler.policies.speed_fit import FittedSpeeds
from dl2_scheduler.sim.lanes import ScalingCost

SIMULATED_SLOT = 1200.0
"""Seconds of a slot in lessons. Live slots are shorter: speeds and arrivals are scaled, so that a slot is a slot."""

_COST = ScalingCost(start=SIMULATED_SLOT, change=0.5 * SIMULATED_SLOT)  # processes start slower than slots are long
_JOBS, _ARRIVAL_SLOTS = 8, 12.0  # of an episode; they arrive within so many slots
_IMITATION = BootstrapSettings(warm_up=0, episodes=24, epochs=8)
_EPOCHS_SPREAD = 0.3


@dataclass(frozen=True)
class Seen:
    """What a play has shown.

    Attributes:
        jobs: one of each kind.
        nodes: of the cluster.
        speeds: fitted, in samples of a simulated second.
        points: how many configurations were reported.
    """

    jobs: tuple[Job, ...]
    nodes: tuple[Node, ...]
    speeds: Speeds
    points: int


def read(folder: Path) -> Seen:
    """Of a cluster's folder, which nobody serves."""
    fitted, kinds, points = FittedSpeeds(), dict[str, Job](), set[tuple[str, int, int]]()
    nodes, seconds = tuple[Node, ...](), SIMULATED_SLOT
    with closing(History(folder / HISTORY_FILE)) as history:
        for slot in history.slots():
            nodes, seconds = tuple(slot.snapshot.nodes), slot.snapshot.slot_seconds
            known = [state.job for state in slot.snapshot.jobs if state.job.samples_per_epoch != UNKNOWN_SAMPLES]
            kinds |= {job.model: job for job in known}
            fitted.observe(slot.snapshot.reports)
            points |= {(report.model, report.servers, report.workers) for report in slot.snapshot.reports}
    part = seconds / SIMULATED_SLOT
    speeds = Speeds({model: fitted.grid(job) * part for model, job in sorted(kinds.items())})
    return Seen(tuple(kinds.values()), nodes, speeds, len(points))


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


def learn(seen: Seen, out: Path, seconds: float, updates: int, tell: Callable[[str], None]) -> None:
    """Imitate DRF, then learn online, both simulated; the policy is written to a folder.

    Args:
        seen: jobs, nodes and speeds to learn on.
        out: folder of the run.
        seconds: of online learning, at most.
        updates: of online learning, at most.
        tell: told what is reached.
    """
    lessons = SeenLessons((seen.nodes,), _JOBS, cost=_COST, kinds=seen.jobs)
    folder = RunFolder(out)
    folder.begin({"teacher": "drf", "clusters": ["as played"]})
    found = bootstrap(make_policy("drf", seen.speeds), lessons, seen.speeds, _IMITATION, folder, lambda *_: None)
    tell(f"imitated: {found['policy'][0]:.1f} slots a job in simulation, DRF {found['teacher'][0]:.1f}")
    online = Online(folder, lessons, seen.speeds, OnlineSettings(lanes=4), folder)
    online.run(seconds, updates, lambda *_: None)
    tell(f"learnt: {online.judge()[0]:.1f} slots after {online.updates} updates")
