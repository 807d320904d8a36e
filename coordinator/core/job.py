"""A job has a part that survives its coordinator: the journal holds it, and the book of batches beside it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from coordinator.core.checkpoints.ledger_voids import Void
from coordinator.core.plans.plan import Plan
from coordinator.core.plans.scale_goal import ScaleGoal, ScaleRequest
from elastic_ps.core.configuration import ConfigId, Configuration, Member, NodeId, Role
from elastic_ps.core.data_order import DataSpec
from elastic_ps.core.model import Model


class JobPhase(StrEnum):
    """A phase says how far a job has come."""

    REBUILDING = "rebuilding"
    STARTING = "starting"
    RUNNING = "running"
    RESTORING = "restoring"
    FINISHED = "finished"
    FAILED = "failed"

    @property
    def ended(self) -> bool:
        """Return whether nothing happens any more."""
        return self in (JobPhase.FINISHED, JobPhase.FAILED)


OF_ITSELF = "finished"
"""The reason of a job that has finished as its scripts have ended; any other one says who has stopped it."""


def names_who_stopped(reason: str) -> bool:
    """Return whether the reason of a job that has finished says that somebody stopped it; "" says nothing."""
    return reason not in ("", OF_ITSELF)


@dataclass(frozen=True)
class StopOrder:
    """A node must end: see `Stop` in protos/elastic.proto."""

    reason: str
    restart: bool = False
    failed: bool = False


@dataclass(frozen=True)
class CancelOrder:
    """A node must forget a prepared configuration; `leave`: and end."""

    number: ConfigId
    reason: str
    leave: bool = False


@dataclass(frozen=True)
class RegisteredNode:
    """A registered node is a process that the coordinator has given a name.

    Attributes:
        member: its name, role and address.
        pid: for people.
        nonce: its launcher's name for it.
        stop: it has been told to end.
        cancel: a cancelled plan that it has not confirmed to have forgotten.
        left: it is out of the configuration by a committed plan and ends by itself.
    """

    member: Member
    pid: int
    nonce: str
    stop: StopOrder | None = None
    cancel: CancelOrder | None = None
    left: bool = False

    @property
    def id(self) -> NodeId:
        """Its name."""
        return self.member.id

    @property
    def role(self) -> Role:
        """Return what it does: worker or server."""
        return self.member.role

    @property
    def departing(self) -> bool:
        """Return whether it ends by itself, soon."""
        return self.left or self.stop is not None or (self.cancel is not None and self.cancel.leave)


@dataclass(frozen=True)
class DurableJob:
    """A durable job is what survives its coordinator.

    Attributes:
        identity: of this training run, which its checkpoints have; made once, and never changed.
        term: starts of the coordinator and restores of the job.
        seed: of the data order.
        goal: what is wanted of it now.
        queued: requests that wait behind the plan under way, oldest first.
        requests: how many there have been.
        withdrawn: why the latest of those came to nothing that no plan took up, by number.
        number: the highest configuration number ever given out.
        plans: the highest plan id ever given out.
        registered: nodes ever registered, by role.
        nodes: alive, as far as is known.
        configuration: in force; None before the start.
        dead: members of `configuration` that have died and are still in it.
        deaths: how many members have died, also where the job went back to its checkpoint for it.
        finished: workers of `configuration` whose script has ended.
        crashed: how workers died after others had finished.
        unshared: workers that have died and are not replaced: nobody trains on their share of the data.
        passed: the last barrier that was passed.
        plan: under way.
        stopping: why the job ends once a checkpoint is written; "": it does not.
        stops_behind: the folder of checkpoints that this one is written into.
        model: tensors and blocks.
        growth: how often something was declared that was new to the job.
        settled: how many blocks there were when `configuration` came into force.
        optimizers: JSON by store.
        modules: digests of the modules that servers load update rules from, by name.
        data: None where no script has said: `static`.
        local_update: optimizers live in the workers.
        restore: URL of the checkpoint that the next start loads; its version is in `voids`.
        loading: a checkpoint is being looked for, to start again from.
        checkpoints: folders of complete ones, oldest first.
        rebuilt: its journal was lost once: it may have checkpoints that are not among these.
        forgotten: the highest number that a request may have had which was lost with a journal; 0: none ever was.
        damaged: folders of those that a server found damaged.
        unread: how often servers could not read one, by folder, since the job trained.
        begun: folder of the checkpoint that the job began from; "": from nothing.
        since: when it began from that one, in unix seconds; 0: nobody knows.
        saves: the highest number in a checkpoint's name; of a sync job, since it last went back to one.
        written: when its last checkpoint was written, as its manifest says, in unix seconds; 0: none was.
        voids: restores so far, but those that a later one has undone.
        expelled: nonces of the latest nodes that the job goes on without though nobody saw them end.
        evicted: those of them that a person wanted to go.
    """

    goal: ScaleGoal
    identity: str = ""
    seed: int = 0
    term: int = 0
    phase: JobPhase = JobPhase.STARTING
    reason: str = ""
    queued: tuple[ScaleRequest, ...] = ()
    requests: int = 0
    withdrawn: Mapping[int, str] = field(default_factory=dict)
    number: int = 0
    plans: int = 0
    registered: Mapping[str, int] = field(default_factory=dict)
    nodes: Mapping[NodeId, RegisteredNode] = field(default_factory=dict)
    configuration: Configuration | None = None
    dead: frozenset[NodeId] = frozenset()
    deaths: int = 0
    finished: frozenset[NodeId] = frozenset()
    crashed: Mapping[NodeId, str] = field(default_factory=dict)
    unshared: tuple[NodeId, ...] = ()
    passed: tuple[int, int] = (-1, -1)
    plan: Plan | None = None
    stopping: str = ""
    stops_behind: str = ""
    model: Model = field(default_factory=Model)
    growth: int = 0
    settled: int = 0
    optimizers: tuple[str, ...] = ()
    modules: Mapping[str, str] = field(default_factory=dict)
    data: DataSpec | None = None
    local_update: bool = False
    restore: str = ""
    loading: bool = False
    checkpoints: tuple[str, ...] = ()
    rebuilt: bool = False
    forgotten: int = 0
    damaged: frozenset[str] = frozenset()
    unread: Mapping[str, int] = field(default_factory=dict)
    begun: str = ""
    since: float = 0.0
    saves: int = 0
    written: float = 0.0
    voids: tuple[Void, ...] = ()
    expelled: tuple[str, ...] = ()
    evicted: tuple[str, ...] = ()

    @property
    def ended(self) -> bool:
        """Return whether nothing happens any more."""
        return self.phase.ended

    @property
    def all_reduces(self) -> bool:
        """Return whether the job has no servers: its workers all-reduce. That never changes."""
        return self.goal.servers == 0

    @property
    def holders(self) -> frozenset[NodeId]:
        """The members of the configuration in force that have the parameters: its servers, else its workers."""
        return self.holders_in(self.configuration) if self.configuration is not None else frozenset()

    def holders_in(self, configuration: Configuration) -> frozenset[NodeId]:
        """Return the members of a configuration that have the parameters in it."""
        return frozenset(member.id for member in (configuration.workers if self.all_reduces else configuration.servers))

    @property
    def members(self) -> Mapping[NodeId, Member]:
        """The members of the configuration in force, by name."""
        return self.configuration.members if self.configuration else {}

    @property
    def elastic(self) -> bool:
        """Return whether the scripts take their batches from the runtime."""
        return self.data is not None and self.data.elastic

    @property
    def is_sync(self) -> bool:
        """Return whether all workers share each step; a job that has not said otherwise yet is taken to."""
        return self.data is None or self.data.is_sync

    def waiting(self, role: Role) -> list[NodeId]:
        """Return registered nodes that are in no configuration and no assigned plan, first come first."""
        busy = self.plan.audience if self.plan and self.plan.target else ()
        found = [
            node.id
            for node in self.nodes.values()
            if node.role is role and not node.departing and node.id not in self.members and node.id not in busy
        ]
        return sorted(found, key=lambda name: int(name[1:]))
