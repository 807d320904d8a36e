"""What a coordinator knows. Frozen: `protocol.step` makes the next state from the last.

`Job` and the book of batches are what survives a restart: the journal holds them, each on its own, because the book
changes at every draw. The rest of `State` is learnt again from the nodes.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from coordinator.batches import Book
from coordinator.pending import Barrier, Declaration, Draw, Rebuilding, Running, Saving, Told
from coordinator.plan import Migration, Plan
from coordinator.wishes import Goal, Wish
from elastic_ps.core.configuration import ConfigId, Configuration, Member, NodeId, Role
from elastic_ps.core.data import DataSpec
from elastic_ps.core.model import Model


class JobPhase(StrEnum):
    """Of a job."""

    REBUILDING = "rebuilding"
    STARTING = "starting"
    RUNNING = "running"
    RESTORING = "restoring"
    FINISHED = "finished"
    FAILED = "failed"


@dataclass(frozen=True)
class Settings:
    """What the coordinator was started with.

    Attributes:
        name: of the job.
        lease: seconds that a node may be silent.
        join_timeout: seconds that a plan waits for joining nodes.
        resend_after: seconds until an unanswered directive is sent again.
        settle: seconds without new tensors before a plan is assigned; scripts declare them one by one.
        margin: sampler steps that the scaling clock lies beyond the estimate; doubled after every LATE.
        migration: of plans whose request does not ask for `pause`.
        checkpoint: folder of the job's checkpoints, an fsspec URL; "": none.
        restore: checkpoint, or folder of some, that the job began from; "": none.
        checkpoint_interval: seconds between checkpoints; 0: on demand only.
        join_command: how a person starts one node by hand, with {role}.
        operator: a Kubernetes operator runs the job, and alone asks for other counts, drains and its end.
    """

    name: str = "job"
    lease: float = 10.0
    join_timeout: float = 60.0
    resend_after: float = 2.0
    settle: float = 0.3
    margin: int = 2
    migration: Migration = Migration.LIVE
    checkpoint: str = ""
    restore: str = ""
    checkpoint_interval: float = 0.0
    join_command: str = "elasticrun --role {role}"
    operator: bool = False


@dataclass(frozen=True)
class StopOrder:
    """A node must end: see `Stop` in the contract."""

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
class Node:
    """A registered process.

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
        """What it does."""
        return self.member.role

    @property
    def departing(self) -> bool:
        """It ends by itself, soon."""
        return self.left or self.stop is not None or (self.cancel is not None and self.cancel.leave)


@dataclass(frozen=True)
class Void:
    """A restore: of the entries of older terms only those count that the checkpoint holds.

    Attributes:
        term: that the restore began.
        version: of the checkpoint's blocks; without a common version 0, and `batches` says what it holds.
        batches: None: a sync job.
    """

    term: int
    version: int
    batches: Book | None = None

    def takes_back(self, term: int, version: int, epoch: int, step: int) -> bool:
        """Whether an entry does not count any more."""
        if term >= self.term:
            return False
        return version >= self.version if self.batches is None else not self.batches.holds(epoch, step)


@dataclass(frozen=True)
class Job:
    """What survives the coordinator.

    Attributes:
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
        finished: workers of `configuration` whose script has ended.
        crashed: how workers died after others had finished.
        unshared: workers that have died and are not replaced: nobody trains on their share of the data.
        passed: the last barrier that was passed.
        plan: under way.
        model: tensors and blocks.
        optimizers: JSON by store.
        data: None where no script has said: `static`.
        local_update: optimizers live in the workers.
        restore: URL of the checkpoint that the next start loads; its version is in `voids`.
        loading: a checkpoint is being looked for, to start again from.
        checkpoints: folders of complete ones, oldest first.
        damaged: folders of those that a server could not load.
        saves: the highest number in a checkpoint's name.
        voids: restores so far.
    """

    goal: Goal
    seed: int = 0
    term: int = 0
    phase: JobPhase = JobPhase.STARTING
    reason: str = ""
    queued: tuple[Wish, ...] = ()
    requests: int = 0
    withdrawn: Mapping[int, str] = field(default_factory=dict)
    number: int = 0
    plans: int = 0
    registered: Mapping[str, int] = field(default_factory=dict)
    nodes: Mapping[NodeId, Node] = field(default_factory=dict)
    configuration: Configuration | None = None
    dead: frozenset[NodeId] = frozenset()
    finished: frozenset[NodeId] = frozenset()
    crashed: Mapping[NodeId, str] = field(default_factory=dict)
    unshared: tuple[NodeId, ...] = ()
    passed: tuple[int, int] = (-1, -1)
    plan: Plan | None = None
    model: Model = field(default_factory=Model)
    optimizers: tuple[str, ...] = ()
    data: DataSpec | None = None
    local_update: bool = False
    restore: str = ""
    loading: bool = False
    checkpoints: tuple[str, ...] = ()
    damaged: frozenset[str] = frozenset()
    saves: int = 0
    voids: tuple[Void, ...] = ()

    @property
    def ended(self) -> bool:
        """Nothing happens any more."""
        return self.phase in (JobPhase.FINISHED, JobPhase.FAILED)

    @property
    def members(self) -> Mapping[NodeId, Member]:
        """Of the configuration in force."""
        return self.configuration.members if self.configuration else {}

    @property
    def elastic(self) -> bool:
        """The scripts take their batches from the runtime."""
        return self.data is not None and self.data.elastic

    @property
    def is_sync(self) -> bool:
        """All workers share each step; a job that has not said otherwise yet is taken to."""
        return self.data is None or self.data.is_sync

    def waiting(self, role: Role) -> list[NodeId]:
        """Registered nodes that are in no configuration and no assigned plan, first come first."""
        busy = self.plan.audience if self.plan and self.plan.target else ()
        found = [
            node.id
            for node in self.nodes.values()
            if node.role is role and not node.departing and node.id not in self.members and node.id not in busy
        ]
        return sorted(found, key=lambda name: int(name[1:]))


