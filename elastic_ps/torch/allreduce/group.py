"""A `WorkerGroup` is the members of one configuration as a process group of torch.distributed, by gloo."""

import datetime
import logging
import queue
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import torch
import torch.distributed as dist

from elastic_ps.control.token_proof import Purpose, proof
from elastic_ps.core.configuration import ConfigId, Configuration, Member, NodeId
from elastic_ps.transport.tcp import address_of

log = logging.getLogger(__name__)

_untyped: Any = dist
"""Its stubs do not export all that it has."""

BUILD_SECONDS = 60.0
"""So long members may take to connect to one another; then the group is not made."""

_COLLECTIVE_TIMEOUT = datetime.timedelta(hours=1)
"""A collective waits for members whose scripts are busy (they evaluate, say); the job's leases bound what is broken."""

_ASK_SECONDS = 5.0
_END_SECONDS = 2.0

_EPOCH = "epoch"
_PROTOCOL = 4
"""Of what members tell one another and how they sum: those of other releases would not understand, so they do not meet.
"""


class Transfer:
    """A `Transfer` is a send or a receive that has begun.

    Args:
        work: torch's; None: there is nothing to wait for.
    """

    def __init__(self, work: Any):
        self._work = work

    def wait(self) -> None:
        """Wait until it is done; as long as for a collective, while gloo by itself waits as long as for connections.

        Raises:
            RuntimeError: it has failed.
        """
        if self._work is not None:
            self._work.wait(_COLLECTIVE_TIMEOUT)


class Collective:
    """A `Collective` is an operation of a group that runs on the group's own thread.

    Attributes:
        done: it has ended, well or not.
        value: what it has returned.
        error: why it failed; None: it has not.
    """

    def __init__(self, body: Callable[[], Any]):
        self.done = False
        self.value: Any = None
        self.error: Exception | None = None
        self._body = body

    def run(self) -> None:
        """Run it."""
        try:
            self.value = self._body()
        except Exception as error:  # noqa: BLE001  # gloo's errors are of no one kind; whoever waits is told
            self.error = without_frames(error)


def why_failed(error: Exception) -> str:
    """Return what torch says of an error, without the frames of C++ behind it; its type where it says nothing."""
    return next(iter(str(error).splitlines()), "") or type(error).__name__


def without_frames(error: Exception) -> Exception:
    """Return an error of gloo's without the frames that it has gone through.

    They hold the transfers that were under way, in a circle, and while there are any the connections stay open: the
    other members would not see that this one has left the group.
    """
    return error.with_traceback(None) if isinstance(error, RuntimeError) else error


