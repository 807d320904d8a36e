"""An `Exchange` pushes the gradients of a version and gathers the parameters of the next (protocol, invariant 5)."""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from elastic_ps.core.compression import Compression
from elastic_ps.core.configuration import NO_CONFIGURATION, Configuration, NodeId
from elastic_ps.core.data_order import Slice
from elastic_ps.core.errors import EXIT_RESTART, ConfigurationError, JobEnded
from elastic_ps.core.model import Model, Run, runs
from elastic_ps.core.optimizer import Hyper
from elastic_ps.core.sparse_rows import Rows, rows_of
from elastic_ps.transport.base import Buffer
from elastic_ps.transport.frame_metas import PushMeta
from elastic_ps.transport.frames import Frame
from elastic_ps.transport.meta_parts import Encoded
from elastic_ps.worker.wire.parameter_inbox import Slab
from elastic_ps.worker.wire.worker_node import WorkerNode

CHUNK_BYTES = 4 << 20
"""Largest payload of a PUSH frame that travels and holds more than one block: what lies behind is pipelined."""

SHARED_CHUNK_BYTES = 128 << 20
"""The same where it lies in shared memory: there is nothing to wait for, and each frame costs half a millisecond."""


Mask = NDArray[np.bool_]

_Pushed = tuple[PushMeta, list[Buffer]]


@dataclass(frozen=True)
class Push:
    """A `Push` is what a worker contributes to one exchange.

    Attributes:
        parts: the memory (uint8) of the gradients of a run of blocks; only `present` tensors are asked for.
        rows: those of a tensor's gradient, where it has some only; None: it is in `parts`.
        present: tensor indices that are pushed.
        samples: how many there are in this worker's slice.
        slice: (epoch, step, exchange, low, high) for the ledger; None for static data.
        roster: the workers among whom the step's samples were divided; None: they were not.
        hyper: the optimizer's values of this step; read from the chief's frames, of a batch from everybody's.
        skip_overflow: as in `Hyper`, as this worker's script wants it.
        late_hyper: gives them where this worker has become the chief since; None: nothing can.
        empty: this rank has no samples in the step.
        compression: by which gradients of float32 are quantized already, and encoded where they travel.
        batch: (origin, number) where the exchange is this worker's alone; None: all workers share it.
        may_be_made: the others may have made the exchange before, and be further.
    """

    parts: Callable[[Run], Sequence[Slab]]
    rows: Callable[[int], Rows | None]
    present: frozenset[int]
    samples: int
    slice: Slice | None
    roster: tuple[NodeId, ...] | None
    hyper: Hyper | None
    empty: bool = False
    batch: tuple[NodeId, int] | None = None
    compression: Compression | None = None
    skip_overflow: bool = False
    late_hyper: Callable[[], Hyper | None] | None = None
    may_be_made: bool = False


def roster(configuration: Configuration) -> tuple[NodeId, ...]:
    """Return the workers in rank order."""
    return tuple(worker.id for worker in configuration.workers)


