"""This module says what a coordinator knows. A state never changes: `protocol.step` makes the next one from the last.

`DurableJob` and the book of batches survive a restart; the rest of `State` is learnt again from the nodes.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from coordinator.core.batches.async_batches import Book
from coordinator.core.callers import (
    Barrier,
    Declaration,
    Draw,
    OptimizerTrial,
    PendingCheckpoint,
    PendingSearch,
    Rebuilding,
    RunningCommand,
    UnconfirmedDeclaration,
)
from coordinator.core.job import DurableJob
from coordinator.core.plans.plan import MigrationMode, Plan
from coordinator.core.plans.promotion import Holdings
from elastic_ps.core.configuration import MOST_REPLICAS, NO_CONFIGURATION, ConfigId, NodeId, Role
from elastic_ps.core.errors import ConfigurationError


@dataclass(frozen=True)
class CoordinatorSettings:
    """Settings hold what the coordinator was started with.

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
        join_options: of `elasticrun --role`, with which a person starts one node by hand.
        operator: a Kubernetes operator runs the job, and alone asks for other counts, drains and its end.
        replicas: servers that follow each block besides its owner: 0 or 1.

    Raises:
        ConfigurationError: another number of replicas.
    """

    name: str = "job"
    lease: float = 10.0
    join_timeout: float = 60.0
    resend_after: float = 2.0
    settle: float = 0.3
    margin: int = 2
    migration: MigrationMode = MigrationMode.LIVE
    checkpoint: str = ""
    restore: str = ""
    checkpoint_interval: float = 0.0
    join_options: str = ""
    operator: bool = False
    replicas: int = 0

    def __post_init__(self) -> None:
        if not 0 <= self.replicas <= MOST_REPLICAS:
            raise ConfigurationError(
                f"{self.replicas} replicas: a block has none, or one, which survives the death of any one server"
            )


@dataclass(frozen=True)
class ReportedWait:
    """A node has told in its last report that it waits for a peer: `Wait` in protos/elastic.proto.

    Attributes:
        peer: whom it waits for.
        what: for people: "the values of version 12".
        since: unix seconds.
        unreachable: the peer's process does not answer its probes, or cannot be connected to.
        told: unix seconds since which the node's reports have said so of the peer, without one that did not.
    """

    peer: NodeId
    what: str
    since: float
    unreachable: bool = False
    told: float = 0.0


@dataclass(frozen=True)
class Vitals:
    """Vitals hold what a node has told lately; seconds, bytes, samples per second.

    `back`: since when it was not silent between; `listening`: when it last opened its control stream;
    `grew`: when `bytes` or `copied` last changed; `rate`: in the
    configuration in force, 0 where that is not known yet; `place`: the last step that a worker has begun, see
    `Barrier`; `group`: the configuration whose members it waits for, as their group has failed, and how often it has.
    """

    heard: float
    back: float = 0.0
    listening: float = 0.0
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
    waits: tuple[ReportedWait, ...] = ()
    place: int = 0
    group: tuple[ConfigId, int] = (NO_CONFIGURATION, 0)


@dataclass(frozen=True)
class PlanAnswers:
    """Answers hold who has answered what in the plan under way.

    `unheard`: after a restart from ARMED, who has not yet said which configuration it is in; nobody is armed before all
    have, or `until` (0: nobody is asked).
    `late`: a version past the clock.
    `reached`: the latest version at which a node has switched: beyond the clock where it was adopted.
    `holdings`: after a server's death, what each survivor has of which blocks.
    """

    prepared: frozenset[NodeId] = frozenset()
    synced: frozenset[NodeId] = frozenset()
    armed: frozenset[NodeId] = frozenset()
    switched: frozenset[NodeId] = frozenset()
    arrived: frozenset[NodeId] = frozenset()
    followed: frozenset[NodeId] = frozenset()
    holdings: Holdings = field(default_factory=dict)
    late: int | None = None
    reached: int = 0
    unheard: frozenset[NodeId] = frozenset()
    until: float = 0.0


@dataclass(frozen=True)
class State:
    """A state holds everything that a coordinator knows.

    Attributes:
        settings: of the process.
        job: the durable part.
        history: plans that have ended, oldest first.
        book: of batches, durable too; empty where batches are not drawn.
        vitals: by node.
        answers: in the plan under way.
        declarations: that are not part of the job yet.
        trials: optimizers of declarations that the servers try first.
        told: declarations that are part of the job; the servers have not all confirmed them.
        extended: nodes that have confirmed all that is declared.
        welcomed: joiners that know what is declared by a Welcome.
        draws: that have not been answered.
        barriers: workers that are in one.
        finished_at: when the last script ended.
        grown_at: when something was last declared.
        saving: the checkpoint being written.
        saved_at: when the last one was.
        taken: nonces of nodes by which another process, too, has tried to join.
        ordered: folder that nodes were last told to save into; "": that is a checkpoint, or may yet become one.
        looking: the search for a checkpoint to go back to.
        unsaved: why the last one that was tried came to nothing; "": it did not.
        running: scripts' commands at the servers.
        launchers: attached ones.
        surplus: by role, processes that launchers were told to start and that are not wanted any more, and until when
            they may still come.
        ticked_at: when time last passed; a gap is a silence of the coordinator's own.
        awake_since: since when there was none; it could hear nobody's answer before.
        doubted_since: when most leases ran out together, so that the fault is likely to be here; 0: they have not.
        spared: when each node was last waited for because the job would have failed without it; for a lease.
        suspected: of whom people have been told that the job waits for them.
        resent: when unanswered directives were last sent again, by node.
        reached: the version that nodes which are gone have told of since the job last went back to a checkpoint.
        rebuilding: nodes introduce themselves to a coordinator without a journal.
        rebuilt: they have, since this process began.
        protect_after: unix seconds before which no plan makes followers in the background, as one came to nothing.
    """

    settings: CoordinatorSettings
    job: DurableJob
    history: tuple[Plan, ...] = ()
    book: Book = field(default_factory=Book)
    vitals: Mapping[NodeId, Vitals] = field(default_factory=dict)
    answers: PlanAnswers = PlanAnswers()
    declarations: tuple[Declaration, ...] = ()
    trials: tuple[OptimizerTrial, ...] = ()
    told: tuple[UnconfirmedDeclaration, ...] = ()
    extended: frozenset[NodeId] = frozenset()
    welcomed: frozenset[NodeId] = frozenset()
    draws: tuple[Draw, ...] = ()
    barriers: tuple[Barrier, ...] = ()
    finished_at: float = 0.0
    grown_at: float = 0.0
    saving: PendingCheckpoint | None = None
    saved_at: float = 0.0
    taken: frozenset[str] = frozenset()
    ordered: str = ""
    looking: PendingSearch | None = None
    unsaved: str = ""
    running: tuple[RunningCommand, ...] = ()
    launchers: int = 0
    surplus: Mapping[Role, tuple[int, float]] = field(default_factory=dict)
    ticked_at: float = 0.0
    awake_since: float = 0.0
    doubted_since: float = 0.0
    spared: Mapping[NodeId, float] = field(default_factory=dict)
    suspected: frozenset[NodeId] = frozenset()
    resent: Mapping[NodeId, float] = field(default_factory=dict)
    reached: int = 0
    rebuilding: Rebuilding | None = None
    rebuilt: bool = False
    protect_after: float = 0.0

    @property
    def failed_group(self) -> tuple[ConfigId, int]:
        """The group of a job without servers whose members have to meet again; of (NO_CONFIGURATION, 0) nobody."""
        told = self.vitals.values() if self.job.all_reduces else ()
        return max((vitals.group for vitals in told), default=(NO_CONFIGURATION, 0))

    @property
    def version(self) -> int:
        """The highest that a worker has told of; in a sync job servers too, and after a restore the checkpoint's."""
        job = self.job
        base = job.voids[-1].version if job.voids else 0
        among = job.members if job.is_sync or job.configuration is None else job.configuration.ranks
        return max([base, self.reached, *(v.version for name, v in self.vitals.items() if name in among)])
