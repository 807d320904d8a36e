"""Servers in this process over TCP on loopback. Tests send the directives and play the workers."""

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from elastic_ps.core import codec
from elastic_ps.core.configuration import NO_CONFIGURATION, ConfigId, Configuration, Member, Role
from elastic_ps.core.data import DataSpec, place, share
from elastic_ps.core.model import Model, Tensor, runs
from elastic_ps.core.optimizer import Hyper, OptimizerSpec
from elastic_ps.core.token import TOKEN_BYTES
from elastic_ps.server.optimizers import make_rule
from elastic_ps.server.service import ServerNode
from elastic_ps.transport.frames import Frame, Kind
from elastic_ps.transport.tcp import TcpTransport
from protos import elastic_pb2 as pb

TOKEN = b"t" * TOKEN_BYTES
TIMEOUT = 20.0
SGD = OptimizerSpec("sgd", {"momentum": 0.9})
ADAM = OptimizerSpec("adam")
HYPER = Hyper(lr=0.1, wd=0.01, rescale_grad=1.0)


@dataclass(frozen=True)
class Acknowledged:
    answer: int
    configuration: ConfigId
    version: int
    bytes_moved: int
    detail: str


class GatedTransport(TcpTransport):
    """TCP whose outgoing connections hold frames of one kind until `gate` is set."""

    def __init__(self, token: bytes, kind: Kind):
        super().__init__(token)
        self.gate = threading.Event()
        self.held = threading.Event()
        self._kind = kind

    def connect(self, host: str, port: int, peer: str, timeout: float = 10.0) -> Any:
        connection = super().connect(host, port, peer, timeout)
        send = connection.send

        def gated(frame: Frame, payload: Sequence[Any] = ()) -> None:
            if frame.kind is self._kind:
                self.held.set()
                assert self.gate.wait(TIMEOUT)
            send(frame, payload)

        connection.send = gated  # type: ignore[method-assign]
        return connection


class FakeControl:
    """What a server says to its coordinator."""

    def __init__(self) -> None:
        self.answers: list[Acknowledged] = []
        self.failed: list[str] = []
        self._changed = threading.Condition()

    def acknowledge(
        self,
        answer: int,
        configuration: ConfigId = NO_CONFIGURATION,
        version: int = 0,
        suspension_ms: float = 0.0,
        bytes_moved: int = 0,
        detail: str = "",
        command: int = 0,
    ) -> None:
        with self._changed:
            self.answers.append(Acknowledged(answer, configuration, version, bytes_moved, detail))
            self._changed.notify_all()

    def peer_failed(self, peer: str, reason: str) -> None:
        with self._changed:
            self.failed.append(peer)
            self._changed.notify_all()

    def report_soon(self) -> None:
        """Nobody reports."""

    def await_answer(self, *answers: int, number: ConfigId | None = None) -> Acknowledged:
        def found() -> Acknowledged | None:
            wanted = [a for a in self.answers if a.answer in answers and number in (None, a.configuration)]
            return wanted[-1] if wanted else None

        with self._changed:
            result = self._changed.wait_for(found, TIMEOUT)
            assert result, f"no {[pb.Answer.Name(a) for a in answers]} for {number} among {self.answers}"
            return result

    def said(self, answer: int, number: ConfigId) -> bool:
        return any(a.answer == answer and a.configuration == number for a in self.answers)

    def await_failed(self, peer: str) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: peer in self.failed, TIMEOUT)


@dataclass
class Received:
    server: str
    frame: Frame
    data: NDArray[np.uint8]


