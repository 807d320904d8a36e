"""This module calls the coordinator for a node: each call until there is an answer, as the coordinator may be away."""

import logging
import threading
import time
from collections.abc import Callable, Iterator
from itertools import chain, repeat
from typing import Any

import grpc

from elastic_ps.control.channels import AWAY, coordinator_channel
from elastic_ps.core.configuration import NodeId
from elastic_ps.core.errors import ConfigurationError, CoordinatorLost, JobEnded, Refused
from elastic_ps.node.settings import NodeSettings
from protos import elastic_pb2 as pb
from protos import elastic_pb2_grpc as rpc

log = logging.getLogger(__name__)

CALL_TIMEOUT = 10.0
"""The seconds of one try, of a call that the coordinator answers at once."""

BROKEN = (grpc.StatusCode.INTERNAL, grpc.StatusCode.UNKNOWN)
"""How calls end that the coordinator cannot take for a bug, there or on the way. It may pass."""

BROKEN_SECONDS = 60.0
"""For so long a node asks again a coordinator that cannot take what it asks."""

_RETRY_SECONDS = (0.05, 0.1, 0.2, 0.5, 1.0, 2.0)


class NodeCalls:
    """A `NodeCalls` makes the calls of one node.

    Args:
        settings: where the coordinator is.

    Attributes:
        node: this node's id; "": not known yet.
        term: the highest of the coordinator's that it has seen.
        stub: of the coordinator.
    """

    def __init__(self, settings: NodeSettings):
        self.node: NodeId = ""
        self.term = 0
        self._address = settings.coordinator
        self._answered = self._back = time.monotonic()  # the last answer, and the first one since the last gap
        self._channel = coordinator_channel(settings.coordinator, settings.token)
        self.stub = rpc.CoordinatorStub(self._channel)

    @property
    def caller(self) -> pb.Caller:
        """The node that asks, and the term that it knows."""
        return pb.Caller(term=self.term, node=self.node)

    def until_answered(
        self,
        method: Callable[..., Any],
        request: Any,
        stop: threading.Event,
        timeout: float | None = None,
        call_timeout: float | None = CALL_TIMEOUT,
    ) -> Any:
        """Call a method until there is an answer, and return that.

        Args:
            method: of the stub.
            request: to it, without `caller`.
            stop: set where no answer is waited for any more.
            timeout: seconds of the whole; None: for ever.
            call_timeout: seconds of one try; None: the answer may take as long as it likes.

        Raises:
            CoordinatorLost: none has come within `timeout`.
            JobEnded: `stop` was set, the channel is closed, or the coordinator does not know this node.
            Refused, ConfigurationError: the coordinator refuses, with its reason, or could not take it for long.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        patience = BrokenPatience()
        for wait in waits():
            request.caller.CopyFrom(self.caller)
            try:
                ready = call_timeout is not None
                reply = method(request, timeout=call_timeout, wait_for_ready=ready)
            except grpc.RpcError as error:
                patience.bear(error)
                if deadline is not None and time.monotonic() > deadline:
                    raise CoordinatorLost(
                        f"no coordinator answers at {self._address} since {timeout:.0f} s: {error.details()}"
                    ) from None
            except ValueError:  # grpc's word for a closed channel
                break
            else:
                self.term = max(self.term, reply.term)
                self._note_answer()
                return reply
            if stop.wait(wait):
                break
        raise session_closed()

    @property
    def in_touch_seconds(self) -> float:
        """For how long the coordinator has answered, without a gap longer than one try; 0: it is away."""
        now = time.monotonic()
        return 0.0 if now - self._answered > CALL_TIMEOUT else now - self._back

    def _note_answer(self) -> None:
        now = time.monotonic()
        if now - self._answered > CALL_TIMEOUT:
            self._back = now
        self._answered = now

    def close(self) -> None:
        """Close the channel."""
        self._channel.close()


def session_closed() -> JobEnded:
    """Return what to raise in a thread that still asks when the session is closed."""
    return JobEnded("the session was closed", 0)


def waits() -> Iterator[float]:
    """Return the seconds before each next try."""
    return chain(_RETRY_SECONDS, repeat(_RETRY_SECONDS[-1]))


class BrokenPatience:
    """A patience bears a coordinator that is away, and for a while one that cannot take what it is asked."""

    def __init__(self, now: Callable[[], float] = time.monotonic):
        self._now = now
        self._since: float | None = None

    def answered(self) -> None:
        """Note that the coordinator has taken something."""
        self._since = None

    def bear(self, error: grpc.RpcError) -> None:
        """Raise what another try would not mend, as `raise_final` does."""
        if error.code() not in BROKEN:
            raise_final(error)
            return
        if self._since is None:
            self._since = self._now()
            log.warning("the coordinator cannot take what this node asks: %s", error.details())
        elif self._now() - self._since > BROKEN_SECONDS:
            raise_final(error)


def raise_final(error: grpc.RpcError) -> None:
    """Raise what another try would not mend, without gRPC's traceback: its text is the coordinator's."""
    code = error.code()
    if code in AWAY:
        return
    if code is grpc.StatusCode.ABORTED:
        raise Refused(error.details()) from None
    if code is grpc.StatusCode.NOT_FOUND:
        raise JobEnded(
            f"this node was expelled, and its job goes on without it ({error.details()}): nothing that it does counts "
            "any more; had it been out of touch, stopped or cut off, its launcher starts another in its place",
            1,
        ) from None
    raise ConfigurationError(error.details()) from None
