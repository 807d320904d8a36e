"""A job without servers may end where nobody has its parameters any more, and at no other time."""

from typing import Any

from coordinator.core.job import DurableJob, JobPhase
from elastic_ps.torch.allreduce.agreement import BEGINS
from tests.world.faults.cells import COORDINATOR, WORKER
from tests.world.kernel.scheduler import DEAD, RUNS, Process

_BY_DESIGN = "the last worker died"


class Survivors:
    """`Survivors` knows who has parameters of the job.

    Args:
        world: whose job it is.

    Attributes:
        excused: the job has failed, and none of those that were to stay in it has parameters.
    """

    def __init__(self, world: Any):
        self._world = world
        self._wanted: frozenset[str] = frozenset()  # members of what is in force, or will be
        self.excused = False

    def saw(self, job: DurableJob) -> None:
        """Take note of a new state of the coordinator: that of the job."""
        if job.phase is JobPhase.FAILED and not self.excused:
            self.excused = job.reason.startswith(_BY_DESIGN) and all(
                self._is_gone(each, job) for each in self.holders()
            )
        target = job.plan.target if job.plan is not None else None
        target = target or job.configuration
        if target is not None:
            self._wanted = frozenset(target.ranks)

    def holders(self) -> list[Process]:
        """Return the workers that run, are to stay and have parameters; in a job that begins each member has its own.

        Those that a plan lets go do not count: if all others die the job ends (docs/reference/all-reduce.md). A joiner
        that has only followed a member does not either: by itself it does not go on.
        """
        return [process for process in self._having() if process.job.node.session.node in self._wanted]

    def _having(self) -> list[Process]:
        """Return the workers that run and have parameters, also those that a plan lets go."""
        workers = [process for process in self._world.processes if process.role == WORKER and process.state == RUNS]
        nodes = [(process, process.job.node) for process in workers if process.job is not None]
        return [
            process
            for process, node in nodes
            if (node.held >= 0 and node.proven) or (node.held == BEGINS and node.is_member)
        ]

    def is_last(self, process: Process) -> bool:
        """Return whether the job would be over without a worker: no other one can tell of what it has.

        One whose script is at its end is soon gone, and tells nothing more. One that a plan lets go may have to stay.
        """
        others = [other for other in self.holders() if other is not process]
        goes_on = any(not self._is_apart(other) and not self._is_at_its_end(other) for other in others)
        return process in self._having() and not goes_on

    def _is_at_its_end(self, process: Process) -> bool:
        draw = self._world.draw
        assert process.job is not None
        return bool(process.job.node.version >= draw.steps)

    def _is_apart(self, process: Process) -> bool:
        network = self._world.network
        coordinators = [each for each in self._world.processes if each.role == COORDINATOR and each.state != DEAD]
        return any(network.is_blocked(*way) for each in coordinators for way in ((process, each), (each, process)))

    @staticmethod
    def _is_gone(process: Process, job: DurableJob) -> bool:
        """Return whether the job has been going on without a process that runs."""
        return process.environment["ELASTIC_NONCE"] in job.expelled
