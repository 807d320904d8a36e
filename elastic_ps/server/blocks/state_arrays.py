"""`StateArrays` holds the optimizer's state of blocks, each array at the model's places in an image of its own."""

from collections.abc import Iterable, Iterator

from elastic_ps.core.segments import Array
from elastic_ps.server.blocks.memory_release import UnusedMemory
from elastic_ps.server.blocks.treatments import StateLayout, Treatment
from elastic_ps.transport.shared_memory import Image


class StateArrays:
    """`StateArrays` keeps the images of the state arrays by layout.

    An element of an array lies where its value does, in times of the elements' sizes.
    """

    def __init__(self) -> None:
        self._images: dict[int, dict[str, Image]] = {}  # by layout
        self._layouts: dict[int, StateLayout] = {}

    def grow(self, slab_bytes: int, layouts: Iterable[tuple[int, int, StateLayout]]) -> Iterator[int]:
        """Make room for a model that has grown, and yield the layouts that are new.

        Args:
            slab_bytes: bytes of the model's values.
            layouts: number, bytes of an element of the values, names and dtypes of the arrays.
        """
        for layout, item, wanted in layouts:
            new = layout not in self._images
            self._layouts[layout] = wanted
            images = self._images.setdefault(layout, {name: Image() for name, _ in wanted})
            for name, dtype in wanted:
                images[name].grow(slab_bytes // item * dtype.itemsize)
            if new:
                yield layout

    def arrays(self, treatment: Treatment, span: slice) -> dict[str, Array]:
        """Return the arrays of the blocks whose values have these bytes, flat, in the order of the rule."""
        item, images = treatment.dtype.itemsize, self._images.get(treatment.layout, {})
        return {
            name: images[name].view(span.start // item, span.stop // item, dtype)
            for name, dtype in self._layouts.get(treatment.layout, ())
        }

    def release(self, treatment: Treatment, span: slice, unused: UnusedMemory) -> None:
        """Give back the memory of the arrays of blocks that are not held any more.

        Args:
            treatment: the treatment of the blocks.
            span: bytes of their values.
            unused: takes the memory.
        """
        item = treatment.dtype.itemsize
        for name, dtype in self._layouts.get(treatment.layout, ()):
            image = self._images[treatment.layout][name]
            unused.add(image, span.start // item * dtype.itemsize, span.stop // item * dtype.itemsize)