class WorkerGroup:
    """A `WorkerGroup` makes collectives, one after the other, on a thread of its own.

    One that never ends, as a member has died or frozen, is left behind with its thread and its memory: gloo has no way
    to end it. So whoever leaves one behind leaves it the memory that it uses.

    Args:
        number: of its configuration.
        rank: of this worker.
        size: how many members there are.
        backend: the process group; None where this worker is alone.
        changed: notified when a collective has ended.
        attempt: how many groups of the configuration have failed before.
    """

    def __init__(
        self, number: ConfigId, rank: int, size: int, backend: Any, changed: threading.Condition, attempt: int = 0
    ):
        self.number = number
        self.attempt = attempt
        self.rank = rank
        self.size = size
        self._backend = backend
        self._changed = changed
        self._queue: queue.SimpleQueue[Collective | None] = queue.SimpleQueue()
        self._closing, self._closed = threading.Lock(), False
        self._thread = threading.Thread(target=self._run, name=f"group-{number}", daemon=True)
        self._thread.start()

    def submit(self, body: Callable[[], Any]) -> Collective:
        """Run `body`, which calls this group's operations, when those before it have ended.

        Of a group that is closed, as it has failed at another member, it fails at once.
        """
        collective = Collective(body)
        with self._closing:
            if self._closed:
                collective.done, collective.error = True, RuntimeError("the group has failed at another member")
            else:
                self._queue.put(collective)
        return collective

    def close(self) -> None:
        """Let the group go once what runs has ended; its connections close then."""
        with self._closing:
            self._closed = True
            self._queue.put(None)

    @property
    def is_open(self) -> bool:
        """Return whether its thread still runs."""
        return self._thread.is_alive()

    def join(self) -> None:
        """Wait a moment until it is gone: a process must not end while gloo ends its threads."""
        self._thread.join(_END_SECONDS)

    def _run(self) -> None:
        while (collective := self._queue.get()) is not None:
            collective.run()
            with self._changed:
                collective.done = True
                self._changed.notify_all()
        self._backend = None

    # ---- operations, for a collective's body -------------------------------------------------------------------------

    def gather(self, numbers: Sequence[float]) -> list[list[float]]:
        """Return the numbers, equally many, of all members by rank."""
        own = torch.tensor(numbers, dtype=torch.float64, device="cpu")
        if self.size == 1:
            return [own.tolist()]
        found = torch.empty(self.size * len(own), dtype=torch.float64, device="cpu")
        self._backend._allgather_base(found, own).wait()
        return [part.tolist() for part in found.view(self.size, -1)]

    def send(self, tensor: torch.Tensor, other: int, tag: int) -> Transfer:
        """Begin to send a tensor, which stays as it is until that is done.

        Args:
            tensor: flat.
            other: rank of the member that receives it.
            tag: of what is sent; `other` receives it under the same.
        """
        return Transfer(self._backend.send([tensor], other, tag) if len(tensor) else None)

    def receive(self, tensor: torch.Tensor, other: int, tag: int) -> Transfer:
        """Begin to receive a tensor.

        Args:
            tensor: flat; nobody else uses it until that is done.
            other: rank of the member that sends it.
            tag: of what is sent.
        """
        return Transfer(self._backend.recv([tensor], other, tag) if len(tensor) else None)

    def broadcast(self, tensor: torch.Tensor, giver: int) -> None:
        """Fill `tensor` at all members with the giver's."""
        if self.size == 1:
            return
        options = dist.BroadcastOptions()
        options.rootRank = giver
        self._backend.broadcast([tensor], options).wait()


