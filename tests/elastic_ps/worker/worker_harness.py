"""One real worker node in this process; tests play its coordinator, and its servers over memory."""

import queue
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from elastic_ps.control import codec
from elastic_ps.core.configuration import NO_CONFIGURATION, ConfigId, Configuration, Member, Role
from elastic_ps.core.errors import ElasticError
from elastic_ps.core.model import Model, Tensor, members
from elastic_ps.core.sparse_rows import Rows
from elastic_ps.testing.memory_transport import MemoryNetwork, MemoryTransport
from elastic_ps.transport.send_queue import Link
from elastic_ps.worker.wire.parameters import enter
from elastic_ps.worker.wire.push_exchange import Exchange, Push, roster
from elastic_ps.worker.wire.worker_node import WorkerNode
from protos import elastic_pb2 as pb
from tests.elastic_ps.worker.played_server import ALL, BLOCK_BYTES, MODEL, TENSORS, TIMEOUT, TOKEN, PlayedServer, value

ONE, TWO, THREE = ConfigId(1, 1), ConfigId(1, 2), ConfigId(1, 3)


@dataclass(frozen=True)
class Acknowledged:
    answer: int
    configuration: ConfigId
    version: int
    suspension_ms: float
    holdings: Sequence[pb.Holding] = ()
    growth: int = 0


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
        self.reported: Callable[[], None] = lambda: None
        self.barriers: list[tuple[int, int, tuple[str, ...]]] = []
        self.declared: Callable[[pb.DeclareRequest], pb.DeclareReply] | None = None
        self.drawn: list[tuple[int, int, bool]] = []
        self.draws: queue.Queue[pb.DrawReply | ElasticError] = queue.Queue()  # what the coordinator answers
        self._changed = threading.Condition()

    def acknowledge(
        self,
        answer: int,
        configuration: ConfigId = NO_CONFIGURATION,
        version: int = 0,
        suspension_ms: float = 0.0,
        holdings: Sequence[pb.Holding] = (),
        growth: int = 0,
    ) -> None:
        with self._changed:
            self.answers.append(Acknowledged(answer, configuration, version, suspension_ms, holdings, growth))
            self._changed.notify_all()

    def abandon(self) -> None:
        """Nobody waits for an answer."""

    def report_soon(self) -> None:
        """The report arrives at once."""
        self.reported()

    def flush(self) -> None:
        """Nothing waits."""

    def close(self) -> None:
        """Nothing runs."""

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

    def barrier(self, place: int, number: int, sharing: Sequence[str], _version: int) -> None:
        self.barriers.append((place, number, tuple(sharing)))

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


