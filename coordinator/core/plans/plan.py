"""A plan is one change of configuration; `transitions` and `lifecycle` say how it moves on."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property

from elastic_ps.core.configuration import NO_CONFIGURATION, ConfigId, Configuration, NodeId


class Phase(StrEnum):
    """A phase says how far a plan has come."""

    REGISTERED = "REGISTERED"
    ASSIGNED = "ASSIGNED"
    SYNCING = "SYNCING"
    ARMED = "ARMED"
    COMMITTED = "COMMITTED"
    CANCELLED = "CANCELLED"


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
        clock: version at which `target` takes effect; None: none set.
        decided: somebody has switched, or it needs no clock: `target` is adopted at once.
        rearms: how often the clock was set anew.
        restore: URL of the manifest that servers load their blocks from.
        absorbed: armed plans whose outcome this death plan carries.
        moved: bytes sent, by old owner.
        suspension: milliseconds, by worker.
        fell_back: servers whose remaining blocks went by pause.
        reason: of its cancellation.
        requests: numbers of those that it is to fulfil.
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
    ended: float = 0.0
    trail: tuple[PhaseEntered, ...] = ()

    @property
    def open_ended(self) -> bool:
        """Return whether it is assigned, and can still be cancelled."""
        return self.phase in (Phase.ASSIGNED, Phase.SYNCING)

    @cached_property
    def gainers(self) -> frozenset[NodeId]:
        """Servers that receive blocks from another."""
        return frozenset(new for _, new in self.hand_overs)

    @cached_property
    def hand_overs(self) -> frozenset[tuple[NodeId, NodeId]]:
        """Old and new owner of blocks that move, also by the plans that it has absorbed."""
        absorbed = (pair for plan in self.absorbed for pair in plan.hand_overs)
        if self.base is None or self.target is None:
            return frozenset(absorbed)
        return hand_overs(self.base, self.target).union(absorbed)


def hand_overs(base: Configuration, target: Configuration) -> frozenset[tuple[NodeId, NodeId]]:
    """Return old and new owner of blocks that move, on the way from one configuration to the next."""
    pairs = set(zip(base.assignment, target.assignment, strict=False))  # the target may have grown since
    named = ((base.servers[old].id, target.servers[new].id) for old, new in pairs)
    return frozenset((old, new) for old, new in named if old != new)
