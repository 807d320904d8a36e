"""TCPStore of torch.distributed in the world: keys at one process, asked for over the world's network.

As with the real one, tried on torch 2.13: a store that is there and does not answer, as its process is frozen, keeps
whoever connects or asks waiting for ever, whatever timeout was given; that counts for keys which are not there yet. It
has no signs of life either: nobody hears of a way that is blocked.
"""

import datetime
from collections.abc import Callable, Sequence
from typing import Any

from tests.world.kernel.locks import Condition, here
from tests.world.kernel.scheduler import DEAD, FROZEN, Process
from tests.world.network.network import End, Network, Refused

_AGAIN_SECONDS = 1.0
"""After so long who found nobody there tries again."""


class StoreError(RuntimeError):
    """See torch's DistError."""


class _Keys:
    """A `_Keys` is the store at the process that has it."""

    def __init__(self, network: Network, process: Process):
        self._process = process
        self.values: dict[str, bytes] = {}
        self.changed = Condition()
        self._awaited: dict[str, list[tuple[End, int]]] = {}
        self.port = network.listen(process, 0, self._accept)

    def _accept(self, end: End) -> None:
        end.lasting = True
        end.took = lambda item: self._later(lambda: self._take(end, *item))

    def _later(self, act: Callable[[], None]) -> None:
        if self._process.state == FROZEN:
            self._process.later.append(act)
        elif self._process.state != DEAD:
            act()

    def _take(self, end: End, number: int, kind: str, key: str, value: bytes = b"") -> None:
        if kind == "set":
            self.set(key, value)
        elif kind == "get" and key not in self.values:
            self._awaited.setdefault(key, []).append((end, number))
        elif kind == "delete":
            end.send((number, self.values.pop(key, None)))
        elif kind == "cancel":
            self._awaited[key] = [waits for waits in self._awaited.get(key, []) if waits != (end, number)]
            end.send((number, None))
        else:
            end.send((number, self.values.get(key)))

    def set(self, key: str, value: bytes) -> None:
        self.values[key] = value
        self.changed.notify_all()
        for end, number in self._awaited.pop(key, ()):
            end.send((number, value))


class _Client:
    """A `_Client` is the connection to a store elsewhere; only its end and its `TCPStore` refer to it."""

    def __init__(self, network: Network, process: Process, port: int, seconds: float):
        self._changed = Condition()
        self._answers: dict[int, bytes | None] = {}
        self._asked = 0
        self._why = ""
        self._end = _connected(network, process, port, seconds)
        self._end.took, self._end.broke, self._end.lasting = self._take, self._broke, True
        self.ask("ping", "")

    def _take(self, item: tuple[int, bytes | None]) -> None:
        number, value = item
        self._answers.setdefault(number, value)
        self._changed.notify_all()

    def _broke(self, why: str) -> None:
        self._why = why
        self._changed.notify_all()

    def ask(self, kind: str, key: str, seconds: float | None = None) -> bytes | None:
        """Ask; after `seconds` the store is told that nobody waits any more, which it has to answer."""
        self._asked += 1
        number = self._asked
        self._end.send((number, kind, key))
        with self._changed:
            if not self._changed.wait_for(lambda: number in self._answers or self._why, seconds):
                self._end.send((number, "cancel", key))
                self._changed.wait_for(lambda: number in self._answers or self._why)
                raise StoreError(f"wait timeout after {seconds} s, keys: {key}")
        if number not in self._answers:
            raise StoreError(self._why)
        return self._answers.pop(number)

    def set(self, key: str, value: bytes) -> None:
        """Set a key; no answer comes."""
        if self._why:
            raise StoreError(self._why)
        self._end.send((0, "set", key, value))

    def close(self) -> None:
        """Close the connection."""
        self._end.close()


def _connected(network: Network, process: Process, port: int, seconds: float) -> End:
    until = here.scheduler.now + seconds
    while True:
        left = until - here.scheduler.now
        try:
            return network.connect(process, port, left)
        except Refused as error:
            if left <= _AGAIN_SECONDS:
                raise StoreError(f"The client socket has timed out: {error}") from None
            here.scheduler.park(_AGAIN_SECONDS)


class TCPStore:
    """See torch.distributed.TCPStore: its connection ends with it.

    Args:
        network: of the world.
        process: whose it is.
        port: of the process that has it; 0: this one has it.
        seconds: its timeout.
    """

    def __init__(self, network: Network, process: Process, port: int, seconds: float):
        self._seconds = seconds
        self._client: _Client | None = None
        if port:
            self.port = port
            self._client = _Client(network, process, port, seconds)
        else:
            self._own = _Keys(network, process)
            self.port = self._own.port

    def __del__(self) -> None:
        if self._client is not None and here.scheduler is not None and not here.scheduler.over:
            self._client.close()

    def set(self, key: str, value: str) -> None:
        """See torch: nobody waits for an answer."""
        here.scheduler.pause()
        (self._client or self._own).set(key, value.encode())

    def get(self, key: str, seconds: float | None = None) -> bytes:
        """See torch; `seconds` as of `wait`."""
        patience = self._seconds if seconds is None else seconds
        if self._client is not None:
            value = self._client.ask("get", key, patience)
            assert value is not None
            return value
        with self._own.changed:
            if not self._own.changed.wait_for(lambda: key in self._own.values, patience):
                raise StoreError(f"wait timeout after {patience} s, keys: {key}")
        return self._own.values[key]

    def delete_key(self, key: str) -> bool:
        """See torch."""
        found = self._client.ask("delete", key) if self._client is not None else self._own.values.pop(key, None)
        return found is not None

    def check(self, keys: Sequence[str]) -> bool:
        """See torch."""
        if self._client is not None:
            return all(self._client.ask("check", key) is not None for key in keys)
        return all(key in self._own.values for key in keys)


class PrefixStore:
    """See torch.distributed.PrefixStore."""

    def __init__(self, prefix: str, store: Any):
        self._prefix, self._store = prefix, store

    def set(self, key: str, value: str) -> None:
        """See `TCPStore.set`."""
        self._store.set(f"{self._prefix}/{key}", value)

    def get(self, key: str, seconds: float | None = None) -> bytes:
        """See `TCPStore.get`."""
        found: bytes = self._store.get(f"{self._prefix}/{key}", seconds)
        return found

    def delete_key(self, key: str) -> bool:
        """See `TCPStore.delete_key`."""
        return bool(self._store.delete_key(f"{self._prefix}/{key}"))


def opener(network: Network, running: Callable[[], Process]) -> Callable[..., TCPStore]:
    """Return what stands for torch's class in a world.

    Args:
        network: of the world.
        running: tells whose process runs.
    """

    def opened(
        host: str, port: int, world_size: None, is_master: bool, timeout: datetime.timedelta, **named: Any
    ) -> TCPStore:
        return TCPStore(network, running(), 0 if is_master else port, timeout.total_seconds())

    return opened