class Play:
    """See the module."""

    def __init__(self, servers: Sequence[str] = ("s0", "s1"), node: str = "w0", capacity: int = 1 << 20):
        self.network = MemoryNetwork(capacity)
        self.servers = {name: PlayedServer(name, self.network) for name in servers}
        self.session = FakeSession(node)
        self.node = self.make_node(MemoryTransport(TOKEN, self.network, node))
        self.failed: list[str] = []  # servers whose connection broke, or could not be opened
        self.node.disconnected = self._note  # type: ignore[method-assign]
        self.node.connected = self._connected  # type: ignore[method-assign]
        self._used: set[Link] = set()  # that the worker has taken note of: it repeats what was under way
        self.session.reported = self.node.progress.final_report.set
        self.node.inbox.model = Model(block_bytes=BLOCK_BYTES)
        self.rows: dict[int, Rows] = {}  # by tensor whose gradient has only these
        self.gradients = np.arange(MODEL.slab_bytes // 4, dtype=np.float32)

    def make_node(self, transport: MemoryTransport) -> WorkerNode:
        return WorkerNode(self.session, transport)  # type: ignore[arg-type]

    def close(self) -> None:
        self.node.end(ElasticError("the test is over"))
        self.node.peers.keep_only(())
        for server in self.servers.values():
            server.close()

    def configuration(
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

    def prepare(self, configuration: Configuration, mode: int = pb.LIVE, dead: Sequence[str] = ()) -> None:
        self.order_prepare(configuration, mode, dead)
        self.session.await_answer(pb.PREPARED, configuration.id)
        node = self.node
        with node.changed:
            assert node.changed.wait_for(lambda: self._used >= set(node.peers.links), TIMEOUT), node.peers.links

    def order_prepare(self, configuration: Configuration, mode: int = pb.LIVE, dead: Sequence[str] = ()) -> None:
        """Tell it, and do not wait."""
        message = pb.Prepare(configuration=codec.configuration_to_pb(configuration), mode=mode, dead=dead)
        message.undecided = any(name.startswith("s") for name in dead)
        self.direct(prepare=message)

    def adopt(self, configuration: Configuration) -> None:
        self.direct(adopt=pb.Adopt(configuration=codec.config_id_to_pb(configuration.id)))
        self.session.await_answer(pb.SWITCHED, configuration.id)

    def arm(self, configuration: Configuration, clock: int) -> None:
        self.direct(arm=pb.Arm(configuration=codec.config_id_to_pb(configuration.id), clock=clock))

    def welcome(
        self, configuration: Configuration, tensors: Sequence[Tensor] = TENSORS, data: "pb.DataSpec | None" = None
    ) -> None:
        message = pb.Welcome(
            configuration=codec.configuration_to_pb(configuration),
            tensors=[codec.tensor_to_pb(tensor) for tensor in tensors],
            data=data,
        )
        self.direct(welcome=message)

    def extend(
        self, assignment: Sequence[int], tensors: Sequence[Tensor] = TENSORS, number: ConfigId | None = None
    ) -> None:
        """Tell it what is declared, in configuration `number`; None: in the one that it is in."""
        message = pb.Extend(
            tensors=[codec.tensor_to_pb(tensor) for tensor in tensors],
            assignment=assignment,
            configuration=codec.config_id_to_pb(number or self.node.standing.config_id),
            growth=len(tensors),
        )
        self.direct(extend=message)

    def begin(self, workers: Sequence[str] = ("w0", "w1")) -> None:
        """The job's start: a table without blocks."""
        first = self.configuration(1, (), workers)
        self.prepare(first)
        self.adopt(first)
        enter(self.node)

    def start(self, assignment: Sequence[int], workers: Sequence[str] = ("w0", "w1")) -> None:
        """The job's start with a model, at version 0."""
        self.begin(workers)
        self.extend(assignment)
        whole = [(0, len(ALL))]
        self.node.inbox.buffers(0, whole)
        self.node.inbox.arrived(0, whole)

    # ---- the script's side

    def push(self, present: Sequence[int] = (0, 1, 2), hyper: dict[str, Any] | None = None) -> Push:
        return Push(
            parts=lambda run: [self.gradients.view(np.uint8)[MODEL.span(run)]],
            rows=self.rows.get,
            present=frozenset(present),
            samples=4,
            slice=[0, self.node.version, 0, 0, 4],
            roster=roster(self.node.configuration),
            hyper=hyper,
        )

    def gradient(self, block: int) -> bytes:
        """What is pushed of a block."""
        return self.gradients.view(np.uint8)[MODEL.span((block, 1))].tobytes()

    def exchange(self, push: Push | None = None, boundary: bool = True) -> Aside:
        return Aside(Exchange(self.node).run, push or self.push(), boundary)

    def _note(self, server: str, reason: str) -> None:
        self.failed.append(server)
        WorkerNode.disconnected(self.node, server, reason)

    def _connected(self, server: str) -> None:
        link = self.node.peers.link(server)
        with self.node.changed:
            WorkerNode.connected(self.node, server)
            if link is not None:
                self._used.add(link)

    def await_apart(self, server: str) -> None:
        """Wait until a server has not been reached."""
        node = self.node
        with node.changed:
            assert node.changed.wait_for(lambda: server in self.failed, TIMEOUT), self.failed

    def missing(self, version: int) -> list[int]:
        """Blocks of a version that are not here."""
        with self.node.changed:
            return list(members(self.node.inbox.missing(version)))

    def await_missing(self, version: int, blocks: Sequence[int]) -> None:
        """Wait until exactly these blocks of a version are not here."""
        node = self.node
        with node.changed:
            assert node.changed.wait_for(lambda: self.missing(version) == list(blocks), TIMEOUT)

    def check_completes(self, running: Aside, version: int) -> None:
        """The exchange ends, and has installed the version."""
        assert running.result() is True
        assert self.holds(version)

    def holds(self, version: int) -> bool:
        """Whether version `version` is installed, every block of it."""
        with self.node.changed:
            tensors = [self.node.inbox.tensor(index).tobytes() for index in range(len(TENSORS))]
            expected = b"".join(value(version, block).tobytes() for block in ALL)
            return self.node.version == version and b"".join(tensors) == expected
