"""`UpdateRecords` keeps the memory of updates that are on their way to a follower."""

import mmap
import threading
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

import numpy as np

from elastic_ps.core.errors import ProtocolError
from elastic_ps.core.model import Run
from elastic_ps.core.segments import Array, Raw
from elastic_ps.optimizers.gradient_sum import DType
from elastic_ps.server.blocks.block_store import ServerBlockStore
from elastic_ps.transport.shared_memory import Image

RECORDED_VERSIONS = 2
"""Versions whose records a follower on this host has room for; further ones travel."""

_NORESERVE = 0x4000  # mmap's, which Python's module does not name


def _unreserved(nbytes: int) -> Raw:
    """Return zeroed memory of which only those pages take room that are written to.

    Asked for by numpy, more than the machine has would be refused as a whole.
    """
    return np.frombuffer(mmap.mmap(-1, nbytes, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _NORESERVE), dtype=np.uint8)


@dataclass
class VersionMemory:
    """A `VersionMemory` has the records of one version.

    Attributes:
        number: in the follower's memory; -1: it is of this server's own.
        version: that its records have, or had last.
        waiting: how many of them have not been sent, or applied, yet.
        own: the memory, where it is this server's: no image, as updates must not fail for want of a descriptor.
    """

    number: int
    version: int = -1
    waiting: int = 0
    own: Raw = field(default_factory=lambda: np.zeros(0, dtype=np.uint8))


@dataclass
class OpenRecord:
    """An `OpenRecord` gathers updates of one version that one RECORD brings.

    Attributes:
        version: the version that their blocks had.
        runs: the updated segments that were pushed.
        absent: the others.
        payload: of the pushed ones, in their order.
        rows: how many rows of each there are; empty: all.
        place: where the payload lies, but for rows.
    """

    version: int
    runs: list[Run] = field(default_factory=list)
    absent: list[Run] = field(default_factory=list)
    payload: list[Array] = field(default_factory=list)
    rows: list[int] = field(default_factory=list)
    place: VersionMemory | None = None

    def add(self, segment: Run, payload: Sequence[Array], rows: int | None = None) -> None:
        """Take an update that has been applied here.

        Args:
            segment: that was pushed and updated.
            payload: what it was updated with.
            rows: how many; None: it is not given by rows.
        """
        self.runs.append(segment)
        self.payload += payload
        if rows is not None:
            self.rows.append(rows)


class UpdateRecords:
    """`UpdateRecords` gives memory for aggregated gradients at the model's places, and uses it again when they are done
    with: to touch new memory first costs more than to fill it. Guarded by `ServerState.changed`, but for what
    `sending` returns.

    Args:
        store: this server's blocks.
        shared: the memory of the follower that its connection shares; where there is some, the first is for records.
    """

    def __init__(self, store: ServerBlockStore, shared: Sequence[Image]):
        self._store = store
        self._shared = shared
        self._places = [VersionMemory(number) for number in range(RECORDED_VERSIONS)] if shared else []
        self._lying: deque[VersionMemory] = deque()  # the place of each record there that is not followed, in order
        self._followed: VersionMemory | None = None  # of the last one that is; it may not have been applied
        self._counting = threading.Lock()  # links send without the state's lock

    def memory(self, place: VersionMemory, segment: Run, dtype: DType) -> Array:
        """Return the part of a place's memory that is for an update of a segment.

        Args:
            place: for the segment's version.
            segment: that is updated.
            dtype: of the aggregated gradient.
        """
        return self._whole(place)[self._store.model.span(segment)].view(dtype)

    def sending(self, place: VersionMemory) -> tuple[int | None, Callable[[], None] | None]:
        """Take note that a record which lies in a place is sent.

        Returns:
            The number by which the follower says that it holds the record, None where it does not lie in its memory;
            and else what is to be called when it has been sent.
        """
        with self._counting:
            place.waiting += 1
        if place.number < 0:
            return None, lambda: self._done(place)
        self._lying.append(place)
        return place.number, None

    def followed(self, number: int) -> None:
        """Take note that the follower holds a record, and so has applied those before it that lie in its memory.

        Args:
            number: the place of the record. Others that were to be sent before it have been withdrawn.

        Raises:
            ProtocolError: none lies there.
        """
        while self._lying:
            if self._followed is not None:
                self._done(self._followed)
            self._followed = self._lying.popleft()
            if self._followed.number == number:
                return
        raise ProtocolError(f"the follower holds a record in place {number} of its memory, but none lies there")

    def place(self, version: int) -> VersionMemory:
        """Return where the records of a version lie."""
        usable = [place for place in self._places if place.number < 0 or self._fits(place)]
        for place in usable:
            if place.version == version:
                return place
        free = [place for place in usable if not place.waiting]
        if not free:
            free = [VersionMemory(-1)]
            self._places += free
        free[0].version = version
        return free[0]

    def _fits(self, place: VersionMemory) -> bool:
        """Return whether the follower has made its memory large enough: it may hear of the model later."""
        image, needed = self._shared[0], (place.number + 1) * self._store.model.slab_bytes
        if image.array.nbytes < needed:
            with suppress(OSError):  # no descriptor is left to map it by: records travel
                image.follow()
        return image.array.nbytes >= needed

    def _whole(self, place: VersionMemory) -> Raw:
        size = self._store.model.slab_bytes
        if place.number >= 0:
            return self._shared[0].array[place.number * size : (place.number + 1) * size]
        if place.own.nbytes < size:
            place.own = _unreserved(size)
        return place.own

    def _done(self, place: VersionMemory) -> None:
        with self._counting:
            place.waiting -= 1
