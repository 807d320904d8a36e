"""A `WorkerState` is what the parts of a worker share: its place in the job and its parameters, under one lock."""

import logging
from collections.abc import Sequence, Set
from dataclasses import replace

from elastic_ps.control import codec
from elastic_ps.core.configuration import NodeId
from elastic_ps.core.model import Model, members
from elastic_ps.core.segments import Raw
from elastic_ps.node.session import Session
from elastic_ps.transport.frame_metas import FactorMeta, Meta
from elastic_ps.transport.frames import Frame
from elastic_ps.transport.shared_memory import Image
from elastic_ps.worker.wire.member_state import MemberState
from elastic_ps.worker.wire.norm_decision import NormDecision
from elastic_ps.worker.wire.parameter_inbox import ParameterInbox
from elastic_ps.worker.wire.server_connections import ServerConnections
from elastic_ps.worker.wire.state_snapshots import StateSnapshots
from protos import elastic_pb2 as pb

log = logging.getLogger(__name__)


class WorkerState(MemberState):
    """A `WorkerState` is shared by all parts of a worker of a job with servers.

    Args:
        session: with the coordinator.
        peers: the connections to servers.

    Attributes:
        receiving: by server whose frame under way is wanted: the image in which its payload lies; None: it travels to
            the inbox; a list: it is rows, which travel here.
        norm: the factor on the gradients of the open exchange, where their norm decides one.
    """

    def __init__(self, session: Session, peers: ServerConnections):
        super().__init__(session)
        self.peers = peers
        self.inbox = ParameterInbox(Model())
        self.snapshots = StateSnapshots()
        self.norm = NormDecision()
        self.receiving: dict[NodeId, Image | list[Raw] | None] = {}

    def values_of(self, version: int) -> dict[NodeId, str]:
        """Return the servers from which values of a version have not come. Call under the lock."""
        owners = {self.configuration.primary(block) for block in members(self.inbox.missing(version))}
        return dict.fromkeys(sorted(owners), f"the values of version {version}")

    def snapshots_of(self, wanted: Set[int]) -> dict[NodeId, str]:
        """Return the servers whose SNAPSHOTs of some blocks have not come. Call under the lock."""
        owners = {self.configuration.primary(block) for block in self.snapshots.lacking(wanted)}
        return dict.fromkeys(sorted(owners), "its optimizer's states")

    def check_values(self) -> None:
        """Return if the values that the script has just read were whole.

        Raises:
            JobEnded: servers have written over them, as the job has gone on without this worker, which is told so.
        """
        with self.changed:
            overwritten = self.inbox.is_overwritten()
        if overwritten:
            log.warning("the servers have gone on without this worker: it waits to hear why")
            self.wait(lambda: False)

    @property
    def version(self) -> int:
        """The version of the installed parameters."""
        return self.inbox.version or 0

    def tell_factor(self) -> None:
        """Tell all servers the factor on the gradients of the open exchange once it can be decided. Call under the
        lock.
        """
        version = self.version
        factor = self.norm.next_factor(version, lambda: self.inbox.missing(version + 1))
        if factor is not None and self.is_chief:
            for server in self.configuration.servers:
                self.peers.send(server.id, self.frame(FactorMeta(factor=factor), version))

    def install_next(self) -> bool:
        """Install the next version if it is complete. Call under the lock."""
        return self.install(self.inbox.next_version())

    def install(self, version: int | None) -> bool:
        """Install a version that is here; return False where it is None. Call under the lock."""
        if version is None:
            return False
        self.inbox.install(version)
        return True

    def extend(self, tensors: Sequence[pb.Tensor], assignment: Sequence[int], followers: Sequence[int] = ()) -> None:
        """Take over a model and an assignment that may have grown. Call under the lock.

        Args:
            tensors: all of the job's.
            assignment: of all blocks.
            followers: of all blocks; none: none has one, or only an Extend tells.
        """
        if followers and len(assignment) == len(self.configuration.assignment):
            self.standing = replace(self.standing, current=self.configuration.extended(assignment, followers))
        if len(tensors) <= len(self.inbox.model.tensors):
            return
        self.inbox.grow(self.inbox.model.extended([codec.tensor_from_pb(tensor) for tensor in tensors]))
        self.standing = replace(self.standing, current=self.configuration.extended(assignment, followers))

    def frame(self, meta: Meta, version: int = 0, samples: int = 0) -> Frame:
        """Return a frame of the configuration in force.

        Args:
            meta: what the frame says.
            version: the version of the blocks that it is about.
            samples: how many samples are behind a push.
        """
        return Frame(meta, self.standing.config_id, version, samples)
