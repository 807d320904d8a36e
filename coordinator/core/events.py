"""What happens to a coordinator. `now` is unix seconds; `to` names the caller that waits for a `Reply`."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from coordinator.core.callers import Introduction
from coordinator.core.checkpoints.manifest import Manifest
from coordinator.core.plans.plan import Migration
from coordinator.core.state import Wait
from elastic_ps.core.configuration import NO_CONFIGURATION, ConfigId, NodeId, Role
from elastic_ps.core.data_order import DataSpec
from elastic_ps.core.model import Tensor


@dataclass(frozen=True)
class Event:
    """Base of all."""

    now: float


@dataclass(frozen=True)
class Started(Event):
    """The coordinator's process has begun, with or without a journal; `term`: at least."""

    term: int = 0


@dataclass(frozen=True)
class Tick(Event):
    """Time has passed."""


@dataclass(frozen=True)
class Joined(Event):
    """Register with INC_WORKER or INC_SERVER."""

    to: int
    role: Role
    host: str
    port: int
    pid: int
    nonce: str


@dataclass(frozen=True)
class LeaveAsked(Event):
    """Register with DEC_WORKER or DEC_SERVER."""

    to: int
    node: NodeId
    role: Role


@dataclass(frozen=True)
class Listening(Event):
    """A node has opened its control stream."""

    node: NodeId
    highest: ConfigId = NO_CONFIGURATION
    version: int = 0


@dataclass(frozen=True)
class Introduced(Event):
    """A node has opened its stream to a coordinator that has no journal, and says all it knows."""

    node: NodeId
    introduction: Introduction


class Answered(Event):
    """Base of answers to directives."""


@dataclass(frozen=True)
class Prepared(Answered):
    """PREPARED."""

    node: NodeId
    number: ConfigId
    version: int = 0


@dataclass(frozen=True)
class Synced(Answered):
    """SYNCED; `detail` "pause": its remaining blocks go at the clock."""

    node: NodeId
    number: ConfigId
    version: int = 0
    detail: str = ""


@dataclass(frozen=True)
class Armed(Answered):
    """ARMED."""

    node: NodeId
    number: ConfigId
    version: int = 0


@dataclass(frozen=True)
class Late(Answered):
    """LATE: to Arm, or to Save."""

    node: NodeId
    number: ConfigId
    version: int = 0


@dataclass(frozen=True)
class Switched(Answered):
    """SWITCHED."""

    node: NodeId
    number: ConfigId
    version: int = 0
    suspension_ms: float = 0.0
    bytes_moved: int = 0


@dataclass(frozen=True)
class Arrived(Answered):
    """ARRIVED."""

    node: NodeId
    number: ConfigId


@dataclass(frozen=True)
class Extended(Answered):
    """EXTENDED."""

    node: NodeId


@dataclass(frozen=True)
class Forgotten(Answered):
    """CANCELLED."""

    node: NodeId
    number: ConfigId


@dataclass(frozen=True)
class Saved(Answered):
    """SAVED; `detail` is JSON of the blocks written."""

    node: NodeId
    version: int
    detail: str


@dataclass(frozen=True)
class Unreadable(Answered):
    """UNREADABLE, or (not `damaged`) UNREAD; `detail` says why."""

    node: NodeId
    number: ConfigId
    detail: str
    damaged: bool = True


@dataclass(frozen=True)
class Commanded(Answered):
    """COMMANDED; `error` "" is success."""

    node: NodeId
    command: int
    error: str = ""


@dataclass(frozen=True)
class Tried(Answered):
    """TRIED; `error` "" is success."""

    node: NodeId
    optimizer: str
    error: str = ""


@dataclass(frozen=True)
class Broken(Answered):
    """BROKEN; `detail` says why."""

    node: NodeId
    detail: str


@dataclass(frozen=True)
class Declared(Event):
    """Declare. `data` None: the caller says nothing about it."""

    to: int
    node: NodeId
    tensors: tuple[Tensor, ...]
    store: int = 0
    optimizer: str = ""
    data: DataSpec | None = None
    local_update: bool = False


@dataclass(frozen=True)
class DrawAsked(Event):
    """Draw; `epoch` None: whichever the job is in."""

    to: int
    node: NodeId
    number: int
    epoch: int | None = None


@dataclass(frozen=True)
class BarrierAsked(Event):
    """Barrier: (place, number), and who shares it; (): all workers."""

    to: int
    node: NodeId
    place: tuple[int, int]
    sharing: tuple[NodeId, ...] = ()
    version: int = 0


@dataclass(frozen=True)
class Reported(Event):
    """Report, without the ledger and the steps, which the shell keeps."""

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
    waits: tuple[Wait, ...] = ()
    copied: int = 0


@dataclass(frozen=True)
class Exited(Event):
    """A launcher saw a process end."""

    nonce: str
    node: NodeId
    status: int


@dataclass(frozen=True)
class Attached(Event):
    """A launcher has come (+1) or gone (-1)."""

    change: int


@dataclass(frozen=True)
class CommandAsked(Event):
    """Command. A retry has the same id."""

    to: int
    id: int
    head: int
    body: str


@dataclass(frozen=True)
class ScaleAsked(Event):
    """Scale; 0 leaves a count as it is."""

    to: int
    workers: int = 0
    servers: int = 0
    dry_run: bool = False
    queue: bool = True
    migration: Migration = Migration.LIVE
    cause: str = "operator"


@dataclass(frozen=True)
class DrainAsked(Event):
    """Drain."""

    to: int
    node: NodeId
    queue: bool = True
    cause: str = "operator"


@dataclass(frozen=True)
class EvictAsked(Event):
    """Evict."""

    to: int
    node: NodeId
    cause: str = "by an operator"


@dataclass(frozen=True)
class CancelAsked(Event):
    """Cancel."""

    to: int


@dataclass(frozen=True)
class CheckpointAsked(Event):
    """Checkpoint."""

    to: int
    url: str = ""


@dataclass(frozen=True)
class StopAsked(Event):
    """Stop; `at_once`: do not wait for a checkpoint being written. `failed`: nor does the job end well."""

    to: int
    at_once: bool = False
    reason: str = "stopped by the operator"
    failed: bool = False


@dataclass(frozen=True)
class Withdrawn(Event):
    """The caller of `to` has hung up."""

    to: int


@dataclass(frozen=True)
class ManifestWritten(Event):
    """The effect `WriteManifest` is done; `error` "" is success."""

    url: str
    bytes: int = 0
    error: str = ""


@dataclass(frozen=True)
class CheckpointFound(Event):
    """The effect `FindCheckpoint` is done: a manifest, or the reason.

    `again`: the storage did not tell; it may, later.
    """

    url: str = ""
    manifest: Manifest | None = None
    error: str = ""
    again: bool = False
