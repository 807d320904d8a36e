"""Updates of some rows of a table, at a cost that follows the rows.

An update writes to the image of the values in which blocks are not. That one is a version behind, which is the rows of
the last update: they are copied first. A block that is further behind, or of which that is not known, is copied whole.
"""

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from elastic_ps.core.errors import ProtocolError
from elastic_ps.core.model import Run
from elastic_ps.core.optimizer import Hyper
from elastic_ps.core.segments import Array
from elastic_ps.core.sparse_rows import Rows, rows_of
from elastic_ps.server.updates.contributions import Aggregate

if TYPE_CHECKING:
    from elastic_ps.server.blocks.block_store import Store


class Tables:
    """See the module.

    Args:
        store: of the blocks.
    """

    def __init__(self, store: "Store"):
        self._store = store
        self._behind: dict[int, NDArray[np.int64]] = {}  # by tensor: rows in which the images differ,
        self._known: NDArray[np.bool_] = np.zeros(0, dtype=bool)  # of those blocks that differ in no other

    def grow(self, blocks: int) -> None:
        """The model has `blocks` blocks now."""
        self._known = np.append(self._known, np.zeros(blocks - len(self._known), dtype=bool))

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
        store, rows = self._store, self.rows(segment)
        rule = store.treatment(segment[0]).rule
        assert rule is not None, "where the aggregate is the value, it has all rows"
        at = aggregate.numbers - rows.start
        old, new = (side.reshape(len(rows), -1) for side in store.sides(segment))
        self._catch_up(segment, rows, old, new)
        states = {name: array[: old.size].reshape(old.shape) for name, array in store.states(segment).items()}
        taken = {name: array[at] for name, array in states.items()}
        made = np.empty_like(aggregate.values)
        flat = {name: array.reshape(-1) for name, array in taken.items()}
        added = Aggregate([aggregate.values.reshape(-1)])
        rule.apply(old[at].reshape(-1), made.reshape(-1), added, flat, *store.step(segment[0], hyper))
        new[at] = made
        for name, array in states.items():
            array[at] = taken[name]
        self._differ(segment, rows, aggregate.numbers)
        store.values.turn(segment)

    def _catch_up(self, segment: Run, rows: range, old: Array, new: Array) -> None:
        """Make the other image equal."""
        unknown = np.flatnonzero(~self._known[segment[0] : sum(segment)]) + segment[0]
        for block in unknown.tolist():
            part = self.rows((block, 1))
            window = slice(part.start - rows.start, part.stop - rows.start)
            new[window] = old[window]
        behind = self._behind.get(self._tensor(segment))
        if behind is not None:
            at = behind[slice(*np.searchsorted(behind, (rows.start, rows.stop)))] - rows.start
            new[at] = old[at]

    def _differ(self, segment: Run, rows: range, numbers: NDArray[np.int64]) -> None:
        """The images are equal in a segment, but for these rows of it."""
        others = self._behind.get(self._tensor(segment), numbers[:0])
        low, high = np.searchsorted(others, (rows.start, rows.stop)).tolist()
        self._behind[self._tensor(segment)] = np.concatenate([others[:low], numbers, others[high:]])
        self._known[segment[0] : sum(segment)] = True

    def _tensor(self, run: Run) -> int:
        return self._store.model.blocks[run[0]].tensor

    def values(self, segment: Run, numbers: NDArray[np.int64]) -> Rows:
        """A copy of some rows of a segment's values; `numbers` are ascending and in it."""
        rows = self.rows(segment)
        return Rows(numbers, self._store.sides(segment)[0].reshape(len(rows), -1)[numbers - rows.start])

    def forget(self, run: Run) -> None:
        """The values of a run were written otherwise than by rows."""
        self._known[run[0] : sum(run)] = False
