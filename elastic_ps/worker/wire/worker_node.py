"""A `WorkerNode` is a worker as a node of its job.

The script's thread begins and ends it, and uses the `WorkerState` that it is, under `changed`; directives come on the
session's thread, frames on the links'.
"""

import logging
from collections.abc import Sequence

import numpy as np

from elastic_ps.core.configuration import Member, NodeId, Role
from elastic_ps.core.errors import ConfigurationError, JobEnded, PeerLost, ProtocolError
from elastic_ps.core.model import Model, members
from elastic_ps.core.sparse_rows import payload_bytes, received
from elastic_ps.node.peer_watch import Awaited, PeerView
from elastic_ps.node.session import Session
from elastic_ps.node.standing import Standing
from elastic_ps.transport.base import Buffer, Transport
from elastic_ps.transport.frame_kinds import Kind, Reason
from elastic_ps.transport.frame_metas import GoodbyeMeta, HelloMeta, RefusedMeta, SquaresMeta, ValueMeta
from elastic_ps.transport.frames import Frame
from elastic_ps.transport.send_queue import Link
from elastic_ps.worker.wire.configuration_switch import Membership
from elastic_ps.worker.wire.parameter_inbox import ParameterInbox
from elastic_ps.worker.wire.server_connections import ServerConnections
from elastic_ps.worker.wire.worker_state import WorkerState
from protos import elastic_pb2 as pb

log = logging.getLogger(__name__)

_NOTICE_SECONDS = 5.0
_GOODBYE_SECONDS = 0.5


