"""Updates of some rows of a block, at a cost that follows the rows.

An update writes to the image of the values in which a block is not. That one is a version behind, which is the rows of
the last update: they are copied first. Where more is behind, all of the block is.
"""

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from elastic_ps.core.errors import ProtocolError
from elastic_ps.core.model import Run
from elastic_ps.core.optimizer import Hyper
from elastic_ps.core.rows import Rows, rows_of
from elastic_ps.server.contributions import Aggregate

if TYPE_CHECKING:
    from elastic_ps.server.store import Store


class Tables:
    """See the module.

    Args:
        store: of the blocks.
    """

    def __init__(self, store: "Store"):
        self._store = store
        self._behind: dict[int, NDArray[np.int64]] = {}  # by block: the only rows in which its images differ

    def rows(self, run: Run) -> range:
        """The rows of their tensor that a run of blocks holds.

        Raises:
            ProtocolError: the blocks are of several tensors, or do not hold whole rows.
        """
        found = rows_of(self._store.model, run)
        if found is None:
            raise ProtocolError(f"blocks {run[0]} to {sum(run) - 1} do not hold whole rows of one tensor")
        return found

    def update(self, segment: Run, aggregate: Rows, hyper: Hyper | None) -> None:
        """Update the rows of the aggregate; the others, and their states, stay. Versions and counts are the store's."""
        for block in range(segment[0], sum(segment)):
            rows = self.rows((block, 1))
            own = aggregate.between(rows)
            if len(own):
                self._update(block, own.numbers - rows.start, own.values, hyper)

    def _update(self, block: int, at: NDArray[np.int64], gradient: NDArray[np.generic], hyper: Hyper | None) -> None:
        store = self._store
        rule = store.treatment(block).rule
        assert rule is not None, "where the aggregate is the value, it has all rows"
        width = gradient.shape[1]
        old, new = (side.reshape(-1, width) for side in store.sides(block))
        behind = self._behind.get(block, slice(None))
        new[behind] = old[behind]
        states = {name: array[: old.size].reshape(old.shape) for name, array in store.states((block, 1)).items()}
        taken = {name: array[at] for name, array in states.items()}
        made = np.empty_like(gradient)
        flat = {name: array.reshape(-1) for name, array in taken.items()}
        values, added = old[at].reshape(-1), Aggregate([gradient.reshape(-1)])
        rule.apply(values, made.reshape(-1), added, flat, *store.step(block, hyper))
        new[at] = made
        for name, array in states.items():
            array[at] = taken[name]
        self._behind[block] = at
        store.turn(block)

    def values(self, segment: Run, numbers: NDArray[np.int64]) -> Rows:
        """A copy of some rows of a segment's values; `numbers` are ascending and in it."""
        store, found = self._store, []
        for block in range(segment[0], sum(segment)):
            rows = self.rows((block, 1))
            low, high = np.searchsorted(numbers, (rows.start, rows.stop)).tolist()
            found.append(store.sides(block)[0].reshape(len(rows), -1)[numbers[low:high] - rows.start])
        return Rows(numbers, np.concatenate(found))

    def forget(self, run: Run) -> None:
        """The values of a run were written otherwise than by rows."""
        if self._behind:
            for block in range(run[0], sum(run)):
                self._behind.pop(block, None)
