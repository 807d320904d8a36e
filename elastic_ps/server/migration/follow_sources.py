"""`FollowSources` keeps the streams from this server to those that hold copies of its blocks.

There is one stream to each: of the blocks that the configuration in force lets it follow, of those that a plan makes
copies of, and of those that are to be handed over to it. The rules are in docs/reference/protocol.md, "Followers".
"""

from collections.abc import Callable, Mapping
from functools import partial

import numpy as np
from numpy.typing import NDArray

from elastic_ps.core.configuration import ConfigId, Configuration, Member, NodeId
from elastic_ps.core.model import Run, members
from elastic_ps.core.segments import grown, runs_of
from elastic_ps.server.copying.follow_source import FollowSource, Frozen
from elastic_ps.server.copying.streamed_blocks import Mask
from elastic_ps.server.phases import BlockStatus, Moves
from elastic_ps.server.state.server_state import ServerState
from elastic_ps.transport.send_queue import Link
from protos import elastic_pb2 as pb


class FollowSources:
    """`FollowSources` knows what is streamed to whom. Called under the state's lock.

    Args:
        state: the server's.
        handed_over: called when the transport has taken the hand-over of all blocks that go to a server.
        opened: called when a connection is open.
    """

    def __init__(self, state: ServerState, handed_over: Callable[[], None], opened: Callable[[], None]):
        self._state = state
        self._handed_over = handed_over
        self._opened = opened
        self._wanted: dict[NodeId, Mask] = {}  # by server: what the configuration in force wants there
        self._needed: set[NodeId] = set()  # by the plan: servers to whom a stream has to be open
        self._planned: dict[NodeId, Mask] = {}
        self._plan: Configuration | None = None
        self._named: list[NodeId | None] = []  # by block: its follower by the configuration in force
        self._guarding: dict[NodeId, Mask] = {}  # by server: of which blocks the plan's copies have caught up there
        self._live = False
        self._leaving: dict[NodeId, Frozen] = {}  # by new owner: what waits for its next follower
        self._frozen: dict[NodeId, Frozen] = {}  # by new owner: what was handed over, until it is committed
        self._sending: set[NodeId] = set()  # new owners whose hand-over the transport has not taken yet

    # ---- connections -------------------------------------------------------------------------------------------------

    def unfed(self) -> Mapping[NodeId, tuple[Member, ConfigId]]:
        """Return the servers to whom a stream has to be open and is not."""
        standing, sources = self._state.standing, self._state.sources
        found: dict[NodeId, tuple[Member, ConfigId]] = {}
        for node in (self._wanted.keys() | self._needed) - standing.dead - {self._state.node}:
            if node in sources and not sources[node].link.closed:
                continue
            for known in (*((self._plan,) if self._plan else ()), *standing.known):
                if node in known.members:
                    found[node] = known.members[node], known.id
                    break
        return found

    def is_open(self) -> bool:
        """Return whether all streams are open that the plan needs, and those to whom something is handed over."""
        return not ((self._needed | self._leaving.keys() | self._frozen.keys()) & self.unfed().keys())

    def feed(self, target: NodeId, link: Link) -> bool:
        """Take a connection that is open: the stream begins, or begins again; False where nobody needs it any more.

        What had been sent on a connection that broke is sent once more. The follower drops what it holds already.
        """
        state = self._state
        if target not in self.unfed():
            return False
        if target in state.sources:
            state.sources[target] = state.sources[target].again(link)
        else:
            streams = len(self._wanted.keys() | self._needed)
            caught_up = partial(self._guard, target)
            source = state.sources[target] = FollowSource(state.store, link, streams, self._written, caught_up)
            self._want(target)
            if self._plan is not None:
                self._begin_plan(source, target, self._plan.id)
        if target in self._frozen:
            self._send_hand_over(target)
        state.changed.notify_all()
        self._opened()
        self._hand_over()
        return True

    # ---- what is streamed --------------------------------------------------------------------------------------------

    def begin_plan(self, moves: Moves, configuration: Configuration, live: bool) -> None:
        """Begin the streams of a plan that is prepared; none has to be open to the dead.

        Args:
            moves: what it moves.
            configuration: the plan's.
            live: False: nothing is sent before the switch (pause mode).
        """
        self.end_plan()
        self._state.acknowledged.grow(len(self._state.store.status))
        self._count_anew()
        self._plan, self._live = configuration, live
        self._planned = {node: self._mask(blocks) for node, blocks in moves.streams.items()}
        node, followers = self._state.node, configuration.followers
        if followers:  # they are told of each update from now on what is written down of it
            self._state.acknowledged.guards = True
        held = range(len(configuration.assignment)) if followers else ()
        next_ones = {configuration.follower(block) for block in held if configuration.primary(block) == node}
        self._needed = {*self._planned, *(each for each in next_ones if each is not None)}
        for target, planned in self._planned.items():
            standing = self._wanted.get(target)
            fresh = planned & ~standing if standing is not None else planned
            if followers:
                self._state.acknowledged.forget(target, np.flatnonzero(fresh))
            if target in self._state.sources:
                self._begin_plan(self._state.sources[target], target, configuration.id)
        self._state.changed.notify_all()

    def _begin_plan(self, source: FollowSource, target: NodeId, number: ConfigId) -> None:
        planned = self._planned.get(target)
        if planned is not None:
            source.begin_plan(self._grown(planned), number, self._live)

    def _written(self, first: int) -> list[tuple[int, pb.LedgerEntry]]:
        """Return the entries of this server's ledger from `first` on that the coordinator does not have."""
        state = self._state
        if not any(known is not None and known.followers for known in (state.standing.current, self._plan)):
            return []
        return [(sequence, entry) for sequence, entry in state.ledger.unkept(first) if entry.server == state.node]

    def end_plan(self) -> None:
        """End the streams that only a plan wanted: it is void, or in force."""
        self._plan, self._planned, self._needed = None, {}, set()
        for source in self._state.sources.values():
            source.end_plan()
        if self._guarding:
            self._guarding = {}
            self._require()
            self._state.write_told()
            self._state.tell()

    def _guard(self, target: NodeId) -> None:
        """Wait for a plan's copies, which have caught up, where a block has no follower yet.

        Should the owner die once the plan is armed, they go on, and lack nothing that anybody has been told.
        """
        if self._plan is not None and self._plan.followers:
            self._guarding[target] = self._planned[target]
            self._require()

    def _require(self) -> None:
        new = len(self._state.store.status) - len(self._named)
        followers = [*self._named, *[None] * new]
        for target, planned in self._guarding.items():
            source = self._state.sources.get(target)
            falls_behind = source is not None and source.fell_back
            alone = [block for block in np.flatnonzero(planned).tolist() if not (followers[block] or falls_behind)]
            for block in alone:
                followers[block] = target
            if source is not None:
                source.guards = bool(alone)
        self._state.acknowledged.require(followers)

    def close_unused(self) -> None:
        """Close the streams that nobody wants."""
        sources = self._state.sources
        for target in [each for each in sources if each not in self._wanted and each not in self._needed]:
            sources.pop(target).link.close()

    def conform(self) -> None:
        """Stream what the configuration in force wants, and wait for the followers that it names."""
        state = self._state
        current, node, store = state.standing.current, state.node, state.store
        if current is None:
            return
        state.acknowledged.grow(len(store.status))
        followers: list[NodeId | None] = [None] * len(store.status)
        for block in range(len(current.assignment)) if current.followers else ():
            mine = current.primary(block) == node or store.status[block] == BlockStatus.LEAVING
            if mine and (follower := current.follower(block)) != node:
                followers[block] = follower
        before = self._wanted
        self._wanted = {each: np.array([one == each for one in followers]) for each in set(followers) if each}
        for target, frozen in (*self._leaving.items(), *self._frozen.items()):
            self._add(target, frozen.held if target in self._leaving else frozen.held[:0])
        for target, wanted in self._wanted.items():
            for mask in (before.get(target), self._planned.get(target)):
                wanted = wanted & ~self._grown(mask) if mask is not None else wanted
            if current.followers:
                state.acknowledged.forget(target, np.flatnonzero(wanted))
        self._named = followers
        self._require()
        for target in state.sources:
            self._want(target)

    def _grown(self, mask: Mask) -> Mask:
        return grown(mask, len(self._state.store.status))

    def _add(self, target: NodeId, blocks: NDArray[np.int64]) -> None:
        self._wanted.setdefault(target, self._mask(()))[blocks] = True

    def _want(self, target: NodeId) -> None:
        wanted = self._wanted.get(target)
        self._state.sources[target].wants(self._mask(()) if wanted is None else wanted, self._state.standing.config_id)

    def _mask(self, blocks: object) -> Mask:
        mask = np.zeros(len(self._state.store.status), dtype=bool)
        mask[np.asarray(blocks, dtype=np.int64)] = True
        return mask

    def is_level(self, runs: list[Run], version: int) -> None:
        """Take note that these blocks have been handed over to this server: their followers have this version."""
        state, current = self._state, self._state.standing.current
        if current is None or not current.followers:
            return
        for node, wanted in self._wanted.items():
            level = self._mask(list(members(runs))) & wanted
            state.acknowledged.heard(node, runs_of(level), version)
            if node in state.sources:
                state.sources[node].is_level(np.flatnonzero(level))

    # ---- what is handed over -----------------------------------------------------------------------------------------

    def leave(self) -> None:
        """Stop the updates of the blocks that the configuration in force gives to others, and hand them over."""
        state, store = self._state, self._state.store
        current = state.standing.current
        assert current is not None
        for frozen in self._leaving.values():  # by a plan that this one builds on
            store.status[frozen.held] = BlockStatus.PRIMARY
            store.status[frozen.empty] = BlockStatus.EMPTY
        self._leaving = {}
        going: dict[NodeId, list[int]] = {}
        for block in np.flatnonzero(np.isin(store.status, (BlockStatus.PRIMARY, BlockStatus.EMPTY))).tolist():
            going.setdefault(current.primary(block), []).append(block)
        going.pop(state.node, None)
        for target, blocks in going.items():
            ids = np.asarray(blocks, dtype=np.int64)
            empty = store.status[ids] == BlockStatus.EMPTY
            self._leaving[target] = Frozen(ids[~empty], ids[empty])
            store.status[ids[~empty]] = BlockStatus.LEAVING
            store.status[ids[empty]] = BlockStatus.FROZEN
        self.conform()
        for frozen in self._leaving.values():
            for follower, ids in self._next_followers(frozen.held):
                if follower in state.sources:
                    state.sources[follower].send_rest(ids)
        self._hand_over()

    def _next_followers(self, blocks: NDArray[np.int64]) -> list[tuple[NodeId, NDArray[np.int64]]]:
        """Return who else than the next owner and this server follows blocks by the configuration in force."""
        current = self._state.standing.current
        found: dict[NodeId, list[int]] = {}
        for block in blocks.tolist() if current is not None and current.followers else ():
            follower = current.follower(block) if current is not None else None
            if follower is not None and follower != self._state.node:
                found.setdefault(follower, []).append(block)
        return [(node, np.asarray(ids, dtype=np.int64)) for node, ids in found.items()]

    def _hand_over(self) -> None:
        """Hand over what the next followers have; nothing to the dead: this server has told that it has it."""
        acknowledged, store = self._state.acknowledged, self._state.store
        for target, frozen in list(self._leaving.items()):
            if target in self._state.standing.dead:
                continue
            lacking = (
                (acknowledged.of(follower)[ids] < store.versions[ids]).any()
                for follower, ids in self._next_followers(frozen.held)
            )
            if any(lacking):
                continue
            del self._leaving[target]
            self._frozen[target] = frozen
            self._sending.add(target)
            store.status[frozen.held] = BlockStatus.FROZEN
            if target in self._state.sources:
                self._send_hand_over(target)
            self._stay_followers(frozen.held)

    def _send_hand_over(self, target: NodeId) -> None:
        self._state.sources[target].hand_over(self._frozen[target], partial(self._sent, target))

    def _stay_followers(self, blocks: NDArray[np.int64]) -> None:
        """Go on with copies of blocks that this server has handed over and follows now."""
        current, node = self._state.standing.current, self._state.node
        if current is not None and current.followers:
            kept = [block for block in blocks.tolist() if current.follower(block) == node]
            self._state.store.status[np.asarray(kept, dtype=np.int64)] = BlockStatus.FOLLOWER

    def _sent(self, target: NodeId) -> None:
        with self._state.changed:
            self._sending.discard(target)
            self._handed_over()

    @property
    def is_handing_over(self) -> bool:
        """Return whether the hand-over of something has not been sent yet to a server that lives."""
        return bool((self._leaving.keys() | self._sending) - self._state.standing.dead)

    @property
    def gives_followed(self) -> bool:
        """Return whether this server's blocks go to others, or went, by a plan with followers that is not committed."""
        current = self._state.standing.current
        return current is not None and bool(current.followers) and bool(self._leaving or self._frozen)

    def take_back(self, blocks: NDArray[np.int64]) -> None:
        """Hand these blocks over to nobody, and to nobody again: a death's configuration has promoted their owners."""
        for kept in (self._leaving, self._frozen):
            for target, frozen in kept.items():
                held, empty = (ids[~np.isin(ids, blocks)] for ids in (frozen.held, frozen.empty))
                kept[target] = Frozen(held, empty)

    def commit(self) -> None:
        """Let go of what was handed over: all of it is with its new owner."""
        self._leaving.clear()
        self._frozen.clear()
        self._sending.clear()
        self.end_plan()
        self._count_anew()
        self.conform()
        self.close_unused()

    def _count_anew(self) -> None:
        """Count what the next plan sends: streams that stand outlive a plan."""
        for source in self._state.sources.values():
            source.bytes_moved = 0

    # ---- what has been acknowledged ----------------------------------------------------------------------------------

    def followed(self, target: NodeId, runs: list[Run], version: int) -> None:
        """Take note that a server holds runs of blocks at a version.

        Args:
            target: the server.
            runs: the blocks.
            version: theirs.
        """
        self._state.acknowledged.heard(target, runs, version)
        if self._leaving:
            self._hand_over()
