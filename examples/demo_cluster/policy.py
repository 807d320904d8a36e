"""A policy from what a play's history tells: learnt on jobs of these kinds, with their speeds and what starts cost."""

from collections.abc import Callable, Sequence
from dataclasses import astuple, dataclass, replace
from pathlib import Path

import numpy as np

from dl2_scheduler.cluster.jobs import Job, Node
from dl2_scheduler.cluster.speeds import Speeds
from dl2_scheduler.learning.bootstrap import BootstrapSettings, bootstrap
from dl2_scheduler.learning.lessons import Lessons
from dl2_scheduler.learning.recorded import judged
from dl2_scheduler.learning.rollout import Episode
from dl2_scheduler.learning.run_folder import RunFolder
from dl2_scheduler.live.recorded_slots import RecordedSlot
from dl2_scheduler.policies.registry import make_policy
from dl2_scheduler.replay.costs import scaling_costs
from dl2_scheduler.replay.measured import fit_speeds
from dl2_scheduler.replay.past import past_jobs
from dl2_scheduler.sim.lanes import ScalingCost
from dl2_scheduler.sim.speeds import SpeedPoint, interpolated

SIMULATED_SLOT = 1200.0
"""Seconds of a slot in lessons. Live slots are shorter: speeds and arrivals are scaled, so that a slot is a slot."""

_TEACHER = "planner-true"  # which knows the speeds of the simulation: here those that the history tells
_JOBS, _ARRIVAL_SLOTS = 8, 12.0  # of an episode; they arrive within so many slots
_IMITATION = BootstrapSettings(warm_up=0, episodes=24, epochs=8)
_EPOCHS_SPREAD = 0.3


@dataclass(frozen=True)
class PlayMeasurements:
    """These measurements are what a play has shown.

    Attributes:
        jobs: one of each kind, with as many tasks as it may have from now on.
        speeds: in samples of a simulated second.
        cost: of scaling, in simulated seconds.
    """

    jobs: tuple[Job, ...]
    speeds: Speeds
    cost: ScalingCost


def read(history: Sequence[RecordedSlot], coming: Sequence[Job]) -> PlayMeasurements:
    """Read what the slots of a play tell, as `dl2 fit` does.

    Args:
        history: the slots.
        coming: jobs of which the policy is to decide, with their epochs and maxima; those of kinds that have trained.

    Raises:
        BadInput: no job has told its speed.
    """
    fit = fit_speeds(history)
    samples = {past.job.model: past.job.samples_per_epoch for past in past_jobs(history)}
    jobs = {job.model: replace(job, samples_per_epoch=samples[job.model]) for job in coming if job.model in samples}
    stretch = SIMULATED_SLOT / history[-1].snapshot.slot_seconds
    points = {
        model: [
            SpeedPoint(row.servers, row.workers, row.samples_per_second / stretch)
            for row in fit.rows
            if row.model == model
        ]
        for model in sorted(jobs)
    }
    most = max(job.max_servers for job in coming), max(job.max_workers for job in coming)
    cost = ScalingCost(*(seconds * stretch for seconds in astuple(scaling_costs(history, fit).scaling)))
    return PlayMeasurements(tuple(jobs.values()), interpolated(points, *most), cost)


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


def learn(seen: PlayMeasurements, nodes: tuple[Node, ...], out: Path, tell: Callable[[str], None]) -> None:
    """Imitate a planner that knows the speeds which were seen, in simulations; the policy is written to a folder.

    Args:
        seen: jobs, speeds and costs to learn on.
        nodes: of the cluster.
        out: folder of the run.
        tell: told what is reached.
    """
    lessons = SeenLessons((nodes,), _JOBS, cost=seen.cost, kinds=seen.jobs)
    folder = RunFolder(out)
    folder.begin({"teacher": _TEACHER, "clusters": ["as played"]})
    found = bootstrap(make_policy(_TEACHER, seen.speeds), lessons, seen.speeds, _IMITATION, folder, lambda *_: None)
    drf = judged(make_policy("drf", seen.speeds), lessons, seen.speeds, _IMITATION.validation)
    tell(
        f"simulated: {found['policy'][0]:.1f} slots a job under the learnt policy, {found['teacher'][0]:.1f} under the "
        f"planner that it imitates, {drf[0]:.1f} under DRF"
    )
