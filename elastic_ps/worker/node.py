"""A worker as a node of its job: directives in, tables swapped, connections kept.

The script's thread calls `wait`, `install_next`, `declare`; directives come on the session's thread, frames on the
links' threads. One condition guards everything. Whoever hears first that a configuration is decided swaps the tables,
in whatever thread; an open exchange sees it by `generation`.
"""

import logging
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from elastic_ps.core import codec
from elastic_ps.core.configuration import ConfigId, Configuration, Member, NodeId, Role
from elastic_ps.core.data import DataSpec
from elastic_ps.core.errors import EXIT_RESTART, ConfigurationError, ElasticError, JobEnded, PeerLost, ProtocolError
from elastic_ps.core.model import Model, runs
from elastic_ps.node.session import Session
from elastic_ps.node.settings import NodeSettings
from elastic_ps.transport.base import Buffer, Transport
from elastic_ps.transport.frames import Frame, Kind, Reason
from elastic_ps.worker.inbox import Inbox
from elastic_ps.worker.link import Link
from elastic_ps.worker.phases import Tables, Verdict
from elastic_ps.worker.progress import Progress
from protos import elastic_pb2 as pb

log = logging.getLogger(__name__)

_RECONNECT_SECONDS = 0.2
_NOTICE_SECONDS = 5.0


