"""A `GroupNode` is a worker of a job without servers, as a node of its job."""

import logging

from elastic_ps.core.configuration import Role
from elastic_ps.core.errors import JobEnded
from elastic_ps.core.model import Model
from elastic_ps.node.peer_watch import Awaited, PeerView
from elastic_ps.node.session import Session
from elastic_ps.node.settings import NodeSettings
from elastic_ps.node.standing import Standing
from elastic_ps.torch.allreduce.group import Rendezvous
from elastic_ps.torch.allreduce.group_state import GroupState
from elastic_ps.torch.allreduce.membership import GroupMembership
from protos import elastic_pb2 as pb

log = logging.getLogger(__name__)

_REPORT_SECONDS = 5.0


class GroupNode(GroupState):
    """A `GroupNode` registers, hears directives, and keeps the groups of the configurations that it knows.

    Args:
        session: with the job's coordinator, not registered yet.
        rendezvous: where members meet.

    Attributes:
        membership: answers directives and switches configurations.
    """

    def __init__(self, session: Session, rendezvous: Rendezvous):
        super().__init__(session, rendezvous)
        self.membership = GroupMembership(self)

    @staticmethod
    def of(settings: NodeSettings) -> "GroupNode":
        """Return this process's worker; `settings` say where the job is."""
        rendezvous = Rendezvous(settings.host, settings.token)
        return GroupNode(Session(settings, Role.WORKER, rendezvous.port), rendezvous)

    # ---- for the script's thread -------------------------------------------------------------------------------------

    def start(self) -> None:
        """Register and begin to listen."""
        reply = self.session.register()
        self.seed = reply.seed
        self.standing = Standing(self.session.node)
        self.model = Model(block_bytes=reply.block_bytes)
        log.info("node %s", self.session.node)
        self.session.run(self)

    def close(self, finished: bool) -> None:
        """Leave the job; `finished`: the script has done its work."""
        if finished:
            self.progress.finished = True
            self.session.report_soon()
            self.progress.final_report.wait(_REPORT_SECONDS)
        self.session.flush()
        self.end(JobEnded("left", 0))
        self.session.close()
        self.close_groups()

    def group_is_built(self) -> None:
        """See `GroupState.group_is_built`."""
        self.membership.answer_prepared()

    # ---- control plane (session threads) -----------------------------------------------------------------------------

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
        with self.changed:
            is_chief = self.standing.current is not None and self.is_chief
        self.ledger.report(report, is_chief)
        return report

    def reported(self, reply: pb.ReportReply, request: pb.ReportRequest) -> None:
        """See `Handler`."""
        self.ledger.kept(reply.ledger_kept)
        self.progress.reported(request)

    def on_expelled(self, reason: str) -> None:
        """See `Handler`."""
        self.end(JobEnded(reason, 1))

    def seen(self) -> PeerView:
        """See `Handler`."""
        with self.changed:
            lacking = self.lacking() if self.ended is None else {}
        return PeerView(awaited=[Awaited(peer, what) for peer, what in lacking.items()])
