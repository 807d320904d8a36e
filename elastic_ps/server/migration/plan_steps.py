"""`PlanSteps` takes a server through its plans: prepared, armed, switched to, cancelled.

The server is an old owner by its `FollowSource`s and a new one by its `FollowTarget`. The rules are in
docs/reference/protocol.md, "A plan".
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial

from elastic_ps.core.configuration import NO_CONFIGURATION, ConfigId, Configuration, Member, NodeId
from elastic_ps.core.errors import ProtocolError
from elastic_ps.node.peer_watch import Awaited
from elastic_ps.node.standing import ArmAnswer
from elastic_ps.server.copying.follow_source import FollowSource, Frozen, freeze
from elastic_ps.server.migration.follow_target import GRACE_SECONDS, FollowTarget
from elastic_ps.server.phases import BlockStatus, Moves, due, moves
from elastic_ps.server.state.server_state import ServerState
from elastic_ps.transport.frame_metas import NoticeMeta
from elastic_ps.transport.send_queue import Link
from protos import elastic_pb2 as pb

log = logging.getLogger(__name__)

_ANSWERS = {ArmAnswer.ARMED: pb.ARMED, ArmAnswer.LATE: pb.LATE}


class PlanSteps:
    """`PlanSteps` carries out what a plan asks of a server. Every public method takes the state's lock.

    Args:
        state: the server's.
        later: calls a function after so many seconds, in another thread.
    """

    def __init__(self, state: ServerState, later: Callable[[float, Callable[[], None]], None]):
        self._state = state
        self._later = later
        self.follow_target = FollowTarget(state, self.switch)
        self._moves = Moves()
        self._live = False
        self._handing_over: set[NodeId] = set()  # new owners whose hand-over has not been sent yet
        self._frozen: dict[NodeId, Frozen] = {}  # by new owner, from the switch until it is committed
        self._feeding: Configuration | None = None  # whose new owners have streams from here
        self._unfed: dict[NodeId, list[int]] = {}  # blocks by new owner whose stream has never been open
        self._preparing = NO_CONFIGURATION  # to be answered when every stream is open

    # ---- directives ------------------------------------------------------------------------------------------------

    def welcome(self, configuration: Configuration) -> None:
        """Take over the configuration in force: a stream of directives has begun. Called under the lock."""
        state = self._state
        if state.standing.decided(configuration.id):
            self.switch()
        elif state.standing.passes_by(configuration.id):
            state.standing = replace(
                state.standing, current=configuration
            )  # what a joiner's plan will be compared with
            state.new_gathering()

    def extend(self, assignment: Sequence[int]) -> None:
        """Take in that the model has grown; `assignment` is of all its blocks, in the configuration in force. Under the
        lock.
        """
        state = self._state
        current = state.standing.current
        if current is None:
            raise ProtocolError("an Extend came before the first configuration")
        if len(assignment) != len(state.store.status):
            raise ProtocolError(f"an Extend assigns {len(assignment)} of {len(state.store.status)} blocks")
        grown = current.extended(assignment)
        fresh = moves(state.node, current, grown).fresh
        state.standing = replace(state.standing, current=grown)
        state.allocate(fresh, BlockStatus.EMPTY)
        state.gathering.grow(len(state.store.status))
        for subscription in state.subscriptions.values():
            subscription.grow()
        if state.snapshot is not None:
            state.snapshot.grow()
        state.retry()

    def prepare(
        self,
        configuration: Configuration,
        paused: bool,
        dead: frozenset[NodeId],
    ) -> None:
        """Hold a configuration ready: room for the blocks that will come. `prepared` is due then.

        Args:
            configuration: the plan's configuration.
            paused: blocks are sent at the clock, not before.
            dead: nodes whose contributions and connections end now.

        """
        state = self._state
        with state.changed:
            if state.standing.is_new(configuration.id):
                self._check(configuration)
                self._settle(configuration, bool(dead))
                state.forget(dead)
                self._moves = moves(state.node, state.standing.current, configuration)
                self._live = not paused
                if not dead:  # a death's plan moves no block: the streams of the plan that it came into go on
                    self.follow_target.begin(self._moves, self._live, configuration.id)
                    self._feeding, self._unfed = configuration, dict(self._moves.out)
                state.allocate(self._moves.fresh, BlockStatus.EMPTY)
                state.allocate(self._moves.incoming, BlockStatus.FOLLOWER)
                state.standing = state.standing.prepare(configuration, paused, dead)
                state.changed.notify_all()

    def _check(self, configuration: Configuration) -> None:
        known = len(self._state.store.status)
        if len(configuration.assignment) != known:
            raise ProtocolError(
                f"configuration {configuration.id} assigns {len(configuration.assignment)} blocks, "
                f"this server knows {known}: an Extend is missing"
            )

    def _settle(self, following: Configuration, death: bool) -> None:
        """Settle a plan that is still open here when the next begins: it was decided, or it is void.

        A death's plan comes at any moment: hand-overs that are under way go on. Before any other they are committed.
        """
        standing = self._state.standing
        if standing.prepared is not None:
            if standing.clock is not None or (death and self._stands_on(standing.prepared, following)):
                self.switch()
            else:
                self._drop(standing.prepared.id)
        if not death:
            self._clear()

    def _stands_on(self, prepared: Configuration, following: Configuration) -> bool:
        """Return whether `following`, of a death, leaves blocks where the prepared configuration puts them."""
        return self._moves != Moves() and moves(self._state.node, prepared, following) == Moves()

    def _clear(self) -> None:
        """Release what was handed over: all of it is with its new owner."""
        self._close_sources()
        self._handing_over.clear()
        self._frozen.clear()
        self._state.release(self._state.store.held(BlockStatus.FROZEN).tolist())

    def feed(self, target: NodeId, link: Link, number: ConfigId) -> bool:
        """See `Plans`: the stream of its blocks begins, or begins again.

        What had been sent on a connection that broke is sent once more. The follower drops what it holds already.
        """
        state = self._state
        with state.changed:
            if self.unfed().get(target, (None, NO_CONFIGURATION))[1] != number:
                return False
            if target in state.sources:
                source = state.sources[target].again(link)
            else:
                source = FollowSource(state.store, link, number, self._unfed[target], self._live, len(self._unfed))
            state.sources[target] = source
            if target in self._frozen:
                source.hand_over(self._frozen[target], partial(self._handed_over, target))
            state.changed.notify_all()
            if self._preparing != NO_CONFIGURATION and not self.unfed():
                self.prepared(self._preparing)  # this plan, or a death's that came into it
            return True

    def unfed(self) -> Mapping[NodeId, tuple[Member, ConfigId]]:
        """See `Plans`."""
        state = self._state
        with state.changed:
            fed = self._feeding
            if fed is None:
                return {}
            lacking = [
                target for target in self._unfed if target not in state.sources or state.sources[target].link.closed
            ]
            return {target: (fed.members[target], fed.id) for target in lacking}

    def applied(self, target: NodeId, place: int, link: Link) -> None:
        """Take note that a new owner has applied a record that lies in its memory.

        Args:
            target: the new owner.
            place: where in its memory the record lies, as the record said.
            link: the connection on which it says so.
        """
        with self._state.changed:
            source = self._state.sources.get(target)
            if source is not None and source.link is link:
                source.records.applied(place)

    def prepared(self, number: ConfigId) -> None:
        """Answer PREPARED for `number` once the streams to all new owners are open, or what has become of it since.

        A plan that was answered may be armed, and then no new owner can be done without.
        """
        state = self._state
        with state.changed:
            if number == state.standing.config_id:
                self._acknowledge_switch()
            elif state.standing.decided(number):
                self._preparing = number if self.unfed() else NO_CONFIGURATION
                if not self.unfed():
                    state.control.acknowledge(pb.PREPARED, number, state.version)
                    self.follow_target.answer_synced()
            else:
                state.control.acknowledge(pb.CANCELLED, number, state.version)

    def arm(self, number: ConfigId, clock: int) -> None:
        """Let configuration `number` take effect at version `clock`."""
        state = self._state
        with state.changed:
            state.standing, answer = state.standing.arm(number, clock, state.version)
            if answer is ArmAnswer.SWITCHED:
                self._acknowledge_switch()
            elif answer in _ANSWERS:
                state.control.acknowledge(_ANSWERS[answer], number, state.version)
                if due(state.standing, state.store.versions[state.owned()]):
                    self.switch()

    def adopt(self, number: ConfigId) -> None:
        """Switch to configuration `number`, which is decided, whatever the version, or say again that it is done."""
        state = self._state
        with state.changed:
            if state.standing.decided(number):
                self.switch()
            elif number == state.standing.config_id:
                self._acknowledge_switch()
                self.follow_target.answer_arrived()

    def cancel(self, number: ConfigId) -> None:
        """Drop a plan, which is void: its followers and streams go."""
        with self._state.changed:
            self._drop(number)
            self._state.control.acknowledge(pb.CANCELLED, number, self._state.version)

    def forget(self, number: ConfigId) -> None:
        """Drop the prepared configuration, which this server cannot hold ready; it tells why by itself."""
        with self._state.changed:
            self._drop(number)

    def _drop(self, number: ConfigId) -> None:
        state = self._state
        if state.standing.decided(number):
            if self._feeding is not None and self._feeding.id == number:
                self._close_sources()
            state.release(sorted(self._moves.fresh + self._moves.incoming))
            if self._moves.into:
                self.follow_target.begin(Moves(), False, number)
            self._moves = Moves()
        if self._preparing == number:
            self._preparing = NO_CONFIGURATION
        state.standing = state.standing.cancel(number)
        state.retry()

    def committed(self, number: ConfigId) -> bool:
        """Let go of frozen copies and streams; return whether this server has left the job by it."""
        state = self._state
        with state.changed:
            if state.standing.decided(number):
                self.switch()
                return False
            if number < state.standing.config_id:
                return False
            if state.standing.prepared is not None:  # said again, as each stream of directives begins with what stands
                return False
            self._clear()
            return not state.standing.is_member

    def _close_sources(self) -> None:
        for source in self._state.sources.values():
            source.link.close()
        self._state.sources.clear()
        self._feeding, self._unfed = None, {}

    # ---- the switch ------------------------------------------------------------------------------------------------

    def switch(self) -> None:
        """Put the prepared configuration in force and tell everybody. Called under the lock.

        No byte is copied and no block touched one by one: this is what training waits for. A server that switches
        by its clock leaves its peers a moment to reach theirs: told at once, they would redo a step that is nearly
        done. To the protocol that is a slow channel.
        """
        state = self._state
        by_clock = due(state.standing, state.store.versions[state.owned()])
        assert state.standing.prepared is not None
        for node in state.subscriptions.keys() & state.standing.prepared.ranks.keys():
            state.subscriptions[node].flush(
                state.standing.config_id
            )  # a joiner begins with what comes before the NOTICE
        state.standing = state.standing.switch()
        state.new_gathering()
        self._handing_over |= set(self._moves.out)
        for target, blocks in self._moves.out.items():
            self._frozen[target] = freeze(state.store, blocks)
            if target in state.sources:
                sent = partial(self._handed_over, target)
                state.sources[target].hand_over(self._frozen[target], sent)
        notice = state.frame(NoticeMeta())
        if by_clock:
            self._later(GRACE_SECONDS, lambda: state.outbox.notice(notice))
        else:
            state.outbox.notice(notice)
        if not self._handing_over:
            self._acknowledge_switch()
        self.follow_target.answer_arrived()
        state.retry()

    def _handed_over(self, target: NodeId) -> None:
        with self._state.changed:
            self._handing_over.discard(target)
            self._acknowledge_switch()

    def _acknowledge_switch(self) -> None:
        """Answer SWITCHED once the hand-overs are sent and, where this server leaves, its ledger is told: it may go."""
        state = self._state
        if self._handing_over:
            return
        number, version = state.standing.config_id, state.version
        moved = sum(source.bytes_moved for source in state.sources.values())

        def acknowledge() -> None:
            state.control.acknowledge(pb.SWITCHED, number, version, bytes_moved=moved)

        if state.standing.is_member:
            acknowledge()
        else:
            state.ledger.after_kept(acknowledge)
            state.control.report_soon()

    def owing(self) -> Sequence[NodeId]:
        """Return the old owners that have blocks to hand over yet. Call under the lock."""
        return self.follow_target.owing()

    def awaited(self, received: Callable[[NodeId], int]) -> list[Awaited]:
        """Return the old owners whose hand-overs lack in the configuration in force. Call under the lock.

        Args:
            received: bytes that an old owner has sent.
        """
        number = self._state.standing.config_id
        owing = self.follow_target.owing() if self._state.standing.prepared is None else ()
        return [Awaited(peer, f"its blocks of configuration {number}", received(peer)) for peer in owing]
