"""`Gradients` lays out what the script pushes as a PUSH sends it."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from elastic_ps.core.compression import Compression
from elastic_ps.core.model import Run
from elastic_ps.core.segments import Raw, stretches
from elastic_ps.core.sparse_rows import Rows, summed
from elastic_ps.native.bulk import Addresses, move
from elastic_ps.native.library import address
from elastic_ps.native.threads import Copy, copy_all
from elastic_ps.transport.shared_memory import Image
from elastic_ps.worker.script.api import Array
from elastic_ps.worker.script.values import addresses
from elastic_ps.worker.wire.worker_state import WorkerState

_OWN = 0


class Gradients:
    """`Gradients` puts each gradient at its place in an image of the whole model: in memory that this worker shares
    with the server that owns it, or, where it shares none, in memory of its own. Used by the script's thread.

    Args:
        state: the worker's.
    """

    def __init__(self, state: WorkerState):
        self._state = state
        self._images: dict[int, Image] = {_OWN: Image()}
        self._next = _OWN + 1
        self._copies: list[Copy] = []
        self._left: dict[int, NDArray[Any]] = {}  # by tensor: what quantization has left out so far
        self._leaving: dict[int, NDArray[Any]] = {}  # the same after the step under way
        self._rows: dict[int, Rows] = {}  # by tensor whose latest gradient has only these
        self._again = False
        self._generation = -1
        self._places = np.zeros(0, dtype=np.int64)  # by block: the image to which its next gradient goes
        self._lies = np.zeros(0, dtype=np.int64)  # by block: the image in which the latest is
        self._views: dict[int, list[NDArray[Any]]] = {}  # by tensor, as `_places` has it

    def write_gradient(self, index: int, arrays: Sequence[Array], compression: Compression | None = None) -> None:
        """Put the sum of `arrays` in a tensor's place: when `copy` is called, before they change.

        Args:
            index: the tensor's index.
            arrays: one for each device, settled.
            compression: by which the sum is quantized; what that leaves out is kept for the tensor's next gradient.
        """
        rows = self._stored_rows(index, arrays)
        if rows is not None:
            self._rows[index] = rows
            return
        self._rows.pop(index, None)
        first, *others = [_values(array).reshape(-1) for array in arrays]
        for other in others:
            first = first + other
        if compression is not None:
            first = self._quantized(index, first.astype(np.float32, copy=False), compression)
        low = 0
        for view in self._where(index):
            self._copies.append((view, first[low : low + len(view)]))
            low += len(view)

    def write_gradients(self, tensors: Addresses, arrays: Sequence[Array]) -> NDArray[np.bool_]:
        """Put arrays in the places of tensors at once; which could be: those that lie in one piece at both ends.

        Args:
            tensors: indices, int64.
            arrays: the only one of each, settled, of the tensor's shape and dtype.
        """
        source = addresses(arrays)
        with self._state.changed:
            self._find_places()
            model = self._state.inbox.model
            image, alike = model.whole(self._places, tensors)
            done: NDArray[np.bool_] = alike & (source != 0)
            tensors, source, image = tensors[done], source[done], image[done]
            blocks = model.blocks_among(tensors)
            self._lies[blocks] = self._places[blocks]
            memory = {number: self._images[number].array for number in np.unique(image).tolist()}
        for index in self._rows.keys() & tensors.tolist():
            del self._rows[index]
        places = {number: address(array) for number, array in memory.items()}  # `memory` is kept until they are filled
        to = np.array([places[number] for number in image.tolist()], dtype=np.int64) + model.extents[tensors, 1]
        move(to, source, model.extents[tensors, 2])
        return done

    def _stored_rows(self, index: int, arrays: Sequence[Array]) -> Rows | None:
        """Return the sum of `arrays` where all are row-sparse and can be divided among servers by rows; else None."""
        model, found = self._state.inbox.model, []
        for array in arrays:
            rows = array.stored_rows()
            if rows is None or not model.holds_rows(index):
                return None
            found.append(Rows(rows.numbers, rows.values.astype(model.tensors[index].dtype, copy=False)))
        return summed(found, None, 1.0)

    def rows(self, index: int) -> Rows | None:
        """Return the rows of a tensor's latest gradient, where it has some only; None: it lies in `parts`."""
        return self._rows.get(index)

    def finish_writing(self) -> None:
        """Do what was asked for."""
        copy_all(self._copies)
        self._copies.clear()

    def parts(self, run: Run) -> list[Raw]:
        """Return the memory of the latest gradients of a run: one array for each stretch in one image."""
        first, count = run
        found = []
        for low, high in stretches(self._lies[first : first + count]):
            span = self._state.inbox.model.span((first + low, high - low))
            found.append(self._images[int(self._lies[first + low])].array[span])
        return found

    def not_sent(self) -> None:
        """Take note that what has been written since the last exchange goes nowhere: it leaves nothing out."""
        self._leaving.clear()

    def step_again(self) -> None:
        """Prepare to make the step once more, with other gradients."""
        self._leaving.clear()
        self._images[_OWN] = Image()
        self._again = True
        self._generation = -1

    def step_done(self) -> None:
        """Take note that every server has used what it was sent."""
        self._left.update(self._leaving)
        self._leaving.clear()
        if self._again:
            self._again = False
            self._generation = -1

    def _quantized(self, index: int, values: NDArray[Any], compression: Compression) -> NDArray[Any]:
        if not compression.has_feedback:
            return compression.quantized(values)
        with np.errstate(all="ignore"):
            wanted = values + self._left[index] if index in self._left else values
            sent = compression.quantized(wanted)
            self._leaving[index] = np.nan_to_num(wanted - sent, nan=0.0, posinf=0.0, neginf=0.0)
        return sent

    def _where(self, index: int) -> list[NDArray[Any]]:
        state = self._state
        with state.changed:
            self._find_places()
            model = state.inbox.model
            blocks = model.blocks_of[index]
            window = slice(blocks.start, blocks.stop)
            self._lies[window] = self._places[window]
            if index not in self._views:
                tensor = model.tensors[index]
                parts, left = self.parts((blocks.start, len(blocks))), tensor.nbytes
                self._views[index] = []
                for part in parts:
                    self._views[index].append(part[:left].view(tensor.dtype))  # the last block may end in padding
                    left -= part.nbytes
            return self._views[index]

    def _find_places(self) -> None:
        """Find anew where gradients go, if owners or connections have changed, or the model has grown."""
        state = self._state
        model = state.inbox.model
        if state.generation == self._generation and len(model.blocks) == len(self._places):
            return
        blocks, known = len(model.blocks), len(self._lies)
        self._generation = state.generation
        self._views.clear()
        self._lies = np.append(self._lies, np.zeros(blocks - known, dtype=np.int64))
        self._images[_OWN].grow(model.slab_bytes)
        self._places = np.zeros(blocks, dtype=np.int64)
        owners = {} if self._again else state.configuration.blocks_of
        for server, owned in owners.items():
            image = state.peers.gradients(server, model.slab_bytes)
            if image is not None:
                self._places[list(owned)] = self._number(image)
        used = {_OWN, *np.unique(self._lies).tolist(), *np.unique(self._places).tolist()}
        self._images = {number: image for number, image in self._images.items() if number in used}

    def _number(self, image: Image) -> int:
        for number, known in self._images.items():
            if known is image:
                return number
        self._images[self._next] = image
        self._next += 1
        return self._next - 1


def _values(array: Array) -> NDArray[Any]:
    memory = array.memory()
    return array.read() if memory is None else memory
