"""This module finds payloads in memory that both ends of a connection see: they do not travel."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from elastic_ps.core.errors import ProtocolError
from elastic_ps.core.segments import Raw
from elastic_ps.native.library import address as address_of
from elastic_ps.transport.base import Buffer, flat
from elastic_ps.transport.frames import Frame
from elastic_ps.transport.meta_parts import SharedRange
from elastic_ps.transport.shared_memory import Image


class SharedPayloads:
    """`SharedPayloads` is the part of a `Connection` that knows the shared memory, however its frames travel.

    Attributes:
        shared: see `Connection.shared`.
        lying: what `take` has not taken yet of the present frame's payload.
    """

    def __init__(self) -> None:
        self.shared: Sequence[Image] = ()
        self._at: Sequence[SharedRange] = ()  # of the present frame's payload; none where it travels
        self.lying: list[Raw] = []

    def lying_there(self, frame: Frame, payload: Sequence[Buffer]) -> Frame | None:
        """Return a frame that says where its payload lies in shared memory; None: it has none, or not all lies there.

        Its `payload_bytes` is set.
        """
        if not self.shared or not payload:
            return None
        images = [(address_of(image.array), image.array.nbytes) for image in self.shared]
        places = []
        for part in payload:
            array = np.asarray(flat(part))
            place = _place(address_of(array), array.nbytes, images)
            if place is None:
                return None
            places.append(place)
        return replace(frame, at=tuple(places), payload_bytes=sum(place.nbytes for place in places))

    def begin(self, frame: Frame) -> None:
        """Find the payload of the frame that has come.

        Raises:
            ProtocolError: no correct peer sends such places.
        """
        self.lying = [self._lies(*place) for place in frame.at]
        self._at = frame.at
        if self._at and sum(part.nbytes for part in self.lying) != frame.payload_bytes:
            raise ProtocolError(f"{frame.kind.name} of {frame.payload_bytes} bytes at {self._at}")

    def _lies(self, number: int, low: int, nbytes: int) -> Raw:
        if number >= len(self.shared):
            raise ProtocolError(f"{nbytes} bytes from {low} of image {number}, where {len(self.shared)} are shared")
        image = self.shared[number]
        if low + nbytes > image.array.nbytes:
            image.follow()
        if low + nbytes > image.array.nbytes:
            raise ProtocolError(f"{nbytes} bytes from {low} of an image of {image.array.nbytes}")
        return image.array[low : low + nbytes]

    def image_at(self, places: Sequence[slice]) -> Image | None:
        """See `Connection.image_at`."""
        numbers = {number for number, _, _ in self._at}
        if len(numbers) != 1 or [slice(low, low + nbytes) for _, low, nbytes in self._at] != list(places):
            return None
        return self.shared[numbers.pop()]

    def take(self, buffers: Sequence[Buffer]) -> bool:
        """Fill buffers with what lies in shared memory (see `Connection.receive_into`); False: the payload travels."""
        if not self._at:
            return False
        for target in [np.asarray(flat(buffer)) for buffer in buffers]:
            filled = 0
            while filled < target.nbytes:
                part = self.lying[0][: target.nbytes - filled]
                there = target[filled : filled + part.nbytes]
                if address_of(part) != address_of(there):
                    there[...] = part
                filled += part.nbytes
                rest = self.lying[0][part.nbytes :]
                self.lying[:1] = [rest] if rest.nbytes else []
        return True


def _place(address: int, nbytes: int, images: Sequence[tuple[int, int]]) -> SharedRange | None:
    for number, (start, size) in enumerate(images):
        if start <= address and address + nbytes <= start + size:
            return SharedRange(number, address - start, nbytes)
    return None
