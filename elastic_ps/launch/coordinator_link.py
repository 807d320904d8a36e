"""This module links a launcher to the coordinator: it hears what is wanted, and reports what has exited here."""

import logging
import queue
import threading
import time
from collections.abc import Callable, Iterator
from itertools import chain, repeat
from typing import Any

import grpc

from elastic_ps.control.channels import AWAY, coordinator_channel
from elastic_ps.core.errors import ConfigurationError, CoordinatorLost
from elastic_ps.launch.decide import WantedNodes
from protos import elastic_pb2 as pb
from protos import elastic_pb2_grpc as rpc

log = logging.getLogger(__name__)

_CALL_TIMEOUT = 5.0
_HEALTH_SECONDS = 5.0
"""The pause between two questions whether the coordinator is well, and the time for each answer."""


class CoordinatorLink:
    """A `CoordinatorLink` is one launcher's channel to a coordinator, which may go away and come back.

    Args:
        address: host:port.
        token: the job's secret.

    Attributes:
        coordinators: how many have listened there so far, one after the other.
        version: the highest that the job is known to have reached.
    """

    def __init__(self, address: str, token: bytes):
        self.address = address
        self._channel = coordinator_channel(address, token)
        self._stub = rpc.CoordinatorStub(self._channel)
        self._closed = threading.Event()
        self._exits: queue.SimpleQueue[pb.NodeExitedRequest | None] = queue.SimpleQueue()
        self._follower: threading.Thread | None = None
        self._deliverer: threading.Thread | None = None
        self._watcher: threading.Thread | None = None
        self._stream: Any = None
        self.coordinators = 0
        self.version = 0

    def begin_anew(self) -> None:
        """Take note that a coordinator listens: what one before it has not answered does not count against it."""
        self.coordinators += 1

    def attach(
        self,
        on_wanted: Callable[[WantedNodes], None],
        on_refused: Callable[[str], None],
        on_told: Callable[[str, bool], None] = lambda _nonce, _known: None,
    ) -> None:
        """Follow the coordinator's wishes and deliver reports of exits, in threads, until `close`.

        Args:
            on_wanted: takes every message, from a thread.
            on_refused: takes the reason why there will be none; called at most once.
            on_told: takes, from a thread, the nonce of each process of whose end the coordinator has heard, and whether
                it had registered there, or may have.
        """
        self._follower = threading.Thread(
            target=self._follow, args=(on_wanted, on_refused), name="launcher-attach", daemon=True
        )
        self._deliverer = threading.Thread(target=self._deliver, args=(on_told,), name="launcher-exits", daemon=True)
        self._follower.start()
        self._deliverer.start()

    def watch(self, bound: float, on_silent: Callable[[float, int], None]) -> None:
        """Ask the coordinator every few seconds whether it is well, in a thread, until `close`.

        Args:
            bound: seconds without an answer that are too many.
            on_silent: takes the seconds that it has been silent and which of the `coordinators` it is, from a thread;
                after each `bound` of them.
        """
        self._watcher = threading.Thread(
            target=self._watch, args=(bound, on_silent), name="launcher-watch", daemon=True
        )
        self._watcher.start()

    def _watch(self, bound: float, on_silent: Callable[[float, int], None]) -> None:
        unanswered = 0  # questions: not seconds, as this process itself may have stood still for any time
        which = self.coordinators
        while not self._closed.wait(_HEALTH_SECONDS if not unanswered else 0.0):
            if which != self.coordinators:
                unanswered, which = 0, self.coordinators
            asked = time.monotonic()
            try:
                status = self._stub.Status(pb.StatusRequest(), timeout=_HEALTH_SECONDS, wait_for_ready=True)
                unanswered, self.version = 0, max(self.version, status.version)
            except grpc.RpcError as error:
                unanswered = unanswered + 1 if error.code() in AWAY else 0
                self._closed.wait(asked + _HEALTH_SECONDS - time.monotonic())
            except ValueError:  # grpc's word for a closed channel
                return
            if unanswered * _HEALTH_SECONDS >= bound:
                on_silent(unanswered * _HEALTH_SECONDS, which)
                unanswered = 0

    def exited(self, nonce: str, node: str, status: int) -> None:
        """Queue a report of a process's end; it is repeated until the coordinator has it.

        Args:
            nonce: the launcher's name for the process.
            node: its id in the job; "" where it has not registered.
            status: its exit status.
        """
        self._exits.put(pb.NodeExitedRequest(nonce=nonce, node=node, status=status))

    def node_exited(self, nonce: str, node: str, status: int, timeout: float = _CALL_TIMEOUT) -> None:
        """Report a process's end now.

        Args:
            nonce: of the process.
            node: its name in the job; "": it was not told.
            status: exit status, negative: of a signal.
            timeout: seconds for the answer.

        Raises:
            CoordinatorLost: no answer.
            ConfigurationError: the coordinator refuses this launcher.
        """
        request = pb.NodeExitedRequest(nonce=nonce, node=node, status=status)
        self._call(self._stub.NodeExited, request, timeout)

    def stop(self, now: bool, reason: str, failed: bool = False) -> None:
        """Ask the coordinator to end the job.

        Args:
            now: without waiting for anything.
            reason: for people.
            failed: as a failed one.

        Raises:
            CoordinatorLost: no answer.
            ConfigurationError: the coordinator refuses this launcher.
        """
        self._call(self._stub.Stop, pb.StopRequest(now=now, reason=reason, failed=failed))

    def status(self, timeout: float = _CALL_TIMEOUT) -> pb.StatusReply:
        """Return the state of the job.

        Raises:
            CoordinatorLost: no answer within `timeout` seconds.
            ConfigurationError: the coordinator refuses this launcher.
        """
        reply: pb.StatusReply = self._call(self._stub.Status, pb.StatusRequest(), timeout)
        return reply

    def close(self, patience: float = 0.0) -> None:
        """End the threads; exits that cannot be delivered within `patience` seconds are dropped."""
        self._exits.put(None)
        if self._deliverer is not None:
            self._deliverer.join(patience)
        self._closed.set()
        if self._stream is not None:
            self._stream.cancel()
        self._channel.close()
        for thread in (self._follower, self._deliverer, self._watcher):
            if thread is not None:
                thread.join(_CALL_TIMEOUT)

    def _call(self, method: Callable[..., Any], request: Any, timeout: float = _CALL_TIMEOUT) -> Any:
        try:
            return method(request, timeout=timeout)
        except grpc.RpcError as error:
            if error.code() in AWAY:
                raise CoordinatorLost(error.details() or error.code().name) from error
            raise ConfigurationError(f"the coordinator at {self.address} refuses: {error.details()}") from error
        except ValueError as error:  # grpc's word for a closed channel
            raise CoordinatorLost("closed") from error

    def _follow(self, on_wanted: Callable[[WantedNodes], None], on_refused: Callable[[str], None]) -> None:
        try:
            waits = pauses()
            while not self._closed.is_set():
                for message in self._messages():
                    waits = pauses()
                    on_wanted(WantedNodes.from_pb(message))
                self._closed.wait(next(waits))
        except ConfigurationError as error:
            on_refused(str(error))
        except Exception as error:
            log.exception("thread %s died", threading.current_thread().name)
            on_refused(f"a bug in elasticrun: {error!r}")

    def _messages(self) -> Iterator[pb.Wanted]:
        """Yield what one stream brings, until it breaks."""
        try:
            self._stream = self._stub.Attach(pb.AttachRequest(), wait_for_ready=True)
            yield from self._stream
        except ValueError:  # grpc's word for a closed channel
            return
        except grpc.RpcError as error:
            if error.code() not in AWAY and not self._closed.is_set():
                reason = f"the coordinator at {self.address} refuses this launcher: {error.details()}"
                raise ConfigurationError(reason) from error

    def _deliver(self, on_told: Callable[[str, bool], None]) -> None:
        while (request := self._exits.get()) is not None:
            known = False
            for pause in pauses():
                try:
                    known |= self._call(self._stub.NodeExited, request).known
                    break
                except ConfigurationError as error:  # saying it again would not help
                    log.warning(
                        "the coordinator refuses the report that %s has ended: %s", request.node or request.nonce, error
                    )
                    break
                except CoordinatorLost:
                    known = True  # for all that is known: one that has taken the end may have died before its answer
                    if self._closed.wait(pause):
                        return
            on_told(request.nonce, known)


def pauses() -> Iterator[float]:
    """Yield the seconds between tries to reach a coordinator, without end."""
    return chain((0.05, 0.1, 0.2, 0.5), repeat(1.0))
