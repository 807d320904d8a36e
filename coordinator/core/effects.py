"""An effect is something that a coordinator wants done. The shell does it, in order; results come back as events."""

from dataclasses import dataclass
from enum import Enum, auto

from coordinator.core.batches.async_batches import Book
from coordinator.core.checkpoints.manifest import CheckpointSearch, Manifest
from coordinator.core.job import CancelOrder, DurableJob, StopOrder
from coordinator.core.plans.plan import MigrationMode, Plan
from coordinator.core.replies import CallerReply
from elastic_ps.core.configuration import ConfigId, Configuration, NodeId
from elastic_ps.core.data_order import DataSpec
from elastic_ps.core.model import Run, Tensor

# ---- directives: what nodes are told. See protos/elastic.proto. ------------------------------------------------------


@dataclass(frozen=True)
class Welcome:
    """A node learns all that is in force, first on every stream, and before a joiner's Prepare."""

    configuration: Configuration | None
    tensors: tuple[Tensor, ...]
    optimizers: tuple[str, ...]
    data: DataSpec | None
    identity: str
    begun: str
    saves: int = 0
    since: float = 0.0


@dataclass(frozen=True)
class Prepare:
    """A node must hold this configuration ready."""

    configuration: Configuration
    migration: MigrationMode
    dead: tuple[NodeId, ...]
    restore: str
    undecided: bool = False


@dataclass(frozen=True)
class Arm:
    """A node must switch at the clock."""

    number: ConfigId
    clock: int


@dataclass(frozen=True)
class Adopt:
    """A node must switch now; after a server's death to the configuration that has been `decided`.

    `promoted`: runs of blocks that their owners in it have at once, without a hand-over.
    """

    number: ConfigId
    decided: Configuration | None = None
    promoted: tuple[Run, ...] = ()


@dataclass(frozen=True)
class Committed:
    """A node may drop frozen copies; a leaving server may end."""

    number: ConfigId


@dataclass(frozen=True)
class Resume:
    """A worker may go on after a pause: every block has arrived."""

    number: ConfigId


@dataclass(frozen=True)
class Extend:
    """A node must take over what has been declared since, if it is still in `configuration`."""

    configuration: ConfigId
    tensors: tuple[Tensor, ...]
    assignment: tuple[int, ...]
    optimizers: tuple[str, ...]
    data: DataSpec | None
    followers: tuple[int, ...] = ()
    growth: int = 0


@dataclass(frozen=True)
class SaveBlocks:
    """A server must write a checkpoint's blocks, and take back what it wrote into the folder that was `given_up`."""

    clock: int
    url: str
    given_up: str = ""


@dataclass(frozen=True)
class RunCommand:
    """A server must run its handler on a script's command."""

    id: int
    head: int
    body: str


@dataclass(frozen=True)
class TryOptimizer:
    """A server must try an optimizer that a script declares, on scratch memory."""

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
    """The shell writes what has changed at once, and returns when it is safe. It is always the first effect.

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
    """A directive goes to a node; where the node does not listen it is lost, and sent again when it does."""

    node: NodeId
    directive: Directive
    plan: int = 0


@dataclass(frozen=True)
class Reply:
    """A caller is answered."""

    to: int
    reply: CallerReply


class Why(Enum):
    """A reason says of which kind a refusal is."""

    INVALID = auto()  # it can never be done
    PRECONDITION = auto()  # not now, or not in this job
    NOT_FOUND = auto()  # the caller, or what it names, is not known here
    ENDING = auto()  # the job stops or goes back to its checkpoint: the caller's Stop is under way
    AGAIN = auto()  # the coordinator is not ready: the same request will do, later
    BROKEN = auto()  # a bug of the coordinator: it could not take the request, and nothing has come of it


@dataclass(frozen=True)
class Refuse:
    """A caller is refused, with the reason."""

    to: int
    why: Why
    text: str


@dataclass(frozen=True)
class WantedProcesses:
    """Launchers have to bring this about: see `Wanted` in protos/elastic.proto."""

    workers: int
    servers: int
    starting_workers: int
    starting_servers: int
    leaving: tuple[NodeId, ...]
    nodes: tuple[NodeId, ...]
    nonces: tuple[str, ...]
    joining: tuple[NodeId, ...]
    expelled: tuple[str, ...]
    evicted: tuple[str, ...]
    restarting: tuple[str, ...]
    ended: bool
    failed: bool
    reason: str


@dataclass(frozen=True)
class Announce:
    """Launchers are told what is wanted."""

    wanted: WantedProcesses


@dataclass(frozen=True)
class WriteManifest:
    """The shell makes a checkpoint valid; `ManifestWritten` comes back. `damaged`: none of the older ones to keep."""

    url: str
    manifest: Manifest
    damaged: frozenset[str] = frozenset()


@dataclass(frozen=True)
class DiscardCheckpoint:
    """The shell removes what there is of a checkpoint that did not become one; nothing comes back."""

    url: str


@dataclass(frozen=True)
class FindCheckpoint:
    """The shell finds the checkpoint to load: `CheckpointFound` comes. `patient`: see `server.checkpoint_choice`."""

    search: CheckpointSearch
    patient: bool = True


@dataclass(frozen=True)
class Log:
    """One line is logged for people."""

    text: str
    warning: bool = False


Effect = WriteJournal | Send | Reply | Refuse | Announce | WriteManifest | DiscardCheckpoint | FindCheckpoint | Log
