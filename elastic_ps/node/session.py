"""This module keeps a node in touch with its coordinator, and outlives the restarts of that."""

import logging
import os
import queue
import secrets
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Protocol

import grpc

from elastic_ps.control.codec import config_id_to_pb, module_to_pb
from elastic_ps.core.configuration import NO_CONFIGURATION, ConfigId, NodeId, Role
from elastic_ps.core.errors import ConfigurationError, CoordinatorLost, JobEnded, Refused
from elastic_ps.core.report_pace import report_seconds
from elastic_ps.node.node_calls import CALL_TIMEOUT, BrokenPatience, NodeCalls, session_closed, waits
from elastic_ps.node.node_memory import NodeMemory
from elastic_ps.node.peer_watch import PeerView, PeerWatch, patience
from elastic_ps.node.settings import NodeSettings
from elastic_ps.node.standing import Standing
from elastic_ps.node.vain_wait import AWAY_SECONDS, VainWait
from protos import elastic_pb2 as pb

log = logging.getLogger(__name__)

_LOOKS = 10  # at its peers, while a node has patience with them
_JOINING = {Role.WORKER: pb.INC_WORKER, Role.SERVER: pb.INC_SERVER}
_LEAVING = {Role.WORKER: pb.DEC_WORKER, Role.SERVER: pb.DEC_SERVER}


class Handler(Protocol):
    """A `Handler` is the node behind a session. One thread calls `on_directive`, one directive at a time."""

    def on_directive(self, directive: pb.Directive) -> None:
        """Act on a directive; answers go through `Session.acknowledge`."""

    def position(self) -> tuple[Standing, int]:
        """Return the configurations that the node knows and its version, for a coordinator that has restarted."""

    def trained(self) -> int:
        """Return a number that changes with each step of the job that this node has a part in."""

    def report(self) -> pb.ReportRequest:
        """Return what to report now, without `caller` and `waits`."""

    def seen(self) -> PeerView:
        """Return its connections to peers, and what it lacks from them."""

    def reported(self, reply: pb.ReportReply, request: pb.ReportRequest) -> None:
        """Take the answer to a report."""

    def on_expelled(self, reason: str) -> None:
        """End the node: the coordinator does not know it any more."""