class WorkerNode(WorkerState):
    """A `WorkerNode` registers, receives directives and frames, and leaves the job.

    Args:
        session: with the job's coordinator, not registered yet.
        transport: the transport of the data plane.
    """

    def __init__(self, session: Session, transport: Transport):
        super().__init__(session, ServerConnections(transport, self))
        self.membership = Membership(self)
        self._copied = 0  # bytes of values that have come while none were installed

    # ---- for the script's thread -----------------------------------------------------------------------------------

    def start(self) -> None:
        """Register and begin to listen."""
        reply = self.session.register()
        self.seed = reply.seed
        self.standing = Standing(self.session.node)
        self.inbox = ParameterInbox(Model(block_bytes=reply.block_bytes))
        log.info("node %s", self.session.node)
        self.session.run(self)

    def close(self, finished: bool) -> None:
        """Leave the job; `finished`: the script has done its work."""
        self.peers.flush(_NOTICE_SECONDS)
        if finished:
            self.progress.finished = True
            self.session.report_soon()
            self.progress.final_report.wait(_NOTICE_SECONDS)
        self.session.flush()
        in_order = finished or isinstance(self.ended, JobEnded)
        self.end(JobEnded("left", 0))
        if in_order:
            self._say_goodbye()
        self.session.close()
        self.peers.keep_only(())

    def _say_goodbye(self) -> None:
        for server in {server.id for known in self.standing.known for server in known.servers}:
            self.peers.send(server, Frame(GoodbyeMeta()))
        self.peers.flush(_GOODBYE_SECONDS)

    # ---- control plane (session threads) ---------------------------------------------------------------------------

    def on_directive(self, directive: pb.Directive) -> None:
        """See `Handler`."""
        self.membership.direct(directive)

    def position(self) -> tuple[Standing, int]:
        """See `Handler`."""
        with self.changed:
            return self.standing, self.version

    def report(self) -> pb.ReportRequest:
        """See `Handler`."""
        report = self.progress.report(self.version)
        report.transports.update(self.peers.transports())
        report.copied = self._copied
        return report

    def reported(self, reply: pb.ReportReply, request: pb.ReportRequest) -> None:
        """See `Handler`."""
        self.progress.reported(request)

    def on_expelled(self, reason: str) -> None:
        """See `Handler`."""
        self.end(JobEnded(reason, 1))

    def seen(self) -> PeerView:
        """See `Handler`."""
        with self.changed:
            lacking = self.lacking() if self.ended is None else {}
        return PeerView(self.peers.links, [Awaited(server, what) for server, what in lacking.items()], self.peers.apart)

    # ---- data plane (link threads) ---------------------------------------------------------------------------------

    def hello(self) -> Frame:
        """See `Owner`."""
        return self.frame(HelloMeta(node=self.session.node, role=Role.WORKER, lane="exchange"))

    def wanted(self, server: NodeId) -> Member | None:
        """See `Owner`."""
        if self.ended is not None or server in self.standing.dead:
            return None
        return next((known.members[server] for known in self.standing.known if server in known.members), None)

    def connected(self, server: NodeId) -> None:
        """See `Owner`."""
        with self.changed:
            self.generation += 1
            self.membership.subscribe(server)
            self.membership.answer_prepared()
            self.changed.notify_all()

    def disconnected(self, server: NodeId, reason: str) -> None:
        """See `Owner`."""
        with self.changed:
            self.receiving.pop(server, None)
            self.changed.notify_all()

    def buffers(self, link: Link, frame: Frame) -> Sequence[Buffer]:
        """See `Owner`."""
        server = link.peer
        with self.changed:
            link.check_open()
            if frame.kind is Kind.SNAPSHOT:
                return [memoryview(self.snapshots.buffer(server, frame))]
            alive = server not in self.standing.dead
            if frame.kind is not Kind.VALUE or not alive or not self.inbox.wants(frame.version, frame.runs):
                self.receiving.pop(server, None)
                return [memoryview(bytearray(frame.payload_bytes))]
            if max(map(sum, frame.runs)) > len(self.inbox.model.blocks):
                raise PeerLost(server, f"it has sent blocks {frame.runs}, of which this worker will hear in a moment")
            owner = self.configuration.primary
            if not self.is_sync and any(owner(block) != server for block in members(frame.runs)):
                self.receiving.pop(server, None)
                return [memoryview(bytearray(frame.payload_bytes))]  # who owns them now answers with other values
            if (rows := frame.of(ValueMeta).rows) is not None:
                return self._rows_buffers(server, frame, rows)
            spans = [self.inbox.model.span(run) for run in frame.runs]
            if sum(span.stop - span.start for span in spans) != frame.payload_bytes:
                raise ProtocolError(f"{server} sent {frame.payload_bytes} bytes for blocks {frame.runs}")
            image = self.receiving[server] = link.connection.image_at(spans)
            return self.inbox.buffers(frame.version, frame.runs) if image is None else []

    def _rows_buffers(self, server: NodeId, frame: Frame, rows: Sequence[int]) -> Sequence[Buffer]:
        sizes = payload_bytes(self.inbox.model, frame.runs, rows)
        if sum(sizes) != frame.payload_bytes or frame.version != self.version + 1:
            raise ProtocolError(f"{server} sent {frame.payload_bytes} bytes for rows of version {frame.version}")
        parts = self.receiving[server] = [np.empty(size, dtype=np.uint8) for size in sizes]
        return parts

    def arrived(self, link: Link, frame: Frame) -> None:
        """See `Owner`."""
        server = link.peer
        if isinstance(frame.meta, RefusedMeta):
            self._refused(server, frame.meta)
            return
        with self.changed:
            link.check_open()
            if frame.kind is Kind.SNAPSHOT:
                self.snapshots.arrived(server, frame)
            elif isinstance(frame.meta, SquaresMeta):
                here = frame.configuration, frame.version
                if here == (self.standing.config_id, self.version):  # else it is told again, or known
                    self.norm.take(*here, frame.runs, frame.meta.squares, frame.meta.hyper)
            elif server in self.receiving:
                self._copied += frame.payload_bytes if self.inbox.version is None else 0
                memory, value = self.receiving.pop(server), frame.of(ValueMeta)
                if value.factor is not None:
                    self.norm.decided.note(frame.version - 1, value.factor)
                if isinstance(memory, list):
                    rows = received(self.inbox.model, frame.runs, value.rows or (), memory)
                    for run, changed in zip(frame.runs, rows, strict=True):
                        self.inbox.changed(frame.version, run, changed)
                else:
                    lies = (memory.array, link.connection.shared[-1].array) if memory is not None else (None, None)
                    self.inbox.arrived(frame.version, frame.runs, value.updates, *lies)
            self.tell_factor()
            self.changed.notify_all()
        self.membership.heard(server, frame.configuration)

    def _refused(self, server: NodeId, refused: RefusedMeta) -> None:
        if refused.reason is Reason.STALE and refused.configuration is not None:
            self.membership.heard(server, refused.configuration)
            return
        if refused.reason is Reason.APART:
            self.give_up_place()
        self.end(ConfigurationError(f"{server} refuses: {refused.detail}"))
