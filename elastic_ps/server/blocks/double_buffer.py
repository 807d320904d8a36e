"""A `DoubleBuffer` holds the values of blocks twice: an update writes to the image where a block is not.

So its values of a version stay as they are until the version after the next is made, and workers may read them in place
meanwhile: those whom the server waits for. One that it has gone on without (frozen, cut off, leaving) may come back to
values that are written over, and sees it by a mark that is set before.
"""

from collections.abc import Iterable

import numpy as np

from elastic_ps.core.model import Model, Run
from elastic_ps.core.segments import Raw, stretches
from elastic_ps.server.blocks.memory_release import UnusedMemory
from elastic_ps.transport.shared_memory import Image


class DoubleBuffer:
    """A `DoubleBuffer` knows in which of two images the values of each block are.

    Blocks have the same places in both images, those of the model's slab.

    Attributes:
        images: both.
        mark: int64 in memory of its own: the latest version that has been begun.
        sides: int8 by block id: in which of them its values are.
    """

    def __init__(self) -> None:
        self.images = Image(), Image()
        self.mark = Image(np.dtype(np.int64).itemsize)
        self._begun = self.mark.array.view(np.int64)
        self.sides = np.zeros(0, dtype=np.int8)
        self._model: Model

    def grow(self, model: Model) -> None:
        """Take over a model that has grown at its end: new blocks are in the first image, zero."""
        self._model = model
        self.sides = np.append(self.sides, np.zeros(len(model.blocks) - len(self.sides), dtype=np.int8))
        for image in self.images:
            image.grow(model.slab_bytes)

    def begin(self, version: int) -> None:
        """Say that a version of some blocks is about to be written, and so over values two versions older."""
        if version > self._begun[0]:
            self._begun[0] = version

    def present(self, segment: Run) -> Raw:
        """Return the bytes of blocks that are in one image, with their padding."""
        return self._bytes(segment, int(self.sides[segment[0]]))

    def coming(self, segment: Run) -> Raw:
        """Return the memory that the next version of blocks is written to; `turn` makes it the present one."""
        return self._bytes(segment, 1 - int(self.sides[segment[0]]))

    def turn(self, segment: Run) -> None:
        """Make the other image of blocks that are in one image the present one."""
        self.sides[segment[0] : sum(segment)] = 1 - self.sides[segment[0]]

    def release(self, span: slice, unused: UnusedMemory) -> None:
        """Give back the memory of blocks that are not held any more; `span`: their bytes."""
        for image in self.images:
            unused.add(image, span.start, span.stop)

    def by_image(self, runs: Iterable[Run]) -> list[list[Run]]:
        """Return runs by image, cut where their values go on in the other one."""
        found: tuple[list[Run], list[Run]] = [], []
        for first, count in runs:
            sides = self.sides[first : first + count]
            for low, high in stretches(sides):
                found[int(sides[low])].append((first + low, high - low))
        return [cut for cut in found if cut]

    def pieces(self, run: Run) -> list[Raw]:
        """Return the memory of a run's values: one array for each stretch in one image."""
        first, count = run
        cuts = stretches(self.sides[first : first + count])
        return [self.present((first + low, high - low)) for low, high in cuts]

    def _bytes(self, run: Run, side: int) -> Raw:
        return self.images[side].array[self._model.span(run)]
