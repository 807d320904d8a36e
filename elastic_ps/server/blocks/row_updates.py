"""Updates of some rows of a tensor cost what these rows do, not what the tensor does.

An update writes to the image of the values in which the blocks are not at present (see `double_buffer`). That image is
one version behind: it lacks the rows of the last update, which are copied first. A block that is further behind, or of
which the difference is not known, is copied whole.
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from elastic_ps.core.errors import ProtocolError
from elastic_ps.core.model import Model, Run
from elastic_ps.core.segments import Array
from elastic_ps.core.sparse_rows import Rows, rows_of
from elastic_ps.optimizers.gradient_sum import GradientSum

Apply = Callable[[Array, Array, GradientSum, dict[str, Array]], None]
"""apply(old, new, aggregate, states): one update of flat arrays by the rule of their blocks."""


class RowUpdates:
    """`RowUpdates` makes updates of rows, and remembers in which rows the two images of a tensor's values differ.

    Args:
        model: the job's, as known so far.
    """

    def __init__(self, model: Model):
        self._model = model
        self._behind: dict[int, NDArray[np.int64]] = {}  # by tensor: rows in which the images differ,
        self._known: NDArray[np.bool_] = np.zeros(0, dtype=bool)  # of those blocks that differ in no other

    def grow(self, model: Model) -> None:
        """Take over a model that has grown at its end."""
        self._model = model
        self._known = np.append(self._known, np.zeros(len(model.blocks) - len(self._known), dtype=bool))

    def rows(self, run: Run) -> range:
        """Return the rows of their tensor that a run of blocks holds.

        Raises:
            ProtocolError: the blocks are of several tensors, or do not hold whole rows.
        """
        found = rows_of(self._model, run)
        if found is None:
            raise ProtocolError(f"blocks {run[0]} to {sum(run) - 1} do not hold whole rows of one tensor")
        return found

    def update_rows(
        self, segment: Run, aggregate: Rows, sides: tuple[Array, Array], states: dict[str, Array], apply: Apply
    ) -> None:
        """Update the rows of an aggregate; the others, and their states, stay.

        Args:
            segment: blocks of one tensor.
            aggregate: (rows, width), of the segment's rows.
            sides: the segment's values, flat and without padding, and the memory of the other image.
            states: the segment's state arrays, flat, with padding.
            apply: makes one update.
        """
        rows = self.rows(segment)
        at = aggregate.numbers - rows.start
        old, new = (side.reshape(len(rows), -1) for side in sides)
        self._catch_up(segment, rows, old, new)
        shaped = {name: array[: old.size].reshape(old.shape) for name, array in states.items()}
        taken = {name: array[at] for name, array in shaped.items()}
        made = np.empty_like(aggregate.values)
        flat = {name: array.reshape(-1) for name, array in taken.items()}
        apply(old[at].reshape(-1), made.reshape(-1), GradientSum([aggregate.values.reshape(-1)]), flat)
        new[at] = made
        for name, array in shaped.items():
            array[at] = taken[name]
        self._differ(segment, rows, aggregate.numbers)

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
        """Note that the images are equal in a segment but for these rows of it."""
        others = self._behind.get(self._tensor(segment), numbers[:0])
        low, high = np.searchsorted(others, (rows.start, rows.stop)).tolist()
        self._behind[self._tensor(segment)] = np.concatenate([others[:low], numbers, others[high:]])
        self._known[segment[0] : sum(segment)] = True

    def _tensor(self, run: Run) -> int:
        return self._model.blocks[run[0]].tensor

    def forget(self, run: Run) -> None:
        """Note that the values of a run were written otherwise than by rows."""
        self._known[run[0] : sum(run)] = False