class FakeWorker:
    """A worker's side of the data plane, driven by the test."""

    def __init__(self, name: str, transport: TcpTransport, model: Model):
        self.name = name
        self.model = model
        self.received: list[Received] = []
        self.values: dict[int, dict[int, bytes]] = {}  # version -> block -> bytes
        self.heard = NO_CONFIGURATION  # the highest that a frame named
        self._transport = transport
        self._connections: dict[str, Any] = {}
        self._changed = threading.Condition()

    def connect(self, server: Member) -> Frame:
        connection = self._transport.connect(server.host, server.port, server.id)
        meta = {"node": self.name, "role": "worker", "lane": "exchange"}
        connection.send(Frame(Kind.HELLO, meta=meta))
        answer: Frame = connection.receive()
        if answer.kind is not Kind.ACCEPTED:
            connection.close()
        else:
            if server.id in self._connections:
                self._connections[server.id].close()
            self._connections[server.id] = connection
            threading.Thread(target=self._receive, args=(server.id, connection), daemon=True).start()
        return answer

    def close(self) -> None:
        for connection in self._connections.values():
            connection.close()

    def _receive(self, server: str, connection: Any) -> None:
        try:
            while True:
                frame = connection.receive()
                data = np.empty(frame.payload_bytes, dtype=np.uint8)
                connection.receive_into([data])
                with self._changed:
                    self.received.append(Received(server, frame, data))
                    self.heard = max(self.heard, frame.configuration)
                    if frame.kind is Kind.VALUE:
                        self._keep(frame, data)
                    self._changed.notify_all()
        except Exception:  # noqa: BLE001  # the test sees what did not come
            with self._changed:
                self._changed.notify_all()

    def _keep(self, frame: Frame, data: NDArray[np.uint8]) -> None:
        start = 0
        for first, count in frame.runs:
            for block in range(first, first + count):
                size = self.model.blocks[block].extent
                self.values.setdefault(frame.version, {})[block] = data[start : start + size].tobytes()
                start += size
        assert start == data.nbytes

    def send(self, server: str, frame: Frame, payload: Sequence[Any] = ()) -> None:
        self._connections[server].send(frame, payload)

    def wait(self, ready: Callable[[], Any]) -> None:
        with self._changed:
            assert self._changed.wait_for(ready, TIMEOUT), [(r.server, r.frame) for r in self.received]

    def has(self, version: int) -> bool:
        return len(self.values.get(version, {})) == len(self.model.blocks)

    def await_version(self, version: int, blocks: Sequence[int] | None = None) -> None:
        wanted = set(range(len(self.model.blocks)) if blocks is None else blocks)
        self.wait(lambda: wanted <= set(self.values.get(version, {})))

    def await_kind(self, kind: Kind, server: str | None = None) -> Frame:
        def found() -> Frame | None:
            return next((r.frame for r in self.received if r.frame.kind is kind and server in (None, r.server)), None)

        self.wait(found)
        frame = found()
        assert frame is not None
        return frame

    def drain(self, server: str, block: int, configuration: ConfigId) -> None:
        """Wait until the server has judged all that was sent: a PULL behind it is answered."""
        before = sum(r.frame.kind is Kind.VALUE for r in self.received)
        self.send(server, Frame(Kind.PULL, configuration, 0, meta={"runs": [[block, 1]]}))
        self.wait(lambda: sum(r.frame.kind is Kind.VALUE for r in self.received) > before)

    def slab(self, version: int) -> NDArray[np.uint8]:
        """The whole model at a version."""
        blocks = self.values[version]
        return np.frombuffer(b"".join(blocks[block] for block in range(len(self.model.blocks))), dtype=np.uint8)


