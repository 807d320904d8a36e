"""`AppliedBatches` knows which batches the blocks of an `async` or `ssp` job have taken."""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from elastic_ps.core.configuration import NodeId
from elastic_ps.core.model import Run


class BatchId(NamedTuple):
    """A `BatchId` is what a push is known by, whoever sends it.

    Attributes:
        origin: the worker that drew the batch first.
        number: batches of the origin times exchanges, plus the exchange.
    """

    origin: NodeId
    number: int


class AppliedBatches:
    """`AppliedBatches` knows the number of the last batch that each block has taken of each origin.

    Not thread-safe: `ServerState.changed` guards it.

    An origin pushes its batches in the order of their numbers, and who takes one over is the last to push it: so one
    number says of all below it that they are taken.
    """

    def __init__(self) -> None:
        self._blocks = 0
        self._last: dict[NodeId, NDArray[np.int64]] = {}  # by block id; -1: none

    def grow(self, blocks: int) -> None:
        """Take in that the model has `blocks` blocks now."""
        new = blocks - self._blocks
        self._last = {origin: np.pad(last, (0, new), constant_values=-1) for origin, last in self._last.items()}
        self._blocks = blocks

    @property
    def origins(self) -> int:
        """The number of origins of which some block may have taken something."""
        return len(self._last)

    def has(self, batch: BatchId, run: Run) -> NDArray[np.bool_]:
        """Return by block of a run whether it has taken a batch."""
        last = self._last.get(batch.origin)
        if last is None:
            return np.zeros(run[1], dtype=bool)
        taken: NDArray[np.bool_] = last[run[0] : sum(run)] >= batch.number
        return taken

    def take(self, batch: BatchId, run: Run) -> None:
        """Note that the blocks of a run have taken a batch."""
        self._of(batch.origin)[run[0] : sum(run)] = batch.number

    def _of(self, origin: NodeId) -> NDArray[np.int64]:
        if origin not in self._last:
            self._last[origin] = np.full(self._blocks, -1, dtype=np.int64)
        return self._last[origin]

    def image(self, run: Run) -> dict[NodeId, list[int]]:
        """Return what travels with the blocks of a run: by origin of which one of them has taken something, the last
        batches.
        """
        windows = {origin: last[run[0] : sum(run)] for origin, last in self._last.items()}
        return {origin: window.tolist() for origin, window in windows.items() if (window >= 0).any()}

    def load(self, run: Run, image: Mapping[NodeId, Sequence[int]]) -> None:
        """Replace what is known of the blocks of a run by an `image`."""
        self.forget([run])
        for origin, numbers in image.items():
            self._of(origin)[run[0] : sum(run)] = numbers

    def forget(self, runs: Iterable[Run]) -> None:
        """Forget what blocks have taken: they are not held any more, or come anew."""
        for first, count in runs:
            for last in self._last.values():
                last[first : first + count] = -1
