"""Whom a server talks to, played: its coordinator, workers, and a slow network."""

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from elastic_ps.core.configuration import NO_CONFIGURATION, ConfigId, Member
from elastic_ps.core.model import Model
from elastic_ps.server.service import ServerNode
from elastic_ps.transport.base import Transport
from elastic_ps.transport.frame_kinds import Kind
from elastic_ps.transport.frame_metas import HelloMeta, PullMeta
from elastic_ps.transport.frames import Frame
from elastic_ps.transport.shared_memory import Image
from elastic_ps.transport.tcp import TcpTransport
from protos import elastic_pb2 as pb

TIMEOUT = 20.0


class GatedTransport(TcpTransport):
    """TCP whose outgoing connections hold frames of one kind until `gate` is set."""

    def __init__(self, token: bytes, kind: Kind):
        super().__init__(token)
        self.gate = threading.Event()
        self.held = threading.Event()
        self._kind = kind

    def connect(self, host: str, port: int, peer: str, timeout: float = 10.0) -> Any:
        connection = super().connect(host, port, peer, timeout)
        send, offer = connection.send, connection.offer

        def gated(frame: Frame, payload: Sequence[Any] = ()) -> None:
            if frame.kind is self._kind:
                self.held.set()
                assert self.gate.wait(TIMEOUT)
            send(frame, payload)

        def offered(frame: Frame, payload: Sequence[Any] = ()) -> bool:
            return frame.kind is not self._kind and offer(frame, payload)

        connection.send, connection.offer = gated, offered  # type: ignore[method-assign]
        return connection


@dataclass(frozen=True)
class Acknowledged:
    answer: int
    configuration: ConfigId
    version: int
    bytes_moved: int
    detail: str
    optimizer: str = ""
    command: int = 0
    holdings: Sequence[pb.Holding] = ()
    growth: int = 0


class FakeControl:
    """What a server says to its coordinator."""

    def __init__(self) -> None:
        self.server: ServerNode | None = None
        self.ledger: list[pb.LedgerEntry] = []  # that it has been told; it is told where the server asks to report soon
        self.answers: list[Acknowledged] = []
        self.reports = True
        self.asked = threading.Event()  # to report soon
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
        optimizer: str = "",
        holdings: Sequence[pb.Holding] = (),
        growth: int = 0,
    ) -> None:
        answered = Acknowledged(
            answer, configuration, version, bytes_moved, detail, optimizer, command, holdings, growth
        )
        with self._changed:
            self.answers.append(answered)
            self._changed.notify_all()

    def report_soon(self) -> None:
        self.asked.set()
        if self.server is None or not self.reports:
            return
        request = self.server.report()
        self.ledger.extend(request.ledger)
        self.server.reported(pb.ReportReply(ledger_kept=request.ledger_sequence + len(request.ledger)), request)

    def await_answers(self, count: int) -> None:
        """Return once it has answered so often."""
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.answers) >= count, TIMEOUT), self.answers

    def await_answer(self, *answers: int, number: ConfigId | None = None, optimizer: str = "") -> Acknowledged:
        def found() -> Acknowledged | None:
            wanted = [a for a in self.answers if a.answer in answers and number in (None, a.configuration)]
            wanted = [a for a in wanted if optimizer in ("", a.optimizer)]
            return wanted[-1] if wanted else None

        with self._changed:
            result = self._changed.wait_for(found, TIMEOUT)
            assert result, f"no {[pb.Answer.Name(a) for a in answers]} for {number} among {self.answers}"
            return result

    def said(self, answer: int, number: ConfigId) -> bool:
        return any(a.answer == answer and a.configuration == number for a in self.answers)


@dataclass
class Received:
    server: str
    frame: Frame
    data: NDArray[np.uint8]


class FakeWorker:
    """A worker's side of the data plane, driven by the test."""

    def __init__(self, name: str, transport: Transport, model: Model):
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
        connection.send(Frame(HelloMeta(**meta)))
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

    def shared(self, server: str) -> NDArray[np.uint8]:
        """The memory in which a server reads this worker's gradients."""
        image: Image = self._connections[server].shared[0]
        return image.array

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
        self.send(server, Frame(PullMeta(runs=[[block, 1]]), configuration, 0))
        self.wait(lambda: sum(r.frame.kind is Kind.VALUE for r in self.received) > before)

    def slab(self, version: int) -> NDArray[np.uint8]:
        """The whole model at a version."""
        blocks = self.values[version]
        return np.frombuffer(b"".join(blocks[block] for block in range(len(self.model.blocks))), dtype=np.uint8)
