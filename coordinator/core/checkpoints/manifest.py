"""A manifest makes a checkpoint: it says of which version it is, what the job was then, and where each block lies."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from coordinator.core.batches.async_batches import Book
from elastic_ps.core.configuration import Configuration, NodeId
from elastic_ps.core.data_order import DataSpec
from elastic_ps.core.model import Model

NO_AGE = (0.0, 0)
"""After all that `Manifest.age` has: of what is no checkpoint."""

KEPT = 3
"""How many complete checkpoints of a job are kept."""

Stretch = tuple[int, int, int]
"""A run of blocks that share a value: the first block, how many, and the value."""


@dataclass(frozen=True)
class Manifest:
    """A manifest is what a coordinator writes last into a checkpoint, and reads first.

    Attributes:
        version: of every block; only a number in an async or ssp job.
        seed: of the data order.
        model: tensors and blocks.
        optimizers: JSON by store.
        data: None: static.
        local_update: optimizers lived in the workers.
        configuration: that wrote it.
        book: of batches, which is consistent with each block by itself only; None: a sync job.
        blocks: the servers' entries by block id.
        identity: of the job that wrote it; "": of before jobs had one.
        written: unix seconds; 0: of before.
        applied: by origin the last batch that blocks have taken of it, of origins whose batches the book gives again.
    """

    version: int
    seed: int
    model: Model
    optimizers: tuple[str, ...]
    data: DataSpec | None
    local_update: bool
    configuration: Configuration
    book: Book | None
    blocks: Mapping[int, Mapping[str, Any]]
    identity: str = ""
    written: float = 0.0
    applied: Mapping[NodeId, tuple[Stretch, ...]] = field(default_factory=dict)

    @property
    def age(self) -> tuple[float, int]:
        """A key that orders checkpoints of several jobs, the last written first."""
        return -self.written, -self.version

    @property
    def floors(self) -> tuple[Stretch, ...]:
        """The version of each block, as stretches of blocks that have the same: what its updates began at."""
        return stretches([int(self.blocks[block].get("version", self.version)) for block in sorted(self.blocks)])


def stretches(values: Sequence[int]) -> tuple[Stretch, ...]:
    """Return a value of each block, by its id, as stretches of the same."""
    found: list[Stretch] = []
    for block, value in enumerate(values):
        if found and found[-1][2] == value:
            found[-1] = (found[-1][0], found[-1][1] + 1, value)
        else:
            found.append((block, 1, value))
    return tuple(found)


@dataclass(frozen=True)
class CheckpointSearch:
    """A search names the checkpoints that a job may load: its own, and where it has none, what it was to begin from.

    Attributes:
        identity: of the job.
        known: its own, as it remembers, newest first.
        folder: where its own lie; "": nowhere.
        begun: the checkpoint that it began from; "": none.
        restore: a checkpoint that was named to begin from, or a folder of some; "": none.
        passed: those that servers could not load.
        since: unix seconds, when it began; of its own that it does not remember those from before are of runs that were
            given up, and of what was named nothing from later counts; 0: nobody knows.
    """

    identity: str
    known: tuple[str, ...] = ()
    folder: str = ""
    begun: str = ""
    restore: str = ""
    passed: frozenset[str] = frozenset()
    since: float = 0.0
