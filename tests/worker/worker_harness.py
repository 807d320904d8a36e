"""One real worker node in this process; tests play its coordinator, and its servers over memory."""

import queue
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from elastic_ps.core import codec
from elastic_ps.core.configuration import NO_CONFIGURATION, ConfigId, Configuration, Member, Role
from elastic_ps.core.errors import ElasticError
from elastic_ps.core.model import Model, Tensor, members, runs
from elastic_ps.core.token import TOKEN_BYTES
from elastic_ps.transport.frames import Frame, Kind
from elastic_ps.transport.memory import MemoryConnection, MemoryTransport, Network
from elastic_ps.worker.exchange import Exchange, Push, roster
from elastic_ps.worker.node import WorkerNode
from elastic_ps.worker.parameters import enter
from protos import elastic_pb2 as pb

TOKEN = b"t" * TOKEN_BYTES
TIMEOUT = 20.0
BLOCK_BYTES = 64
TENSORS = tuple(Tensor(0, f"i:{number}", (32,), "float32") for number in range(3))  # two blocks each
MODEL = Model(TENSORS, BLOCK_BYTES)
ALL = list(range(len(MODEL.blocks)))


@dataclass(frozen=True)
class Acknowledged:
    answer: int
    configuration: ConfigId
    version: int


@dataclass(frozen=True)
class Received:
    frame: Frame
    data: bytes


def roster_of(*workers: str) -> Configuration:
    """A configuration of workers alone."""
    return Configuration(ConfigId(1, 1), tuple(Member(name, Role.WORKER, "here") for name in workers), (), ())


class Aside:
    """The script's thread: a call, and how it ended."""

    def __init__(self, call: Callable[..., Any], *arguments: Any):
        self._done = threading.Event()
        self._error: BaseException | None = None
        self._result: Any = None
        threading.Thread(target=self._run, args=(call, arguments), daemon=True).start()

    def _run(self, call: Callable[..., Any], arguments: Sequence[Any]) -> None:
        try:
            self._result = call(*arguments)
        except BaseException as error:  # noqa: BLE001  # shown by result()
            self._error = error
        self._done.set()

    @property
    def ended(self) -> bool:
        return self._done.is_set()

    def result(self) -> Any:
        assert self._done.wait(TIMEOUT), "the worker still waits"
        if self._error is not None:
            raise self._error
        return self._result


class FakeSession:
    """What a worker says to its coordinator."""

    def __init__(self, node: str):
        self.node = node
        self.answers: list[Acknowledged] = []
        self.failed: list[str] = []
        self.declared: Callable[[pb.DeclareRequest], pb.DeclareReply] | None = None
        self.drawn: list[tuple[int, int, bool]] = []
        self.draws: queue.Queue[pb.DrawReply | ElasticError] = queue.Queue()  # what the coordinator answers
        self._changed = threading.Condition()

    def acknowledge(
        self, answer: int, configuration: ConfigId = NO_CONFIGURATION, version: int = 0, *_more: Any
    ) -> None:
        with self._changed:
            self.answers.append(Acknowledged(answer, configuration, version))
            self._changed.notify_all()

    def peer_failed(self, peer: str, reason: str) -> None:
        with self._changed:
            self.failed.append(peer)
            self._changed.notify_all()

    def abandon(self) -> None:
        """Nobody waits for an answer."""

    def report_soon(self) -> None:
        """Nobody reports."""

    def declare(self, request: pb.DeclareRequest) -> pb.DeclareReply:
        assert self.declared is not None
        return self.declared(request)

    def draw(self, number: int, epoch: int, any_epoch: bool = False) -> pb.DrawReply:
        with self._changed:
            self.drawn.append((number, epoch, any_epoch))
            self._changed.notify_all()
        reply = self.draws.get(timeout=TIMEOUT)
        if isinstance(reply, ElasticError):
            raise reply
        return reply

    def await_answer(self, answer: int, number: ConfigId) -> Acknowledged:
        def found() -> Acknowledged | None:
            return next((a for a in self.answers if (a.answer, a.configuration) == (answer, number)), None)

        with self._changed:
            assert self._changed.wait_for(found, TIMEOUT), (pb.Answer.Name(answer), number, self.answers)
        result = found()
        assert result is not None
        return result

    def await_drawn(self, count: int) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.drawn) >= count, TIMEOUT), self.drawn

    def await_failed(self, peer: str) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: peer in self.failed, TIMEOUT), self.failed


