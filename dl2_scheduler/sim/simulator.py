"""A simulated cluster as policies and the live loop see one."""

from collections.abc import Hashable, Iterator, Sequence

from dl2_scheduler.cluster.errors import BadInput, SchedulerError, Starved
from dl2_scheduler.cluster.free_resources import FreeResources, NodeRule, check_minimum_fits, least_asked
from dl2_scheduler.cluster.interfaces import AllocationPolicy, Cluster, JobOutcome, SlotOutcome
from dl2_scheduler.cluster.jobs import Job, Node, check_fits
from dl2_scheduler.cluster.snapshot import Allocation, Snapshot
from dl2_scheduler.cluster.speeds import Speeds
from dl2_scheduler.sim.lanes import NO_COST, Floats, Lanes, Mask, ScalingCost, SlotProgress
from dl2_scheduler.sim.variation import NO_VARIATION, Variation

MOST_SLOTS = 100_000
"""Of a simulation."""


class SimulatedCluster:
    """See `Cluster`: one lane of `Lanes`.

    Args:
        jobs: all that will arrive.
        nodes: machines.
        speeds: of their models.
        slot_seconds: length of a slot.
        cost: of scaling.
        variation: of the jobs' speeds.

    Raises:
        BadInput: a job is wrong, of an unknown model, or fits no node; the text says which.
    """

    def __init__(
        self,
        jobs: Sequence[Job],
        nodes: Sequence[Node],
        speeds: Speeds,
        slot_seconds: float = 1200.0,
        cost: ScalingCost = NO_COST,
        variation: Variation = NO_VARIATION,
    ):
        check_jobs(jobs, nodes, speeds)
        self.lanes = Lanes([jobs], speeds, slot_seconds, cost, [variation])
        self._nodes = tuple(nodes)
        self._allocation = Allocation()

    @property
    def done(self) -> bool:
        """See `Cluster.done`."""
        return bool(self.lanes.over[0])

    def snapshot(self) -> Snapshot:
        """See `Cluster.snapshot`."""
        lanes = self.lanes
        return Snapshot(lanes.slot, lanes.slot_seconds, self._nodes, lanes.states(0), lanes.reports(0))

    def apply(self, allocation: Allocation) -> None:
        """See `Cluster.apply`."""
        self._allocation = allocation

    def finish_slot(self) -> SlotOutcome:
        """See `Cluster.finish_slot`."""
        lanes = self.lanes
        present = lanes.present
        grants = [self._allocation.of(job.id) for job in lanes.jobs[0]]
        workers = lanes.workers * 0
        servers = workers.copy()
        workers[0], servers[0] = zip(*((grant.workers, grant.servers) for grant in grants), strict=True)
        return outcome(lanes, 0, present, lanes.advance(workers, servers))


def outcome(lanes: Lanes, lane: int, present: Mask, progress: SlotProgress) -> SlotOutcome:
    """Return what became of a lane's slot.

    Args:
        lanes: which advanced.
        lane: which of them.
        present: jobs that were there, (lanes, jobs).
        progress: of the slot.
    """
    jobs = [
        JobOutcome(
            lanes.jobs[lane][number].id,
            int(lanes.workers[lane, number]),
            int(lanes.servers[lane, number]),
            float(progress.epochs[lane, number]),
            float(lanes.finish[lane, number]) * lanes.slot_seconds if progress.ended[lane, number] else None,
        )
        for number in present[lane].nonzero()[0].tolist()
    ]
    began, ended = ((lanes.slot - slots) * lanes.slot_seconds for slots in (1, 0))
    return SlotOutcome(lanes.slot - 1, jobs, lanes.reports(lane), began, ended)


def check_jobs(jobs: Sequence[Job], nodes: Sequence[Node], speeds: Speeds) -> None:
    """Refuse what cannot be simulated.

    Args:
        jobs: to be simulated.
        nodes: machines.
        speeds: of the models.

    Raises:
        BadInput: with the job and the reason.
    """
    fitting: set[Hashable] = set()
    for job in jobs:
        try:
            job.check()
            _check_speeds(job, speeds)
            if (asked := least_asked(job)) not in fitting:
                check_fits(job, nodes)
                check_minimum_fits(job, nodes)
                fitting.add(asked)
        except BadInput as error:
            raise BadInput(f"job {job.id}: {error}") from error


def _check_speeds(job: Job, speeds: Speeds) -> None:
    grid = speeds.grid(job.model)
    servers, workers = grid.shape[0] - 1, grid.shape[1] - 1
    if job.max_servers > servers or job.max_workers > workers:
        raise BadInput(
            f"up to {job.max_servers} servers and {job.max_workers} workers, but the speeds of {job.model} end at "
            f"{servers} and {workers}: give more speeds, or smaller maxima"
        )
    if speeds.grid_of(job).max() <= 0:
        how = "" if job.has_servers else " without servers"
        raise BadInput(f"{job.model} has no speed above 0{how} within the job's maxima: it would never end")


def check_length(job: Job, speeds: Speeds, slot_seconds: float, fastest: float) -> None:
    """Refuse a job that no scheduler can end within `MOST_SLOTS`, before anything is simulated.

    Args:
        job: of a model that is known.
        speeds: of models.
        slot_seconds: length of a slot.
        fastest: by which its speed may be above its model's.

    Raises:
        BadInput: with the slots that it takes at least.
    """
    speed = float(speeds.grid_of(job).max()) * fastest
    slots = (job.arrival + job.epochs * job.samples_per_epoch / speed) / slot_seconds
    if not slots <= MOST_SLOTS:
        raise BadInput(
            f"job {job.id}: it ends after {slots:.3g} slots of {slot_seconds:g} s at the soonest, and a simulation has "
            f"at most {MOST_SLOTS:,}: give a longer --slot, or a job that arrives earlier or trains less"
        )


def steps(
    cluster: Cluster, policy: AllocationPolicy, rule: NodeRule, most_slots: int = MOST_SLOTS
) -> Iterator[SlotOutcome]:
    """Run until every job has ended, and yield the outcome of each slot.

    Args:
        cluster: with the jobs, at its start.
        policy: decides.
        rule: by which tasks find their node.
        most_slots: after which the policy is taken to starve jobs.

    Raises:
        Starved: jobs are left after `most_slots`.
        BadInput: none is there then, and others are still to arrive.
    """
    while not cluster.done:
        snapshot = cluster.snapshot()
        if snapshot.slot >= most_slots:
            raise _too_long(snapshot, most_slots)
        cluster.apply(policy.allocate(snapshot, FreeResources(snapshot, rule)))
        yield cluster.finish_slot()


def _too_long(snapshot: Snapshot, most_slots: int) -> SchedulerError:
    """Return what is wrong where a simulation has not ended after so many slots."""
    if snapshot.jobs:
        return Starved(f"{len(snapshot.jobs)} jobs are left after {most_slots} slots: the policy starves them")
    return BadInput(
        f"after {most_slots} slots no job is there, and others are still to come: they arrive too late for a "
        "simulation; give a longer --slot, or jobs that arrive earlier"
    )


def run(cluster: SimulatedCluster, policy: AllocationPolicy, rule: NodeRule, most_slots: int = MOST_SLOTS) -> Floats:
    """Run until every job has ended; return the completion times in slots, by arrival. Raises what `steps` does.

    Args:
        cluster: with the jobs, at its start.
        policy: decides.
        rule: by which tasks find their node.
        most_slots: after which the policy is taken to starve jobs.
    """
    for _ in steps(cluster, policy, rule, most_slots):
        pass
    times: Floats = cluster.lanes.completion_times()[0]
    return times
