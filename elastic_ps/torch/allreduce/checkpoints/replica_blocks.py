"""`ReplicaBlocks` are a replica in the blocks of the job's model, laid out as servers keep them.

So a job with servers restores what one without has saved, and the other way round. What servers have no rule for is
saved as PyTorch saves it, with the first block of its tensor.
"""

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from elastic_ps.core.errors import CheckpointError, ConfigurationError
from elastic_ps.core.model import Block, Model, Tensor
from elastic_ps.core.optimizer import OptimizerSpec
from elastic_ps.core.segments import Array
from elastic_ps.optimizers import make_rule
from elastic_ps.server.checkpoints.files import SavedBlock, StateExtent
from elastic_ps.torch.allreduce.group import why_failed
from elastic_ps.torch.allreduce.replica.replica import Replica
from elastic_ps.torch.allreduce.replica.state_bytes import check_state, plain
from elastic_ps.torch.arrays import TorchArray, on_host
from elastic_ps.torch.states import State, from_torch, to_torch

OWN_STATE = "torch.save"
"""Name of the state of a tensor whose optimizer servers have no rule for: a file of `torch.save`, as bytes."""


@dataclass(frozen=True)
class CopiedBlock:
    """A `CopiedBlock` is a block as it was at one version, which stays as it is.

    Attributes:
        block: its id.
        count: how many updates its optimizer has made.
        parts: name ("" for the values), array, each padded as servers keep it.
        own: state of an optimizer that servers have no rule for; None: none, or another block of the tensor has it.
    """

    block: int
    count: int
    parts: list[tuple[str, Array]]
    own: dict[str, Any] | None = None

    def written(self) -> list[tuple[str, Array]]:
        """Return the parts as they are written."""
        if self.own is None:
            return self.parts
        file = io.BytesIO()
        torch.save(self.own, file)
        return [*self.parts, (OWN_STATE, np.frombuffer(file.getvalue(), dtype=np.uint8))]


@dataclass(frozen=True)
class ReadBlock:
    """A `ReadBlock` is a block as it lay in a checkpoint.

    Attributes:
        entry: what the manifest says of it.
        data: its bytes.
    """

    entry: SavedBlock
    data: bytes

    def values(self, nbytes: int) -> NDArray[np.uint8]:
        """Return the bytes of the values, without padding."""
        return np.frombuffer(self.data, np.uint8, nbytes)

    def state(self, name: str) -> NDArray[Any]:
        """Return a state array, with its padding."""
        start = self.entry.value_bytes
        for found, dtype, size in self.entry.states:
            if found == name:
                return np.frombuffer(self.data[start : start + size], dtype)
            start += size
        raise KeyError(name)

    def own_state(self, tensor: str) -> dict[str, Any]:
        """Return the state of an optimizer that servers have no rule for, of a tensor.

        Args:
            tensor: its name, for people.

        Raises:
            CheckpointError: PyTorch cannot read it, or would have to run what is in it.
        """
        try:
            own: dict[str, Any] = torch.load(io.BytesIO(self.state(OWN_STATE).tobytes()), weights_only=True)
        except Exception as error:  # of no one kind
            why = f"the optimizer's state of {tensor} in the checkpoint cannot be read: {why_failed(error)}"
            raise CheckpointError(why) from error
        return own