@dataclass(frozen=True)
class Vitals:
    """What a node has told lately; seconds, bytes, samples per second."""

    heard: float
    version: int = 0
    step_seconds: float = 0.0
    rtt_seconds: float = 0.0
    rate: float = 0.0
    bytes: int = 0
    metrics: Mapping[str, float] = field(default_factory=dict)
    exchanging: bool = False
    transports: Mapping[NodeId, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Round:
    """Who has answered what in the plan under way.

    `unheard`: after a restart from ARMED, who has not yet said which configuration it is in; nobody is armed before all
    have, or `until` (0: nobody is asked).
    `late`: a version past the clock.
    """

    prepared: frozenset[NodeId] = frozenset()
    synced: frozenset[NodeId] = frozenset()
    armed: frozenset[NodeId] = frozenset()
    switched: frozenset[NodeId] = frozenset()
    arrived: frozenset[NodeId] = frozenset()
    late: int | None = None
    unheard: frozenset[NodeId] = frozenset()
    until: float = 0.0


@dataclass(frozen=True)
class State:
    """Everything. See the module.

    Attributes:
        settings: of the process.
        job: the durable part.
        history: plans that have ended, oldest first.
        book: of batches, durable too; empty where batches are not drawn.
        vitals: by node.
        failures: by peer, when an exchange with it last failed, and how.
        round: answers in the plan under way.
        declarations: not yet in the tables.
        told: in the tables; the servers have not all confirmed.
        extended: nodes that have confirmed the tables as they are.
        welcomed: joiners that know the tables by a Welcome.
        draws: that have not been answered.
        barriers: workers that are in one.
        finished_at: when the last script ended.
        grown_at: when the tables last grew.
        saving: the checkpoint being written.
        saved_at: when the last one was.
        running: scripts' commands at the servers.
        commands: ids of these given out.
        launchers: attached ones.
        surplus: by role, processes that launchers were told to start and that are not wanted any more, and until when
            they may still come.
        stopping: why the job ends once the checkpoint is written; "": it does not.
        suspicious: most leases have run out together, so that the fault is likely to be here.
        resent: when unanswered directives were last sent again, by node.
        rebuilding: nodes introduce themselves to a coordinator without a journal.
        rebuilt: they have, since this process began.
    """

    settings: Settings
    job: Job
    history: tuple[Plan, ...] = ()
    book: Book = field(default_factory=Book)
    vitals: Mapping[NodeId, Vitals] = field(default_factory=dict)
    failures: Mapping[NodeId, tuple[float, str]] = field(default_factory=dict)
    round: Round = Round()
    declarations: tuple[Declaration, ...] = ()
    told: tuple[Told, ...] = ()
    extended: frozenset[NodeId] = frozenset()
    welcomed: frozenset[NodeId] = frozenset()
    draws: tuple[Draw, ...] = ()
    barriers: tuple[Barrier, ...] = ()
    finished_at: float = 0.0
    grown_at: float = 0.0
    saving: Saving | None = None
    saved_at: float = 0.0
    running: tuple[Running, ...] = ()
    commands: int = 0
    launchers: int = 0
    surplus: Mapping[Role, tuple[int, float]] = field(default_factory=dict)
    stopping: str = ""
    suspicious: bool = False
    resent: Mapping[NodeId, float] = field(default_factory=dict)
    rebuilding: Rebuilding | None = None
    rebuilt: bool = False

    @property
    def version(self) -> int:
        """The highest that a worker has told of; in a sync job servers too, and after a restore the checkpoint's."""
        job = self.job
        base = job.voids[-1].version if job.voids else 0
        among = job.members if job.is_sync or job.configuration is None else job.configuration.ranks
        return max([base, *(v.version for name, v in self.vitals.items() if name in among)])
