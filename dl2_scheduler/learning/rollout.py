"""Simulated clusters in lockstep under the learnt policy."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dl2_scheduler.cluster.jobs import Job, Node, resource_names
from dl2_scheduler.cluster.room import NodeRule, vector
from dl2_scheduler.cluster.snapshot import Snapshot
from dl2_scheduler.cluster.speeds import Speeds
from dl2_scheduler.learning.sequences import Slots
from dl2_scheduler.policies.features import SlotInputs, features, kinds, shares
from dl2_scheduler.policies.fill import ACTIONS, NO_DRAWS, NOT_FORCED, STOP, Ints, Tasks, filled, most_inferences
from dl2_scheduler.policies.weights import Weights, share_of
from dl2_scheduler.sim.lanes import NO_COST, Lanes, Progress, ScalingCost
from dl2_scheduler.sim.variation import NO_VARIATION, Variation

Floats = NDArray[np.float64]
Teacher = Callable[[Snapshot], Ints]
"""The actions of a slot, as `fill` has them."""


@dataclass(frozen=True)
class Episode:
    """What one lane is given.

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
    """Whole episodes.

    Attributes:
        slots: that were filled, by time and then by lane.
        lane: of each slot.
        time: of each slot.
        waiting: of each lane and time, jobs that were there, those that ended in the slot by their part of it.
        trained: of each lane and time, the sum over jobs of the part of their epochs that they trained (DL2, eq. 1).
        completion: of each lane, the mean completion time in slots.
    """

    slots: Slots
    lane: Ints
    time: Ints
    waiting: Floats
    trained: Floats
    completion: Floats


class Clusters:
    """Lanes with their nodes and their jobs' demands.

    Args:
        episodes: one for each lane.
        speeds: of the jobs' models.
        models: types that the network knows.
        rule: by which tasks find their node.
        cost: of scaling.
        spread: standard deviation of priorities that are drawn, where any are; 0: actions are drawn instead.
    """

    def __init__(
        self,
        episodes: Sequence[Episode],
        speeds: Speeds,
        models: Sequence[str],
        rule: NodeRule = NodeRule.SPREAD,
        cost: ScalingCost = NO_COST,
        spread: float = 0.0,
    ):
        self.spread = spread
        variations = [episode.variation for episode in episodes]
        self.lanes = Lanes([episode.jobs for episode in episodes], speeds, cost=cost, variations=variations)
        self._rule = int(rule)
        self._nodes = [tuple(episode.nodes) for episode in episodes]
        self._capacity: list[Floats] = []
        self._demands: list[Floats] = []
        shape = self.lanes.real.shape
        self._kind = np.zeros((*shape, ACTIONS), dtype=np.int64)
        self._share = np.zeros((*shape, 2))
        self._most = np.zeros((*shape, 2), dtype=np.int64)
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
            self._share[lane, : len(jobs)] = shares(demand, capacity.sum(axis=0))
            self._most[lane, : len(jobs)] = [(job.max_workers, job.max_servers) for job in jobs]

    def inputs(self) -> tuple[SlotInputs, Ints, Ints]:
        """What the policy sees of all lanes; the lane and the number in it of each job."""
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
            share,
            load,
        )
        return found, lane, job

    def snapshot(self, lane: int) -> Snapshot:
        """Of one lane."""
        lanes = self.lanes
        return Snapshot(lanes.slot, lanes.slot_seconds, self._nodes[lane], lanes.states(lane), lanes.reports(lane))

    def step(
        self, weights: Weights, random: np.random.Generator | None, teacher: Teacher | None = None
    ) -> tuple[list[Slots], Ints, Progress]:
        """Fill and run one slot of every lane that has jobs; what was done in each, which they are, what came of it.

        Args:
            weights: of the policy.
            random: draws priorities or actions; None: the best actions are taken.
            teacher: decides instead.
        """
        inputs, lane, job = self.inputs()
        rows, share = features(inputs, self._models), share_of(inputs)
        workers = np.zeros(self.lanes.real.shape, dtype=np.int64)
        servers = workers.copy()
        parts, active = [], np.unique(lane)
        for number in active.tolist():
            low, high = np.searchsorted(lane, [number, number + 1])
            forced = np.append(teacher(self.snapshot(number)), STOP) if teacher is not None else NOT_FORCED
            part, counts = self._fill(number, rows[low:high], share[low:high], job[low:high], weights, random, forced)
            workers[number, job[low:high]], servers[number, job[low:high]] = counts.T
            parts.append(part)
        return parts, active, self.lanes.advance(workers, servers)

    def _fill(
        self,
        lane: int,
        rows: NDArray[np.float32],
        share: NDArray[np.float32],
        job: Ints,
        weights: Weights,
        random: np.random.Generator | None,
        forced: Ints,
    ) -> tuple[Slots, Ints]:
        most = self._most[lane, job]
        tasks = Tasks(self._demands[lane], self._kind[lane, job], most, self.lanes.workers[lane, job] > 0)
        scores = weights.scores(rows, share, int(most.max()))
        draws = NO_DRAWS
        if random is not None and self.spread:
            noise = self.spread * random.standard_normal(scores.priority.shape)
            scores = scores._replace(priority=scores.priority + noise.astype(np.float32))
        elif random is not None:
            draws = random.random(most_inferences(tasks))
        done = filled(tasks, scores, self._capacity[lane], self._rule, draws, forced)
        ends = np.array([0, len(job)]), np.array([0, len(done.actions)])
        slot = Slots(rows, share, most, tasks.runs, done.closed, scores.priority, ends[0], done.actions, ends[1])
        return slot, done.counts


def roll_out(
    clusters: Clusters,
    weights: Weights,
    random: np.random.Generator | None = None,
    teacher: Teacher | None = None,
    most_slots: int = 400,
) -> Rollout:
    """Run until every job of every lane has ended, or `most_slots` have passed."""
    lanes = clusters.lanes
    parts: list[Slots] = []
    lane_of, time_of, waiting, trained = [], [], [], []
    while not lanes.over.all() and lanes.slot < most_slots:
        time, present = lanes.slot, lanes.present
        slots, active, progress = clusters.step(weights, random, teacher)
        parts += slots
        lane_of.append(active)
        time_of.append(np.full(len(active), time))
        part = np.where(present, np.where(progress.ended, lanes.finish - time, 1.0), 0.0)
        waiting.append(part.sum(axis=1))
        trained.append((progress.epochs / lanes.epochs * present).sum(axis=1))
    times = np.where(np.isnan(lanes.finish), lanes.slot, lanes.finish) - lanes.arrival
    completion = np.where(lanes.real, times, 0.0).sum(axis=1) / lanes.real.sum(axis=1)
    return Rollout(
        Slots.joined(parts),
        np.concatenate(lane_of),
        np.concatenate(time_of),
        np.array(waiting).T,
        np.array(trained).T,
        completion,
    )
