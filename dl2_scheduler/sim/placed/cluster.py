"""This module simulates a cluster in which all jobs' speeds depend on where their tasks lie.

Policies decide at the beginnings of slots; inside a slot a job ends when it ends, and the others' speeds change then.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from dl2_scheduler.cluster.hardware.machines import Floats, Ints, Machines, amounts, named
from dl2_scheduler.cluster.hardware.placements import SERVER, WORKER, ChangingSpeed, PlacedSpeed, PlacementArrays, Rated
from dl2_scheduler.cluster.hardware.profiles import Profile
from dl2_scheduler.cluster.hardware.topology import Topology
from dl2_scheduler.cluster.hardware.view import PlacementView, check_placement
from dl2_scheduler.cluster.interfaces import JobOutcome, PlacementPolicy, SlotOutcome
from dl2_scheduler.cluster.jobs import Job
from dl2_scheduler.cluster.snapshot import Allocation, JobState, Snapshot, SpeedReport
from dl2_scheduler.sim.events.progress import Progress
from dl2_scheduler.sim.variation import by_arrival

_ROLES = (WORKER, SERVER)
_MANY = 64
"""Nodes from which on it pays to rate only those jobs anew that feel an event."""
Tasks = tuple[list[int], list[int]]
"""Groups of a job's workers, and of its servers."""


