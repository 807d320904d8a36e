"""This module runs simulated clusters in lockstep under the learnt policy."""

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dl2_scheduler.cluster.free_resources import NodeRule, dominant_shares, vector
from dl2_scheduler.cluster.interfaces import SlotOutcome
from dl2_scheduler.cluster.jobs import Job, Node, resource_names
from dl2_scheduler.cluster.snapshot import Snapshot
from dl2_scheduler.cluster.speeds import Speeds
from dl2_scheduler.learning.sequences import Slots
from dl2_scheduler.policies.learnt.actions import ACTIONS, STOP, Ints, Tasks
from dl2_scheduler.policies.learnt.features import SlotInputs, features, kinds
from dl2_scheduler.policies.learnt.fill import NOT_FORCED, filled
from dl2_scheduler.policies.learnt.weights import Weights, share_of
from dl2_scheduler.sim.lanes import NO_COST, Lanes, ScalingCost, SlotProgress
from dl2_scheduler.sim.simulator import outcome
from dl2_scheduler.sim.variation import NO_VARIATION, Variation

LEARNT_SLOTS = 400
"""Of an episode that is learnt from: a policy may starve jobs while it learns."""

JUDGED_SLOTS = 4000
"""Of an episode by which a policy is judged: one that lets jobs wait for long may end them all the same."""

log = logging.getLogger(__name__)

Floats = NDArray[np.float64]
Teacher = Callable[[Snapshot], Ints]
"""The actions of a slot, as `fill` has them."""


class Guidance(NamedTuple):
    """Guidance tells a policy what to do and what to learn in one lane's slot.

    Attributes:
        acts: actions that are taken; None: the policy's.
        lesson: actions that the policy is to learn from this slot; None: those that are taken.
    """

    acts: Ints | None = None
    lesson: Ints | None = None


Guide = Callable[[int, Snapshot], Guidance]
"""Of a lane, whose number is given."""

Watch = Callable[[int, Snapshot, NDArray[np.float32], SlotOutcome], None]
"""Told of each lane's slot when it is over: the features of its jobs, and what became of it."""


def taught_by(teacher: Teacher) -> Guide:
    """Return a guide that lets a teacher act in the policy's place."""
    return lambda _, snapshot: Guidance(teacher(snapshot))


@dataclass(frozen=True)
class Episode:
    """An `Episode` is what one lane is given.

    Attributes:
        jobs: that arrive.
        nodes: machines.
        variation: of the jobs' speeds.
    """

    jobs: Sequence[Job]
    nodes: Sequence[Node]
    variation: Variation = NO_VARIATION


@dataclass(frozen=True)
class Rollout:
    """A rollout holds whole episodes.

    Attributes:
        slots: what is to be learnt from each, by time and then by lane.
        trained: of each lane and time, the sum over jobs of the part of their epochs that they trained (DL2, eq. 1).
        completion: of each lane, the mean completion time in slots.
    """

    slots: Slots
    trained: Floats
    completion: Floats


