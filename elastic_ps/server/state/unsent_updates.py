"""This module says which updates have been applied, and are with nobody else yet."""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from elastic_ps.core.model import Run
from elastic_ps.core.optimizer import Hyper
from elastic_ps.server.blocks.applied_batches import BatchId

RECORD_BYTES = 16 << 20
"""Gradients after which a RECORD is sent, so that its follower is not idle meanwhile."""


@dataclass
class WithheldEntry:
    """A `WithheldEntry` of the ledger waits until followers have the updates that it tells of.

    Attributes:
        version: the version that the blocks had before.
        blocks: by block, whether its follower lacks the update yet.
    """

    version: int
    blocks: NDArray[np.bool_]


@dataclass
class UnsentUpdates:
    """`UnsentUpdates` have been applied here, and one RECORD to each follower will bring them.

    Attributes:
        version: the version that their blocks had.
        hyper: the optimizer's values.
        batch: the batch that the blocks take, in an async or ssp job.
        kind: of the aggregates.
        runs: the updated segments.
        nbytes: of these.
    """

    version: int
    hyper: Hyper | None
    batch: BatchId | None
    kind: type
    runs: list[Run] = field(default_factory=list)
    nbytes: int = 0

    def is_like(self, other: "UnsentUpdates") -> bool:
        """Return whether one RECORD can bring both."""
        mine = self.version, self.hyper, self.batch, self.kind
        return mine == (other.version, other.hyper, other.batch, other.kind)
