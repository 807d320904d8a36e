"""A `ServerState` is what the parts of a server share: blocks, standing, open updates, under one lock."""

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from weakref import WeakSet

import numpy as np
from numpy.typing import NDArray

from elastic_ps.core.configuration import NodeId
from elastic_ps.core.data_order import DataSpec
from elastic_ps.core.errors import ProtocolError
from elastic_ps.core.model import Model, Run, runs
from elastic_ps.core.optimizer import Hyper
from elastic_ps.core.segments import joined
from elastic_ps.core.sparse_rows import Rows
from elastic_ps.node.peer_watch import Awaited
from elastic_ps.node.standing import Standing
from elastic_ps.optimizers.gradient_sum import GradientSum
from elastic_ps.server.blocks.applied_batches import BatchId
from elastic_ps.server.blocks.block_store import ServerBlockStore
from elastic_ps.server.blocks.checkpoint_snapshot import CheckpointSnapshot
from elastic_ps.server.blocks.memory_release import UnusedMemory
from elastic_ps.server.copying.follow_source import FollowSource
from elastic_ps.server.copying.shadows import Subscription
from elastic_ps.server.interfaces import Control, Outbox
from elastic_ps.server.phases import BlockStatus, Given
from elastic_ps.server.state.gathering import Gathering, Share
from elastic_ps.server.state.ledger import ServerLedger
from elastic_ps.transport.frame_kinds import Reason
from elastic_ps.transport.frame_metas import Meta, RefusedMeta
from elastic_ps.transport.frames import Frame
from elastic_ps.transport.shared_memory import Image

_REPORT_AT = 500  # ledger entries that are not left to the next turn of the reporter


@dataclass
class HeldFrame:
    """A `HeldFrame` waits for a configuration, a hand-over or first values.

    Attributes:
        again: judges it once more, under the lock.
        node: the worker who sent it.
        key: (node, kind, first run): the same frame sent again replaces it.
    """

    again: Callable[[], None]
    node: NodeId
    key: object