class Clusters:
    """Lanes with their nodes and their jobs' demands.

    Args:
        episodes: one for each lane.
        speeds: of the jobs' models; see `Lanes`.
        models: types that the network knows.
        rule: by which tasks find their node.
        cost: of scaling.
        slot_seconds: length of a slot.
    """

    def __init__(
        self,
        episodes: Sequence[Episode],
        speeds: Speeds | Sequence[Speeds],
        models: Sequence[str],
        rule: NodeRule = NodeRule.SPREAD,
        cost: ScalingCost = NO_COST,
        slot_seconds: float = 1200.0,
    ):
        variations = [episode.variation for episode in episodes]
        self.lanes = Lanes([episode.jobs for episode in episodes], speeds, slot_seconds, cost, variations)
        self._rule = int(rule)
        self._nodes = [tuple(episode.nodes) for episode in episodes]
        self._capacity: list[Floats] = []
        self._demands: list[Floats] = []
        shape = self.lanes.real.shape
        self._kind = np.zeros((*shape, ACTIONS), dtype=np.int64)
        self._share = np.zeros((*shape, 2))
        self._least, self._most = np.ones((*shape, 2), dtype=np.int64), np.zeros((*shape, 2), dtype=np.int64)
        number = {model: index for index, model in enumerate(models)}
        self._type = np.array([number.get(model, -1) for model in self.lanes.models])
        self._models = len(models)
        for lane, episode in enumerate(episodes):
            names = resource_names(episode.nodes)
            capacity = np.array([vector(node.capacity, names) for node in episode.nodes])
            jobs = self.lanes.jobs[lane]
            demand = np.array([[vector(job.worker, names), vector(job.server, names)] for job in jobs])
            different, self._kind[lane, : len(jobs)] = kinds(demand)
            self._capacity.append(capacity)
            self._demands.append(different)
            self._share[lane, : len(jobs)] = dominant_shares(demand, capacity.sum(axis=0))
            self._least[lane, : len(jobs)] = [(job.min_workers, job.min_servers) for job in jobs]
            self._most[lane, : len(jobs)] = [(job.max_workers, job.max_servers) for job in jobs]

    def inputs(self) -> tuple[SlotInputs, Ints, Ints]:
        """Return what the policy sees of all lanes, and of each job its lane and its number in it."""
        lanes = self.lanes
        lane, job = lanes.present.nonzero()
        where = lane, job
        share = self._share[where]
        load = np.zeros(len(lanes.jobs))
        np.add.at(load, lane, share.sum(axis=1))
        found = SlotInputs(
            lane,
            self._type[lanes.model[where]],
            lanes.remaining[where],
            lanes.estimate[where],
            lanes.samples[where],
            lanes.slots_run[where].astype(float),
            np.stack([lanes.workers[where], lanes.servers[where]], axis=1),
            lanes.has_servers[where],
            share,
            load,
        )
        return found, lane, job

    def snapshot(self, lane: int) -> Snapshot:
        """Return the snapshot of one lane."""
        lanes = self.lanes
        return Snapshot(lanes.slot, lanes.slot_seconds, self._nodes[lane], lanes.states(lane), lanes.reports(lane))

    def step(self, weights: Weights, guide: Guide | None, watch: Watch | None) -> tuple[list[Slots], SlotProgress]:
        """Fill and run one slot of every lane that has jobs; what is to be learnt from each, and what came of it.

        Args:
            weights: of the policy, which takes the best actions.
            guide: see `Guide`; None: the policy acts, and is to learn what it does anyway.
            watch: see `Watch`; None: nobody is told.
        """
        inputs, lane, job = self.inputs()
        rows, share = features(inputs, self._models), share_of(inputs)
        workers = np.zeros(self.lanes.real.shape, dtype=np.int64)
        servers = workers.copy()
        parts, present = [], self.lanes.present
        watched = []
        for number in np.unique(lane).tolist():
            own = slice(*np.searchsorted(lane, [number, number + 1]))
            snapshot = None if guide is None and watch is None else self.snapshot(number)
            guidance = Guidance() if guide is None or snapshot is None else guide(number, snapshot)
            part, counts = self._fill(number, rows[own], share[own], job[own], weights, guidance.acts)
            workers[number, job[own]], servers[number, job[own]] = counts.T
            if guidance.lesson is not None:
                part, _ = self._fill(number, rows[own], share[own], job[own], weights, guidance.lesson)
            parts.append(part)
            if snapshot is not None:
                watched.append((number, snapshot, rows[own]))
        progress = self.lanes.advance(workers, servers)
        if watch is not None:
            for number, snapshot, seen in watched:
                watch(number, snapshot, seen, outcome(self.lanes, number, present, progress))
        return parts, progress

    def _fill(
        self,
        lane: int,
        rows: NDArray[np.float32],
        share: NDArray[np.float32],
        job: Ints,
        weights: Weights,
        actions: Ints | None,
    ) -> tuple[Slots, Ints]:
        least, most = self._least[lane, job], self._most[lane, job]
        tasks = Tasks(self._demands[lane], self._kind[lane, job], least, most, self.lanes.workers[lane, job] > 0)
        scores = weights.scores(rows, share, int(most.max()))
        forced = NOT_FORCED if actions is None else np.append(actions, STOP)
        done = filled(tasks, scores, self._capacity[lane], self._rule, forced=forced)
        ends = np.array([0, len(job)]), np.array([0, len(done.actions)])
        return Slots(rows, share, least, most, tasks.runs, done.closed, ends[0], done.actions, ends[1]), done.counts