class Exchange:
    """An `Exchange` makes the exchanges of one worker, one after the other.

    Args:
        node: this worker.
    """

    def __init__(self, node: WorkerNode):
        self._node = node
        self._told = NO_CONFIGURATION
        self._sent: tuple[tuple[int, int], frozenset[int]] = (-1, -1), frozenset()

    def send_tensors(self, push: Push) -> None:
        """Send some tensors of the open version, `push.present`; `run` sends the others."""
        node = self._node
        with node.changed:
            node.check()
            if push.roster is not None and push.roster != roster(node.configuration):
                return  # `run` will tell
            sent = self._already_sent()
            for server, frame, payload in self._frames(push, node.version, push.present - sent, whole=False):
                node.peers.send(server, frame, payload)
            self._sent = (node.generation, node.version), sent | push.present

    def forget_sent(self) -> None:
        """Forget what was sent ahead: it does not count, `run` sends it again."""
        self._sent = (-1, -1), frozenset()

    def _already_sent(self) -> frozenset[int]:
        """Return the tensors of the open version that servers have been sent and will answer. Call under the lock."""
        when, sent = self._sent
        return sent if when == (self._node.generation, self._node.version) else frozenset()

    def run(self, push: Push, boundary: bool) -> bool:
        """Exchange the open version; False where other workers share the step now and it must be computed again.

        Args:
            push: this worker's part.
            boundary: the exchange ends a sampler step, so a configuration whose clock has come takes effect.

        Raises:
            ConfigurationError: there are keys that only this worker could give first values, and it has not.
        """
        node = self._node
        while True:
            with node.changed:
                node.check()
                if push.roster is not None and push.roster != roster(node.configuration):
                    return False
                generation = node.generation
                version = node.version
                leads = node.is_chief and push.batch is None
                if leads and not push.may_be_made:
                    self._check_first_values(version)
                late_hyper = push.late_hyper if leads and push.hyper is None else None
                if late_hyper is None:
                    for server, frame, payload in self._frames(push, version, push.present - self._already_sent()):
                        node.peers.send(server, frame, payload)
            if late_hyper is not None:  # called without the lock, as it may ask servers
                push = replace(push, hyper=late_hyper(), late_hyper=None)
            elif self._gather(generation):
                break
        if boundary:
            self._tell_first_step()
            self._node.membership.step_ended(time.monotonic())
        return True

    def _check_first_values(self, version: int) -> None:
        """Check that the chief has initialized all keys: its values count, and would be waited for without end."""
        model = self._node.inbox.model
        for first, _ in self._node.inbox.missing(version):
            key = model.tensors[model.blocks[first].tensor].name
            raise ConfigurationError(
                f"key {key}: another worker has initialized it, and this one (rank 0), whose values count, has not; "
                "init the same keys in the same order in every worker"
            )

    def _tell_first_step(self) -> None:
        """Report the first step of a configuration at once: a plan is committed when a worker is past its clock."""
        number = self._node.standing.config_id
        if number != self._told:
            self._told = number
            self._node.session.report_soon()

    def _gather(self, generation: int) -> bool:
        """Wait for the version under way; False where the configuration changed meanwhile.

        Raises:
            JobEnded: it can never be whole here.
        """
        node = self._node

        def torn() -> bool:
            return node.is_sync and node.inbox.is_torn()

        node.progress.exchanging = True
        node.wait(
            lambda: node.inbox.next_after() is not None or node.generation != generation or torn(),
            lambda: node.values_of(node.version + 1),
        )
        node.progress.exchanging = False
        with node.changed:
            if node.generation == generation and torn():
                why = f"of version {node.version + 1} blocks are lacking whose server has died, and nobody has them"
                node.end(JobEnded(f"{why}: this worker joins anew", EXIT_RESTART))
                node.check()
            return node.install(node.inbox.next_after())

    def _frames(
        self, push: Push, version: int, tensors: frozenset[int], whole: bool = True
    ) -> Iterator[tuple[NodeId, Frame, list[Buffer]]]:
        """Yield the frames that push `tensors`; where `whole`, they name also what is not pushed at all.

        A worker without samples says so to every server: to them it also answers for keys that it has not heard of.
        """
        node = self._node
        missing, present, sparse = self._masks(push, version, tensors)
        hyper = push.hyper if push.batch or node.is_chief else None
        common = PushMeta(
            slice=push.slice, empty=push.empty, skip_overflow=push.skip_overflow, batch=push.batch, hyper=hyper
        )
        for server, blocks in node.configuration.blocks_of.items():
            held = np.asarray(blocks, dtype=np.int64)
            held = held[missing[held]] if len(held) else held
            pushes = self._pushes(push, common, server, held[present[held]], sparse)
            absent = held[~present[held]].tolist() if whole else []
            named = _with_absent(node.inbox.model, common, pushes, absent)
            for meta, payload in named if absent or not push.empty else [(common, [])]:
                yield server, node.frame(meta, version, push.samples), payload

    def _pushes(
        self, push: Push, common: PushMeta, server: NodeId, held: NDArray[np.int64], sparse: Mask
    ) -> Iterator[_Pushed]:
        """Yield what pushes blocks of a server, `held`, of which some have `sparse` gradients."""
        node = self._node
        model = node.inbox.model
        for rows, run in _row_runs(model, push, held[sparse[held]].tolist()):
            yield replace(common, runs=(run,), rows=(len(rows),)), list(rows.payload())
        pushed = held[~sparse[held]]
        travels = node.peers.gradients(server, model.slab_bytes) is None
        encoded = np.zeros(len(pushed), dtype=bool)
        if push.compression is not None and travels:
            encoded = _is_encoded(model, pushed)
        limit = CHUNK_BYTES if travels else SHARED_CHUNK_BYTES
        for chunk in _chunks(model, pushed[~encoded].tolist(), limit):
            yield replace(common, runs=chunk), [part for run in chunk for part in push.parts(run)]
        for chunk in _chunks(model, pushed[encoded].tolist(), limit):
            how, payload = _encode(push, chunk)
            yield replace(common, runs=chunk, encoded=how), payload

    def _masks(self, push: Push, version: int, tensors: frozenset[int]) -> tuple[Mask, Mask, Mask]:
        """Return by block whether it lacks values and is of `tensors` or absent, whether it is pushed, and whether as
        rows.
        """
        model = self._node.inbox.model
        missing, present, sparse = np.zeros((3, len(model.blocks)), dtype=bool)
        for first, count in self._node.inbox.missing(version + 1):
            missing[first : first + count] = True
        for tensor in push.present:
            window = slice(model.blocks_of[tensor].start, model.blocks_of[tensor].stop)
            present[window] = True
            sparse[window] = push.rows(tensor) is not None
            if tensor not in tensors:
                missing[window] = False
        return missing, present, sparse