class PlayedServer:
    """Accepts, greets, keeps what comes; the test answers."""

    def __init__(self, name: str, network: Network):
        self.name = name
        self.connections: list[MemoryConnection] = []
        self.received: list[Received] = []
        self.greeted_by: list[str] = []
        self.ended = 0  # connections that have
        self.reading = threading.Event()  # cleared: nothing is taken from the connections
        self.reading.set()
        self.greeting = threading.Event()  # cleared: nobody is greeted
        self.greeting.set()
        self._changed = threading.Condition()
        self._transport = MemoryTransport(TOKEN, network, name)
        self._listener = self._transport.listen(name)
        self.member = Member(name, Role.SERVER, *self._listener.address)
        self._accept_aside()

    def _accept_aside(self) -> None:
        threading.Thread(target=self._accept, args=(self._listener,), daemon=True).start()

    def stop_listening(self) -> None:
        self._listener.close()

    def listen_again(self) -> None:
        self._listener = self._transport.listen(self.member.host, self.member.port)
        self._accept_aside()

    def close(self) -> None:
        self.reading.set()
        self.greeting.set()
        self._listener.close()
        for connection in self.connections:
            connection.close()

    def _accept(self, listener: Any) -> None:
        try:
            while True:
                connection = listener.accept()
                threading.Thread(target=self._receive, args=(connection,), daemon=True).start()
        except ElasticError:
            return

    def _receive(self, connection: Any) -> None:
        try:
            hello = connection.receive()
            assert hello.kind is Kind.HELLO
            assert hello.meta == {"node": connection.peer, "role": "worker", "lane": "exchange"}
            with self._changed:
                self.greeted_by.append(connection.peer)
                self._changed.notify_all()
            assert self.greeting.wait(TIMEOUT)
            connection.send(Frame(Kind.ACCEPTED))
            with self._changed:
                self.connections.append(connection)
                self._changed.notify_all()
            while self.reading.wait(TIMEOUT):
                frame = connection.receive()
                data = bytearray(frame.payload_bytes)
                connection.receive_into([data])
                with self._changed:
                    self.received.append(Received(frame, bytes(data)))
                    self._changed.notify_all()
        except ElasticError:
            with self._changed:
                self.ended += 1
                self._changed.notify_all()

    def wait(self, ready: Callable[[], Any]) -> None:
        with self._changed:
            assert self._changed.wait_for(ready, TIMEOUT), [item.frame for item in self.received]

    def await_connections(self, count: int) -> None:
        self.wait(lambda: len(self.connections) >= count)

    def of(self, kind: Kind, number: ConfigId | None = None) -> list[Received]:
        found = [item for item in self.received if item.frame.kind is kind]
        return [item for item in found if number in (None, item.frame.configuration)]

    def await_frames(self, kind: Kind, count: int = 1, number: ConfigId | None = None) -> list[Received]:
        self.wait(lambda: len(self.of(kind, number)) >= count)
        return self.of(kind, number)

    def await_push(self, blocks: Iterable[int], number: ConfigId) -> dict[int, bytes]:
        """Wait until exactly `blocks` have been pushed under configuration `number`; returns their bytes."""
        wanted = set(blocks)
        self.wait(lambda: wanted <= self.pushed(number).keys())
        assert self.pushed(number).keys() == wanted
        return self.pushed(number)

    def pushed(self, number: ConfigId) -> dict[int, bytes]:
        found: dict[int, bytes] = {}
        for item in self.of(Kind.PUSH, number):
            start = 0
            for block in members(item.frame.runs):
                extent = MODEL.blocks[block].extent
                found[block] = item.data[start : start + extent]
                start += extent
            assert start == len(item.data)
        return found

    def say(self, kind: Kind, number: ConfigId, **meta: Any) -> None:
        self.connections[-1].send(Frame(kind, number, meta=meta))

    def answer(self, version: int, blocks: Sequence[int], number: ConfigId, frames: int = 1, **meta: Any) -> None:
        """VALUE of blocks at a version, in several frames."""
        for part in np.array_split(np.array(blocks), frames):
            block_runs = list(runs(part.tolist()))
            frame = Frame(Kind.VALUE, number, version, meta={"runs": [list(run) for run in block_runs], **meta})
            self.connections[-1].send(frame, [value(version, block) for block in part.tolist()])


