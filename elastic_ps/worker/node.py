"""A worker as a node of its job: directives in, tables swapped, connections kept.

The script's thread calls `wait`, `install_next`, `declare`; directives come on the session's thread, frames on the
links' threads. One condition guards everything. Whoever hears first that a configuration is decided swaps the tables,
in whatever thread; an open exchange sees it by `generation`.
"""

import logging
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from elastic_ps.core import codec
from elastic_ps.core.configuration import NO_CONFIGURATION, ConfigId, Configuration, Member, NodeId, Role
from elastic_ps.core.data import DataSpec
from elastic_ps.core.errors import EXIT_RESTART, ConfigurationError, ElasticError, JobEnded, ProtocolError
from elastic_ps.core.model import Model, runs
from elastic_ps.node.session import Session
from elastic_ps.node.settings import NodeSettings
from elastic_ps.node.standing import ArmAnswer, Standing
from elastic_ps.transport.base import Buffer, Transport
from elastic_ps.transport.frames import Frame, Kind, Reason
from elastic_ps.worker.inbox import Inbox
from elastic_ps.worker.peers import Peers
from elastic_ps.worker.progress import Progress
from elastic_ps.worker.snapshots import Snapshots
from protos import elastic_pb2 as pb

log = logging.getLogger(__name__)

_NOTICE_SECONDS = 5.0
_ANSWERS = {ArmAnswer.ARMED: pb.ARMED, ArmAnswer.LATE: pb.LATE, ArmAnswer.SWITCHED: pb.SWITCHED}


