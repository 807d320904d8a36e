"""Servers that a test plays: they accept a worker, keep what comes, and answer what the test says."""

import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from elastic_ps.control.token import TOKEN_BYTES
from elastic_ps.core.configuration import ConfigId, Member, Role
from elastic_ps.core.errors import ElasticError
from elastic_ps.core.model import Model, Tensor, members, runs
from elastic_ps.testing.memory_transport import MemoryConnection, MemoryNetwork, MemoryTransport
from elastic_ps.transport.frame_kinds import Kind
from elastic_ps.transport.frame_metas import METAS, AcceptedMeta, HelloMeta, ValueMeta
from elastic_ps.transport.frames import Frame

TOKEN = b"t" * TOKEN_BYTES
TIMEOUT = 20.0
BLOCK_BYTES = 64
TENSORS = tuple(Tensor(0, f"i:{number}", (32,), "float32") for number in range(3))  # two blocks each
MODEL = Model(TENSORS, BLOCK_BYTES)
ALL = list(range(len(MODEL.blocks)))
SPLIT = [0, 0, 1, 1, 0, 1]
S0, S1 = [0, 1, 4], [2, 3, 5]  # blocks of each server by SPLIT


@dataclass(frozen=True)
class Received:
    frame: Frame
    data: bytes


class PlayedServer:
    """Accepts, greets, keeps what comes; the test answers."""

    def __init__(self, name: str, network: MemoryNetwork):
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
            assert hello.meta == HelloMeta(node=connection.peer, role=Role.WORKER, lane="exchange", to=self.member.id)
            with self._changed:
                self.greeted_by.append(connection.peer)
                self._changed.notify_all()
            assert self.greeting.wait(TIMEOUT)
            connection.send(Frame(AcceptedMeta()))
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
        self.connections[-1].send(Frame(METAS[kind](**meta), number))

    def await_pushes(self, version: int, count: int) -> list[Received]:
        """Return what was pushed at a version, once so many pushes have come."""

        def found() -> list[Received]:
            return [item for item in self.of(Kind.PUSH) if item.frame.version == version]

        self.wait(lambda: len(found()) >= count)
        return found()

    def answer(self, version: int, blocks: Sequence[int], number: ConfigId, frames: int = 1, **meta: Any) -> None:
        """VALUE of blocks at a version, in several frames."""
        for part in np.array_split(np.array(blocks), frames):
            block_runs = list(runs(part.tolist()))
            frame = Frame(ValueMeta(runs=[list(run) for run in block_runs], **meta), number, version)
            self.connections[-1].send(frame, [value(version, block) for block in part.tolist()])

    def send_rows(
        self,
        version: int,
        run_list: Sequence[list[int]],
        rows: Sequence[tuple[list[int], list[float]]],
        number: ConfigId,
    ) -> None:
        """VALUE of rows of one element, (numbers, values) for each run."""
        meta = {"runs": run_list, "rows": [len(numbers) for numbers, _ in rows]}
        parts = [(np.array(numbers, np.int64), np.array(values, np.float32)) for numbers, values in rows]
        self.connections[-1].send(Frame(ValueMeta(**meta), number, version), [part for pair in parts for part in pair])


def value(version: int, block: int) -> NDArray[np.float32]:
    """What the played servers hold: every element tells version and block."""
    return np.full(MODEL.blocks[block].extent // 4, version * 1000 + block, dtype=np.float32)
