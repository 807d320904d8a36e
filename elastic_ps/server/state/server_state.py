"""A `ServerState` is what the parts of a server share: blocks, standing, open updates, under one lock."""

import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from weakref import WeakSet

import numpy as np
from numpy.typing import NDArray

from elastic_ps.core.configuration import NodeId
from elastic_ps.core.data_order import DataSpec
from elastic_ps.core.model import Model, Run, runs
from elastic_ps.core.module_file import ModuleFile
from elastic_ps.core.optimizer import Hyper
from elastic_ps.core.segments import joined
from elastic_ps.core.sparse_rows import Rows
from elastic_ps.node.standing import Standing
from elastic_ps.optimizers.gradient_sum import GradientSum
from elastic_ps.server.blocks.applied_batches import BatchId
from elastic_ps.server.blocks.block_store import ServerBlockStore
from elastic_ps.server.blocks.checkpoint_snapshot import CheckpointSnapshot
from elastic_ps.server.blocks.memory_release import UnusedMemory
from elastic_ps.server.copying.follow_source import FollowSource
from elastic_ps.server.copying.shadows import Subscription
from elastic_ps.server.interfaces import Control, Outbox
from elastic_ps.server.phases import BlockStatus, having
from elastic_ps.server.state.acknowledged import NOTHING, AcknowledgedVersions
from elastic_ps.server.state.followed_ledger import FollowedLedger
from elastic_ps.server.state.gathering import Gathering, Share
from elastic_ps.server.state.held_frames import HeldFrames
from elastic_ps.server.state.unreported_entries import ServerLedger
from elastic_ps.server.state.unsent_updates import UnsentUpdates
from elastic_ps.transport.frame_kinds import Reason
from elastic_ps.transport.frame_metas import Meta, RefusedMeta
from elastic_ps.transport.frames import Frame
from elastic_ps.transport.meta_parts import Written
from elastic_ps.transport.shared_memory import Image