@dataclass
class ServerState:
    """A `ServerState` is shared by all parts of a server.

    Everything is guarded by `changed`, which is notified when anything changes.
    """

    standing: Standing
    store: ServerBlockStore
    control: Control
    outbox: Outbox
    ledger: ServerLedger
    data: DataSpec = field(default_factory=DataSpec)
    gathering: Gathering = field(default_factory=lambda: Gathering(0, ()))
    sources: dict[NodeId, FollowSource] = field(default_factory=dict)
    subscriptions: dict[NodeId, Subscription] = field(default_factory=dict)
    snapshot: CheckpointSnapshot | None = None
    held: list[HeldFrame] = field(default_factory=list)
    gradients: WeakSet[Image] = field(default_factory=WeakSet)  # of the workers' connections
    unused: UnusedMemory = field(default_factory=UnusedMemory)
    changed: threading.Condition = field(default_factory=lambda: threading.Condition(threading.RLock()))

    def followed(self) -> list[NDArray[np.bool_]]:
        """Return by source and block whether its updates are sent on, which must be alike over a segment."""
        return [source.followed for source in self.sources.values()]

    @staticmethod
    def create(
        node: NodeId, block_bytes: int, modules: tuple[str, ...], control: Control, outbox: Outbox
    ) -> "ServerState":
        """Return the state of a server that holds nothing yet.

        Args:
            node: the server.
            block_bytes: the job's, largest size of a block.
            modules: the modules that users' optimizers may come from.
            control: takes the answers to directives.
            outbox: sends on the connections that peers open.
        """
        return ServerState(
            Standing(node),
            ServerBlockStore(Model(block_bytes=block_bytes), modules),
            control,
            outbox,
            ServerLedger(node),
        )

    @property
    def node(self) -> NodeId:
        """This server."""
        return self.standing.node

    def frame(self, meta: Meta, version: int = 0) -> Frame:
        """Return a frame of the configuration in force."""
        return Frame(meta, self.standing.config_id, version)

    def owned(self) -> NDArray[np.int64]:
        """Return the blocks whose primary this server is, with their values here."""
        return self.store.held(BlockStatus.PRIMARY)

    @property
    def version(self) -> int:
        """The highest of this server's blocks."""
        versions = self.store.versions[self.owned()]
        return int(versions.max()) if len(versions) else 0

    def new_gathering(self) -> None:
        """Begin the open updates anew, for the roster in force."""
        current = self.standing.current
        workers = [worker.id for worker in current.workers] if current else []
        self.gathering = Gathering(len(self.store.status), workers)

    def forget(self, dead: frozenset[NodeId]) -> None:
        """Drop dead nodes: they contribute no more, and nobody sends them anything."""
        self.outbox.disconnect(dead)
        for rank, worker in enumerate(self.gathering.workers):
            if worker in dead:
                self.gathering.drop_worker(rank)
        for node in dead:
            self.subscriptions.pop(node, None)

    def awaited(self) -> list[Awaited]:
        """Return the workers whose pushes lack in updates that others have begun; none in an async or ssp job."""
        given = self.gathering.given
        begun = (given != Given.NOTHING).any(axis=0)
        if not begun.any():
            return []
        what = f"its push of version {self.store.versions[begun].min()}"
        lacking = np.flatnonzero((given[:, begun] == Given.NOTHING).any(axis=1)).tolist()
        workers = [self.gathering.workers[rank] for rank in lacking]
        return [Awaited(worker, what) for worker in workers if worker not in self.standing.dead]

    def hold(self, held: HeldFrame) -> None:
        """Keep a frame until something changes."""
        self.held = [other for other in self.held if other.key != held.key] + [held]

    def retry(self) -> None:
        """Judge everything again that was held."""
        waiting, self.held = self.held, []
        for held in waiting:
            if held.node in self.standing.dead:
                continue
            try:
                held.again()
            except ProtocolError as error:  # the sender's fault, not that of the thread that happens to be here
                self.refuse(held.node, Reason.MALFORMED, str(error))
        self.changed.notify_all()

    def refuse(self, node: NodeId, reason: Reason, detail: str) -> None:
        """Tell a worker that its frame is not served, and which configuration is in force.

        Args:
            node: the worker.
            reason: for programs.
            detail: for people.
        """
        meta = RefusedMeta(reason=reason, detail=detail, configuration=self.standing.config_id)
        self.outbox.send(node, self.frame(meta))

    def release(self, blocks: Sequence[int]) -> None:
        """Forget blocks; their memory goes back to the system bit by bit.

        Nobody waits for them any more: a plan is committed when a worker is past its clock, so when every push of that
        version has been applied. In async and ssp there is none to tell it: what workers have pushed stays.
        """
        self.store.release(blocks, self.unused)
        for run in runs(blocks) if self.data.is_sync else ():
            span = self.store.model.span(run)
            for image in self.gradients:
                self.unused.add(image, span.start, span.stop)
        self.changed.notify_all()

    def allocate(self, blocks: Sequence[int], status: BlockStatus) -> None:
        """Hold blocks from now on (see `ServerBlockStore.allocate`)."""
        self.unused.give_back()
        self.store.allocate(blocks, status)

    # ---- updates -----------------------------------------------------------------------------------------------------

    def apply_update(
        self, segment: Run, aggregate: GradientSum | Rows | None, hyper: Hyper | None, batch: BatchId | None = None
    ) -> None:
        """Take a segment to its next version, here and at the server that follows it.

        Args:
            segment: alike in `followed`.
            aggregate: see `ServerBlockStore.update_segment`, and so are the others.
            hyper: the optimizer's values.
            batch: the batch that the segment takes, in an async or ssp job.
        """
        if self.snapshot is not None:
            self.snapshot.before_update(segment)
        # a block has one new owner at most
        source = next((source for source in self.sources.values() if source.followed[segment[0]]), None)
        if source is None:
            self.store.update_segment(segment, aggregate, hyper, batch)
            return
        aggregate, send = source.record(segment, aggregate, hyper, batch)
        self.store.update_segment(segment, aggregate, hyper, batch)
        send()

    def write_down(self, version: int, updated: Sequence[Run], shares: Sequence[tuple[NodeId, Share]]) -> None:
        """Tell the ledger that blocks went from `version` to the next.

        Args:
            version: the version that they had.
            updated: runs of the blocks.
            shares: the workers' shares, in rank order.
        """
        self.ledger.append(self.standing.config_id, version, joined(updated), shares)
        if self.ledger.waiting > _REPORT_AT:
            self.control.report_soon()

    def stepped(self, version: int, each: int = 1) -> None:
        """Tell who sends or saves blocks that they have reached `version`, of which a step takes `each`."""
        for source in self.sources.values():
            source.stepped(version, each)
        if self.snapshot is not None or self.sources:
            self.changed.notify_all()