class ReplicaBlocks:
    """`ReplicaBlocks` copies blocks out of a replica, and fills one from blocks.

    Args:
        replica: this worker's.
        model: the job's, of the same tensors.
        spec: of the replica's optimizer, as the job knows it.
    """

    def __init__(self, replica: Replica, model: Model, spec: OptimizerSpec):
        self.model = model
        self._replica = replica
        self._rule = None if spec.is_scripts_own else make_rule(spec)
        updated = set(replica.parameters)
        self._keys = {array.tensor: key for key, array in replica.arrays.items() if array.tensor in updated}
        self._parameters = {key: parameter for parameter, key in self._keys.items()}

    def part(self, rank: int, size: int) -> list[int]:
        """Return the blocks that one of `size` members saves, so that each saves about as many bytes."""
        whole, last = max(1, self.model.slab_bytes), size - 1  # an empty block may stand behind all bytes
        return [block.id for block in self.model.blocks if min(block.position * size // whole, last) == rank]

    def copy(self, blocks: Sequence[int]) -> list[CopiedBlock]:
        """Copy blocks as they are now.

        Raises:
            ConfigurationError: the optimizer keeps what cannot be saved.
        """
        wanted = {self._tensor(self.model.blocks[number]).key for number in blocks}
        keys = {parameter: key for parameter, key in self._keys.items() if key in wanted}  # others' cost a GPU copies
        states = from_torch(self._replica.optimizer, keys) if self._rule is not None else {}
        return [found for numbers in self.model.by_tensor(blocks) for found in self._copied(numbers, states)]

    def install(self, read: Mapping[int, ReadBlock]) -> None:
        """Make the replica hold what a checkpoint has, but for buffers that the script sets by itself.

        Args:
            read: all blocks of the model.

        Raises:
            CheckpointError: they are of another optimizer or model; nothing has been changed.
        """
        for block in self.model.blocks:
            if block.id not in read:
                raise CheckpointError(f"the checkpoint lacks key {self._tensor(block).name}: it is of another model")
            self._check(block, read[block.id].entry)
        own = self._own_states(read)
        states: dict[str, State] = {}
        self._replica.optimizer.state.clear()
        for index, tensor in enumerate(self.model.tensors):
            found = [(self.model.blocks[number], read[number]) for number in self.model.blocks_of[index]]
            values = np.concatenate([block.values(own.nbytes) for own, block in found])
            self._replica.take([(tensor.key, torch.from_numpy(values.view(tensor.dtype).reshape(tensor.shape)))])
            states[tensor.key] = {"count": found[0][1].entry.count} | {
                name: _joined(name, tensor, found) for name, _ in self._layout(tensor)
            }
            if tensor.key in own:
                self._replica.set_state(self._replica.parameter_numbers[tensor.key], own[tensor.key])
        if self._rule is not None:
            to_torch(self._replica.optimizer, states, self._keys)
        self._replica.keep_statistics()

    # ---- inside ------------------------------------------------------------------------------------------------------

    def _tensor(self, block: Block) -> Tensor:
        return self.model.tensors[block.tensor]

    def _layout(self, tensor: Tensor) -> Sequence[tuple[str, np.dtype[Any]]]:
        """Return names and dtypes of the states that servers keep of a tensor, whether it is updated or not."""
        if self._rule is None or tensor.auxiliary:
            return ()
        try:
            return self._rule.states(np.dtype(tensor.dtype))
        except ConfigurationError:  # integers are never updated
            return ()

    def _check(self, block: Block, entry: SavedBlock) -> None:
        tensor = self._tensor(block)
        elements = block.extent // np.dtype(tensor.dtype).itemsize
        states: Sequence[StateExtent] = [
            (name, dtype.name, elements * dtype.itemsize) for name, dtype in self._layout(tensor)
        ]
        if self._rule is None:  # its file has no fixed length
            states = [state for state in entry.states if state[0] == OWN_STATE]
        entry.check_layout(block.id, tensor.name, block.extent, states)

    def _own_states(self, read: Mapping[int, ReadBlock]) -> dict[str, dict[str, Any]]:
        """Return states of an optimizer that servers have no rule for, by key; none of what it does not update."""
        if self._rule is not None:
            return {}
        firsts = {tensor: read[self.model.blocks_of[index][0]] for index, tensor in enumerate(self.model.tensors)}
        return {
            tensor.key: first.own_state(tensor.name)
            for tensor, first in firsts.items()
            if first.entry.states and tensor.key in self._parameters
        }

    def _copied(self, numbers: Sequence[int], states: Mapping[str, State]) -> list[CopiedBlock]:
        """Return copies of blocks of one tensor; `states` are those of all, by key."""
        tensor = self._tensor(self.model.blocks[numbers[0]])
        values = TorchArray(self._replica.shared_tensor(tensor.key)).read().reshape(-1)
        state = states.get(tensor.key, {"count": 0})
        if new := sorted(state.keys() - {"count", *(name for name, _ in self._layout(tensor))}):
            raise ConfigurationError(
                f"the optimizer keeps {new[0]} of {tensor.name}, and had none when the job began, so that a checkpoint "
                "has no place for it: make the optimizer with a momentum above 0"
            )
        arrays: list[tuple[str, Array | None, np.dtype[Any]]] = [("", values, values.dtype)]
        for name, dtype in self._layout(tensor):
            arrays.append((name, np.reshape(state[name], -1) if name in state else None, dtype))
        copies = []
        for number in numbers:
            block = self.model.blocks[number]
            parts = [(name, _padded(array, kind, block, values.itemsize)) for name, array, kind in arrays]
            own = self._own_state(tensor.key) if block.offset == 0 else None
            copies.append(CopiedBlock(number, int(state["count"]), parts, own))
        return copies

    def _own_state(self, key: str) -> dict[str, Any] | None:
        """Return a copy of a parameter's state, of an optimizer that servers have no rule for; None: it has none."""
        if self._rule is not None or key not in self._parameters:
            return None
        state = self._replica.state_of(self._replica.parameter_numbers[key])
        if not state:
            return None
        for name, value in state.items():
            check_state(name, value)
        return {
            name: on_host(value).clone() if isinstance(value, torch.Tensor) else plain(value)
            for name, value in state.items()
        }


def _padded(array: Array | None, dtype: np.dtype[Any], block: Block, itemsize: int) -> Array:
    """Return a copy of a block's part of an array, with the padding that servers keep; `array` None: zeros.

    Args:
        array: flat, with one element for each of the tensor's.
        dtype: of its elements.
        block: the block.
        itemsize: of the values, in bytes.
    """
    padded = np.zeros(block.extent // itemsize, dtype=dtype)
    if array is not None:
        low = block.offset // itemsize
        padded[: block.nbytes // itemsize] = array[low : low + block.nbytes // itemsize]
    return padded


def _joined(name: str, tensor: Tensor, found: Sequence[tuple[Block, ReadBlock]]) -> Array:
    """Return a state of a whole tensor, of its blocks."""
    itemsize = np.dtype(tensor.dtype).itemsize
    parts = [read.state(name)[: block.nbytes // itemsize] for block, read in found]
    whole: Array = np.concatenate(parts)
    return whole.reshape(tensor.shape)