class Rendezvous:
    """A `Rendezvous` is where workers meet to make groups: each has a store, and the chief's is that of a group.

    Args:
        host: address or name that peers reach this worker at.
        token: the job's; keys of the stores follow from it.

    Attributes:
        port: of this worker's store.
    """

    def __init__(self, host: str, token: bytes):
        self._address = address_of(host)[1]  # gloo, given a name, may take its IPv6 address, which peers may not reach
        self._token = token
        self._own = _store(host, 0, is_master=True)
        self.port = int(self._own.port)
        self._lock = threading.Lock()
        self._waiting: set[threading.Thread] = set()  # for members, within PyTorch's own code

    def build(
        self, configuration: Configuration, node: NodeId, changed: threading.Condition, attempt: int = 0
    ) -> WorkerGroup:
        """Connect to all members of a configuration.

        Args:
            configuration: whose members meet, each in a call of its own.
            node: this worker.
            changed: see `WorkerGroup`.
            attempt: see `WorkerGroup`; members meet for one and the same.

        Raises:
            RuntimeError: not all have come, or one has died.
        """
        name = f"{configuration.id} again {attempt}" if attempt else str(configuration.id)
        return self._meet(name, configuration.id, configuration.workers, node, changed, attempt)

    def connect(
        self, giver: Member, shadow: Member, number: ConfigId, node: NodeId, changed: threading.Condition
    ) -> WorkerGroup:
        """Connect a shadow and the member that it follows, of ranks 1 and 0; see `build`.

        Args:
            giver: the member.
            shadow: a worker that joins.
            number: of the configuration by which it does.
            node: this worker, one of the two.
            changed: see `WorkerGroup`.
        """
        return self._meet(f"{number} {shadow.id}", number, (giver, shadow), node, changed)

    def _meet(
        self,
        name: str,
        number: ConfigId,
        members: Sequence[Member],
        node: NodeId,
        changed: threading.Condition,
        attempt: int = 0,
    ) -> WorkerGroup:
        rank, size = [member.id for member in members].index(node), len(members)
        if size == 1:
            return WorkerGroup(number, 0, 1, None, changed)
        first = members[0]
        meeting = _untyped.PrefixStore(
            self._secret(f"{_PROTOCOL} {name}"), _store(first.host, first.port, is_master=False)
        )
        options = _untyped.ProcessGroupGloo._Options()
        options._timeout = datetime.timedelta(seconds=BUILD_SECONDS)
        options._devices = [_untyped.ProcessGroupGloo.create_device(hostname=self._address)]
        thread = threading.current_thread()
        with self._lock:
            self._waiting.add(thread)
        try:
            backend = _untyped.ProcessGroupGloo(meeting, rank, size, options)
        except RuntimeError:
            _take_address_back(meeting, rank)
            raise
        finally:
            with self._lock:
                self._waiting.discard(thread)
        backend._set_default_timeout(_COLLECTIVE_TIMEOUT)
        return WorkerGroup(number, rank, size, backend, changed, attempt)

    def close(self) -> None:
        """Meet nobody any more: who waits for members at this worker's store waits in vain, and is told so.

        A thread that came back from PyTorch's code while the interpreter ends would end the process by SIGABRT, and a
        job that has finished would have failed. So it is waited for, a moment.
        """
        with self._lock:
            waiting = list(self._waiting)
        self._own = None  # which ends the store, and its connections
        deadline = time.monotonic() + _END_SECONDS
        for thread in waiting:
            thread.join(max(0.0, deadline - time.monotonic()))

    def tell_epoch(self, epoch: int) -> None:
        """Let those who join know the job's epoch."""
        self._own.set(self._secret(_EPOCH), str(epoch))

    def epoch_at(self, chief: Member) -> int:
        """Return the epoch that the chief has told; 0: it has told none, or is gone, or does not answer in time."""
        found: queue.SimpleQueue[int] = queue.SimpleQueue()
        # A store whose process is frozen keeps who asks it waiting beyond any timeout: so a thread waits.
        threading.Thread(target=lambda: found.put(self._ask_epoch(chief)), name="ask-epoch", daemon=True).start()
        try:
            return found.get(timeout=2 * _ASK_SECONDS)
        except queue.Empty:
            log.info("the chief's epoch is not known: it does not answer")
            return 0

    def _ask_epoch(self, chief: Member) -> int:
        try:
            store, key = _store(chief.host, chief.port, False, _ASK_SECONDS), self._secret(_EPOCH)
            return int(store.get(key)) if store.check([key]) else 0
        except RuntimeError as error:
            log.info("the chief's epoch is not known: %s", why_failed(error))
            return 0

    def _secret(self, name: str) -> str:
        """Return a key that nobody without the token knows."""
        return proof(self._token, Purpose.PROCESS_GROUP, name.encode()).hex()


def _take_address_back(meeting: Any, rank: int) -> None:
    """Take back where this worker could be reached in a meeting that has failed: it may meet under the same name again.

    Who came first then would connect to an address of before, and gloo tries that for five times its timeout.

    Args:
        meeting: its store.
        rank: of this worker; gloo's key of it begins with the process group's number in this store.
    """
    with suppress(RuntimeError):  # nobody meets at a store that is gone
        meeting.delete_key(f"0/{rank}")


def _store(host: str, port: int, is_master: bool, seconds: float = BUILD_SECONDS) -> Any:
    patience = datetime.timedelta(seconds=seconds)
    return _untyped.TCPStore(host, port, None, is_master, patience, wait_for_workers=False)