class WorkerNode:
    """See the module.

    Args:
        settings: where the job is.
        transport: of the data plane.
    """

    def __init__(self, settings: NodeSettings, transport: Transport):
        self.session = Session(settings, Role.WORKER)
        self.changed = threading.Condition()
        self.standing = Standing(self.session.node)
        self.inbox = Inbox(Model())
        self.snapshots = Snapshots()
        self.generation = 0
        self.data: DataSpec | None = None
        self.progress = Progress()
        self.seed = 0
        self.joined_running = False
        self.peers = Peers(transport, self)
        self._subscribed: set[NodeId] = set()
        self.joined_at = 0  # the clock of the last switch: a joiner's first version
        self._before: frozenset[NodeId] = frozenset()  # servers of the configuration before the last switch
        self._heard: dict[NodeId, ConfigId] = {}  # by server: the newest configuration of its frames
        self._receiving: dict[NodeId, bool] = {}  # by server: is the frame under way wanted
        self._resumed = ConfigId()
        self._reached: float | None = None  # when the version that waits for its switch was installed
        self._ended: ElasticError | None = None

    # ---- for the script's thread -----------------------------------------------------------------------------------

    def start(self) -> None:
        """Register and begin to listen."""
        reply = self.session.register()
        self.standing = Standing(self.session.node)
        self.seed, self.joined_running = reply.seed, reply.started
        self.inbox = Inbox(Model(block_bytes=reply.block_bytes))
        log.info("node %s", self.session.node)
        self.session.run(self)

    def wait(self, ready: Callable[[], Any]) -> None:
        """Wait until `ready()`, which is called under the lock.

        Raises:
            JobEnded: the job stopped, failed or restarts, or this worker has left it.
        """
        with self.changed:
            self.changed.wait_for(lambda: self._ended is not None or ready())
            self.check()

    def check(self) -> None:
        """Raise what ended this worker's part in the job. Call under the lock."""
        if self._ended is not None:
            raise self._ended

    @property
    def ended(self) -> ElasticError | None:
        """What ended this worker's part in the job."""
        return self._ended

    @property
    def is_member(self) -> bool:
        """Whether this worker is in the roster in force."""
        return self.standing.is_member

    @property
    def is_shadow(self) -> bool:
        """Whether this worker joins the running job by a plan that is under way."""
        return not self.is_member and self.standing.prepared is not None and self.standing.current is not None

    @property
    def is_current(self) -> bool:
        """Whether a joiner holds the last version of the configuration before. Call under the lock.

        The clock is a target: the switch may have been decided at an earlier version. But what a server says under
        the new configuration comes behind all its values of the old one.
        """
        said = all(self._heard.get(server, NO_CONFIGURATION) >= self.standing.number for server in self._before)
        return self.inbox.version is not None and (self.version >= self.joined_at or said)

    @property
    def configuration(self) -> Configuration:
        """The configuration in force."""
        assert self.standing.current is not None
        return self.standing.current

    @property
    def version(self) -> int:
        """Of the installed parameters."""
        return self.inbox.version or 0

    @property
    def is_chief(self) -> bool:
        """Whether this worker evaluates schedules, saves and prints."""
        return self.is_member and self.configuration.chief == self.session.node

    def install_next(self) -> bool:
        """Install the next version if it is complete. Call under the lock."""
        version = self.inbox.next_version()
        if version is None:
            return False
        self.inbox.install(version)
        return True

    def frame(self, kind: Kind, version: int = 0, samples: int = 0, **meta: Any) -> Frame:
        """A frame of the configuration in force."""
        return Frame(kind, self.standing.number, version, samples, meta)

    def close(self, finished: bool) -> None:
        """Leave the job; `finished`: the script has done its work."""
        self.peers.flush(_NOTICE_SECONDS)
        if finished:
            self.progress.finished = True
            self.session.report_soon()
            self.progress.final_report.wait(_NOTICE_SECONDS)
        self.session.flush()
        self.end(JobEnded("left", 0))
        self.session.close()
        self.peers.keep(())

    # ---- directives (session thread) -------------------------------------------------------------------------------

    def on_directive(self, directive: pb.Directive) -> None:
        """See `Handler`."""
        kind = directive.WhichOneof("kind")
        getattr(self, f"_on_{kind}", lambda _message: None)(getattr(directive, kind or "stop"))

    def _on_welcome(self, welcome: pb.Welcome) -> None:
        with self.changed:
            self.data = codec.data_from_pb(welcome.data)
            configuration = codec.configuration_from_pb(welcome.configuration)
            if self.standing.current is None or self.standing.passes_by(configuration.id):
                # a job that was restored has tensors before it has a configuration
                tensors = tuple(codec.tensor_from_pb(tensor) for tensor in welcome.tensors)
                self.inbox = Inbox(Model(tensors, self.inbox.model.block_bytes))
                self._subscribed.clear()
                self._receiving.clear()
                if welcome.HasField("configuration"):
                    self.standing = replace(self.standing, current=configuration, prepared=None, clock=None)
            self.changed.notify_all()
        self.switch(configuration.id)

    def _on_prepare(self, prepare: pb.Prepare) -> None:
        configuration = codec.configuration_from_pb(prepare.configuration)
        dead = frozenset(prepare.dead)
        with self.changed:
            if configuration.id <= self.standing.number:
                self.session.acknowledge(pb.SWITCHED, configuration.id, self.version)
                return
            for server in dead:
                self._forget(server)
            self.standing = self.standing.prepare(configuration, prepare.mode == pb.PAUSE, dead)
            if not self.standing.decided(configuration.id):
                self.session.acknowledge(pb.CANCELLED, configuration.id, self.version)
                return
            self._close_unused()
            followed = self.configuration.servers if self.is_shadow else ()
        for member in (*configuration.servers, *followed):
            self.peers.ensure(member)
        with self.changed:
            for member in followed:
                if member.id not in self._subscribed:
                    self._subscribe(member.id)
        self.session.acknowledge(pb.PREPARED, configuration.id, self.version)
        with self.changed:
            self.changed.notify_all()

    def _subscribe(self, server: NodeId) -> None:
        """A shadow asks a server for its blocks, now and whenever they change. Call under the lock."""
        if self.is_shadow and server in self.configuration.blocks_of:
            self._subscribed.add(server)
            self.peers.send(server, self.frame(Kind.SUBSCRIBE))

    def _forget(self, server: NodeId) -> None:
        """A dead server's replies of the open exchange do not count."""
        if self.standing.current is not None and server in self.standing.current.blocks_of:
            self.inbox.forget(list(runs(self.standing.current.blocks_of[server])), self.version + 1)

    def _on_arm(self, arm: pb.Arm) -> None:
        number = codec.config_id_from_pb(arm.configuration)
        with self.changed:
            self.standing, answer = self.standing.arm(number, arm.clock, self.version)
            due = self.standing.due(self.version)
        if answer is ArmAnswer.ARMED and due:
            self.switch(number)
        elif answer in _ANSWERS:
            self.session.acknowledge(_ANSWERS[answer], number, self.version)

    def _on_adopt(self, adopt: pb.Adopt) -> None:
        number = codec.config_id_from_pb(adopt.configuration)
        if number == self.standing.number:
            self.session.acknowledge(pb.SWITCHED, number, self.version)
        self.switch(number)

    def switch(self, number: ConfigId, reached: float | None = None) -> None:
        """Swap the tables, tell both rosters' servers, answer SWITCHED.

        Args:
            number: of the prepared configuration.
            reached: when (monotonic seconds) the clock's version was installed; None: the step goes on meanwhile.
        """
        started = time.monotonic() if reached is None else reached
        with self.changed:
            if not self.standing.decided(number):
                return  # it is no news, or another thread was first
            old = self.standing.current
            clock = self.standing.clock
            self.standing = self.standing.switch()
            self.joined_at = clock or 0
            self._before = frozenset(old.blocks_of if old else ())
            self.generation += 1
            for server in {*(old.blocks_of if old else ()), *self.configuration.blocks_of}:
                self.peers.send(server, self.frame(Kind.NOTICE))
            paused = self.standing.paused
            leaving = not self.is_member and old is not None and self.session.node in old.ranks
            self.changed.notify_all()
        suspension = (time.monotonic() - started) * 1000
        self.session.acknowledge(pb.SWITCHED, number, self.version, 0.0 if paused else suspension)
        if leaving:
            self.end(JobEnded("drained", 0))

    def pause(self, reached: float) -> None:
        """Pause mode: wait until every block has arrived at its new owner (DL2 section 5, step 4)."""
        number = self.standing.number
        self.wait(lambda: self._resumed >= number or self.standing.number != number)
        self.session.acknowledge(pb.SWITCHED, number, self.version, (time.monotonic() - reached) * 1000)

    def _on_cancel(self, cancel: pb.CancelPlan) -> None:
        number = codec.config_id_from_pb(cancel.configuration)
        with self.changed:
            self.standing = self.standing.cancel(number)
        self._close_unused()
        self.session.acknowledge(pb.CANCELLED, number, self.version)
        if cancel.leave:
            self.end(JobEnded(f"not wanted any more: {cancel.reason}", 0))

    def _on_committed(self, _committed: pb.Committed) -> None:
        self._close_unused()

    def _close_unused(self) -> None:
        """Leave the servers that are dead or in no known configuration: what is arriving from them does not count."""
        with self.changed:
            used = {server.id for table in self.standing.known for server in table.servers} - self.standing.dead
            for server in self._receiving.keys() - used:
                del self._receiving[server]
            self.peers.keep(used)
            self.changed.notify_all()

    def _on_resume(self, resume: pb.Resume) -> None:
        with self.changed:
            self._resumed = codec.config_id_from_pb(resume.configuration)
            self.changed.notify_all()

    def _on_extend(self, extend: pb.Extend) -> None:
        with self.changed:
            self.extend(extend.tensors, extend.assignment)
        self.session.acknowledge(pb.EXTENDED, self.standing.number, self.version)

    def extend(self, tensors: Sequence[pb.Tensor], assignment: Sequence[int]) -> None:
        """Take over tables that may have grown. Call under the lock."""
        if len(tensors) <= len(self.inbox.model.tensors):
            return
        self.changed.wait_for(lambda: not any(self._receiving.values()))
        self.inbox.grow(self.inbox.model.extended([codec.tensor_from_pb(tensor) for tensor in tensors]))
        self.standing = replace(self.standing, current=self.configuration.extended(assignment))

    def _on_stop(self, stop: pb.Stop) -> None:
        status = EXIT_RESTART if stop.restart else 1 if stop.failed else 0
        self.end(JobEnded(stop.reason, status))

    def end(self, reason: ElasticError) -> None:
        """This worker's part in the job is over; the first reason counts."""
        with self.changed:
            if self._ended is None:
                self._ended = reason
            self.changed.notify_all()
        self.session.abandon()

    def position(self) -> tuple[ConfigId, int]:
        """See `Handler`."""
        return self.standing.number, self.version

    def report(self) -> pb.ReportRequest:
        """See `Handler`."""
        return self.progress.report(self.version)

    def reported(self, reply: pb.ReportReply, request: pb.ReportRequest) -> None:
        """See `Handler`."""
        self.progress.reported(request)

    def on_expelled(self, reason: str) -> None:
        """See `Handler`."""
        self.end(JobEnded(reason, 1))

    # ---- data plane (link threads) ---------------------------------------------------------------------------------

    def hello(self) -> Frame:
        """See `Owner`."""
        return self.frame(Kind.HELLO, node=self.session.node, role=Role.WORKER.value, lane="exchange")

    def wanted(self, server: NodeId) -> Member | None:
        """See `Owner`."""
        if self._ended is not None or server in self.standing.dead:
            return None
        return next((table.members[server] for table in self.standing.known if server in table.members), None)

    def connected(self, server: NodeId) -> None:
        """See `Owner`."""
        with self.changed:
            self.generation += 1
            self._subscribe(server)
            self.changed.notify_all()

    def disconnected(self, server: NodeId, reason: str) -> None:
        """See `Owner`."""
        with self.changed:
            self._receiving.pop(server, None)
            self.changed.notify_all()
        self.session.peer_failed(server, reason)

    def buffers(self, server: NodeId, frame: Frame) -> Sequence[Buffer]:
        """See `Owner`."""
        with self.changed:
            if frame.kind is Kind.SNAPSHOT:
                return [memoryview(self.snapshots.buffer(server, frame))]
            found = None
            if frame.kind is Kind.VALUE and server not in self.standing.dead:
                found = self.inbox.buffers(frame.version, frame.runs)
            if found is not None and sum(part.nbytes for part in found) != frame.payload_bytes:
                raise ProtocolError(f"{server} sent {frame.payload_bytes} bytes for blocks {frame.runs}")
            self._receiving[server] = found is not None
        return found if found is not None else [memoryview(bytearray(frame.payload_bytes))]

    def arrived(self, server: NodeId, frame: Frame) -> None:
        """See `Owner`."""
        if frame.kind is Kind.REFUSED:
            self._refused(server, frame)
            return
        with self.changed:
            self._heard[server] = max(frame.configuration, self._heard.get(server, frame.configuration))
            if frame.kind is Kind.SNAPSHOT:
                self.snapshots.arrived(server, frame)
            elif self._receiving.pop(server, False):
                self.inbox.arrived(frame.version, frame.runs)
            self.changed.notify_all()
        self.switch(frame.configuration)

    def _refused(self, server: NodeId, frame: Frame) -> None:
        if frame.meta.get("reason") == Reason.STALE:
            term, number = frame.meta["configuration"]
            self.switch(ConfigId(term, number))
            return
        self.end(ConfigurationError(f"{server} refuses: {frame.meta.get('detail')}"))
