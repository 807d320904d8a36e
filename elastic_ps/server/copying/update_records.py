"""`UpdateRecords` keeps the memory of updates that are on their way to a follower."""

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from elastic_ps.core.errors import ProtocolError
from elastic_ps.core.model import Run
from elastic_ps.core.segments import Array, Raw
from elastic_ps.optimizers.gradient_sum import DType
from elastic_ps.server.blocks.block_store import ServerBlockStore
from elastic_ps.transport.shared_memory import Image

RECORDED_VERSIONS = 2
"""Versions whose records a follower on this host has room for; further ones travel."""


@dataclass
class _VersionMemory:
    """A `_VersionMemory` has the records of one version: `waiting` of them have not been sent, or applied, yet."""

    number: int  # in the follower's memory; -1: it is of this server's own
    version: int = -1
    waiting: int = 0
    own: Image = field(default_factory=Image)


class UpdateRecords:
    """`UpdateRecords` gives memory for aggregated gradients at the model's places, and uses it again when they are done
    with: to touch new memory first costs more than to fill it. Guarded by `ServerState.changed`, but for what
    `take` returns.

    Args:
        store: this server's blocks.
        shared: the memory of the follower that its connection shares; where there is some, the first is for records.
    """

    def __init__(self, store: ServerBlockStore, shared: Sequence[Image]):
        self._store = store
        self._shared = shared
        self._places = [_VersionMemory(number) for number in range(RECORDED_VERSIONS)] if shared else []
        self._counting = threading.Lock()  # links send without the state's lock

    def take(self, segment: Run, dtype: DType) -> tuple[Array, int | None, Callable[[], None] | None]:
        """Return memory for the record of an update of a segment.

        Returns:
            The memory; the number that the follower gives back when it has applied the record, None where it does not
            lie in its memory; and else what is to be called when it has been sent.
        """
        place = self._place(int(self._store.versions[segment[0]]))
        with self._counting:
            place.waiting += 1
        memory = self._memory(place)[self._store.model.span(segment)].view(dtype)
        if place.number >= 0:
            return memory, place.number, None
        return memory, None, lambda: self._done(place)

    def applied(self, number: int) -> None:
        """Take note that the follower has applied a record that lies in its memory.

        Raises:
            ProtocolError: there is none of that number.
        """
        place = next((place for place in self._places if place.number == number and place.waiting), None)
        if place is None or place.number < 0:
            raise ProtocolError(
                f"the follower has applied a record in place {number} of its memory, but none lies there"
            )
        self._done(place)

    def _place(self, version: int) -> _VersionMemory:
        usable = [place for place in self._places if place.number < 0 or self._fits(place)]
        for place in usable:
            if place.version == version:
                return place
        free = [place for place in usable if not place.waiting]
        if not free:
            free = [_VersionMemory(-1)]
            self._places += free
        free[0].version = version
        return free[0]

    def _fits(self, place: _VersionMemory) -> bool:
        """Return whether the follower has made its memory large enough: it may hear of the model later."""
        image, needed = self._shared[0], (place.number + 1) * self._store.model.slab_bytes
        if image.array.nbytes < needed:
            image.follow()
        return image.array.nbytes >= needed

    def _memory(self, place: _VersionMemory) -> Raw:
        size = self._store.model.slab_bytes
        if place.number >= 0:
            return self._shared[0].array[place.number * size : (place.number + 1) * size]
        place.own.grow(size)
        return place.own.array

    def _done(self, place: _VersionMemory) -> None:
        with self._counting:
            place.waiting -= 1
