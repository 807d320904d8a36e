"""A simulated cluster in which events divide time, as policies see one: woken at slots, or at arrivals and ends."""

from collections.abc import Sequence

import numpy as np

from dl2_scheduler.cluster.errors import Starved
from dl2_scheduler.cluster.free_resources import NodeRule
from dl2_scheduler.cluster.interfaces import AllocationPolicy, JobOutcome, PolicyTrigger, SlotOutcome, trigger_of
from dl2_scheduler.cluster.jobs import Job, Node
from dl2_scheduler.cluster.snapshot import Allocation, JobState, Snapshot, SpeedReport
from dl2_scheduler.cluster.speeds import Speeds
from dl2_scheduler.sim.events.progress import Floats, Progress
from dl2_scheduler.sim.lanes import NO_COST, ScalingCost
from dl2_scheduler.sim.simulator import check_jobs, steps
from dl2_scheduler.sim.variation import by_arrival


class EventCluster:
    """See `Cluster`; a slot is here what lies between two decisions.

    Args:
        jobs: all that will arrive.
        nodes: machines.
        speeds: of their models.
        trigger: when the next decision is taken: after `slot_seconds`, or at the next arrival or end.
        slot_seconds: length of a slot.
        cost: of scaling; without `join`.

    Attributes:
        jobs: by arrival, then id: the order of all arrays.
        progress: of the jobs; work is epochs.

    Raises:
        BadInput: a job is wrong, of an unknown model, or fits no node; the text says which.
    """

    def __init__(
        self,
        jobs: Sequence[Job],
        nodes: Sequence[Node],
        speeds: Speeds,
        trigger: PolicyTrigger,
        slot_seconds: float = 600.0,
        cost: ScalingCost = NO_COST,
    ):
        check_jobs(jobs, nodes, speeds)
        self._cost = cost
        self.jobs = sorted(jobs, key=by_arrival)
        self.progress = Progress(
            np.array([job.arrival for job in self.jobs]), np.array([job.epochs for job in self.jobs])
        )
        self._nodes, self._speeds, self._trigger, self._seconds = tuple(nodes), speeds, trigger, slot_seconds
        self._slot = 0
        self._counts = [(0, 0)] * len(self.jobs)
        self._slots_run = [0] * len(self.jobs)
        self._reports: tuple[SpeedReport, ...] = ()
        self._at_next_decision()

    @property
    def done(self) -> bool:
        """See `Cluster.done`."""
        return self.progress.over

    def snapshot(self) -> Snapshot:
        """See `Cluster.snapshot`."""
        done = self.progress.work - self.progress.left
        states = tuple(
            JobState(self.jobs[number], float(done[number]), self._slots_run[number], *self._counts[number])
            for number in self.progress.present.nonzero()[0].tolist()
        )
        return Snapshot(self._slot, self._seconds, self._nodes, states, self._reports)

    def apply(self, allocation: Allocation) -> None:
        """See `Cluster.apply`."""
        for number in self.progress.present.nonzero()[0].tolist():
            grant = allocation.of(self.jobs[number].id)
            runs = grant.workers > 0 and grant.servers > 0
            self._change(number, (grant.workers, grant.servers) if runs else (0, 0))

    def _change(self, number: int, counts: tuple[int, int]) -> None:
        """Give a job its counts, and let it stand still as long as that costs."""
        before, begins = self._counts[number], self.progress.begins
        if before == (0, 0) != counts:
            begins[number] = self.progress.now + self._cost.start
        elif before != counts:
            begins[number] = max(self.progress.now, begins[number]) + self._cost.change
        self._counts[number] = counts

    def finish_slot(self) -> SlotOutcome:
        """See `Cluster.finish_slot`: go to the next decision.

        Raises:
            Starved: no job runs, and none will arrive.
        """
        progress, began = self.progress, self.progress.now
        present, before = progress.present.nonzero()[0].tolist(), progress.left.copy()
        speeds = [self._speed(number) for number in range(len(self.jobs))]
        rates = np.array([speed / job.samples_per_epoch for speed, job in zip(speeds, self.jobs, strict=True)])
        ended = set(progress.advance(self._next_decision(rates), rates).tolist())
        trained = before - progress.left
        outcomes = [self._outcome(number, float(trained[number]), number in ended) for number in present]
        self._reports = tuple(
            SpeedReport(job.id, job.model, self._counts[number][1], self._counts[number][0], speeds[number])
            for number in present
            if speeds[number] > 0 and (job := self.jobs[number])
        )
        self._pass_slot(present, ended)
        return SlotOutcome(self._slot - 1, outcomes, self._reports, began, progress.now)

    def _outcome(self, number: int, trained: float, ended: bool) -> JobOutcome:
        workers, servers = self._counts[number]
        finished = float(self.progress.finish[number]) if ended else None
        return JobOutcome(self.jobs[number].id, workers, servers, trained, finished)

    def _pass_slot(self, present: Sequence[int], ended: set[int]) -> None:
        """Count the slot, take back what ended jobs had, and wait while no job is there."""
        self._slot += 1
        for number in present:
            self._slots_run[number] += self._counts[number][0] > 0
        for number in ended:
            self._counts[number] = 0, 0
        self._at_next_decision()

    def _at_next_decision(self) -> None:
        """Let time pass while no job is there, to where the next is decided about."""
        progress = self.progress
        if not progress.over and not progress.present.any():
            arrival = progress.next_arrival()
            slots = np.ceil(arrival / self._seconds) * self._seconds
            progress.advance(
                arrival if self._trigger is PolicyTrigger.EVENT else float(slots), np.zeros(len(self.jobs))
            )

    def _next_decision(self, rates: Floats) -> float:
        """Return when the next decision is taken, in seconds. Raises Starved."""
        progress = self.progress
        if self._trigger is PolicyTrigger.SLOT:
            return float((np.floor(progress.now / self._seconds) + 1) * self._seconds)
        found = min(progress.next_arrival(), progress.next_finish(rates))
        if found == np.inf:
            raise Starved(f"{progress.present.sum()} jobs are left, none runs, and none will arrive")
        return found

    def _speed(self, number: int) -> float:
        """Return the samples a second that a job trains now."""
        job, (workers, servers) = self.jobs[number], self._counts[number]
        return self._speeds.of(job.model, servers, workers)


def completion_times(
    jobs: Sequence[Job],
    nodes: Sequence[Node],
    speeds: Speeds,
    policy: AllocationPolicy,
    slot_seconds: float = 600.0,
    cost: ScalingCost = NO_COST,
) -> Floats:
    """Run until every job has ended, and return the seconds from each job's arrival to its end, by arrival, then id.

    Args:
        jobs: all that arrive.
        nodes: machines.
        speeds: of their models.
        policy: decides, when its trigger says.
        slot_seconds: length of a slot.
        cost: see `EventCluster`.

    Raises:
        BadInput: a job cannot be simulated.
        Starved: the policy starves jobs.
    """
    cluster = EventCluster(jobs, nodes, speeds, trigger_of(policy), slot_seconds, cost)
    for _ in steps(cluster, policy, NodeRule.SPREAD):
        pass
    found: Floats = cluster.progress.finish - cluster.progress.arrival
    return found