class WorkerNode:
    """See the module.

    Args:
        settings: where the job is.
        transport: of the data plane.
    """

    def __init__(self, settings: NodeSettings, transport: Transport):
        self.session = Session(settings, Role.WORKER)
        self.changed = threading.Condition()
        self.tables = Tables()
        self.inbox = Inbox(Model())
        self.generation = 0
        self.data: DataSpec | None = None
        self.progress = Progress()
        self.seed = 0
        self.joined_running = False
        self._transport = transport
        self._links: dict[NodeId, Link] = {}
        self._subscribed: set[NodeId] = set()
        self._joined_at: int | None = None  # the clock of the last switch: a joiner's first version
        self._receiving: dict[NodeId, bool] = {}  # by server: is the frame under way wanted
        self._resumed = ConfigId()
        self._reached: float | None = None  # when the version that waits for its switch was installed
        self._ended: ElasticError | None = None

    # ---- for the script's thread -----------------------------------------------------------------------------------

    def start(self) -> None:
        """Register and wait until this node can take part: as a member, or as a shadow of the running job."""
        reply = self.session.register()
        self.seed, self.joined_running = reply.seed, reply.started
        self.inbox = Inbox(Model(block_bytes=reply.block_bytes))
        log.info("node %s", self.session.node)
        self.session.run(self)
        self.wait(lambda: self.is_member or self._is_shadow)
        if self.inbox.model.blocks:
            if self.is_member:  # the servers hold a checkpoint's values
                self._pull()
            self.wait(lambda: self.install_next() or self.inbox.version is not None)
        elif self.inbox.version is None:
            self.inbox.begin(0)

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
        return self.tables.current is not None and self.session.node in self.tables.current.ranks

    @property
    def _is_shadow(self) -> bool:
        return not self.is_member and self.tables.prepared is not None and self.tables.current is not None

    @property
    def configuration(self) -> Configuration:
        """The configuration in force."""
        assert self.tables.current is not None
        return self.tables.current

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

    def become_member(self) -> None:
        """A shadow that has rehearsed: say so, follow the job, and return when it is in the roster and up to date."""
        with self.changed:
            prepared = self.tables.prepared
        if prepared is not None and not self.is_member:
            self.session.acknowledge(pb.SYNCED, prepared.id, self.version)
        self.wait(lambda: (self.install_next() and False) or self.is_member)
        clock = self._joined_at
        if clock is not None:
            self.wait(lambda: self.install_next() or self.version >= clock)

    def declare(self, request: pb.DeclareRequest, values: Callable[[int], Buffer]) -> list[str]:
        """Declare tensors; the chief gives the first values of new ones.

        Args:
            request: without caller.
            values: tensor index -> its bytes with padding, as they stand in a slab.

        Returns:
            Warnings about settings that differ from the job's.
        """
        reply = self.session.declare(request)
        with self.changed:
            self._extend(reply.tensors, reply.assignment)
            new = self.inbox.missing(self.version)
            if new and self.is_member:
                if self.is_chief:
                    self._initialize(new, values)
                self._pull()
        if self.is_member:
            self.wait(lambda: self.inbox.ready)
        return list(reply.warnings)

    def _initialize(self, new: list[tuple[int, int]], values: Callable[[int], Buffer]) -> None:
        model = self.inbox.model
        tensors = {model.blocks[block].tensor for first, count in new for block in range(first, first + count)}
        for tensor in sorted(tensors):
            whole = memoryview(values(tensor)).cast("B")  # type: ignore[arg-type]
            base = model.blocks[model.blocks_of[tensor].start].position
            for server, blocks in self._by_server(model.blocks_of[tensor]).items():
                for run in runs(blocks):
                    span = model.span(run)
                    frame = self.frame(Kind.INIT, self.version, runs=[run])
                    self.send(server, frame, [whole[span.start - base : span.stop - base]])

    def _pull(self) -> None:
        wanted = [block for first, count in self.inbox.missing(self.version) for block in range(first, first + count)]
        for server, blocks in self._by_server(wanted).items():
            self.send(server, self.frame(Kind.PULL, self.version, runs=list(runs(blocks))))

    def _by_server(self, blocks: Sequence[int]) -> dict[NodeId, list[int]]:
        grouped: dict[NodeId, list[int]] = {}
        for block in blocks:
            grouped.setdefault(self.configuration.primary(block), []).append(block)
        return grouped

    def frame(self, kind: Kind, version: int = 0, samples: int = 0, **meta: Any) -> Frame:
        """A frame of the configuration in force."""
        return Frame(kind, self.tables.number, version, samples, meta)

    def send(self, server: NodeId, frame: Frame, payload: Sequence[Buffer] = ()) -> None:
        """Queue a frame for a server; where its connection is being mended, the exchange sends again afterwards."""
        link = self._links.get(server)
        if link is not None:
            link.send(frame, payload)

    def close(self, finished: bool) -> None:
        """Leave the job; `finished`: the script has done its work."""
        with self.changed:
            links = list(self._links.values())
            self._links.clear()
        for link in links:
            link.flush(_NOTICE_SECONDS)
        if finished:
            self.progress.finished = True
            self.session.report_soon()
            self.progress.final_report.wait(_NOTICE_SECONDS)
        self.session.flush()
        self.session.close()
        for link in links:
            link.close()

    # ---- directives (session thread) -------------------------------------------------------------------------------

    def on_directive(self, directive: pb.Directive) -> None:
        """See `Handler`."""
        kind = directive.WhichOneof("kind")
        getattr(self, f"_on_{kind}", lambda _message: None)(getattr(directive, kind or "stop"))

    def _on_welcome(self, welcome: pb.Welcome) -> None:
        with self.changed:
            self.data = codec.data_from_pb(welcome.data)
            if not welcome.HasField("configuration"):
                return
            configuration = codec.configuration_from_pb(welcome.configuration)
            if self.tables.current is None:
                tensors = tuple(codec.tensor_from_pb(tensor) for tensor in welcome.tensors)
                self.inbox = Inbox(Model(tensors, self.inbox.model.block_bytes))
                self.tables = Tables(current=configuration)
            self.changed.notify_all()
        self._decided(configuration.id)

    def _on_prepare(self, prepare: pb.Prepare) -> None:
        configuration = codec.configuration_from_pb(prepare.configuration)
        dead = frozenset(prepare.dead)
        with self.changed:
            if configuration.id <= self.tables.number:
                self.session.acknowledge(pb.SWITCHED, configuration.id, self.version)
                return
            lost = [self._links.pop(server) for server in dead if server in self._links]
            for server in dead:
                self._forget(server)
            self.tables = self.tables.prepare(configuration, prepare.mode == pb.PAUSE, dead)
            current = self.tables.current
        for link in lost:
            link.close()
        for member in configuration.servers:
            self._ensure(member)
        if current is not None and self.session.node not in current.ranks and current.assignment:
            for member in current.servers:
                self._ensure(member)
                if member.id not in self._subscribed:
                    self._subscribed.add(member.id)
                    self.send(member.id, self.frame(Kind.SUBSCRIBE))
        self.session.acknowledge(pb.PREPARED, configuration.id, self.version)
        with self.changed:
            self.changed.notify_all()

    def _forget(self, server: NodeId) -> None:
        """A dead server's replies of the open exchange do not count."""
        if self.tables.current is not None and server in self.tables.current.blocks_of:
            self.inbox.forget(list(runs(self.tables.current.blocks_of[server])), self.version + 1)

    def _on_arm(self, arm: pb.Arm) -> None:
        number = codec.config_id_from_pb(arm.configuration)
        with self.changed:
            self.tables, verdict = self.tables.arm(number, arm.clock, self.version)
        self._act(number, verdict)

    def _on_adopt(self, adopt: pb.Adopt) -> None:
        self._decided(codec.config_id_from_pb(adopt.configuration), answer=True)

    def _decided(self, number: ConfigId, answer: bool = False) -> None:
        verdict = self.tables.decide(number)
        if verdict is Verdict.SWITCH or answer:
            self._act(number, verdict)

    def _act(self, number: ConfigId, verdict: Verdict) -> None:
        if verdict is Verdict.SWITCH:
            self.switch(number)
        elif verdict is Verdict.SWITCHED:
            self.session.acknowledge(pb.SWITCHED, number, self.version)
        elif verdict is Verdict.ARM:
            self.session.acknowledge(pb.ARMED, number, self.version)
        elif verdict is Verdict.LATE:
            self.session.acknowledge(pb.LATE, number, self.version)

    def switch(self, number: ConfigId, reached: float | None = None) -> None:
        """Swap the tables, tell both rosters' servers, answer SWITCHED.

        Args:
            number: of the prepared configuration.
            reached: when (monotonic seconds) the clock's version was installed; None: the step goes on meanwhile.
        """
        started = time.monotonic() if reached is None else reached
        with self.changed:
            if self.tables.prepared is None or self.tables.prepared.id != number:
                return  # another thread was first
            old = self.tables.current
            clock = self.tables.clock
            self.tables = self.tables.switch()
            self._joined_at = clock
            self.generation += 1
            for server in {*(old.blocks_of if old else ()), *self.configuration.blocks_of}:
                self.send(server, self.frame(Kind.NOTICE))
            paused = self.tables.paused
            leaving = not self.is_member and old is not None and self.session.node in old.ranks
            self.changed.notify_all()
        suspension = (time.monotonic() - started) * 1000
        self.session.acknowledge(pb.SWITCHED, number, self.version, 0.0 if paused else suspension)
        if leaving:
            self._end(JobEnded("drained", 0))

    def pause(self, reached: float) -> None:
        """Pause mode: wait until every block has arrived at its new owner (DL2 section 5, step 4)."""
        number = self.tables.number
        self.wait(lambda: self._resumed >= number or self.tables.number != number)
        self.session.acknowledge(pb.SWITCHED, number, self.version, (time.monotonic() - reached) * 1000)

    def _on_cancel(self, cancel: pb.CancelPlan) -> None:
        number = codec.config_id_from_pb(cancel.configuration)
        with self.changed:
            self.tables = self.tables.cancel(number)
        self._close_unused()
        self.session.acknowledge(pb.CANCELLED, number, self.version)
        if cancel.leave:
            self._end(JobEnded(f"not wanted any more: {cancel.reason}", 0))

    def _on_committed(self, _committed: pb.Committed) -> None:
        self._close_unused()

    def _close_unused(self) -> None:
        with self.changed:
            used = {
                server.id for table in (self.tables.current, self.tables.prepared) if table for server in table.servers
            }
            unused = [self._links.pop(server) for server in list(self._links) if server not in used]
        for link in unused:
            link.close()

    def _on_resume(self, resume: pb.Resume) -> None:
        with self.changed:
            self._resumed = codec.config_id_from_pb(resume.configuration)
            self.changed.notify_all()

    def _on_extend(self, extend: pb.Extend) -> None:
        with self.changed:
            self._extend(extend.tensors, extend.assignment)
        self.session.acknowledge(pb.EXTENDED, self.tables.number, self.version)

    def _extend(self, tensors: Sequence[pb.Tensor], assignment: Sequence[int]) -> None:
        """Take over tables that may have grown. Call under the lock."""
        if len(tensors) <= len(self.inbox.model.tensors):
            return
        self.changed.wait_for(lambda: not any(self._receiving.values()))
        self.inbox.grow(self.inbox.model.extended([codec.tensor_from_pb(tensor) for tensor in tensors]))
        assert self.tables.current is not None
        self.tables = Tables(
            self.tables.current.extended(assignment),
            self.tables.prepared,
            self.tables.clock,
            self.tables.paused,
            self.tables.dead,
        )

    def _on_stop(self, stop: pb.Stop) -> None:
        status = EXIT_RESTART if stop.restart else 1 if stop.failed else 0
        self._end(JobEnded(stop.reason, status))

    def _end(self, reason: ElasticError) -> None:
        with self.changed:
            if self._ended is None:
                self._ended = reason
            self.changed.notify_all()

    def position(self) -> tuple[ConfigId, int]:
        """See `Handler`."""
        return self.tables.number, self.version

    def report(self) -> pb.ReportRequest:
        """See `Handler`."""
        return self.progress.report(self.version)

    def reported(self, reply: pb.ReportReply, request: pb.ReportRequest) -> None:
        """See `Handler`."""
        self.progress.reported(request)

    def on_expelled(self, reason: str) -> None:
        """See `Handler`."""
        self._end(JobEnded(reason, 1))

    # ---- connections (session and link threads) --------------------------------------------------------------------

    def _ensure(self, server: Member) -> None:
        """Be connected to a server of a known configuration."""
        if server.id in self._links:
            return
        try:
            connection = self._transport.connect(server.host, server.port, server.id)
            connection.send(self.frame(Kind.HELLO, node=self.session.node, role=Role.WORKER.value, lane="exchange"))
            answer = connection.receive()
            if answer.kind is not Kind.ACCEPTED:
                raise PeerLost(server.id, f"refused: {answer.meta.get('detail', answer.kind.name)}")
        except (PeerLost, ProtocolError) as error:
            self.session.peer_failed(server.id, str(error))
            self._mend(server)
            return
        with self.changed:
            self._links[server.id] = Link(server.id, connection, self)
            self.generation += 1
            self.changed.notify_all()

    def _mend(self, server: Member) -> None:
        """Try again in the background for as long as the server is in a configuration."""

        def wanted() -> bool:
            tables = (self.tables.current, self.tables.prepared)
            return self._ended is None and any(table and server.id in table.members for table in tables)

        def again() -> None:
            if wanted() and server.id not in self.tables.dead:
                self._ensure(server)

        timer = threading.Timer(_RECONNECT_SECONDS, again)
        timer.daemon = True
        timer.start()

    def buffers(self, server: NodeId, frame: Frame) -> Sequence[Buffer]:
        """See `Receiver`."""
        with self.changed:
            found = None
            if frame.kind is Kind.VALUE and server not in self.tables.dead:
                found = self.inbox.buffers(frame.version, frame.runs)
            if found is not None and sum(part.nbytes for part in found) != frame.payload_bytes:
                raise ProtocolError(f"{server} sent {frame.payload_bytes} bytes for blocks {frame.runs}")
            self._receiving[server] = found is not None
        return found if found is not None else [memoryview(bytearray(frame.payload_bytes))]

    def arrived(self, server: NodeId, frame: Frame) -> None:
        """See `Receiver`."""
        if frame.kind is Kind.REFUSED:
            self._refused(server, frame)
            return
        with self.changed:
            if self._receiving.pop(server, False):
                self.inbox.arrived(frame.version, frame.runs)
            self.changed.notify_all()
        self._decided(frame.configuration)

    def _refused(self, server: NodeId, frame: Frame) -> None:
        if frame.meta.get("reason") == Reason.STALE:
            term, number = frame.meta["configuration"]
            self._decided(ConfigId(term, number))
            return
        self._end(ConfigurationError(f"{server} refuses: {frame.meta.get('detail')}"))

    def lost(self, link: Link, error: ElasticError) -> None:
        """See `Receiver`."""
        with self.changed:
            if self._links.get(link.server) is link:
                del self._links[link.server]
            self._receiving.pop(link.server, None)
            tables = (self.tables.current, self.tables.prepared)
            server = next((t.members[link.server] for t in tables if t and link.server in t.members), None)
            self.changed.notify_all()
        if server is not None and self._ended is None:
            log.warning("%s", error)
            self.session.peer_failed(link.server, str(error))
            self._mend(server)
