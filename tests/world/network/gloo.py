"""Gloo's process groups in the world: collectives as gloo makes them, message by message, over the world's network.

Which member sends what to whom is gloo's own scheme: allgather goes round a ring, a broadcast goes down a tree, and
what members send to one another is direct. A message leaves when its receiver waits for it. So a collective ends at
each member by itself; where a connection breaks it fails at the two members that use it, and others may wait until
these let go of the group. A connection has no signs of life: a frozen member, or a way that is blocked, is waited for
until the timeout, of an hour.
"""

import datetime
from collections.abc import Callable, Sequence
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

from tests.world.kernel.locks import Condition, here
from tests.world.kernel.scheduler import DEAD, FROZEN, Process
from tests.world.network.network import End, Refused
from tests.world.network.tcp_store import PrefixStore, opener

_Slot = tuple[int, int]
"""Of a message: number of the collective, and of the step in it; or `_POINT_TO_POINT`, and its tag."""

_POINT_TO_POINT = 0


class _Pair:
    """A `_Pair` is a connection between two members; memory is read and written when a message travels, as by gloo."""

    def __init__(self, end: End, process: Process, changed: Condition, fail: Callable[[str], None]):
        self._end, self._process, self._changed, self._wrong = end, process, changed, fail
        self._sending: dict[_Slot, np.ndarray] = {}
        self._awaiting: dict[_Slot, np.ndarray] = {}
        self._ready: set[_Slot] = set()  # messages for which the other end waits
        self._received: set[_Slot] = set()
        self._why = ""
        end.took, end.broke = lambda item: self._later(partial(self._take, *item)), self._broke

    def _later(self, act: Callable[[], None]) -> None:
        if self._process.state == FROZEN:
            self._process.later.append(act)
        elif self._process.state != DEAD:
            act()

    def _broke(self, why: str) -> None:
        self._later(lambda: self._fail(why))

    def _fail(self, why: str) -> None:
        self._why = self._why or why
        self._changed.notify_all()

    def _take(self, slot: _Slot, data: bytes | None) -> None:
        if data is None:
            self._ready.add(slot)
            self._pass()
        elif slot in self._awaiting:
            memory = self._awaiting.pop(slot)
            if memory.nbytes != len(data):
                self._wrong(f"{self._process} waits for {memory.nbytes} bytes of a collective and gets {len(data)}")
                return
            memory[:] = np.frombuffer(data, np.uint8)
            self._received.add(slot)
        self._changed.notify_all()

    def _pass(self) -> None:
        for slot in self._ready & self._sending.keys():
            self._ready.discard(slot)
            self._end.send((slot, self._sending.pop(slot).tobytes()))

    def send(self, slot: _Slot, memory: np.ndarray) -> None:
        """Begin to send."""
        self._sending[slot] = memory
        self._pass()

    def receive(self, slot: _Slot, memory: np.ndarray) -> None:
        """Begin to receive."""
        self._awaiting[slot] = memory
        self._end.send((slot, None))

    def wait(self, slot: _Slot, deadline: float) -> None:
        """Wait until nothing is left to send or to receive at a slot."""
        self._wait(lambda: slot not in self._sending and slot not in self._awaiting, deadline)

    def wait_sent(self, slot: _Slot, deadline: float) -> None:
        """Wait until nothing is left to send at a slot."""
        self._wait(lambda: slot not in self._sending, deadline)

    def wait_received(self, slot: _Slot, deadline: float) -> None:
        """Wait until nothing is left to receive at a slot."""
        self._wait(lambda: slot not in self._awaiting, deadline)

    def _wait(self, is_over: Callable[[], bool], deadline: float) -> None:

        with self._changed:
            ended = self._changed.wait_for(lambda: is_over() or self._why, deadline - here.scheduler.now)
        if not is_over():
            raise RuntimeError(f"Connection closed by peer: {self._why}" if ended else "Timed out waiting")

    def close(self) -> None:
        """Close the connection."""
        self._end.close()
        self._fail("closed here")


class _Work:
    """See torch's Work: a collective is done when it is waited for, as `WorkerGroup` does at once."""

    def __init__(self, act: Callable[[], None]):
        self.wait = act


class _Transfer:
    """See torch's Work: what is sent or received is waited for as long as members may take to connect, if not told.

    Args:
        wait: waits until a moment.
        seconds: see above.
    """

    def __init__(self, wait: Callable[[float], None], seconds: float):
        self._wait, self._seconds = wait, seconds

    def wait(self, timeout: datetime.timedelta | None = None) -> None:
        """Wait until it is done."""
        seconds = self._seconds if timeout is None else timeout.total_seconds()
        self._wait(here.scheduler.now + seconds)


