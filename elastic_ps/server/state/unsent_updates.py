"""This module says which updates have been applied, and are with nobody else yet."""

from dataclasses import dataclass, field

from elastic_ps.core.model import Run
from elastic_ps.core.optimizer import Hyper
from elastic_ps.server.blocks.applied_batches import BatchId

RECORD_BYTES = 16 << 20
"""Gradients after which a RECORD is sent, so that its follower is not idle meanwhile."""


@dataclass
class UnsentUpdates:
    """`UnsentUpdates` have been applied here, and one RECORD to each follower will bring them.

    Attributes:
        version: the version that their blocks had.
        hyper: the optimizer's values.
        batch: the batch that the blocks take, in an async or ssp job.
        kind: of the aggregates; None: there are none yet.
        runs: the updated segments that were pushed.
        nbytes: of these.
    """

    version: int
    hyper: Hyper | None
    batch: BatchId | None
    kind: type | None
    runs: list[Run] = field(default_factory=list)
    nbytes: int = 0

    def takes(self, other: "UnsentUpdates") -> bool:
        """Return whether one RECORD can bring the updates of `other`, too.

        In an async or ssp job blocks that were not pushed stay at their version, and so go alone.
        """
        mine, theirs = (self.version, self.hyper, self.batch), (other.version, other.hyper, other.batch)
        alike = self.kind is other.kind or (self.batch is None and None in (self.kind, other.kind))
        return mine == theirs and alike and self.nbytes < RECORD_BYTES

    def add(self, segment: Run, nbytes: int, kind: type | None) -> None:
        """Take the update of a segment.

        Args:
            segment: that was updated.
            nbytes: of it.
            kind: of its aggregate; None: nobody pushed it.
        """
        if kind is not None:
            self.kind = kind
            self.runs.append(segment)
            self.nbytes += nbytes
