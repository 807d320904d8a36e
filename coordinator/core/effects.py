"""What a coordinator wants done. The shell does it, in order; results come back as events."""

from dataclasses import dataclass
from enum import Enum, auto

from coordinator.core.batches.book_of_batches import Book
from coordinator.core.checkpoints.manifest import CheckpointSearch, Manifest
from coordinator.core.job import CancelOrder, DurableJob, StopOrder
from coordinator.core.plans.plan import MigrationMode, Plan
from coordinator.core.replies import CallerReply
from elastic_ps.core.configuration import ConfigId, Configuration, NodeId
from elastic_ps.core.data_order import DataSpec
from elastic_ps.core.model import Tensor

# ---- directives: what nodes are told. See protos/elastic.proto. ------------------------------------------------------


@dataclass(frozen=True)
class Welcome:
    """First on every stream, and before a joiner's Prepare."""

    configuration: Configuration | None
    tensors: tuple[Tensor, ...]
    optimizers: tuple[str, ...]
    data: DataSpec | None
    identity: str
    begun: str


@dataclass(frozen=True)
class Prepare:
    """Hold this table ready."""

    configuration: Configuration
    migration: MigrationMode
    dead: tuple[NodeId, ...]
    restore: str


@dataclass(frozen=True)
class Arm:
    """Switch at the clock."""

    number: ConfigId
    clock: int


@dataclass(frozen=True)
class Adopt:
    """Switch now."""

    number: ConfigId


@dataclass(frozen=True)
class Committed:
    """Frozen copies may go; leaving servers may end."""

    number: ConfigId


@dataclass(frozen=True)
class Resume:
    """Pause mode: every block has arrived."""

    number: ConfigId


@dataclass(frozen=True)
class Extend:
    """The tables have grown."""

    tensors: tuple[Tensor, ...]
    assignment: tuple[int, ...]
    optimizers: tuple[str, ...]
    data: DataSpec | None


@dataclass(frozen=True)
class SaveBlocks:
    """Write a checkpoint's blocks."""

    clock: int
    url: str


@dataclass(frozen=True)
class RunCommand:
    """Run a handler."""

    id: int
    head: int
    body: str


@dataclass(frozen=True)
class TryOptimizer:
    """Try an optimizer that a script declares, on scratch memory."""

    optimizer: str
    dtypes: tuple[str, ...]


Directive = (
    Welcome
    | Prepare
    | Arm
    | Adopt
    | CancelOrder
    | Committed
    | Resume
    | Extend
    | SaveBlocks
    | StopOrder
    | RunCommand
    | TryOptimizer
)

# ---- effects ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class WriteJournal:
    """Write what has changed, at once; the shell returns from it when it is safe. Always the first effect.

    Attributes:
        job: None: as it was.
        plans: that have ended.
        book: None: as it was.
    """

    job: DurableJob | None
    plans: tuple[Plan, ...] = ()
    book: Book | None = None


@dataclass(frozen=True)
class Send:
    """A directive to a node; where it does not listen the directive is lost, and sent again when it does."""

    node: NodeId
    directive: Directive
    plan: int = 0


@dataclass(frozen=True)
class Reply:
    """The answer to a caller."""

    to: int
    reply: CallerReply


class Why(Enum):
    """Kinds of refusals."""

    INVALID = auto()  # it can never be done
    PRECONDITION = auto()  # not now, or not in this job
    NOT_FOUND = auto()  # the caller, or what it names, is not known here
    ENDING = auto()  # the job stops or goes back to its checkpoint: the caller's Stop is under way
    AGAIN = auto()  # the coordinator is not ready: the same request will do, later


@dataclass(frozen=True)
class Refuse:
    """No, and why."""

    to: int
    why: Why
    text: str


@dataclass(frozen=True)
class WantedProcesses:
    """To launchers: see the contract."""

    workers: int
    servers: int
    starting_workers: int
    starting_servers: int
    leaving: tuple[NodeId, ...]
    nodes: tuple[NodeId, ...]
    nonces: tuple[str, ...]
    expelled: tuple[str, ...]
    evicted: tuple[str, ...]
    restarting: tuple[str, ...]
    ended: bool
    failed: bool
    reason: str


@dataclass(frozen=True)
class Announce:
    """Tell launchers."""

    wanted: WantedProcesses


@dataclass(frozen=True)
class WriteManifest:
    """Make a checkpoint valid; `ManifestWritten` comes back."""

    url: str
    manifest: Manifest


@dataclass(frozen=True)
class DiscardCheckpoint:
    """Remove what there is of a checkpoint that did not become one; nothing comes back."""

    url: str


@dataclass(frozen=True)
class FindCheckpoint:
    """Read the checkpoint to load; `CheckpointFound` comes back. `patient`: see `checkpoints.find`."""

    search: CheckpointSearch
    patient: bool = True


@dataclass(frozen=True)
class Log:
    """One line for people."""

    text: str
    warning: bool = False


Effect = WriteJournal | Send | Reply | Refuse | Announce | WriteManifest | DiscardCheckpoint | FindCheckpoint | Log