class Session:
    """A `Session` is one node's dealings with the coordinator.

    Args:
        settings: where the job is.
        role: what this node does.
        port: of its data plane; 0 for a worker.
    """

    def __init__(self, settings: NodeSettings, role: Role, port: int = 0):
        self.settings = settings
        self.role = role
        self._port = port
        self._memory = NodeMemory(settings, role, port)
        self._calls = NodeCalls(settings)
        self._stub = self._calls.stub
        self._answers: queue.Queue[Callable[[], Any] | None] = queue.Queue()
        self._soon = threading.Event()
        self._closed = threading.Event()
        self._abandoned = threading.Event()  # the script waits for no answer any more
        self._lease_seconds = 10.0
        self._rtt_seconds = 0.0
        self._peer_watch = PeerWatch(patience(self._lease_seconds))
        self._threads: list[threading.Thread] = []
        self._stream: Any = None

    def register(self, timeout: float = 60.0) -> pb.RegisterReply:
        """Join the job (INC_WORKER or INC_SERVER), and learn this node's id.

        Raises:
            CoordinatorLost: nobody answered within `timeout` seconds.
            JobEnded: the coordinator refuses this node, with its reason.
        """
        request = self._register_request(_JOINING[self.role])
        try:
            reply: pb.RegisterReply = self._calls.until_answered(self._stub.Register, request, self._closed, timeout)
        except (Refused, ConfigurationError) as error:
            raise JobEnded(f"cannot join: {error}", 1) from None
        self._calls.node = reply.node
        self._lease_seconds = reply.lease_seconds
        self._peer_watch = PeerWatch(patience(reply.lease_seconds))
        self._memory.registered(reply)
        return reply

    def leave(self) -> None:
        """Ask to be drained (DEC_WORKER or DEC_SERVER); a plan without this node will come."""
        self._calls.until_answered(
            self._stub.Register, self._register_request(_LEAVING[self.role]), self._closed, CALL_TIMEOUT
        )

    def checkpoint(self) -> str:
        """Save the whole job; return the checkpoint's URL once it is complete.

        Raises:
            CoordinatorLost: there is no coordinator, or it refuses, with its reason.
            JobEnded: the session was closed.
        """
        try:
            return str(self._stub.Checkpoint(pb.CheckpointRequest()).url)
        except ValueError:  # grpc's word for a closed channel
            raise session_closed() from None
        except grpc.RpcError as error:
            raise CoordinatorLost(error.details() or error.code().name) from None

    def run(self, handler: Handler) -> None:
        """Start the background threads that serve `handler`."""
        loops = {"listen": self._listen, "report": self._report, "answer": self._answer, "watch": self._watch}
        for name, loop in loops.items():
            thread = threading.Thread(target=self._guarded, args=(loop, handler), name=f"session-{name}", daemon=True)
            self._threads.append(thread)
            thread.start()

    def acknowledge(
        self,
        answer: "pb.Answer",
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
        """Queue an answer; answers arrive in order, each repeated until the coordinator has taken it.

        Args:
            answer: what this node answers.
            configuration: that it is about.
            version: of this node.
            suspension_ms: milliseconds for which the switch has held training up.
            bytes_moved: bytes of blocks that this node has sent for the plan.
            detail: for people.
            command: number of the command that it answers; 0: none.
            optimizer: that it is about, as text.
            holdings: what this node has of blocks, when a server has died.
            growth: of the job, that an Extend said.
        """
        self._memory.answered(answer, configuration)
        request = pb.AcknowledgeRequest(
            answer=answer,
            configuration=config_id_to_pb(configuration),
            version=version,
            suspension_ms=suspension_ms,
            bytes_moved=bytes_moved,
            detail=detail,
            command=command,
            optimizer=optimizer,
            holdings=holdings,
            growth=growth,
        )
        self._answers.put(lambda: self._send(request))

    def _send(self, request: pb.AcknowledgeRequest) -> None:
        try:
            self._calls.until_answered(self._stub.Acknowledge, request, self._closed)
        except (Refused, ConfigurationError) as error:
            what = f"{pb.Answer.Name(request.answer)} of {self._calls.node}"
            raise type(error)(f"the coordinator does not take {what}: {error}") from error

    def declare(self, request: pb.DeclareRequest) -> pb.DeclareReply:
        """Declare tensors, optimizer and data; return once every server knows them.

        Raises:
            ConfigurationError: they contradict what the job holds.
            Refused: the job is about to end or to go back to a checkpoint; a Stop is on its way.
        """
        reply: pb.DeclareReply = self._wait(self._stub.Declare, request)
        self._memory.declared(request, reply)
        return reply

    def draw(self, number: int, epoch: int, any_epoch: bool = False) -> pb.DrawReply:
        """Draw the next batch of an `async` or `ssp` job; return once there is one, or the epoch is over.

        Args:
            number: of this worker's draws, from 1; 0 asks for the job's epoch only.
            epoch: that the worker's loop is in.
            any_epoch: whichever the job is in.

        Raises:
            Refused: the job is about to end or to go back to a checkpoint, or has let this worker go.
        """
        request = pb.DrawRequest(number=number, epoch=epoch, any_epoch=any_epoch)
        reply: pb.DrawReply = self._wait(self._stub.Draw, request)
        return reply

    def barrier(self, place: int, number: int, sharing: Sequence[NodeId], version: int) -> None:
        """Wait for all workers that share a barrier.

        Args:
            place: of the barrier, see `BarrierRequest`.
            number: of the barrier at that place.
            sharing: the workers that it is for.
            version: of this node.

        Raises:
            Refused: the job is about to end or to go back to a checkpoint, or has let this worker go.
            ConfigurationError: another worker waits for this one's push.
        """
        request = pb.BarrierRequest(place=place, number=number, sharing=sharing, version=version)
        self._wait(self._stub.Barrier, request)
        self._memory.passed(place, number)

    def command(self, head: int, body: str) -> None:
        """Run a handler on every server and wait.

        Raises:
            ConfigurationError: no such handler, or it failed, or the command is none that can be sent.
        """
        try:
            request = pb.CommandRequest(head=head, body=body, id=1 + secrets.randbits(63))
        except (TypeError, ValueError) as error:
            wanted = f"give a number from 0 to {(1 << 32) - 1} and a text"
            raise ConfigurationError(f"command {head!r}: {wanted} ({error})") from error
        self._wait(self._stub.Command, request)

    def report_soon(self) -> None:
        """Report now instead of at the next regular time."""
        self._soon.set()

    def flush(self, timeout: float = 5.0) -> bool:
        """Wait until queued answers have arrived; return False if some have not within `timeout` seconds."""
        done = threading.Event()
        self._answers.put(done.set)
        return done.wait(timeout)

    def abandon(self) -> None:
        """Wait for no answer any more, as the node's part in the job is over: `declare` and the like give up."""
        self._abandoned.set()

    def close(self) -> None:
        """End the threads and the channel."""
        self.abandon()
        self._closed.set()
        self._soon.set()
        self._answers.put(None)
        if self._stream is not None:
            self._stream.cancel()
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join(timeout=2.0)
        self._calls.close()

    @property
    def node(self) -> NodeId:
        """The id of this node; "" before it is registered."""
        return self._calls.node

    @property
    def closed(self) -> bool:
        """Return whether `close` was called."""
        return self._closed.is_set()

    @property
    def lease_seconds(self) -> float:
        """For how long the coordinator lets a node be silent."""
        return self._lease_seconds

    @property
    def in_touch_seconds(self) -> float:
        """For how long the coordinator has answered this node; 0: it is away, and nobody could be told anything."""
        return self._calls.in_touch_seconds

    def closes_within(self, seconds: float) -> bool:
        """Wait for `close`; return whether it was called within `seconds`."""
        return self._closed.wait(seconds)

    def _wait(self, method: Callable[..., Any], request: Any) -> Any:
        """Wait for an answer that may take as long as it likes, unless the node's part is over."""
        return self._calls.until_answered(method, request, self._abandoned, call_timeout=None)

    def _register_request(self, kind: "pb.RequestKind") -> pb.RegisterRequest:
        told = self.settings
        return pb.RegisterRequest(
            kind=kind,
            host=told.host,
            port=self._port,
            pid=os.getpid(),
            nonce=told.nonce,
            machine=told.machine,
            modules=map(module_to_pb, told.modules),
        )

    def _guarded(self, loop: Callable[[Handler], None], handler: Handler) -> None:
        try:
            loop(handler)
        except JobEnded as error:
            if not self.closed:
                handler.on_expelled(error.reason)
        except Exception as error:
            if not self.closed:
                log.exception("thread %s died", threading.current_thread().name)
                handler.on_expelled(f"{threading.current_thread().name} died: {error!r}")

    def _listen(self, handler: Handler) -> None:
        away, pauses, patience = False, waits(), BrokenPatience()
        while not self.closed:
            standing, version = handler.position()
            introduction = self._memory.introduction(standing)
            request = pb.ListenRequest(caller=self._calls.caller, introduction=introduction, version=version)
            try:
                self._stream = self._stub.Listen(request, wait_for_ready=True)
                for directive in self._stream:
                    if away:
                        log.warning("the coordinator is back, term %d", directive.term)
                    away, pauses = False, waits()
                    patience.answered()
                    if directive.term < self._calls.term:
                        log.warning(
                            "refused a directive of term %d: this node knows term %d", directive.term, self._calls.term
                        )
                        continue
                    self._calls.term = directive.term
                    self._memory.directed(directive)
                    handler.on_directive(directive)
            except grpc.RpcError as error:
                patience.bear(error)
            if not away and not self.closed:
                log.warning("the coordinator at %s is away; training goes on", self.settings.coordinator)
                away = True
            self._closed.wait(next(pauses))

    def _answer(self, _handler: Handler) -> None:
        while (call := self._answers.get()) is not None:
            call()

    def _report(self, handler: Handler) -> None:
        while not self.closed:
            self._soon.wait(report_seconds(self._lease_seconds))
            self._soon.clear()
            if self.closed:
                return
            request = handler.report()
            request.waits.extend(self._told_waits())
            request.rtt_seconds = self._rtt_seconds
            with suppress(CoordinatorLost):
                reply = self._calls.until_answered(self._timed_report, request, self._closed, self._lease_seconds)
                handler.reported(reply, request)

    def _timed_report(self, request: pb.ReportRequest, timeout: float, **_ready: bool) -> pb.ReportReply:
        """Report once. It fails at once where the coordinator is away, whose absence is no part of the round trip."""
        started = time.monotonic()
        reply: pb.ReportReply = self._stub.Report(request, timeout=timeout)
        self._rtt_seconds = time.monotonic() - started
        return reply

    def _told_waits(self) -> list[pb.Wait]:
        now = time.monotonic()
        return [
            pb.Wait(peer=wait.peer, what=wait.what, seconds=now - wait.since, unreachable=wait.unreachable)
            for wait in self._peer_watch.named
        ]

    def _watch(self, handler: Handler) -> None:
        """Look after the peers; report at once who cannot be reached, or can again. A node that waits in vain ends."""
        pause = patience(self._lease_seconds) / _LOOKS
        vain_wait = VainWait()
        while not self._closed.wait(pause):
            before = self._peer_watch.unreachable
            now = time.monotonic()
            awake = self._peer_watch.look(now, handler.seen())
            if vain_wait.look(now, None if self.in_touch_seconds else handler.trained(), awake):
                away = f"the coordinator at {self.settings.coordinator} has been away for {AWAY_SECONDS / 3600:.0f} h"
                raise JobEnded(f"{away}, and nothing was trained here meanwhile: this node waits no longer", 1)
            if not awake:
                log.warning("this process was stopped for a while: it asks the coordinator what it has missed")
                self._listen_anew()
                self.report_soon()
            elif self._peer_watch.unreachable != before:
                self.report_soon()

    def _listen_anew(self) -> None:
        """Begin a new stream, which starts with all that stands, whatever was sent on the old one meanwhile."""
        stream = self._stream
        if stream is not None:
            stream.cancel()
