"""A plan is one change of configuration; `transitions` and `lifecycle` say how it moves on."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cached_property

from elastic_ps.core.configuration import NO_CONFIGURATION, ConfigId, Configuration, NodeId
from elastic_ps.core.model import Run


class Phase(StrEnum):
    """A phase says how far a plan has come."""

    REGISTERED = "REGISTERED"
    ASSIGNED = "ASSIGNED"
    SYNCING = "SYNCING"
    ARMED = "ARMED"
    COMMITTED = "COMMITTED"
    CANCELLED = "CANCELLED"
    DROPPED = "DROPPED"


class PlanKind(StrEnum):
    """A kind says why a plan exists, and with it how it runs."""

    START = "start"  # the first configuration: nothing moves
    SCALE = "scale"  # the paper's: four steps, a clock
    DEATH = "death"  # the survivors adopt a configuration without the dead: no clock


class MigrationMode(StrEnum):
    """A mode says how blocks move to other servers (DL2 section 5, step 3)."""

    LIVE = "live"
    PAUSE = "pause"


@dataclass(frozen=True)
class Times:
    """Times hold the unix seconds of a plan's milestones; 0: not yet."""

    assigned: float = 0.0
    prepared: float = 0.0
    synced: float = 0.0
    first_switched: float = 0.0
    last_switched: float = 0.0


@dataclass(frozen=True)
class PhaseEntered:
    """A line of a plan's history says when, and by what trigger, it entered a phase."""

    at: float
    trigger: str
    phase: Phase


@dataclass(frozen=True)
class Plan:
    """A plan is one change of configuration, under way or ended.

    Attributes:
        id: counted by the job.
        cause: an operator, a node, a death: for people.
        deadline: unix seconds until which it waits for joining nodes.
        base: the configuration in force when it was assigned.
        target: the one that it leads to; None before ASSIGNED and after its end.
        number: of `target`, which outlives it.
        audience: who holds `target` prepared: old members and joiners, without the dead.
        joiners: enter with `target`.
        leavers: are in `base` and not in `target`, and alive.
        dead: a death plan's reason.
        missing: who was expected and has not come: for people.
        clock: version at which `target` takes effect; once it has, the latest at which a node switched; None: none set.
        decided: somebody has switched, or it needs no clock: `target` is adopted at once.
        rearms: how often the clock was set anew.
        restore: URL of the manifest that servers load their blocks from.
        absorbed: armed plans whose outcome this death plan carries.
        moved: bytes sent, by old owner.
        suspension: milliseconds, by worker.
        fell_back: servers whose remaining blocks went by pause.
        reason: of its cancellation.
        requests: numbers of those that it is to fulfil.
        asks: a server has died: who owns what is decided when the survivors have answered. Until then `target` is the
            configuration that the death builds on, with the dead servers.
        promoted: runs of blocks of `target` that their owners have at once: a server's death has made them owners.
        background: it makes followers for blocks that have none, and gives way to any other plan.
    """

    id: int
    kind: PlanKind
    cause: str
    started: float
    migration: MigrationMode = MigrationMode.LIVE
    phase: Phase = Phase.REGISTERED
    deadline: float = 0.0
    base: Configuration | None = None
    target: Configuration | None = None
    number: ConfigId = NO_CONFIGURATION
    audience: tuple[NodeId, ...] = ()
    joiners: tuple[NodeId, ...] = ()
    leavers: tuple[NodeId, ...] = ()
    dead: frozenset[NodeId] = frozenset()
    missing: tuple[str, ...] = ()
    clock: int | None = None
    decided: bool = False
    rearms: int = 0
    restore: str = ""
    absorbed: "tuple[Plan, ...]" = ()
    times: Times = Times()
    moved: Mapping[NodeId, int] = field(default_factory=dict)
    suspension: Mapping[NodeId, float] = field(default_factory=dict)
    fell_back: tuple[NodeId, ...] = ()
    reason: str = ""
    requests: tuple[int, ...] = ()
    asks: bool = False
    promoted: tuple[Run, ...] = ()
    background: bool = False
    ended: float = 0.0
    trail: tuple[PhaseEntered, ...] = ()

    @property
    def open_ended(self) -> bool:
        """Return whether it is assigned, and can still be cancelled."""
        return self.phase in (Phase.ASSIGNED, Phase.SYNCING)

    @property
    def undecided(self) -> bool:
        """Return whether it waits for the survivors' answers."""
        return self.asks and self.phase is Phase.ASSIGNED

    @cached_property
    def hand_overs(self) -> frozenset[tuple[NodeId, NodeId]]:
        """Old and new owner of blocks that move, also by the plans that it has absorbed."""
        absorbed = (pair for plan in self.absorbed for pair in plan.hand_overs)
        if self.base is None or self.target is None:
            return frozenset(absorbed)
        return hand_overs(self.base, self.target).union(absorbed)

    @cached_property
    def chain(self) -> tuple[Configuration, ...]:
        """The configurations from the one that was committed last up to the target, where there are such."""
        earlier = (*self.absorbed, self)
        found = (earlier[0].base, *(plan.target for plan in earlier))
        return tuple(configuration for configuration in found if configuration is not None)

    @cached_property
    def replicated(self) -> bool:
        """Return whether blocks have followers, before or after it or on the way."""
        return any(configuration.followers for configuration in self.chain)

    @cached_property
    def receivers(self) -> frozenset[NodeId]:
        """Servers that have to say that they have arrived: those that own blocks which another owned when a plan was
        committed last. Where blocks have followers and nobody knows what was before, or a server has died, all of them.
        """
        start, target = (*self.absorbed, self)[0].base, self.target
        if target is None:
            return frozenset()
        if self.replicated and (self.asks or start is None):
            return frozenset(server.id for server in target.servers)
        return frozenset(new for _, new in hand_overs(start, target)) if start is not None else frozenset()

    @cached_property
    def copiers(self) -> frozenset[NodeId]:
        """Servers that are to own or follow blocks of which they have nothing yet."""
        return copiers(self.base, self.target) if self.base is not None and self.target is not None else frozenset()

    @cached_property
    def followed(self) -> frozenset[NodeId]:
        """Owners of blocks that have a follower which they had not when a plan was committed last."""
        start, target = (*self.absorbed, self)[0].base, self.target
        if target is None:
            return frozenset()
        known = len(start.assignment) if start is not None else 0
        born = set(zip(target.assignment[known:], target.followers[known:], strict=False))
        owners = {target.servers[owner].id for owner, follower in born if follower >= 0}
        holders = _holders(start, target) if start is not None else set()
        return frozenset(owners | {new[0] for old, new in holders if new[1] not in (None, old[1])})


