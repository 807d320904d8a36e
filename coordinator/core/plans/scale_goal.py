"""This module keeps what a job is wanted to be, and the requests that make it so.

A request that comes while a plan runs waits. When the plan has ended, well or not, all that wait are granted
together, in their order, upon what is wanted then: a request that was cancelled does not come back with the next.
"""

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, replace
from functools import reduce

from coordinator.core.plans.plan import MigrationMode
from elastic_ps.core.configuration import Member, NodeId, Role

RESTORE = "restore: "
"""The cause of a plan that takes the job back to a checkpoint begins with this; the rest says why."""


@dataclass(frozen=True)
class ScaleRequest:
    """A request asks for other counts of nodes, or for a job without one node.

    Attributes:
        number: counted by the job.
        cause: for people.
        workers: wanted number; 0: as it is.
        servers: likewise.
        drain: who must go; None: it is about numbers.
        migration: of the plans that are to fulfil it.
    """

    number: int
    cause: str
    workers: int = 0
    servers: int = 0
    drain: Member | None = None
    migration: MigrationMode = MigrationMode.LIVE

    def __str__(self) -> str:
        if self.drain is not None:
            return f"drain {self.drain.id} ({self.cause})"
        counts = ((self.workers, Role.WORKER), (self.servers, Role.SERVER))
        numbers = [f"{count} {role}{'' if count == 1 else 's'}" for count, role in counts if count]
        return f"scale to {', '.join(numbers)} ({self.cause})"

    def contradicts(self, older: "ScaleRequest") -> bool:
        """Return whether both ask for a number, and not the same."""
        pairs = ((self.workers, older.workers), (self.servers, older.servers))
        return any(mine and other and mine != other for mine, other in pairs)


@dataclass(frozen=True)
class ScaleGoal:
    """A goal says how many nodes are wanted, and who of the present ones must go.

    Attributes:
        workers: wanted number.
        servers: likewise.
        drains: who must go.
        cause: for people.
        wishes: requests that it has taken up and that no plan has ended yet; the journal calls them so.
    """

    workers: int
    servers: int
    drains: frozenset[NodeId] = frozenset()
    cause: str = "start"
    wishes: tuple[ScaleRequest, ...] = ()

    def count(self, role: Role) -> int:
        """Return the wanted number of a role."""
        return self.workers if role is Role.WORKER else self.servers

    @property
    def pauses(self) -> bool:
        """Return whether somebody has asked that blocks move by pause; with the request's plan that is over."""
        return any(request.migration is MigrationMode.PAUSE for request in self.wishes)

    def changed(self, role: Role, count: int) -> "ScaleGoal":
        """Return the goal with another number of a role."""
        return replace(self, workers=count) if role is Role.WORKER else replace(self, servers=count)

    def granting(
        self, wishes: Iterable[ScaleRequest], leavers: Callable[["ScaleGoal"], Collection[NodeId]]
    ) -> "ScaleGoal":
        """Return the goal with requests taken up, one after the other.

        Args:
            wishes: the requests.
            leavers: tells of a goal who goes by it. Who is drained and goes anyway, as fewer are wanted, counts once.
        """
        return reduce(lambda goal, request: goal._granting(request, leavers), wishes, self)

    def _granting(self, request: ScaleRequest, leavers: Callable[["ScaleGoal"], Collection[NodeId]]) -> "ScaleGoal":
        kept = tuple(older for older in self.wishes if not request.contradicts(older))
        goal = replace(self, cause=request.cause, wishes=(*kept, request))
        if request.drain is not None:
            role, name = request.drain.role, request.drain.id
            # In the place of the last of its role comes another, in the same plan.
            left = goal.count(role) if name in leavers(self) else max(1, goal.count(role) - 1)
            return replace(goal.changed(role, left), drains=goal.drains | {name})
        workers, servers = request.workers or goal.workers, request.servers or goal.servers
        return replace(goal, workers=workers, servers=servers)


def uncontradicted(queued: tuple[ScaleRequest, ...], request: ScaleRequest) -> tuple[ScaleRequest, ...]:
    """Return a queue with one request more, which takes the place of those that it contradicts."""
    return (*(older for older in queued if not request.contradicts(older)), request)
