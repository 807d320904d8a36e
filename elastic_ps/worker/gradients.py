"""What the script pushes, laid out as a PUSH sends it."""

from collections.abc import Sequence

import numpy as np

from elastic_ps.core.model import Model
from elastic_ps.worker.api import Array
from elastic_ps.worker.inbox import Slab, tensor_view


class Gradients:
    """A slab of the whole model; used by the script's thread.

    Attributes:
        slab: bytes at the places that the model gives them.
    """

    def __init__(self) -> None:
        self.slab: Slab = np.zeros(0, dtype=np.uint8)

    def fit(self, size: int) -> None:
        """Make room for a model of `size` bytes; what is there stays."""
        if self.slab.nbytes < size:
            grown = np.zeros(size, dtype=np.uint8)
            grown[: self.slab.nbytes] = self.slab
            self.slab = grown

    def write(self, model: Model, index: int, arrays: Sequence[Array]) -> None:
        """Put the sum of `arrays` in a tensor's place."""
        view = tensor_view(model, self.slab, index)
        view[...] = arrays[0].read()
        for array in arrays[1:]:
            view += array.read()

    def renew(self) -> None:
        """Leave the memory to what is on its way to a slow server, and take another."""
        self.slab = np.zeros_like(self.slab)