_REPORT_AT = 500  # ledger entries that are not left to the next turn of the reporter


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
    held: HeldFrames = field(default_factory=HeldFrames)
    gradients: WeakSet[Image] = field(default_factory=WeakSet)  # of the workers' connections
    used_elsewhere: dict[int, int] = field(default_factory=dict)  # by block, since which version: see `release_in_step`
    unused: UnusedMemory = field(default_factory=UnusedMemory)
    acknowledged: AcknowledgedVersions = field(default_factory=AcknowledgedVersions)
    followed_ledger: FollowedLedger = field(default_factory=FollowedLedger)
    unsent: UnsentUpdates | None = None
    tell: Callable[[], None] = lambda: None  # tells workers what followers have acknowledged
    changed: threading.Condition = field(default_factory=lambda: threading.Condition(threading.RLock()))

    def followed(self) -> list[NDArray[np.bool_]]:
        """Return by source and block whether its updates are sent on, which must be alike over a segment."""
        return [source.followed for source in self.sources.values()]

    @staticmethod
    def create(
        node: NodeId, block_bytes: int, modules: Mapping[str, ModuleFile], control: Control, outbox: Outbox
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
        """The highest of this server's blocks that may be told."""
        return int(self.told_versions().max(initial=0))

    def told_versions(self) -> NDArray[np.int64]:
        """Return the versions of this server's blocks, as far as their followers have them."""
        owned = self.owned()
        versions: NDArray[np.int64] = self.store.versions[owned]
        return np.minimum(versions, self.acknowledged.told[owned]) if self.acknowledged.guards else versions

    def may_tell(self) -> NDArray[np.bool_] | bool:
        """Return by block whether what it has come to may be told: its follower has it."""
        return self.may_tell_of((0, len(self.store.versions)))

    def may_tell_of(self, run: Run) -> NDArray[np.bool_] | bool:
        """Return the same of the blocks of a run."""
        window = slice(run[0], sum(run))
        return self.acknowledged.told[window] >= self.store.versions[window] if self.acknowledged.guards else True

    def is_named(self, block: int) -> bool:
        """Return whether this server owns or follows a block by the configuration in force."""
        current = self.standing.current
        if current is None or block >= len(current.assignment):
            return False
        return self.node in (current.primary(block), current.follower(block))

    def is_awaiting_blocks(self) -> bool:
        """Return whether the configuration in force gives this server blocks that have not been handed over to it."""
        current = self.standing.current
        copies = self.store.held(BlockStatus.FOLLOWER).tolist()
        return current is not None and any(current.primary(block) == self.node for block in copies)

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

    def forget_strangers(self) -> None:
        """Drop the subscriptions of joiners that have gone, and that no plan takes: they died, or were sent away."""
        for node in list(self.subscriptions):
            if not self.standing.knows(node) and not self.outbox.is_connected(node):
                del self.subscriptions[node]

    def retry(self) -> None:
        """Judge everything again that was held."""
        self.held.retry(self.standing.dead, lambda node, why: self.refuse(node, Reason.MALFORMED, why))
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

        Nobody reads them any more: a plan is committed when all workers are past its clock, so when every push of that
        version has been applied. In async and ssp there is none to tell it: what workers have pushed stays.
        """
        gone = [block for block in blocks if block not in self.used_elsewhere]
        self.store.release(gone, self.unused)
        self.store.release([block for block in blocks if block in self.used_elsewhere], self.unused, keeps_values=True)
        self._give_back(gone)
        self.changed.notify_all()

    def release_in_step(self, blocks: Sequence[int]) -> None:
        """Forget blocks in the middle of a step, which workers may make again from the values that they read here.

        They have put gradients here, too, that they push to the new owner. So the memory of both stays as it is until
        `give_back_past`, also where the block comes back. In async and ssp workers have copies.
        """
        self.store.release(blocks, self.unused, keeps_values=self.data.is_sync)
        if self.data.is_sync:
            self.used_elsewhere.update(dict.fromkeys(blocks, int(self.store.versions.max(initial=NOTHING))))
        self.changed.notify_all()

    def give_back_past(self) -> None:
        """Give back the memory of blocks that were released in a step which is over, but of those that came back.

        Two versions later it is over: an update of a block of this server's has all workers' pushes of the version
        before, which they make when they have all blocks at it. A death's plan may be committed earlier.
        """
        if not self.used_elsewhere:
            return
        current, reached = self.standing.current, int(self.store.versions[self.owned()].max(initial=NOTHING))
        over = sorted(block for block, version in self.used_elsewhere.items() if reached >= version + 2)
        if not over:
            return
        self.store.values.begin(max(self.used_elsewhere.pop(block) for block in over) + 2)
        for run in runs([block for block in over if self.store.status[block] == BlockStatus.ABSENT]):
            self.store.values.release(self.store.model.span(run), self.unused)
        self._give_back([block for block in over if current is None or current.primary(block) != self.node])
        self.changed.notify_all()

    def _give_back(self, blocks: Sequence[int]) -> None:
        """Give back the memory in which workers have put gradients of blocks."""
        for run in runs(blocks) if self.data.is_sync else ():
            span = self.store.model.span(run)
            for image in self.gradients:
                self.unused.add(image, span.start, span.stop)

    def allocate(self, blocks: Sequence[int], status: BlockStatus) -> None:
        """Hold blocks from now on (see `ServerBlockStore.allocate`)."""
        if blocks:
            self.unused.give_back()
        self.store.allocate(blocks, status)
        if status is BlockStatus.FOLLOWER:
            self.store.versions[np.asarray(blocks, dtype=np.int64)] = NOTHING  # until a whole copy has come

    # ---- updates -----------------------------------------------------------------------------------------------------

    def apply_update(
        self,
        segment: Run,
        aggregate: GradientSum | Rows | None,
        hyper: Hyper | None,
        batch: BatchId | None = None,
        shares: Sequence[tuple[NodeId, Share]] = (),
    ) -> None:
        """Take a segment to its next version, here; `send_records` takes it there at the servers that have copies.

        Args:
            segment: alike in `followed`.
            aggregate: see `ServerBlockStore.update_segment`, and so are the others.
            hyper: the optimizer's values.
            batch: the batch that the segment takes, in an async or ssp job.
            shares: of the workers, in rank order.
        """
        if self.snapshot is not None:
            self.snapshot.before_update(segment)
        if not self.sources and not self.acknowledged.guards:
            self.store.update_segment(segment, aggregate, hyper, batch)
            return
        kind = type(aggregate) if aggregate is not None else None
        coming = UnsentUpdates(int(self.store.versions[segment[0]]), hyper, batch, kind)
        if self.unsent is not None and not self.unsent.takes(coming):
            self.send_records(shares)
        applied: list[Callable[[], None]] = []
        for source in self.sources.values():
            if source.followed[segment[0]] and not source.link.closed:  # one that is opened again begins anew
                aggregate, done = source.record(segment, aggregate)
                applied.append(done)
        self.store.update_segment(segment, aggregate, hyper, batch)
        for done in applied:
            done()
        self.unsent = self.unsent or coming
        self.unsent.add(segment, self.store.span([segment]), kind)

    def send_records(self, shares: Sequence[tuple[NodeId, Share]]) -> None:
        """Send the updates that have been applied since the last to those who have copies; call before anything else.

        Args:
            shares: of the workers, in rank order.
        """
        unsent, self.unsent = self.unsent, None
        if unsent is None:
            return
        written = self._withhold(unsent, shares) if self.acknowledged.guards and unsent.runs else None
        for source in self.sources.values():
            source.ledger_kept = self.ledger.first
            source.send_record(unsent.hyper, unsent.batch, written)

    def _withhold(self, unsent: UnsentUpdates, shares: Sequence[tuple[NodeId, Share]]) -> Written:
        """Write updates down, which the coordinator is not told before followers have them."""
        sequence = self.ledger.append(self.standing.config_id, unsent.version, joined(unsent.runs), shares)
        self.ledger.withhold(sequence, unsent.version, unsent.runs, len(self.store.status))
        slices = [(worker, share.slice) for worker, share in shares if share.slice is not None]
        place = slices[-1][1][:3] if slices else (0, 0, 0)
        used = tuple((worker, part.low, part.high) for worker, part in slices if part.high > part.low)
        return Written(sequence, *place, used)

    def write_down(self, version: int, updated: Sequence[Run], shares: Sequence[tuple[NodeId, Share]]) -> None:
        """Tell the ledger that blocks went from `version` to the next.

        Args:
            version: the version that they had.
            updated: runs of the blocks.
            shares: the workers' shares, in rank order.
        """
        if self.acknowledged.guards:  # `send_records` has told it
            self.write_told()
        else:
            self.ledger.append(self.standing.config_id, version, joined(updated), shares)
        if self.ledger.waiting > _REPORT_AT:
            self.control.report_soon()

    def write_told(self) -> None:
        """Let the ledger report those updates that their followers have."""
        if self.ledger.tell(self.acknowledged.told) and self.ledger.is_awaited:
            self.control.report_soon()

    def adopt_entries(self) -> None:
        """Tell what the dead had written down of updates of blocks that are this server's now."""
        current = self.standing.current
        if current is None or not self.standing.dead:
            return
        mine = np.zeros(len(self.store.status), dtype=bool)
        mine[list(current.blocks_of.get(self.node, ()))] = True
        if self._adopt(self.standing.dead, mine):  # nobody else has them any more
            self.control.report_soon()

    def adopt_followed_entries(self) -> None:
        """Tell, as the job ends, what others had written down of what is here: one may be dead unnoticed.

        A block that was followed may be owned by now.
        """
        self._adopt(self.followed_ledger.owners, ~having(self.store.status, BlockStatus.ABSENT))

    def _adopt(self, owners: Collection[NodeId], counts: NDArray[np.bool_]) -> bool:
        adopted = self.followed_ledger.take(owners, counts, self.store.versions)
        for entry in adopted:
            self.ledger.adopt(entry)
        return bool(adopted)

    def stepped(self, version: int, each: int = 1) -> None:
        """Tell who sends or saves blocks that they have reached `version`, of which a step takes `each`."""
        for source in self.sources.values():
            source.stepped(version, each)
        self.give_back_past()
        self.wake_copying()

    def wake_copying(self) -> None:
        """Wake whoever copies blocks where something is left to copy: there may be room for it now, or it is time."""
        copying = self.snapshot is not None or bool(self.subscriptions)
        if copying or any(source.is_copying for source in self.sources.values()):
            self.changed.notify_all()
