"""What is under way for somebody who waits for its answer: `to` names that caller. All of it ends with the process."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from coordinator.batches import Book
from elastic_ps.core.configuration import NodeId
from elastic_ps.core.data import DataSpec
from elastic_ps.core.model import Tensor


@dataclass(frozen=True)
class Declaration:
    """A script's Declare that waits for its answer."""

    to: int
    node: NodeId
    tensors: tuple[Tensor, ...]
    store: int
    optimizer: str
    data: DataSpec | None
    local_update: bool


@dataclass(frozen=True)
class Told:
    """A Declare that is in the tables and waits for the servers to know it."""

    to: int
    warnings: tuple[str, ...]


@dataclass(frozen=True)
class Draw:
    """A worker's Draw that waits for its batch; `epoch` None: whichever the job is in."""

    to: int
    node: NodeId
    number: int
    epoch: int | None


@dataclass(frozen=True)
class Barrier:
    """A worker that is in a barrier: `place` says which, `sharing` who comes to it; (): all workers."""

    to: int
    node: NodeId
    place: tuple[int, int]
    sharing: tuple[NodeId, ...]
    version: int


@dataclass(frozen=True)
class Saving:
    """A checkpoint being written.

    Attributes:
        root: folder of checkpoints.
        url: of this one.
        clock: version that is saved. Without a common version only a number, above every earlier one: servers save at
            once.
        book: as it stood before servers were told; None: a sync job.
        saved: each server's JSON.
        tries: clocks set.
        writing: the manifest.
    """

    to: tuple[int, ...]
    root: str
    url: str = ""
    clock: int | None = None
    book: Book | None = None
    saved: Mapping[NodeId, str] = field(default_factory=dict)
    tries: int = 0
    writing: bool = False


@dataclass(frozen=True)
class Running:
    """A script's command at the servers' handlers."""

    id: int
    to: int
    head: int
    body: str
    waiting: frozenset[NodeId]
    errors: tuple[str, ...] = ()
