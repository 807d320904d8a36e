"""What the parts of a server share: its blocks, its standing, its open updates, under one lock."""

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol
from weakref import WeakSet

import numpy as np
from numpy.typing import NDArray

from elastic_ps.core.configuration import NO_CONFIGURATION, ConfigId, NodeId
from elastic_ps.core.data_order import DataSpec
from elastic_ps.core.errors import ProtocolError
from elastic_ps.core.model import Model, Run, runs
from elastic_ps.core.optimizer import Hyper
from elastic_ps.core.segments import joined
from elastic_ps.core.sparse_rows import Rows
from elastic_ps.node.standing import Standing
from elastic_ps.node.waits import Awaited
from elastic_ps.server.blocks.block_store import Store
from elastic_ps.server.blocks.memory_release import Unused
from elastic_ps.server.ledger import Ledger
from elastic_ps.server.phases import Given, Status
from elastic_ps.server.updates.aggregate import Gathering, Share
from elastic_ps.server.updates.applied import Batch
from elastic_ps.server.updates.contributions import Aggregate
from elastic_ps.transport.base import Buffer
from elastic_ps.transport.frame_kinds import Reason
from elastic_ps.transport.frame_metas import Meta, RefusedMeta
from elastic_ps.transport.frames import Frame
from elastic_ps.transport.shared_image import Image
from protos import elastic_pb2 as pb

if TYPE_CHECKING:
    from elastic_ps.server.checkpoints.files import Snapshot
    from elastic_ps.server.migration.follow_source import Source
    from elastic_ps.server.migration.shadows import Subscription


_REPORT_AT = 500  # ledger entries that are not left to the next turn of the reporter


class Control(Protocol):
    """The part of `Session` that a server answers through."""

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
    ) -> None:
        """Queue an answer to a directive."""

    def report_soon(self) -> None:
        """Report now instead of at the next turn."""


class Outbox(Protocol):
    """The connections that peers have opened to this server."""

    def send(self, node: NodeId, frame: Frame, payload: Sequence[Buffer] = ()) -> None:
        """Queue a frame for a worker; dropped where it is not connected: it asks again when it is."""

    def notice(self, frame: Frame) -> None:
        """Queue a frame on every connection, the follow streams included."""

    def backlog(self, node: NodeId) -> int:
        """Payload bytes that wait for a worker; 0 where it is not connected."""

    def is_connected(self, node: NodeId) -> bool:
        """Whether a worker is connected now."""

    def shares(self, node: NodeId) -> bool:
        """Whether a worker reads values where they are."""

    def disconnect(self, nodes: frozenset[NodeId]) -> None:
        """Close all connections to dead nodes."""


@dataclass
class Held:
    """A frame that waits for a configuration, a hand-over or first values.

    Attributes:
        again: judges it once more, under the lock.
        node: who sent it.
        key: (node, kind, first run): the same frame sent again replaces it.
    """

    again: Callable[[], None]
    node: NodeId
    key: object


@dataclass
class Room:
    """See the module. Everything is guarded by `changed`, which is notified when anything changes."""

    standing: Standing
    store: Store
    control: Control
    outbox: Outbox
    ledger: Ledger
    data: DataSpec = field(default_factory=DataSpec)
    gathering: Gathering = field(default_factory=lambda: Gathering(0, ()))
    sources: "dict[NodeId, Source]" = field(default_factory=dict)
    subscriptions: "dict[NodeId, Subscription]" = field(default_factory=dict)
    snapshot: "Snapshot | None" = None
    held: list[Held] = field(default_factory=list)
    gradients: WeakSet[Image] = field(default_factory=WeakSet)  # of the workers' connections
    unused: Unused = field(default_factory=Unused)
    changed: threading.Condition = field(default_factory=lambda: threading.Condition(threading.RLock()))

    def followed(self) -> list[NDArray[np.bool_]]:
        """What a segment has to be alike in beside what its update needs: whether each source sends it on."""
        return [source.followed for source in self.sources.values()]

    @staticmethod
    def create(node: NodeId, block_bytes: int, modules: tuple[str, ...], control: Control, outbox: Outbox) -> "Room":
        """An empty one."""
        return Room(Standing(node), Store(Model(block_bytes=block_bytes), modules), control, outbox, Ledger(node))

    @property
    def node(self) -> NodeId:
        """This server."""
        return self.standing.node

    def frame(self, meta: Meta, version: int = 0) -> Frame:
        """A frame of the configuration in force."""
        return Frame(meta, self.standing.number, version)

    def owned(self) -> NDArray[np.int64]:
        """Blocks whose primary this server is, with their values here."""
        return self.store.held(Status.PRIMARY)

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
        """Dead nodes contribute no more, and nobody sends them anything."""
        self.outbox.disconnect(dead)
        for rank, worker in enumerate(self.gathering.workers):
            if worker in dead:
                self.gathering.drop_worker(rank)
        for node in dead:
            self.subscriptions.pop(node, None)

    def awaited(self) -> list[Awaited]:
        """Workers whose pushes lack in updates that others have begun; nothing in an async or ssp job."""
        given = self.gathering.given
        begun = (given != Given.NOTHING).any(axis=0)
        if not begun.any():
            return []
        what = f"its push of version {self.store.versions[begun].min()}"
        lacking = np.flatnonzero((given[:, begun] == Given.NOTHING).any(axis=1)).tolist()
        workers = [self.gathering.workers[rank] for rank in lacking]
        return [Awaited(worker, what) for worker in workers if worker not in self.standing.dead]

    def hold(self, held: Held) -> None:
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
        """Tell a worker that its frame is not served, and which configuration is in force."""
        meta = RefusedMeta(reason=reason, detail=detail, configuration=self.standing.number)
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

    def allocate(self, blocks: Sequence[int], status: Status) -> None:
        """Hold blocks from now on (see `Store.allocate`)."""
        self.unused.give_back()
        self.store.allocate(blocks, status)

    # ---- updates -----------------------------------------------------------------------------------------------------

    def update(
        self, segment: Run, aggregate: Aggregate | Rows | None, hyper: Hyper | None, batch: Batch | None = None
    ) -> None:
        """Take a segment, alike in `followed`, to its next version, here and at who follows it (see `Store.update`)."""
        if self.snapshot is not None:
            self.snapshot.before_update(segment)
        # a block has one new owner at most
        source = next((source for source in self.sources.values() if source.followed[segment[0]]), None)
        if source is None:
            self.store.update(segment, aggregate, hyper, batch)
            return
        aggregate, send = source.record(segment, aggregate, hyper, batch)
        self.store.update(segment, aggregate, hyper, batch)
        send()

    def write_down(self, version: int, updated: Sequence[Run], shares: Sequence[tuple[NodeId, Share]]) -> None:
        """Tell the ledger that `updated` went from `version` to the next."""
        self.ledger.append(self.standing.number, version, joined(updated), shares)
        if self.ledger.waiting > _REPORT_AT:
            self.control.report_soon()

    def stepped(self, version: int, each: int = 1) -> None:
        """Blocks have reached `version`, of which a step takes `each`: tell who sends or saves them."""
        for source in self.sources.values():
            source.stepped(version, each)
        if self.snapshot is not None or self.sources:
            self.changed.notify_all()