def value(version: int, block: int) -> NDArray[np.float32]:
    """What the played servers hold: every element tells version and block."""
    return np.full(MODEL.blocks[block].extent // 4, version * 1000 + block, dtype=np.float32)


class Play:
    """See the module."""

    def __init__(self, servers: Sequence[str] = ("s0", "s1"), node: str = "w0", capacity: int = 1 << 20):
        self.network = Network(capacity)
        self.servers = {name: PlayedServer(name, self.network) for name in servers}
        self.session = FakeSession(node)
        self.node = self.make_node(MemoryTransport(TOKEN, self.network, node))
        self.node.inbox.model = Model(block_bytes=BLOCK_BYTES)
        self.gradients = np.arange(MODEL.slab_bytes // 4, dtype=np.float32)

    def make_node(self, transport: MemoryTransport) -> WorkerNode:
        return WorkerNode(self.session, transport)  # type: ignore[arg-type]

    def close(self) -> None:
        self.node.end(ElasticError("the test is over"))
        self.node.peers.keep(())
        for server in self.servers.values():
            server.close()

    def table(
        self, number: int, assignment: Sequence[int], workers: Sequence[str] = ("w0", "w1"), servers: Sequence[str] = ()
    ) -> Configuration:
        return Configuration(
            ConfigId(1, number),
            tuple(Member(name, Role.WORKER, "here") for name in workers),
            tuple(self.servers[name].member for name in servers or self.servers),
            tuple(assignment),
        )

    # ---- directives

    def direct(self, **kind: Any) -> None:
        self.node.on_directive(pb.Directive(term=1, **kind))

    def prepare(self, table: Configuration, mode: int = pb.LIVE, dead: Sequence[str] = ()) -> None:
        message = pb.Prepare(configuration=codec.configuration_to_pb(table), mode=mode, dead=dead)
        self.direct(prepare=message)
        self.session.await_answer(pb.PREPARED, table.id)

    def adopt(self, table: Configuration) -> None:
        self.direct(adopt=pb.Adopt(configuration=codec.config_id_to_pb(table.id)))
        self.session.await_answer(pb.SWITCHED, table.id)

    def arm(self, table: Configuration, clock: int) -> None:
        self.direct(arm=pb.Arm(configuration=codec.config_id_to_pb(table.id), clock=clock))

    def welcome(self, table: Configuration, tensors: Sequence[Tensor] = TENSORS) -> None:
        message = pb.Welcome(
            configuration=codec.configuration_to_pb(table), tensors=[codec.tensor_to_pb(tensor) for tensor in tensors]
        )
        self.direct(welcome=message)

    def extend(self, assignment: Sequence[int], tensors: Sequence[Tensor] = TENSORS) -> None:
        message = pb.Extend(tensors=[codec.tensor_to_pb(tensor) for tensor in tensors], assignment=assignment)
        self.direct(extend=message)

    def begin(self, workers: Sequence[str] = ("w0", "w1")) -> None:
        """The job's start: a table without blocks."""
        first = self.table(1, (), workers)
        self.prepare(first)
        self.adopt(first)
        enter(self.node)

    def start(self, assignment: Sequence[int], workers: Sequence[str] = ("w0", "w1")) -> None:
        """The job's start with a model, at version 0 with nothing known."""
        self.begin(workers)
        self.extend(assignment)

    # ---- the script's side

    def push(self, present: Sequence[int] = (0, 1, 2), hyper: dict[str, Any] | None = None) -> Push:
        return Push(
            slab=self.gradients.view(np.uint8),
            present=frozenset(present),
            samples=4,
            slice=[0, self.node.version, 0, 0, 4],
            roster=roster(self.node.configuration),
            hyper=hyper,
        )

    def exchange(self, push: Push | None = None, boundary: bool = True) -> Aside:
        return Aside(Exchange(self.node).run, push or self.push(), boundary)

    def await_missing(self, version: int, blocks: Sequence[int]) -> None:
        """Wait until exactly these blocks of a version are not here."""
        node = self.node
        with node.changed:
            assert node.changed.wait_for(lambda: list(members(node.inbox.missing(version))) == list(blocks), TIMEOUT)

    def holds(self, version: int) -> bool:
        """Whether version `version` is installed, every block of it."""
        with self.node.changed:
            tensors = [self.node.inbox.tensor(index).tobytes() for index in range(len(TENSORS))]
            expected = b"".join(value(version, block).tobytes() for block in ALL)
            return self.node.version == version and b"".join(tensors) == expected
