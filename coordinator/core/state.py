"""What a coordinator knows. Frozen: `protocol.step` makes the next state from the last.

`Job` and the book of batches are what survives a restart: the journal holds them, each on its own, because the book
changes at every draw. The rest of `State` is learnt again from the nodes.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from coordinator.core.batches.book_of_batches import Book
from coordinator.core.callers import Barrier, Declaration, Draw, Looking, Rebuilding, Running, Saving, Told, Trial
from coordinator.core.checkpoints.ledger_voids import Void
from coordinator.core.plans.plan import Migration, Plan
from coordinator.core.plans.scale_requests import Goal, Wish
from elastic_ps.core.configuration import ConfigId, Configuration, Member, NodeId, Role
from elastic_ps.core.data_order import DataSpec
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
class Job:
    """What survives the coordinator.

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
        damaged: folders of those that a server found damaged.
        unread: how often servers could not read one, by folder, since the job trained.
        begun: folder of the checkpoint that the job began from; "": from nothing.
        saves: the highest number in a checkpoint's name.
        voids: restores so far.
        expelled: nonces of the latest nodes that the job goes on without though nobody saw them end.
        evicted: those of them that a person wanted to go.
    """

    goal: Goal
    identity: str = ""
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
    unread: Mapping[str, int] = field(default_factory=dict)
    begun: str = ""
    saves: int = 0
    voids: tuple[Void, ...] = ()
    expelled: tuple[str, ...] = ()
    evicted: tuple[str, ...] = ()

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
class Wait:
    """What a node has told of a peer in its last report: `Wait` in the contract.

    Attributes:
        peer: whom it waits for.
        what: for people: "the values of version 12".
        since: unix seconds.
        unreachable: the peer's process does not answer its probes, or cannot be connected to.
    """

    peer: NodeId
    what: str
    since: float
    unreachable: bool = False


@dataclass(frozen=True)
class Vitals:
    """What a node has told lately; seconds, bytes, samples per second.

    `back`: since when it was not silent between; `grew`: when `bytes` or `copied` last changed.
    """

    heard: float
    back: float = 0.0
    grew: float = 0.0
    version: int = 0
    step_seconds: float = 0.0
    rtt_seconds: float = 0.0
    rate: float = 0.0
    bytes: int = 0
    copied: int = 0
    metrics: Mapping[str, float] = field(default_factory=dict)
    exchanging: bool = False
    transports: Mapping[NodeId, str] = field(default_factory=dict)
    waits: tuple[Wait, ...] = ()


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
        round: answers in the plan under way.
        declarations: not yet in the tables.
        trials: optimizers of declarations that the servers try first.
        told: in the tables; the servers have not all confirmed.
        extended: nodes that have confirmed the tables as they are.
        welcomed: joiners that know the tables by a Welcome.
        draws: that have not been answered.
        barriers: workers that are in one.
        finished_at: when the last script ended.
        grown_at: when the tables last grew.
        saving: the checkpoint being written.
        saved_at: when the last one was.
        looking: the search for a checkpoint to go back to.
        unsaved: why the last one that was tried came to nothing; "": it did not.
        running: scripts' commands at the servers.
        launchers: attached ones.
        surplus: by role, processes that launchers were told to start and that are not wanted any more, and until when
            they may still come.
        stopping: why the job ends once the checkpoint is written; "": it does not.
        ticked_at: when time last passed; a gap is a silence of the coordinator's own.
        awake_since: since when there was none; it could hear nobody's answer before.
        doubted_since: when most leases ran out together, so that the fault is likely to be here; 0: they have not.
        suspected: of whom people have been told that the job waits for them.
        resent: when unanswered directives were last sent again, by node.
        reached: the version that nodes which are gone have told of since the job last went back to a checkpoint.
        rebuilding: nodes introduce themselves to a coordinator without a journal.
        rebuilt: they have, since this process began.
    """

    settings: Settings
    job: Job
    history: tuple[Plan, ...] = ()
    book: Book = field(default_factory=Book)
    vitals: Mapping[NodeId, Vitals] = field(default_factory=dict)
    round: Round = Round()
    declarations: tuple[Declaration, ...] = ()
    trials: tuple[Trial, ...] = ()
    told: tuple[Told, ...] = ()
    extended: frozenset[NodeId] = frozenset()
    welcomed: frozenset[NodeId] = frozenset()
    draws: tuple[Draw, ...] = ()
    barriers: tuple[Barrier, ...] = ()
    finished_at: float = 0.0
    grown_at: float = 0.0
    saving: Saving | None = None
    saved_at: float = 0.0
    looking: Looking | None = None
    unsaved: str = ""
    running: tuple[Running, ...] = ()
    launchers: int = 0
    surplus: Mapping[Role, tuple[int, float]] = field(default_factory=dict)
    stopping: str = ""
    ticked_at: float = 0.0
    awake_since: float = 0.0
    doubted_since: float = 0.0
    suspected: frozenset[NodeId] = frozenset()
    resent: Mapping[NodeId, float] = field(default_factory=dict)
    reached: int = 0
    rebuilding: Rebuilding | None = None
    rebuilt: bool = False

    @property
    def version(self) -> int:
        """The highest that a worker has told of; in a sync job servers too, and after a restore the checkpoint's."""
        job = self.job
        base = job.voids[-1].version if job.voids else 0
        among = job.members if job.is_sync or job.configuration is None else job.configuration.ranks
        return max([base, self.reached, *(v.version for name, v in self.vitals.items() if name in among)])
