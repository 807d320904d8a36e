"""`StepBuffers` is the memory of steps: where this worker's part lies, and then the sum."""

from collections.abc import Callable, Mapping

import torch

from elastic_ps.torch.allreduce.summing.layout import Layout, Sums

_SPARE = 2
"""So much memory that is not used is kept; there is more after many records have waited for a shadow."""


class Received:
    """`Received` is memory for what members send to be added."""

    def __init__(self) -> None:
        self._memory: dict[tuple[torch.dtype, int], torch.Tensor] = {}

    def of(self, dtype: torch.dtype, number: int, count: int) -> torch.Tensor:
        """Return memory for some elements.

        Args:
            dtype: of the elements.
            number: of the memory: another one is other memory.
            count: how many elements.
        """
        memory = self._memory.get((dtype, number))
        if memory is None or len(memory) < count:
            memory = self._memory[dtype, number] = torch.empty(count, dtype=dtype, device="cpu")
        return memory[:count]


class StepBuffers:
    """`StepBuffers` gives memory where neither the last record lies nor one that is still to be sent.

    It is used again and again, beyond the group too: to touch new memory first takes longer than to fill it.

    Args:
        layout: of the sums.
        is_used: returns whether a record that is needed lies in some memory.

    Attributes:
        received: memory for what members send.
    """

    def __init__(self, layout: Layout, is_used: Callable[[torch.Tensor], bool]):
        self._layout = layout
        self._is_used = is_used
        self._sums: list[Sums] = []
        self.received = Received()

    def of_step(self) -> Sums:
        """Return memory for this worker's part of a sum, in which the sum is made."""
        used: list[Sums] = []
        free: list[Sums] = []
        for sums in self._sums:
            (used if any(map(self._is_used, sums.values())) else free).append(sums)
        free = free[:_SPARE] or [self._layout.buffers()]
        self._sums = used + free
        return free[0]

    def prepare(self) -> None:
        """Make the memory of the first steps now, while nobody waits for this worker."""
        while len(self._sums) < _SPARE:
            self._sums.append(self._layout.buffers())

    def abandon(self) -> None:
        """Leave the memory to a collective that may never end; there is new memory for the next one."""
        self._sums, self.received = [], Received()


def is_in(memory: torch.Tensor, sums: Mapping[torch.dtype, torch.Tensor] | None) -> bool:
    """Return whether a buffer is one of those that a record lies in."""
    return sums is not None and any(memory is whole for whole in sums.values())