def roll_out(
    clusters: Clusters,
    weights: Weights,
    guide: Guide | None = None,
    watch: Watch | None = None,
    most_slots: int = LEARNT_SLOTS,
    most_seconds: float = np.inf,
) -> Rollout:
    """Run until every job of every lane has ended, or `most_slots` have passed; jobs that have not ended, end then.

    Args:
        clusters: at their start.
        weights: of the policy.
        guide: see `Clusters.step`.
        watch: see there.
        most_slots: of a lane.
        most_seconds: of this process's computing, after which no slot begins; but something is decided.
    """
    lanes, began = clusters.lanes, time.process_time()
    parts: list[Slots] = []
    trained = []
    while not lanes.over.all() and lanes.slot < most_slots:
        if parts and time.process_time() - began >= most_seconds:
            break
        present = lanes.present
        slots, progress = clusters.step(weights, guide, watch)
        parts += slots
        trained.append((progress.epochs / lanes.epochs * present).sum(axis=1))
    return Rollout(Slots.joined(parts), np.array(trained).T, mean_completion(lanes))


def judged_times(clusters: Clusters, weights: Weights, guide: Guide | None = None, who: str = "the policy") -> Floats:
    """Return the mean completion time in slots of each lane, from which nothing is to be learnt.

    The log says how many jobs have not ended after `JUDGED_SLOTS`; they count as if they ended then.

    Args:
        clusters: at their start.
        weights: of the policy.
        guide: see `Clusters.step`.
        who: is judged, for people.
    """
    lanes = clusters.lanes
    while not lanes.over.all() and lanes.slot < JUDGED_SLOTS:
        clusters.step(weights, guide, None)
    tell_of_starved(lanes, who)
    return mean_completion(lanes)


def tell_of_starved(lanes: Lanes, who: str) -> None:
    """Log how many jobs had not ended when who was judged was cut off, if any.

    Args:
        lanes: as they are then.
        who: see `judged_times`.
    """
    if left := int((lanes.real & np.isnan(lanes.finish)).sum()):
        words = "%s starves jobs: %d had not ended after %d slots, and count as if they ended then"
        log.warning(words, who, left, lanes.slot)


def tell_of_late(jobs: Sequence[Job], slot_seconds: float = 1200.0) -> None:
    """Log how many jobs of a sequence come when episodes that are learnt from have been cut off, if any.

    Args:
        jobs: of the sequence.
        slot_seconds: length of a slot.
    """
    if late := sum(job.arrival >= LEARNT_SLOTS * slot_seconds for job in jobs):
        words = "%d of %d jobs come after slot %d, at which episodes that are learnt from end: nobody learns from them"
        log.warning(words, late, len(jobs), LEARNT_SLOTS)


def mean_completion(lanes: Lanes) -> Floats:
    """Return the mean completion time of each lane in slots; jobs that have not ended, end now."""
    return means(lanes, lanes.ends() - lanes.arrival)


def means(lanes: Lanes, slots: Floats) -> Floats:
    """Return the mean over each lane's jobs of some slots, (lanes, jobs)."""
    found: Floats = np.where(lanes.real, slots, 0.0).sum(axis=1) / lanes.real.sum(axis=1)
    return found
