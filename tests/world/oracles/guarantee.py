"""Where every block has a follower, one fault at a time costs no restore, and no worker more than a step."""

from typing import Any

from coordinator.core.job import DurableJob, JobPhase
from coordinator.core.plans.plan import Plan, PlanKind, chain
from coordinator.core.plans.protection import protection
from tests.world.faults.cells import COORDINATOR, FREEZE, JUMP, LOSE
from tests.world.faults.job_draw import Fault
from tests.world.kernel.scheduler import RUNS, Process

_LAST_WORKER = "the last worker died"


class Guarantee:
    """A `Guarantee` watches what a fault costs that comes while all is well, until the next one comes.

    Args:
        world: whose job it is.

    Attributes:
        single: the fault that came last, where it came alone; else None.
        watched: how many have.
    """

    def __init__(self, world: Any):
        self._world = world
        self.single: Fault | None = None
        self.watched = 0
        self._of_one_worker = self._planned = False  # is, by the last state; was a plan under way at the fault
        self._expelled: frozenset[str] = frozenset()  # before the fault
        self._voided, self._loading = 0, False  # the term of the last restore; is a checkpoint looked for
        self._highest = 0  # version at which a worker has begun a step that was started since the last restore
        self._floors: dict[Process, int] = {}  # by such a worker: at which version its first step may be

    def is_whole(self) -> bool:
        """Return whether the job has got over all that has happened, and each block survives the death of a server."""
        injector, network = self._world.injector, self._world.network
        job: DurableJob = injector.state.job
        found = protection(job)
        if job.phase is not JobPhase.RUNNING or job.dead or not 0 < found.blocks == found.all_blocks:
            return False
        if injector.state.suspected:  # what the last fault costs may be to come
            return False
        if injector.lasting or (job.plan is not None and (job.plan.kind is PlanKind.DEATH or _unprotects(job.plan))):
            return False
        running = {process.environment.get("ELASTIC_NONCE"): process for process in self._running()}
        if any(node.nonce not in running for node in job.nodes.values()) or not job.members.keys() <= job.nodes.keys():
            return False
        concerned = {running[node.nonce] for node in job.nodes.values()} | self._agents()
        return len(self._agents()) == 2 and not network.troubled(concerned)

    def _running(self) -> list[Process]:
        return [process for process in self._world.processes if process.state == RUNS]

    def _agents(self) -> set[Process]:
        """Return the launcher and the coordinator, those that run."""
        every = {self._world.launcher, *self._running()}
        return {process for process in every if process.role in ("launcher", "coordinator") and process.state == RUNS}

    def struck(self, fault: Fault) -> None:
        """Take note that a fault is about to come."""
        self.single = fault if self._world.draw.replicas and self.is_whole() else None
        if self.single is not None:
            job: DurableJob = self._world.injector.state.job
            self.watched += 1
            self._planned = job.plan is not None
            self._expelled = frozenset(job.expelled)

    def saw(self, job: DurableJob) -> None:
        """Take note of a new state of the coordinator: that of the job."""
        self._check_own_silence(job)
        voided = job.voids[-1].term if job.voids else 0
        if (job.loading or voided > self._voided) and not self._loading:
            self._highest, self._floors = 0, {}
            if self.single is not None and not self._is_excused(job.reason):
                self._world.fail(f"every block had a follower, and a single fault ({self.single}): {job.reason}")
            self.single = None
        self._voided, self._loading = voided, job.loading
        self._of_one_worker = any(
            len(each.ranks.keys() - job.finished) == 1 for each in chain(job.plan, job.configuration)
        )

    def _check_own_silence(self, job: DurableJob) -> None:
        """A coordinator that has not run, or whose clock has jumped, blames nobody for it."""
        single = self.single
        if single is None or single.role != COORDINATOR or single.kind not in (FREEZE, JUMP):
            return
        if not self._expelled.issuperset(job.expelled):
            self._world.fail(f"a single fault of the coordinator ({single}), and nodes were expelled: {job.expelled}")

    def _is_excused(self, reason: str) -> bool:
        """Return whether a fault costs a restore by design."""
        assert self.single is not None
        if self.single.kind == LOSE:  # nodes know what their configuration is, and not who was told which batch
            return self._planned or self._world.draw.mode != "sync"
        return self._of_one_worker and reason.startswith(_LAST_WORKER)

    def started(self, process: Process) -> None:
        """Take note of a new worker."""
        self._floors[process] = self._highest - 1

    def stepped(self, process: Process, version: int) -> None:
        """Take note that a worker of a "sync" job begins a step."""
        if process in self._floors:  # else it is of the time before a restore, and will end
            self._highest = max(self._highest, version)
            floor, self._floors[process] = self._floors[process], 0
            if version < floor:
                self._world.fail(f"{process} begins with version {version}, and nothing was restored since {floor + 1}")


def _unprotects(plan: Plan) -> bool:
    """Return whether a plan leaves blocks without a follower, as somebody asked for who wants one server."""
    return plan.target is not None and None in map(plan.target.follower, range(len(plan.target.assignment)))
