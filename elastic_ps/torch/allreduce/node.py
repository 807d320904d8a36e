"""A `GroupNode` is a worker of a job without servers, as a node of its job."""

import logging
import threading
from collections.abc import Callable
from functools import partial

from elastic_ps.control import codec
from elastic_ps.core.configuration import Member, NodeId, Role
from elastic_ps.core.errors import JobEnded
from elastic_ps.core.model import Model
from elastic_ps.node.peer_watch import Awaited, PeerView, patience
from elastic_ps.node.session import Session
from elastic_ps.node.settings import NodeSettings
from elastic_ps.node.standing import Standing
from elastic_ps.server.checkpoints.restoring import Restorer
from elastic_ps.torch.allreduce.checkpoints.restoring import GroupBlocks
from elastic_ps.torch.allreduce.checkpoints.saving import GroupSaver
from elastic_ps.torch.allreduce.following.shadow_feed import ShadowFeeds
from elastic_ps.torch.allreduce.group import Rendezvous, WorkerGroup
from elastic_ps.torch.allreduce.group_state import GroupState
from elastic_ps.torch.allreduce.ledger import REPORT_ENTRIES
from elastic_ps.torch.allreduce.membership import GroupMembership
from elastic_ps.torch.allreduce.peer_probe import PeerProbe
from protos import elastic_pb2 as pb

log = logging.getLogger(__name__)

_REPORT_SECONDS = 5.0
_LEDGER_SECONDS = 60.0
"""So long a worker that has finished waits for a coordinator that is away: nobody else has the job's last updates."""


class GroupNode(GroupState):
    """A `GroupNode` registers, hears directives, and keeps the groups of the configurations that it knows.

    Args:
        session: with the job's coordinator, not registered yet.
        rendezvous: where members meet.

    Attributes:
        membership: answers directives and switches configurations.
        saver: writes its part of checkpoints.
        read_blocks: what was read of a checkpoint.
        feeds: the shadows that follow this member.
    """

    def __init__(self, session: Session, rendezvous: Rendezvous):
        super().__init__(session, rendezvous)
        self._probe = PeerProbe(self._awaited)
        self.membership = GroupMembership(self)
        self.saver = GroupSaver(self)
        self.read_blocks = GroupBlocks(self)
        self._restorer = Restorer(self, self.read_blocks, _spawn, lambda: self.ended is not None)
        self.feeds = ShadowFeeds()

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
        every = patience(reply.lease_seconds)
        probing = partial(self._probe.run, every, self.session.closes_within)
        threading.Thread(target=probing, name="probe", daemon=True).start()

    def close(self, finished: bool) -> None:
        """Leave the job; `finished`: the script has done its work."""
        if finished:
            self.progress.finished = True
            self.session.report_soon()
            if not self.progress.final_report.wait(_REPORT_SECONDS):
                self._await_ledger()
        self.session.flush()
        self.end(JobEnded("left", 0))
        self.session.close()
        self.feeds.close()
        self.close_groups()
        self.rendezvous.close()

    def _await_ledger(self) -> None:
        """Wait until the coordinator has the updates that only workers have as yet, or has been away for long."""
        if not (untold := len(self.ledger.entries)):
            return
        log.warning("no coordinator takes the last %d updates for the ledger: waiting %.0f s", untold, _LEDGER_SECONDS)
        if not self.progress.final_report.wait(_LEDGER_SECONDS):
            log.warning("the ledger may lack the last %d updates: no coordinator has taken them", untold)

    def preparation_advanced(self) -> None:
        """See `GroupState.preparation_advanced`."""
        self.membership.answer_prepared()

    @property
    def restored_version(self) -> int | None:
        """See `GroupState.restored_version`."""
        return self.read_blocks.version

    def shadow_is_met(self, shadow: NodeId, group: WorkerGroup) -> None:
        """See `GroupState.shadow_is_met`."""
        self.feeds.meet(shadow, group)

    def drop_groups(self) -> None:
        """See `GroupState.drop_groups`; shadows that no configuration names go likewise."""
        super().drop_groups()
        self.feeds.keep({worker.id for known in self.standing.known for worker in known.workers})

    # ---- control plane (session threads) -----------------------------------------------------------------------------

    def on_directive(self, directive: pb.Directive) -> None:
        """See `Handler`."""
        kind, prepare = directive.WhichOneof("kind"), directive.prepare
        if kind == "save":
            save = directive.save
            self.saver.save(save.clock, save.url, save.given_up)
            return
        if kind == "prepare":
            number = codec.configuration_from_pb(prepare.configuration).id
            with self.changed:
                self.awaits_blocks = bool(prepare.restore and self.read_blocks.missing())
                if prepare.restore and not prepare.dead:
                    self.read_blocks.term = number.term
        self.membership.direct(directive)
        if kind == "prepare" and prepare.restore:
            self._restorer.restore(number, prepare.restore)

    def position(self) -> tuple[Standing, int]:
        """See `Handler`."""
        with self.changed:
            return self.standing, self.version

    def report(self) -> pb.ReportRequest:
        """See `Handler`."""
        report = self.progress.report(self.version)
        with self.changed:
            is_chief = self.standing.current is not None and self.is_chief
            report.copied = self.copied
            number, report.attempt = self.failed_group
        report.group.CopyFrom(codec.config_id_to_pb(number))
        self.ledger.report(report, is_chief)
        if _is_full(report):  # there may be more, and the job may be over when all have finished
            report.finished = False
        return report

    def reported(self, reply: pb.ReportReply, request: pb.ReportRequest) -> None:
        """See `Handler`."""
        self.ledger.kept(reply.ledger_kept)
        self.saver.stored(reply.ledger_kept)
        is_kept = not request.ledger or reply.ledger_kept > request.ledger[-1].version
        self.progress.reported(request, is_kept)
        if reply.attempt:
            self.hear_of_failed(codec.config_id_from_pb(reply.group), reply.attempt)
        if (request.finished and not is_kept) or (_is_full(request) and reply.ledger_kept > request.ledger_sequence):
            self.session.report_soon()

    def on_expelled(self, reason: str) -> None:
        """See `Handler`."""
        self.end(JobEnded(reason, 1))

    def seen(self) -> PeerView:
        """See `Handler`."""
        with self.changed:
            lacking = self.lacking() if self.ended is None else {}
        return PeerView(awaited=[Awaited(peer, what) for peer, what in lacking.items()], apart=self._probe.apart)

    # ---- inside ------------------------------------------------------------------------------------------------------

    def _awaited(self) -> list[Member]:
        """Return the members for whom the script's thread waits, or with whom a group is being built."""
        with self.changed:
            known = self.standing.known if self.ended is None else ()
            lacking = self.lacking() if self.ended is None else {}
            found = {
                worker.id: worker
                for configuration in known
                for worker in configuration.workers
                if worker.id in lacking or configuration.id in self._building
            }
        found.pop(self.session.node, None)
        return list(found.values())


def _is_full(report: pb.ReportRequest) -> bool:
    """Return whether a report has no room for more entries of the ledger."""
    return len(report.ledger) >= REPORT_ENTRIES


def _spawn(name: str, body: Callable[[], None]) -> None:
    threading.Thread(target=body, name=name, daemon=True).start()
