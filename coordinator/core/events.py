"""Events happen to a coordinator. `now` is unix seconds; `to` names the caller that waits for a `Reply`."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from coordinator.core.callers import Introduction
from coordinator.core.checkpoints.manifest import CheckpointSearch, Manifest
from coordinator.core.plans.plan import MigrationMode
from coordinator.core.state import ReportedWait
from elastic_ps.core.configuration import NO_CONFIGURATION, ConfigId, NodeId, Role
from elastic_ps.core.data_order import DataSpec
from elastic_ps.core.model import Tensor
from elastic_ps.core.module_file import ModuleFile


@dataclass(frozen=True)
class JobEvent:
    """An event is anything that happens to a coordinator."""

    now: float


@dataclass(frozen=True)
class Started(JobEvent):
    """The coordinator's process has begun, with or without a journal; `term`: at least."""

    term: int = 0


@dataclass(frozen=True)
class Tick(JobEvent):
    """Time has passed."""


@dataclass(frozen=True)
class Joined(JobEvent):
    """A process registers with INC_WORKER or INC_SERVER."""

    to: int
    role: Role
    host: str
    port: int
    pid: int
    nonce: str
    machine: str = ""
    modules: tuple[ModuleFile, ...] = ()


@dataclass(frozen=True)
class LeaveAsked(JobEvent):
    """A node asks to leave: it registers with DEC_WORKER or DEC_SERVER."""

    to: int
    node: NodeId
    role: Role


@dataclass(frozen=True)
class Listening(JobEvent):
    """A node has opened its control stream."""

    node: NodeId
    highest: ConfigId = NO_CONFIGURATION
    version: int = 0


@dataclass(frozen=True)
class Introduced(JobEvent):
    """A node has opened its stream to a coordinator that has no journal, and says all it knows."""

    node: NodeId
    introduction: Introduction


@dataclass(frozen=True)
class Declared(JobEvent):
    """A script declares what it uses; `data` None: it says nothing about it."""

    to: int
    node: NodeId
    tensors: tuple[Tensor, ...]
    store: int = 0
    optimizer: str = ""
    data: DataSpec | None = None
    local_update: bool = False


@dataclass(frozen=True)
class DrawAsked(JobEvent):
    """A worker draws its next batch; `epoch` None: whichever the job is in."""

    to: int
    node: NodeId
    number: int
    epoch: int | None = None


@dataclass(frozen=True)
class BarrierAsked(JobEvent):
    """A worker is in the barrier (place, number); `sharing` says who comes to it, () being all workers."""

    to: int
    node: NodeId
    place: tuple[int, int]
    sharing: tuple[NodeId, ...] = ()
    version: int = 0


@dataclass(frozen=True)
class Reported(JobEvent):
    """A node reports; the ledger and the steps of its report are kept by the shell."""

    node: NodeId
    version: int
    step_seconds: float = 0.0
    rtt_seconds: float = 0.0
    rate: float = 0.0
    bytes: int = 0
    metrics: Mapping[str, float] = field(default_factory=dict)
    finished: bool = False
    exchanging: bool = False
    transports: Mapping[NodeId, str] = field(default_factory=dict)
    waits: tuple[ReportedWait, ...] = ()
    copied: int = 0
    place: int = 0
    group: tuple[ConfigId, int] = (NO_CONFIGURATION, 0)


@dataclass(frozen=True)
class Exited(JobEvent):
    """A launcher has seen a process end."""

    nonce: str
    node: NodeId
    status: int


@dataclass(frozen=True)
class Attached(JobEvent):
    """A launcher has come (+1) or gone (-1)."""

    change: int


@dataclass(frozen=True)
class CommandAsked(JobEvent):
    """A script has a command for the servers' handlers. A retry has the same id."""

    to: int
    node: NodeId
    id: int
    head: int
    body: str


@dataclass(frozen=True)
class ScaleAsked(JobEvent):
    """An operator asks for other counts of nodes; 0 leaves a count as it is."""

    to: int
    workers: int = 0
    servers: int = 0
    dry_run: bool = False
    queue: bool = True
    migration: MigrationMode = MigrationMode.LIVE
    cause: str = "operator"


@dataclass(frozen=True)
class DrainAsked(JobEvent):
    """An operator asks for a plan without one node."""

    to: int
    node: NodeId
    queue: bool = True
    cause: str = "operator"


@dataclass(frozen=True)
class EvictAsked(JobEvent):
    """An operator asks that the job goes on without a node at once."""

    to: int
    node: NodeId
    cause: str = "by an operator"


@dataclass(frozen=True)
class CancelAsked(JobEvent):
    """An operator asks that the plan under way is cancelled; `plan` is its id, 0 for whichever it is."""

    to: int
    plan: int = 0


@dataclass(frozen=True)
class CheckpointAsked(JobEvent):
    """An operator asks for a checkpoint."""

    to: int
    url: str = ""


@dataclass(frozen=True)
class StopAsked(JobEvent):
    """An operator ends the job, with `at_once` before a checkpoint being written is whole, with `failed` not well."""

    to: int
    at_once: bool = False
    reason: str = "stopped by the operator"
    failed: bool = False


@dataclass(frozen=True)
class Withdrawn(JobEvent):
    """The caller of `to` has hung up."""

    to: int


@dataclass(frozen=True)
class ManifestWritten(JobEvent):
    """The effect `WriteManifest` is done; `error` "" is success."""

    url: str
    bytes: int = 0
    error: str = ""


@dataclass(frozen=True)
class CheckpointFound(JobEvent):
    """The effect `FindCheckpoint` is done: a manifest, or the reason.

    `again`: the storage did not tell; it may, later. `search`: what was looked for; None: what the job may load now.
    """

    url: str = ""
    manifest: Manifest | None = None
    error: str = ""
    again: bool = False
    search: CheckpointSearch | None = None