class PlacedCluster:
    """See `Cluster`; a placement policy gives places to what was granted.

    Args:
        jobs: all that will arrive.
        machines: nodes and their groups.
        topology: how nodes are linked.
        profiles: of the models.
        world: how fast jobs really train.
        placement: where tasks go.
        slot_seconds: length of a slot.

    Attributes:
        jobs: by arrival, then id: the order of all arrays.
        progress: how far they are, in samples.
        tasks: where each job's tasks lie, by its index; jobs that do not run are not in it.
        rates: samples a second of each job since the last event, (jobs,).
    """

    def __init__(
        self,
        jobs: Sequence[Job],
        machines: Machines,
        topology: Topology,
        profiles: Mapping[str, Profile],
        world: PlacedSpeed,
        placement: PlacementPolicy,
        slot_seconds: float = 1200.0,
    ):
        self.jobs = sorted(jobs, key=by_arrival)
        self.machines, self.topology, self.profiles = machines, topology, profiles
        self._world, self._placement = world, placement
        self.slot, self.slot_seconds = 0, slot_seconds
        self._models = tuple(sorted(profiles))
        self._model = np.array([self._models.index(job.model) for job in self.jobs])
        self._demand = np.array([[amounts(job.worker), amounts(job.server)] for job in self.jobs])
        work = np.array([job.epochs * job.samples_per_epoch for job in self.jobs])
        self.progress = Progress(np.array([job.arrival for job in self.jobs]), work)
        self.tasks: dict[int, Tasks] = {}
        self.rates: Floats = np.zeros(len(self.jobs))
        self._slots_run = np.zeros(len(self.jobs), dtype=np.int64)
        self._nodes = tuple(named(machines))
        self._changed: set[int] = set()  # whose tasks have come or gone since jobs were rated
        self._rated: Rated | None = None  # of all jobs, where it pays
        if isinstance(world, ChangingSpeed) and len(machines.nodes) >= _MANY:
            self._rated = world.rated(self._of_all([]))

    @property
    def done(self) -> bool:
        """See `Cluster.done`."""
        return self.progress.over

    def snapshot(self) -> Snapshot:
        """See `Cluster.snapshot`."""
        states = tuple(self._state(number) for number in self._present())
        return Snapshot(self.slot, self.slot_seconds, self._nodes, states, self._reports())

    def apply(self, allocation: Allocation) -> None:
        """See `Cluster.apply`: tasks that are granted no more end, the youngest first; new ones are placed."""
        present = self._present()
        missing = np.zeros((len(present), 2), dtype=np.int64)
        for index, number in enumerate(present):
            grant = allocation.of(self.jobs[number].id)
            granted = (grant.workers, grant.servers) if grant.workers and grant.servers else (0, 0)
            own = self.tasks.get(number, ([], []))
            if any(len(own[role]) > granted[role] for role in _ROLES):
                self._changed.add(number)
            for role in _ROLES:
                del own[role][granted[role] :]
                missing[index, role] = granted[role] - len(own[role])
            if not all(granted):
                self.tasks.pop(number, None)
        view = self._view(present, missing)
        placement = self._placement.place(view)
        check_placement(view, placement)
        for index, roles in placement.groups.items():
            own = self.tasks.setdefault(present[index], ([], []))
            for role in _ROLES:
                own[role].extend(roles[role])
            self._changed.add(present[index])
        self._rate()

    def finish_slot(self) -> SlotOutcome:
        """See `Cluster.finish_slot`."""
        began, end = self.progress.now, (self.slot + 1) * self.slot_seconds
        present, left = self._present(), self.progress.left.copy()
        counts = {number: [len(own) for own in tasks] for number, tasks in self.tasks.items()}
        self._slots_run[list(self.tasks)] += 1
        while self.progress.now < end:
            ended = self.progress.advance(min(end, self.progress.next_finish(self.rates)), self.rates).tolist()
            for number in ended:
                del self.tasks[number]
            if ended:
                self._changed.update(ended)
                self._rate()
        self.slot += 1
        outcomes = [self._outcome(number, counts.get(number, [0, 0]), left[number]) for number in present]
        return SlotOutcome(self.slot - 1, outcomes, self._reports(), began, end)

    def completion_times(self) -> Floats:
        """Return the slots from each job's arrival to its end, (jobs,); NaN where it has not ended."""
        times: Floats = (self.progress.finish - self.progress.arrival) / self.slot_seconds
        return times

    def placements(self, jobs: Sequence[int]) -> PlacementArrays:
        """Return where the tasks of these jobs lie, the jobs numbered in this order."""
        rows = [
            (index, role, group)
            for index, number in enumerate(jobs)
            for role in _ROLES
            for group in self.tasks.get(number, ([], []))[role]
        ]
        job, role, group = np.array(rows, dtype=np.int64).reshape(-1, 3).T
        return PlacementArrays(self._model[list(jobs)], job.copy(), role.copy(), group.copy(), np.array(jobs))

    def _present(self) -> list[int]:
        return [int(number) for number in self.progress.present.nonzero()[0]]

    def _rate(self) -> None:
        """Rate jobs anew, as tasks of some have come or gone."""
        running = sorted(self.tasks)
        self.rates[:] = 0.0
        if self._rated is not None and isinstance(self._world, ChangingSpeed):
            jobs = np.array(sorted(self._changed), dtype=np.int64)
            placements = self._rated.placements.replaced(jobs, self._of_all(jobs.tolist()))
            self._rated = self._world.delta(self._rated, placements, jobs)
            self.rates[:] = self._rated.rates
        elif running:
            self.rates[running] = self._world.rates(self.placements(running))
        self._changed.clear()

    def _of_all(self, jobs: Sequence[int]) -> PlacementArrays:
        """Return where the tasks of some jobs lie; the jobs of the arrays are all."""
        some = self.placements(jobs)
        job = np.array(jobs, dtype=np.int64)[some.job]
        return PlacementArrays(self._model, job, some.role, some.group, np.arange(len(self.jobs)))

    def _view(self, present: Sequence[int], missing: Ints) -> PlacementView:
        placed = self.placements(present)
        free = self.machines.capacity.copy()
        demand = self._demand[list(present)].reshape(-1, 2, 2)
        np.subtract.at(free, placed.group, demand[placed.job, placed.role])
        states = tuple(self._state(number) for number in present)
        where = (self.machines, self.topology, self._models, self.profiles)
        return PlacementView(
            self.progress.now, *where, states, demand, missing, placed, free, self.rates[list(present)]
        )

    def _state(self, number: int) -> JobState:
        job, done = self.jobs[number], self.progress.work[number] - self.progress.left[number]
        workers, servers = (len(own) for own in self.tasks.get(number, ([], [])))
        return JobState(job, done / job.samples_per_epoch, int(self._slots_run[number]), workers, servers)

    def _reports(self) -> tuple[SpeedReport, ...]:
        return tuple(
            SpeedReport(
                self.jobs[number].id, self.jobs[number].model, len(servers), len(workers), float(self.rates[number])
            )
            for number, (workers, servers) in sorted(self.tasks.items())
        )

    def _outcome(self, number: int, counts: Sequence[int], left: float) -> JobOutcome:
        job, finish = self.jobs[number], float(self.progress.finish[number])
        epochs = (left - self.progress.left[number]) / job.samples_per_epoch
        return JobOutcome(job.id, counts[WORKER], counts[SERVER], epochs, None if np.isnan(finish) else finish)
