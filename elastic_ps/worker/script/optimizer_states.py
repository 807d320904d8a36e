"""This module collects the optimizer's state, which lives on the servers, for the script, and loads it from it.

Under "sync" no block can be updated between two exchanges of a worker, since that needs this worker's push. So what it
reads then is of one version, and what the chief sends then stands before the next update. Else others push meanwhile:
each block's state is of one version, and replaced between two updates.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from elastic_ps.core.errors import ConfigurationError
from elastic_ps.core.model import Model, runs
from elastic_ps.transport.base import Buffer
from elastic_ps.transport.frame_metas import PullMeta, SnapshotMeta
from elastic_ps.transport.frames import Frame
from elastic_ps.worker.wire.worker_node import WorkerNode

BATCH_BYTES = 64 << 20
"""Values of the keys that are asked for at a time."""

State = dict[str, Any]
"""Of one key: {"count": updates, name: array of the tensor's shape}."""


@dataclass(frozen=True)
class BlockState:
    """A `BlockState` is what a server holds of one block beside its values.

    Attributes:
        version: the block's version.
        count: updates that its optimizer has made.
        dtypes: of its state arrays, by name, in the servers' order.
        arrays: flat, without padding; empty where only the numbers were asked for.
    """

    version: int
    count: int
    dtypes: dict[str, np.dtype[Any]]
    arrays: dict[str, NDArray[Any]]


class States:
    """`States` collects and loads the optimizer's state of one key store's keys.

    Args:
        node: this worker.
        store: number of the key store.
    """

    def __init__(self, node: WorkerNode, store: int):
        self._node = node
        self._store = store

    def counts(self, pushing: Iterable[str]) -> dict[str, int]:
        """Return how many updates each key has had before the open exchange, which is over the keys `pushing`.

        A worker that died in it may have completed it on some servers: that update does not count yet.
        """
        held = fetch(self._node, self._blocks(), numbers_only=True)
        keys = frozenset(pushing)
        counts: dict[str, int] = {}
        for block, found in held.items():
            key = self._key(block)
            ahead = found.version - self._node.version if key in keys else 0
            counts[key] = max(counts.get(key, 0), found.count - ahead)
        return counts

    def collect(self) -> dict[str, State]:
        """Return the state of every key that has any, or has been updated."""
        states: dict[str, State] = {}
        for indices in self._batches():
            held = fetch(self._node, [block for index in indices for block in self._model.blocks_of[index]])
            for index in indices:
                first = held[self._model.blocks_of[index].start]
                if first.count or first.dtypes:
                    states[self._model.tensors[index].key] = {
                        "count": first.count,
                        **{name: self._joined(index, name, held) for name in first.dtypes},
                    }
        return states

    def load(self, states: Mapping[str, State]) -> None:
        """Replace state and counts of the keys in `states`; the chief's copy counts, the others only check theirs.

        A key without "count" keeps the servers' count. Where an update of this version has been made in part, a chief
        that died since had loaded everything, and nothing is sent.

        Raises:
            ConfigurationError: names a key that the job does not have, or whose state is of another kind; nothing has
                been changed.
        """
        model = self._model
        tensors = {key: model.index.get((self._store, key)) for key in states}
        for key, index in tensors.items():
            if index is None or model.tensors[index].auxiliary:
                raise ConfigurationError(
                    f"key {key[2:]}: the states to load have it, but it is no parameter of this key store; load what "
                    "was saved from the same model"
                )
        known = {key: index for key, index in tensors.items() if index is not None}
        blocks = [block for index in known.values() for block in model.blocks_of[index]]
        held = fetch(self._node, sorted(blocks), numbers_only=True)
        for key, index in known.items():
            _check(key, states[key], model.tensors[index].shape, held[model.blocks_of[index].start])
        if self._node.is_chief and not (self._node.is_sync and self._begun(held)):
            frames = {
                block: _frame_parts(model, block, states[key], held[block])
                for key, index in known.items()
                for block in model.blocks_of[index]
            }
            fetch(self._node, sorted(blocks), numbers_only=True, load=frames)

    def _begun(self, held: Mapping[int, BlockState]) -> bool:
        """Return whether an update of this worker's version has been made in part."""
        return any(found.version != self._node.version for found in held.values())

    @property
    def _model(self) -> Model:
        return self._node.inbox.model

    def _tensors(self) -> list[int]:
        """Return the indices of the tensors that an optimizer may update.

        Only those whose values are here: in the rehearsal others may have declared some to which only the chief, which
        is perhaps this worker, gives first values.
        """
        return [
            index
            for index, tensor in enumerate(self._model.tensors)
            if tensor.store == self._store and not tensor.auxiliary and self._node.inbox.holds(index)
        ]

    def _batches(self) -> Iterator[list[int]]:
        """Yield tensor indices in groups of about `BATCH_BYTES`: a server copies what it sends."""
        batch: list[int] = []
        for index in self._tensors():
            batch.append(index)
            if sum(self._model.tensors[each].nbytes for each in batch) >= BATCH_BYTES:
                yield batch
                batch = []
        if batch:
            yield batch

    def _blocks(self) -> list[int]:
        return [block for index in self._tensors() for block in self._model.blocks_of[index]]

    def _key(self, block: int) -> str:
        return self._model.tensors[self._model.blocks[block].tensor].key

    def _joined(self, index: int, name: str, held: Mapping[int, BlockState]) -> NDArray[Any]:
        parts = [held[block].arrays[name] for block in self._model.blocks_of[index]]
        whole: NDArray[Any] = np.concatenate(parts)
        return whole.reshape(self._model.tensors[index].shape)


Load = tuple[list[str], int, list[Buffer]]
"""Of one block: names of the state arrays, count, payload."""


def fetch(
    node: WorkerNode, blocks: Iterable[int], numbers_only: bool = False, load: Mapping[int, Load] | None = None
) -> dict[int, BlockState]:
    """Return what the servers hold of these blocks; ask again where the configuration or a connection changes.

    Args:
        node: this worker, which has no exchange under way.
        blocks: ascending.
        numbers_only: leave the arrays out.
        load: sent first. Frames of one connection are served in order, so the answer says that it has arrived.
    """
    wanted = frozenset(blocks)
    while True:
        with node.changed:
            node.check()
            generation, request = node.generation, node.snapshots.begin()
            for block, (names, count, payload) in (load or {}).items():
                meta = SnapshotMeta(runs=((block, 1),), state=tuple(names), counts=(count,))
                node.peers.send(node.configuration.primary(block), node.frame(meta, node.version), payload)
            for server, owned in node.configuration.blocks_of.items():
                asked = tuple(runs(block for block in owned if block in wanted))
                if asked:
                    pull = PullMeta(runs=asked, states=True, numbers=numbers_only, request=request)
                    node.peers.send(server, node.frame(pull, node.version))
        node.wait(
            lambda: node.snapshots.complete(wanted) or node.generation != generation,  # noqa: B023  # waits here
            lambda: node.snapshots_of(wanted),
        )
        with node.changed:
            if node.snapshots.complete(wanted):
                return {
                    block: held
                    for frame, data in node.snapshots.taken()
                    for block, held in _split(node.inbox.model, frame, data)
                }


def _split(model: Model, frame: Frame, data: bytearray) -> Iterable[tuple[int, BlockState]]:
    """Yield a SNAPSHOT's blocks. Its payload is the run's values, then each state array over the whole run."""
    ((first, count),) = frame.runs
    snapshot = frame.of(SnapshotMeta)
    dtypes = {name: np.dtype(dtype) for name, dtype in zip(snapshot.state, snapshot.dtypes, strict=True)}
    span = model.span((first, count))
    item = np.dtype(model.tensors[model.blocks[first].tensor].dtype).itemsize
    elements = (span.stop - span.start) // item
    arrays: dict[str, NDArray[Any]] = {}
    start = span.stop - span.start
    if data:
        for name, dtype in dtypes.items():
            arrays[name] = np.frombuffer(data, dtype, elements, start)
            start += arrays[name].nbytes
    for block, updates in zip(model.blocks[first : first + count], snapshot.counts, strict=True):
        low = (block.position - span.start) // item
        mine = {name: array[low : low + block.nbytes // item] for name, array in arrays.items()}
        yield block.id, BlockState(frame.version, int(updates), dtypes, mine)


def _frame_parts(model: Model, number: int, state: State, held: BlockState) -> Load:
    """Return what loads one block: its part of each array, padded as the servers keep it."""
    block = model.blocks[number]
    item = np.dtype(model.tensors[block.tensor].dtype).itemsize
    payload: list[Buffer] = []
    for name, dtype in held.dtypes.items():
        padded = np.zeros(block.extent // item, dtype=dtype)
        low = block.offset // item
        padded[: block.nbytes // item] = np.asarray(state[name]).reshape(-1)[low : low + block.nbytes // item]
        payload.append(padded)
    return list(held.dtypes), int(state.get("count", held.count)), payload


def _check(key: str, state: State, shape: tuple[int, ...], held: BlockState) -> None:
    """Refuse a state that the key's optimizer does not keep."""
    arrays = {name: np.asarray(array) for name, array in state.items() if name != "count"}
    given = {name: (array.dtype, array.shape) for name, array in arrays.items()}
    kept = {name: (dtype, shape) for name, dtype in held.dtypes.items()}
    if given != kept:
        raise ConfigurationError(
            f"key {key[2:]}: the state to load is {_text(given)}, but its optimizer keeps {_text(kept)}; load what was "
            "saved with the same optimizer and element type"
        )
    count = state.get("count", 0)
    if not isinstance(count, int | np.integer) or count < 0:
        raise ConfigurationError(f"key {key[2:]}: the state to load has the update count {count!r}; 0 or more is meant")


def _text(arrays: Mapping[str, tuple[np.dtype[Any], tuple[int, ...]]]) -> str:
    return ", ".join(f"{name} ({dtype} of shape {shape})" for name, (dtype, shape) in arrays.items()) or "nothing"