def _with_absent(model: Model, common: PushMeta, pushes: Iterator[_Pushed], absent: list[int]) -> Iterator[_Pushed]:
    """Yield pushes; the last of them names the blocks `absent` of its key store, others go alone."""
    by_store = {store: tuple(runs(blocks)) for store, blocks in model.by_store(absent).items()}
    last: _Pushed | None = None
    for push in pushes:
        if last is not None:
            yield last
        last = push
    if last is not None:
        meta, payload = last
        store = model.tensors[model.blocks[meta.runs[0][0]].tensor].store
        yield replace(meta, absent=by_store.pop(store, ())), payload
    for blocks in by_store.values():
        yield replace(common, absent=blocks), []


def _row_runs(model: Model, push: Push, blocks: list[int]) -> Iterator[tuple[Rows, Run]]:
    """Yield, by run of blocks, the rows of gradients of which there are some only."""
    for run in (part for found in model.by_tensor(blocks) for part in runs(found)):
        rows, held = push.rows(model.blocks[run[0]].tensor), rows_of(model, run)
        assert rows is not None
        assert held is not None
        yield rows.between(held), run


def _is_encoded(model: Model, blocks: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Return by block whether its gradients can be compressed."""
    tensors = [model.tensors[model.blocks[block].tensor] for block in blocks.tolist()]
    return np.array([tensor.dtype == "float32" and not tensor.auxiliary for tensor in tensors], dtype=bool)


def _encode(push: Push, chunk: Sequence[Run]) -> tuple[Encoded, list[Buffer]]:
    """Return the payload of runs, encoded, and how it is."""
    assert push.compression is not None
    payload = [push.compression.encode(np.concatenate(push.parts(run)).view(np.float32)) for run in chunk]
    return Encoded(push.compression, tuple(part.nbytes for part in payload)), list(payload)


def _chunks(model: Model, blocks: list[int], limit: int) -> Iterator[tuple[Run, ...]]:
    """Yield ascending blocks as groups of runs, each group at most `limit` bytes or one block."""
    chunk: list[int] = []
    size = 0
    for block in blocks:
        extent = model.blocks[block].extent
        if chunk and size + extent > limit:
            yield tuple(runs(chunk))
            chunk, size = [], 0
        chunk.append(block)
        size += extent
    if chunk:
        yield tuple(runs(chunk))
