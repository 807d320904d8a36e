"""`StepBuffers` is the memory of steps: this worker's part of a sum, and the sums."""

from collections.abc import Callable, Mapping

import torch

from elastic_ps.torch.allreduce.replica import Layout, Sums

_SPARE = 256
"""Elements more than the layout has: groups of up to so many members can divide a buffer, so it outlives groups. To
touch new memory first takes longer than to fill it."""


class StepBuffers:
    """`StepBuffers` gives memory where neither the last record lies nor one that is still to be sent.

    Args:
        layout: of the sums.
        is_used: returns whether a record that is needed lies in some memory.
    """

    def __init__(self, layout: Layout, is_used: Callable[[torch.Tensor], bool]):
        self._layout = layout
        self._is_used = is_used
        self._spare = _SPARE
        self._own: Sums = {}
        self._sums: list[Sums] = []

    def of_step(self, size: int) -> tuple[Sums, Sums]:
        """Return memory for this worker's part and for the sum, of lengths that `size` members can divide."""
        if size > self._spare:
            self._spare = size
            self.abandon()
        if not self._own:
            self._own = self._layout.buffers(self._spare)
        free = next((one for one in self._sums if not any(map(self._is_used, one.values()))), None)
        if free is None:
            free = self._layout.buffers(self._spare)
            self._sums.append(free)
        return self._layout.divisible(self._own, size), self._layout.divisible(free, size)

    def abandon(self) -> None:
        """Leave the memory to a collective that may never end; there is new memory for the next one."""
        self._own, self._sums = {}, []


def is_in(memory: torch.Tensor, sums: Mapping[torch.dtype, torch.Tensor] | None) -> bool:
    """Return whether a buffer is one of those that a record lies in."""
    return sums is not None and any(memory.data_ptr() == whole.data_ptr() for whole in sums.values())