@dataclass
class Job:
    """A model, its servers, and the step-by-step play."""

    tensors: tuple[Tensor, ...]
    spec: OptimizerSpec | None = SGD
    data: DataSpec = field(default_factory=lambda: DataSpec(True, 64, 8, "short"))
    block_bytes: int = 512

    def __post_init__(self) -> None:
        self.model = Model(self.tensors, self.block_bytes)
        self.transport = TcpTransport(TOKEN)
        self.transports: dict[str, TcpTransport] = {}  # of servers that do not have the common one
        self.controls: dict[str, FakeControl] = {}
        self.servers: dict[str, ServerNode] = {}
        self.members: dict[str, Member] = {}
        self.workers: dict[str, FakeWorker] = {}
        self.configuration: Configuration | None = None
        self.prepared: Configuration | None = None
        self.rng = np.random.default_rng(7)
        self.plan = 0

    def close(self) -> None:
        for worker in self.workers.values():
            worker.close()
        for server in self.servers.values():
            server.close()

    # ---- nodes and directives

    def add_server(self, name: str, tables: bool = True) -> FakeControl:
        listener = self.transport.listen("127.0.0.1")
        control = FakeControl()
        transport = self.transports.get(name, self.transport)
        server = ServerNode(name, self.block_bytes, control, transport, listener)
        server.start()
        self.controls[name], self.servers[name] = control, server
        self.members[name] = Member(name, Role.SERVER, *listener.address)
        self.welcome(name, tables)
        return control

    def welcome(self, name: str, tables: bool = True) -> None:
        welcome = pb.Welcome(data=codec.data_to_pb(self.data))
        if tables:
            welcome.tensors.extend(codec.tensor_to_pb(tensor) for tensor in self.tensors)
            welcome.optimizers.append(self.spec.to_json() if self.spec else "")
        if self.configuration is not None:
            welcome.configuration.CopyFrom(codec.configuration_to_pb(self.configuration))
        self.direct(name, welcome=welcome)

    def direct(self, server: str, **kind: Any) -> None:
        self.servers[server].on_directive(pb.Directive(term=1, plan=self.plan, **kind))

    def add_worker(self, name: str) -> FakeWorker:
        worker = self.workers[name] = FakeWorker(name, self.transport, self.model)
        for member in self.members.values():
            assert worker.connect(member).kind is Kind.ACCEPTED
        return worker

    def next(self, workers: Sequence[str], servers: Sequence[str], assignment: Sequence[int]) -> Configuration:
        number = self.configuration.id.number + 1 if self.configuration else 1
        return Configuration(
            ConfigId(1, number),
            tuple(Member(name, Role.WORKER, "127.0.0.1") for name in workers),
            tuple(self.members[name] for name in servers),
            tuple(assignment),
        )

    def prepare(self, configuration: Configuration, servers: Sequence[str], mode: int = pb.LIVE, **more: Any) -> None:
        self.prepared = configuration
        message = pb.Prepare(configuration=codec.configuration_to_pb(configuration), mode=mode, **more)
        for server in servers:
            self.direct(server, prepare=message)
        for server in servers:
            self.controls[server].await_answer(pb.PREPARED, number=configuration.id)

    def adopt(self, configuration: Configuration, servers: Sequence[str]) -> None:
        number = codec.config_id_to_pb(configuration.id)
        for server in servers:
            self.direct(server, adopt=pb.Adopt(configuration=number))
        for server in servers:
            self.controls[server].await_answer(pb.SWITCHED, number=configuration.id)
        self.configuration = configuration

    def commit(self, servers: Sequence[str]) -> None:
        assert self.configuration is not None
        for server in servers:
            self.direct(server, committed=pb.Committed(configuration=codec.config_id_to_pb(self.configuration.id)))

    def start(self, workers: Sequence[str], servers: Sequence[str], assignment: Sequence[int], **more: Any) -> None:
        """Servers, the first configuration, workers, first values."""
        for server in servers:
            self.add_server(server)
        first = self.next(workers, servers, assignment)
        self.prepare(first, servers, **more)
        self.adopt(first, servers)
        for worker in workers:
            self.add_worker(worker)
        if not more.get("restore"):
            self.init()

    def init(self) -> None:
        assert self.configuration is not None
        slab = self.random_slab()
        self.reference = Reference(self.model, self.spec, self.data, slab)
        chief = self.workers[self.configuration.chief]
        for server, blocks in self.configuration.blocks_of.items():
            blocks_runs = list(runs(blocks))
            frame = Frame(Kind.INIT, self.configuration.id, 0, meta={"runs": [list(run) for run in blocks_runs]})
            chief.send(server, frame, [slab[self.model.span(run)] for run in blocks_runs])

    def random_slab(self) -> NDArray[np.uint8]:
        slab = np.zeros(self.model.slab_bytes, dtype=np.uint8)
        for tensor in range(len(self.model.tensors)):
            view = tensor_view(self.model, slab, tensor)
            view[...] = self.rng.normal(size=view.shape)
        return slab

    # ---- steps

    def drain(self, worker: str) -> None:
        """Wait until every server has judged what this worker sent."""
        assert self.configuration is not None
        for server, blocks in self.configuration.blocks_of.items():
            self.workers[worker].drain(server, blocks[0], self.configuration.id)

    def push(
        self,
        worker: str,
        version: int,
        slab: NDArray[np.uint8],
        configuration: Configuration | None = None,
        servers: Sequence[str] | None = None,
        blocks: Sequence[int] | None = None,
        absent: Sequence[int] = (),
    ) -> None:
        """Send a worker's gradients of a version, a block list on each server in two frames."""
        table = configuration or self.configuration
        assert table is not None
        rank = table.ranks[worker]
        where = place(self.data, version)
        positions = share(self.data, where.step, rank, len(table.workers))
        for server, owned in table.blocks_of.items():
            if servers is not None and server not in servers:
                continue
            mine = [block for block in owned if (blocks is None or block in blocks) and block not in absent]
            none = [block for block in owned if block in absent]
            half = len(mine) // 2
            for number, chunk in enumerate((mine[:half], mine[half:])):
                meta: dict[str, Any] = {
                    "runs": [list(run) for run in runs(chunk)],
                    "slice": [where.epoch, where.step, where.exchange, positions.start, positions.stop],
                }
                if number == 0 and none:
                    meta["absent"] = [list(run) for run in runs(none)]
                if rank == 0:
                    meta["hyper"] = HYPER.to_dict()
                if not positions:
                    meta["empty"] = True
                frame = Frame(Kind.PUSH, table.id, version, len(positions), meta)
                self.workers[worker].send(server, frame, [slab[self.model.span(run)] for run in runs(chunk)])

    def step(self, version: int, configuration: Configuration | None = None) -> list[NDArray[np.uint8]]:
        """A whole exchange by all workers, checked against the reference bit by bit."""
        table = configuration or self.configuration
        assert table is not None
        names = [worker.id for worker in table.workers]
        slabs = [self.random_slab() for _ in names]
        for name, slab in zip(names, slabs, strict=True):
            self.push(name, version, slab, table)
        self._redo_if_decided(version, slabs, names, table)
        self.settle(version, slabs, names, table)
        return slabs

    def _redo_if_decided(
        self, version: int, slabs: Sequence[NDArray[np.uint8]], names: Sequence[str], table: Configuration
    ) -> None:
        """As a worker does that hears in the middle of a step that the plan is decided: contribute to what lacks."""
        workers = [self.workers[name] for name in names]
        for worker in workers:
            worker.wait(lambda worker=worker: worker.has(version + 1) or worker.heard > table.id)
        if all(worker.has(version + 1) for worker in workers):
            return
        assert self.prepared is not None
        for name, slab in zip(names, slabs, strict=True):
            lacking = set(range(len(self.model.blocks))) - set(self.workers[name].values.get(version + 1, {}))
            self.push(name, version, slab, self.prepared, blocks=sorted(lacking))

    def settle(
        self, version: int, slabs: Sequence[NDArray[np.uint8]], names: Sequence[str], table: Configuration
    ) -> None:
        where = place(self.data, version)
        samples = [len(share(self.data, where.step, rank, len(names))) for rank in range(len(names))]
        self.reference.update(slabs, samples)
        for name in names:
            self.workers[name].await_version(version + 1)
            assert np.array_equal(self.workers[name].slab(version + 1), self.reference.slab), f"version {version + 1}"