class ProcessGroupGloo:
    """See torch.distributed.ProcessGroupGloo.

    Args:
        world: in which it is.
        process: whose it is.
        store: where members meet.
        rank: of this member.
        size: how many there are.
        seconds: its timeout.
    """

    def __init__(self, world: Any, process: Process, store: PrefixStore, rank: int, size: int, seconds: float):
        self._world, self._process, self._rank, self._size = world, process, rank, size
        self._seconds = self._connects_within = seconds
        self._store = store
        self._changed = Condition()
        self._pairs: dict[int, _Pair] = {}
        self._collectives = 0
        port = world.network.listen(process, 0, self._accept)
        try:
            self._connect(port)
        except BaseException:
            self._close()
            raise
        finally:
            world.network.forget(port)

    def __del__(self) -> None:
        self._close()

    def _close(self) -> None:
        if here.scheduler is not None and not here.scheduler.over:
            for pair in self._pairs.values():
                pair.close()

    def _connect(self, port: int) -> None:
        """Connect to those before this one in rank; those behind it connect to this one."""
        deadline = here.scheduler.now + self._seconds
        self._store.set(f"0/{self._rank}", str(port))
        for other in range(self._size):
            if other != self._rank:
                theirs = int(self._store.get(f"0/{other}", self._seconds))
            if other < self._rank:
                try:
                    end = self._world.network.connect(self._process, theirs, deadline - here.scheduler.now)
                except Refused as error:
                    raise RuntimeError(f"Connect timeout or refused: {error}") from None
                end.lasting = True
                self._pairs[other] = self._pair(end)
                end.send(self._rank)
        with self._changed:
            if not self._changed.wait_for(lambda: len(self._pairs) == self._size - 1, deadline - here.scheduler.now):
                raise RuntimeError("Connect timeout")

    def _pair(self, end: End) -> _Pair:
        return _Pair(end, self._process, self._changed, self._world.fail)

    def _accept(self, end: End) -> None:
        end.lasting = True
        kept: list[Any] = []

        def first(item: Any) -> None:  # the other's rank, and then what it sends
            kept.append(item)
            if len(kept) == 1:
                end_is_known()

        def end_is_known() -> None:
            if self._process.state == FROZEN:
                self._process.later.append(become)
            else:
                become()

        def become() -> None:
            self._pairs[kept[0]] = self._pair(end)
            for item in kept[1:]:
                end.took(item)
            self._changed.notify_all()

        end.took = first

    def _set_default_timeout(self, timeout: datetime.timedelta) -> None:
        self._seconds = timeout.total_seconds()

    # ---- collectives -------------------------------------------------------------------------------------------------

    def _begin(self) -> tuple[int, float]:
        self._collectives += 1
        here.scheduler.pause()
        return self._collectives, here.scheduler.now + self._seconds

    def _wait(self, waits: Sequence[tuple[int, _Slot]], deadline: float) -> None:
        for other, slot in waits:
            self._pairs[other].wait(slot, deadline)

    def _allgather_base(self, total: torch.Tensor, own: torch.Tensor) -> _Work:
        return _Work(partial(self._allgather, total, own))

    def _allgather(self, total: torch.Tensor, own: torch.Tensor) -> None:
        number, deadline = self._begin()
        rank, size = self._rank, self._size
        left, right = (rank - 1) % size, (rank + 1) % size
        parts = _bytes(total).reshape(size, -1)
        parts[rank] = _bytes(own)
        for step in range(size - 1):
            slot = number, step
            self._pairs[left].receive(slot, parts[(rank - step - 1) % size])
            self._pairs[right].send(slot, parts[(rank - step) % size])
            self._wait([(left, slot), (right, slot)], deadline)

    def send(self, tensors: Sequence[torch.Tensor], other: int, tag: int) -> _Transfer:
        pair, slot = self._pairs[other], (_POINT_TO_POINT, tag)
        here.scheduler.pause()
        pair.send(slot, _bytes(tensors[0]))
        return _Transfer(partial(pair.wait_sent, slot), self._connects_within)

    def recv(self, tensors: Sequence[torch.Tensor], other: int, tag: int) -> _Transfer:
        pair, slot = self._pairs[other], (_POINT_TO_POINT, tag)
        here.scheduler.pause()
        pair.receive(slot, _bytes(tensors[0]))
        return _Transfer(partial(pair.wait_received, slot), self._connects_within)

    def broadcast(self, tensors: Sequence[torch.Tensor], options: Any) -> _Work:
        return _Work(partial(self._broadcast, _bytes(tensors[0]), options.rootRank))

    def _broadcast(self, memory: np.ndarray, root: int) -> None:
        number, deadline = self._begin()
        size = self._size
        place = (self._rank - root) % size
        bits = (size - 1).bit_length()
        mask, sent = (1 << bits) - 1, []
        for bit in range(bits):
            mask ^= 1 << bit
            peer = place ^ (1 << bit)
            if place & mask or peer >= size:
                continue
            other = (peer + root) % size
            if place & (1 << bit):
                self._pairs[other].receive((number, 0), memory)
                self._wait([(other, (number, 0))], deadline)
            else:
                self._pairs[other].send((number, 0), memory)
                sent.append((other, (number, 0)))
        self._wait(sent, deadline)


def _bytes(tensor: torch.Tensor) -> np.ndarray:
    """Return the memory of a flat tensor as bytes."""
    return tensor.detach().view(torch.uint8).numpy()


class _Options:
    """See ProcessGroupGloo._Options."""

    _timeout = datetime.timedelta(minutes=30)
    _devices: Sequence[Any] = ()


def distributed(world: Any) -> SimpleNamespace:
    """Return what stands for torch.distributed in a world."""

    def running() -> Process:
        return here.scheduler.current.process  # type: ignore[no-any-return]

    def made(store: PrefixStore, rank: int, size: int, options: _Options) -> ProcessGroupGloo:
        return ProcessGroupGloo(world, running(), store, rank, size, options._timeout.total_seconds())

    made._Options = _Options  # type: ignore[attr-defined]
    made.create_device = lambda hostname: hostname  # type: ignore[attr-defined]
    return SimpleNamespace(
        TCPStore=opener(world.network, running),
        PrefixStore=PrefixStore,
        ProcessGroupGloo=made,
        BroadcastOptions=lambda: SimpleNamespace(rootRank=0),
    )
