"""A `WorkerState` is what the parts of a worker share: its place in the job and its parameters, under one lock."""

import logging
import threading
from collections.abc import Callable, Sequence, Set
from dataclasses import replace
from typing import Any, TypeVar

from elastic_ps.control import codec
from elastic_ps.core.configuration import Configuration, NodeId
from elastic_ps.core.data_order import DataSpec
from elastic_ps.core.errors import ElasticError, JobEnded, Refused
from elastic_ps.core.model import Model, members
from elastic_ps.core.segments import Raw
from elastic_ps.node.session import Session
from elastic_ps.node.standing import Standing
from elastic_ps.transport.frame_metas import FactorMeta, Meta
from elastic_ps.transport.frames import Frame
from elastic_ps.transport.shared_memory import Image
from elastic_ps.worker.wire.norm_decision import NormDecision
from elastic_ps.worker.wire.parameter_inbox import ParameterInbox
from elastic_ps.worker.wire.server_connections import ServerConnections
from elastic_ps.worker.wire.state_snapshots import StateSnapshots
from protos import elastic_pb2 as pb

log = logging.getLogger(__name__)

Reply = TypeVar("Reply")

Lacking = Callable[[], dict[NodeId, str]]
"""Tells what the script's thread lacks, by server, for people."""


class WorkerState:
    """A `WorkerState` is shared by all parts of a worker.

    Everything is guarded by `changed`, which is notified when anything changes.

    Args:
        session: with the coordinator.
        peers: the connections to servers.

    Attributes:
        generation: grows with every switch and every connection: what waits for an answer must ask again.
        receiving: by server whose frame under way is wanted: the image in which its payload lies; None: it travels to
            the inbox; a list: it is rows, which travel here.
        data: what the job trains on; None until the coordinator has said it.
        norm: the factor on the gradients of the open exchange, where their norm decides one.
        founders: workers of the job when this one came.
        lacking: what the script's thread waits for now.
        inherited: the job had parameters when this worker came: it has gone on, or was restored.
    """

    def __init__(self, session: Session, peers: ServerConnections):
        self.session = session
        self.peers = peers
        self.changed = threading.Condition()
        self.standing = Standing(session.node)
        self.inbox = ParameterInbox(Model())
        self.snapshots = StateSnapshots()
        self.norm = NormDecision()
        self.generation = 0
        self.receiving: dict[NodeId, Image | list[Raw] | None] = {}
        self.data: DataSpec | None = None
        self.founders = 0
        self.inherited = False
        self.lacking: Lacking = dict
        self._ended: ElasticError | None = None

    def wait(self, ready: Callable[[], Any], lacking: Lacking = dict) -> None:
        """Wait until `ready()`, which is called under the lock; so is `lacking`, which tells what is lacking from whom.

        Raises:
            JobEnded: the job stopped, failed or restarts, or this worker has left it.
        """
        with self.changed:
            self.lacking = lacking
            try:
                self.changed.wait_for(lambda: self._ended is not None or ready())
            finally:
                self.lacking = dict
            self.check()

    def values_of(self, version: int) -> dict[NodeId, str]:
        """Return the servers from which values of a version have not come. Call under the lock."""
        owners = {self.configuration.primary(block) for block in members(self.inbox.missing(version))}
        return dict.fromkeys(sorted(owners), f"the values of version {version}")

    def snapshots_of(self, wanted: Set[int]) -> dict[NodeId, str]:
        """Return the servers whose SNAPSHOTs of some blocks have not come. Call under the lock."""
        owners = {self.configuration.primary(block) for block in self.snapshots.lacking(wanted)}
        return dict.fromkeys(sorted(owners), "its optimizer's states")

    def ask_coordinator(self, request: Callable[[], Reply]) -> Reply:
        """Wait for what the coordinator answers to `request`; where that is no more than its end, see `wait`."""
        try:
            return request()
        except Refused:
            self.wait(lambda: False)  # until the Stop that ends this process has come
            raise
        except JobEnded:
            with self.changed:
                self.check()  # what ended it says more
            raise

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

    def check(self) -> None:
        """Raise what ended this worker's part in the job. Call under the lock."""
        if self._ended is not None:
            raise self._ended

    @property
    def ended(self) -> ElasticError | None:
        """Return what ended this worker's part in the job."""
        return self._ended

    def end(self, reason: ElasticError) -> None:
        """End this worker's part in the job; the first reason counts."""
        with self.changed:
            if self._ended is None:
                self._ended = reason
            self.changed.notify_all()
        self.session.abandon()

    @property
    def is_member(self) -> bool:
        """Return whether this worker is in the roster in force."""
        return self.standing.is_member

    @property
    def is_shadow(self) -> bool:
        """Return whether this worker joins the running job by a plan that is under way."""
        return not self.is_member and self.standing.prepared is not None and self.standing.current is not None

    @property
    def is_chief(self) -> bool:
        """Return whether this worker evaluates schedules, saves and prints."""
        return self.is_member and self.configuration.chief == self.session.node

    @property
    def is_sync(self) -> bool:
        """Return whether all workers share each step, as far as is known."""
        return self.data is None or self.data.is_sync

    @property
    def configuration(self) -> Configuration:
        """The configuration in force."""
        assert self.standing.current is not None
        return self.standing.current

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
        version = self.inbox.next_version()
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
