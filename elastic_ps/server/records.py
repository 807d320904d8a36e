"""Memory of the updates that are on their way to followers."""

import threading
from collections.abc import Callable
from dataclasses import dataclass, field

from elastic_ps.core.model import Run
from elastic_ps.core.segments import Array
from elastic_ps.server.contributions import DType
from elastic_ps.server.store import Store
from elastic_ps.transport.image import Image


@dataclass
class _Slot:
    """The updates of one version: `waiting` of them have not been sent yet."""

    version: int
    image: Image = field(default_factory=Image)
    waiting: int = 0


class Records:
    """Memory for aggregated gradients at the model's places, used again once it has been sent: to touch new memory
    first costs more than to fill it. Guarded by `Room.changed`.

    Args:
        store: of this server.
    """

    def __init__(self, store: Store):
        self._store = store
        self._slots: list[_Slot] = []
        self._counting = threading.Lock()  # links send without the room's lock

    def take(self, segment: Run, dtype: DType, followers: int) -> tuple[Array, Callable[[], None]]:
        """Memory for the update of a segment that leaves its version.

        Returns:
            The memory, and what each of the followers' links has to call when it has sent it.
        """
        slot = self._slot(int(self._store.versions[segment[0]]))
        slot.image.grow(self._store.model.slab_bytes)
        with self._counting:
            slot.waiting += followers
        return slot.image.array[self._store.model.span(segment)].view(dtype), lambda: self._sent(slot)

    def _slot(self, version: int) -> _Slot:
        of_version = [slot for slot in self._slots if slot.version == version]
        free = [slot for slot in self._slots if not slot.waiting]
        if of_version:
            return of_version[0]
        if free:
            free[0].version = version
            return free[0]
        self._slots.append(_Slot(version))
        return self._slots[-1]

    def _sent(self, slot: _Slot) -> None:
        with self._counting:
            slot.waiting -= 1