class Reference:
    """The same training without servers: whole tensors, one after the other."""

    def __init__(self, model: Model, spec: OptimizerSpec | None, data: DataSpec, slab: NDArray[np.uint8]):
        self.model, self.data = model, data
        self.slab = slab.copy()
        self.rule = make_rule(spec) if spec else None
        self.spec = spec
        self.count = 0
        self.states: list[dict[str, NDArray[Any]]] = []
        for number, tensor in enumerate(model.tensors):
            value = tensor_view(model, self.slab, number)
            layout = self.rule.states(np.dtype(tensor.dtype)) if self.rule and not tensor.auxiliary else ()
            states = {name: np.zeros(value.size, dtype=dtype) for name, dtype in layout}
            if self.rule and states:
                self.rule.init(states, value)
            self.states.append(states)

    def update(self, slabs: Sequence[NDArray[np.uint8]], samples: Sequence[int]) -> None:
        self.count += 1
        total = sum(samples)
        for number, tensor in enumerate(self.model.tensors):
            value = tensor_view(self.model, self.slab, number)
            views = [tensor_view(self.model, slab, number).copy() for slab in slabs]
            dtype = value.dtype.type
            if tensor.auxiliary or self.data.loss == "mean":
                given = [view for view, n in zip(views, samples, strict=True) if n]
                parts = [n for n in samples if n]
                aggregate = given[0]
                if len(given) > 1:
                    aggregate = given[0] * dtype(parts[0] / total)
                    for view, n in zip(given[1:], parts[1:], strict=True):
                        aggregate = aggregate + view * dtype(n / total)
            else:
                given = [view for view, n in zip(views, samples, strict=True) if n]
                aggregate = given[0].copy()
                for view in given[1:]:
                    aggregate = aggregate + view
                if self.data.elastic and self.data.global_batch != total:
                    aggregate = aggregate * dtype(self.data.global_batch / total)
            if self.rule is None or tensor.auxiliary:
                value[...] = aggregate
                continue
            factors = self.spec.keys.get(tensor.key, {}) if self.spec else {}
            hyper = Hyper(
                HYPER.lr * factors.get("lr_mult", 1.0), HYPER.wd * factors.get("wd_mult", 1.0), HYPER.rescale_grad
            )
            self.rule.update(value, aggregate, self.states[number], self.count, hyper)


def tensor_view(model: Model, slab: NDArray[np.uint8], number: int) -> NDArray[Any]:
    """A tensor's flat values in a whole-model slab."""
    tensor = model.tensors[number]
    start = model.blocks[model.blocks_of[number].start].position
    return slab[start : start + tensor.nbytes].view(tensor.dtype)


def spread(job: Job, servers: int) -> list[int]:
    return [block % servers for block in range(len(job.model.blocks))]


def join_server(job: Job, name: str) -> None:
    job.add_server(name)
    for worker in job.workers.values():
        assert worker.connect(job.members[name]).kind is Kind.ACCEPTED


def image(job: Job, server: str, blocks: list[int]) -> bytes:
    room = job.servers[server].room
    with room.changed:
        return b"".join(
            part.tobytes()
            for run in runs(blocks)
            for segment in room.store.segments(run)
            for part in room.store.image(segment)
        )


TENSORS = (
    Tensor(0, "i:0", (40, 10), "float32"),
    Tensor(0, "i:1", (7,), "float32"),
    Tensor(0, "i:2", (), "float32"),
    Tensor(0, "i:3", (65,), "float64"),
    Tensor(0, "i:4", (9,), "float32", auxiliary=True),
    Tensor(0, "i:5", (300,), "float32"),
)