def copiers(base: Configuration, target: Configuration) -> frozenset[NodeId]:
    """Return the servers that own or follow blocks in the next configuration of which they have nothing in this one."""
    return frozenset(
        name for old, new in _holders(base, target) for name in new if name is not None and name not in old
    )


_Holders = tuple[NodeId, NodeId | None]


def _holders(base: Configuration, target: Configuration) -> set[tuple[_Holders, _Holders]]:
    """Return owner and follower of each block before and after, each combination once; not of blocks born since."""
    combinations = set(zip(*_columns(base), *_columns(target), strict=False))
    return {
        ((base.servers[a].id, _id_of(base, b)), (target.servers[c].id, _id_of(target, d)))
        for a, b, c, d in combinations
    }


def _columns(configuration: Configuration) -> tuple[tuple[int, ...], tuple[int, ...]]:
    owners = configuration.assignment
    return owners, configuration.followers or (-1,) * len(owners)


def _id_of(configuration: Configuration, index: int) -> NodeId | None:
    return configuration.servers[index].id if index >= 0 else None


def chain(plan: Plan | None, configuration: Configuration | None) -> tuple[Configuration, ...]:
    """Return what a death would build on: the configuration committed last, then those armed since; () before a start.

    Args:
        plan: under way; None: none is.
        configuration: in force.
    """
    if plan is not None and plan.phase is Phase.ARMED:
        return plan.chain
    if plan is not None and plan.absorbed:
        return replace(plan, target=None).chain
    return (configuration,) if configuration is not None else ()


def hand_overs(base: Configuration, target: Configuration) -> frozenset[tuple[NodeId, NodeId]]:
    """Return old and new owner of blocks that move, on the way from one configuration to the next."""
    pairs = set(zip(base.assignment, target.assignment, strict=False))  # the target may have grown since
    named = ((base.servers[old].id, target.servers[new].id) for old, new in pairs)
    return frozenset((old, new) for old, new in named if old != new)
