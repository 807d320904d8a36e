"""One server's state without a socket: frames in, frames out. Tests play the workers."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from coordinator.ctl.exactly_once_audit import Audit, audit
from elastic_ps.core.configuration import ConfigId, Configuration, Member, NodeId, Role
from elastic_ps.core.data_order import DataSpec, place, share
from elastic_ps.core.model import Model, Tensor, runs
from elastic_ps.core.optimizer import Hyper, OptimizerSpec
from elastic_ps.node.standing import Standing
from elastic_ps.server.blocks.applied_batches import BatchId
from elastic_ps.server.phases import BlockStatus
from elastic_ps.server.state.server_state import ServerState
from elastic_ps.server.worker_frames import WorkerFrames
from elastic_ps.transport.frame_kinds import Kind
from elastic_ps.transport.frame_metas import InitMeta, PushMeta
from elastic_ps.transport.frames import HEADER_BYTES, Frame, decode, decode_header, encode
from elastic_ps.transport.shared_memory import Image
from tests.elastic_ps.server.server_peers import FakeControl
from tests.elastic_ps.server.server_reference import HYPER, SGD, TENSORS, Reference, random_slab

DATA = DataSpec(True, 24, 8, consistency="async")
FIRST = ConfigId(1, 1)


@dataclass
class Sent:
    """An `Outbox` that keeps everything, without copying."""

    frames: list[tuple[NodeId, Frame, list[Any]]] = field(default_factory=list)
    sharing: set[NodeId] = field(default_factory=set)

    def send(self, node: NodeId, frame: Frame, payload: Sequence[Any] = ()) -> None:
        self.frames.append((node, frame, list(payload)))

    def notice(self, frame: Frame) -> None:
        self.frames.append(("", frame, []))

    def backlog(self, node: NodeId) -> int:
        return 0

    def is_connected(self, node: NodeId) -> bool:
        return True

    def shares(self, node: NodeId) -> bool:
        return node in self.sharing


def travelled(frame: Frame) -> Frame:
    """The frame as its receiver has it."""
    data = encode(frame)
    return decode(decode_header(data), data[HEADER_BYTES:])


class Desk:
    """One server that holds all blocks; each push is answered before the next."""

    def __init__(
        self,
        tensors: tuple[Tensor, ...] = TENSORS,
        specs: Sequence[OptimizerSpec | None] = (SGD,),
        data: DataSpec = DATA,
        filled: bool = True,
    ):
        self.model, self.data, self.rng = Model(tensors, 512), data, np.random.default_rng(7)
        self.every = [(0, len(self.model.blocks))]
        self.sent = Sent()
        self.state = ServerState.create("s0", 512, (), FakeControl(), self.sent)  # type: ignore[arg-type]
        self.state.store.grow(self.model, [spec.to_json() if spec else "" for spec in specs])
        self.state.data = data
        server = Member("s0", Role.SERVER, "h", 1)
        workers = tuple(Member(f"w{number}", Role.WORKER, "h") for number in range(3))
        configuration = Configuration(FIRST, workers, (server,), (0,) * len(self.model.blocks))
        self.state.standing = Standing("s0", current=configuration)
        self.state.new_gathering()
        self.state.store.allocate(range(len(self.model.blocks)), BlockStatus.EMPTY)
        self.worker_frames = WorkerFrames(self.state, self.switch)
        self.gradients: dict[NodeId, Image] = defaultdict(lambda: Image(self.model.slab_bytes))
        self.spec, self.first = specs[0], self.slab()
        if filled:
            self.arrives("w0", Frame(InitMeta(runs=self.every), FIRST, 0), self.first)

    @cached_property
    def reference(self) -> Reference:
        """The same training without servers, where one optimizer updates everything."""
        return Reference(self.model, self.spec, self.data, self.first)

    def switch(self) -> None:
        self.state.standing = self.state.standing.switch()
        self.state.new_gathering()

    def arrives(self, node: NodeId, frame: Frame, data: NDArray[np.uint8] | None = None) -> list[Frame]:
        """A frame comes; what the server sends for it."""
        before = len(self.sent.frames)
        frame = travelled(frame)
        buffers = self.worker_frames.buffers(node, frame, self.gradients[node], lambda: None)
        sizes = np.cumsum([buffer.nbytes for buffer in buffers])
        for buffer, part in zip(buffers, np.split(data, sizes[:-1]) if data is not None else (), strict=True):
            buffer[...] = part
        self.worker_frames.arrived(node, frame, buffers, lambda: None)
        return [frame for _, frame, _ in self.sent.frames[before:]]

    def slab(self) -> NDArray[np.uint8]:
        return random_slab(self.model, self.rng, 10)

    def push(
        self,
        worker: NodeId,
        batch: BatchId,
        slab: NDArray[np.uint8],
        step: int = 0,
        version: int = 0,
        blocks: Sequence[int] | None = None,
        absent: Sequence[int] = (),
        hyper: Hyper | None = HYPER,
        number: ConfigId = FIRST,
    ) -> list[Frame]:
        where = place(self.data, step) if self.data.elastic else None
        positions = share(self.data, where.step, 0, 1) if where else range(5)
        chosen = [block for block in range(self.every[0][1]) if block not in absent and (not blocks or block in blocks)]
        meta = {
            "runs": [list(run) for run in runs(chosen)],
            "absent": [list(run) for run in runs(absent)],
            "slice": [where.epoch, where.step, 0, positions.start, positions.stop] if where else None,
            "batch": list(batch),
            "hyper": hyper.to_dict() if hyper else None,
        }
        frame = Frame(PushMeta(**meta), number, version, len(positions))
        return self.arrives(worker, frame, np.concatenate([slab[self.model.span(run)] for run in runs(chosen)]))

    def update(self, worker: NodeId, number: int, step: int, version: int = 0) -> NDArray[np.uint8]:
        """A whole exchange, checked against training on one machine bit by bit."""
        slab = self.slab()
        (answer,) = self.push(worker, BatchId(worker, number), slab, step, version)
        self.reference.update([slab], [len(share(self.data, place(self.data, step).step, 0, 1))])
        assert (answer.kind, answer.version, answer.runs) == (Kind.VALUE, version + 1, self.every)
        assert self.sent.frames[-1][0] == worker
        assert self.image() == self.values() == self.reference.slab.tobytes()
        return slab

    def values(self) -> bytes:
        """What the last frame brought."""
        return b"".join(part.tobytes() for part in self.sent.frames[-1][2])

    def image(self) -> bytes:
        return b"".join(piece.tobytes() for piece in self.state.store.values.pieces(self.every[0]))

    def proof(self, epochs: int = 1) -> Audit:
        return audit(self.state.ledger.report()[1], self.data.samples, self.data.global_batch, epochs)
