"""`PlanSteps` takes a server through its plans: prepared, armed, switched to, cancelled.

The server is an owner by its `FollowSources` and a follower by its `FollowTarget`. The rules are in
docs/reference/protocol.md, "A plan" and "Followers".
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from elastic_ps.core.configuration import NO_CONFIGURATION, ConfigId, Configuration, Member, NodeId
from elastic_ps.core.errors import ProtocolError
from elastic_ps.core.model import Run, members
from elastic_ps.node.peer_watch import Awaited
from elastic_ps.node.standing import ArmAnswer
from elastic_ps.server.migration.follow_sources import FollowSources
from elastic_ps.server.migration.follow_target import GRACE_SECONDS, FollowTarget
from elastic_ps.server.migration.promotion import holdings, promote
from elastic_ps.server.migration.told_versions import ToldVersions
from elastic_ps.server.phases import BlockStatus, Moves, due, having, moves
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
        self.sources = FollowSources(state, self._acknowledge_switch, self._stream_opened)
        self.follow_target = FollowTarget(state, self.switch, self.sources.is_level, lambda: self.told.tell())
        self._moves = Moves()
        self._live = False
        self._preparing = NO_CONFIGURATION  # to be answered when every stream is open
        self.told = ToldVersions(state, self.sources, self.follow_target, self.switch)

    # ---- directives ------------------------------------------------------------------------------------------------

    def welcome(self, configuration: Configuration) -> None:
        """Take over the configuration in force: a stream of directives has begun. Called under the lock.

        An Extend may have been lost with the stream before, and the next one comes only when no plan is under way.
        """
        state = self._state
        current = state.standing.current
        if state.standing.decided(configuration.id):
            self.switch()
        elif current is not None and current.id == configuration.id:
            if len(current.assignment) < len(configuration.assignment):
                self.extend(configuration.assignment, configuration.followers)
        elif state.standing.passes_by(configuration.id):
            state.standing = replace(
                state.standing, current=configuration
            )  # what a joiner's plan will be compared with
            state.new_gathering()

    def extend(self, assignment: Sequence[int], followers: Sequence[int] = ()) -> None:
        """Take in that the model has grown. Under the lock.

        Args:
            assignment: of all its blocks, in the configuration in force.
            followers: of all its blocks, too; none: no block has one.
        """
        state = self._state
        current = state.standing.current
        if current is None:
            raise ProtocolError("an Extend came before the first configuration")
        if len(assignment) != len(state.store.status):
            raise ProtocolError(f"an Extend assigns {len(assignment)} of {len(state.store.status)} blocks")
        grown = current.extended(assignment, followers)
        come = moves(state.node, current, grown)
        state.standing = replace(state.standing, current=grown)
        state.allocate(come.fresh, BlockStatus.EMPTY)
        state.allocate(come.copies, BlockStatus.FOLLOWER)
        self.sources.conform()
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
        undecided: bool = False,
    ) -> None:
        """Hold a configuration ready: room for the blocks that will come. `prepared` is due then.

        Args:
            configuration: the plan's configuration.
            paused: blocks are sent at the clock, not before.
            dead: nodes whose contributions and connections end now.
            undecided: see `Standing`.
        """
        state = self._state
        with state.changed:
            if state.standing.is_new(configuration.id):
                self._check(configuration)
                self._settle(configuration, bool(dead), undecided)
                state.forget(dead)
                if undecided:  # nothing stops, and every copy may be needed
                    state.standing = state.standing.prepare(configuration, paused, dead, undecided)
                else:
                    self._begin(configuration, paused, dead)
                state.outbox.disconnect(self.follow_target.missed())
                state.changed.notify_all()

    def _begin(self, configuration: Configuration, paused: bool, dead: frozenset[NodeId]) -> None:
        """Make room for what comes, and begin the streams of what goes."""
        state, status = self._state, self._state.store.status
        self._moves = moves(state.node, state.standing.current, configuration)
        self._live = not paused
        state.allocate(self._moves.fresh, BlockStatus.EMPTY)
        copies = self._moves.incoming + self._moves.copies
        state.allocate([block for block in copies if status[block] == BlockStatus.ABSENT], BlockStatus.FOLLOWER)
        if not dead:  # a worker's death moves no block: the streams of the plan that it came into go on
            self.follow_target.begin(self._moves, self._live, configuration.id)
            self.sources.begin_plan(self._moves, configuration, self._live)
        state.standing = state.standing.prepare(configuration, paused, dead)

    def _check(self, configuration: Configuration) -> None:
        known = len(self._state.store.status)
        if len(configuration.assignment) != known:
            raise ProtocolError(
                f"configuration {configuration.id} assigns {len(configuration.assignment)} blocks, "
                f"this server knows {known}: an Extend is missing"
            )

    def _settle(self, following: Configuration, death: bool, undecided: bool) -> None:
        """Settle a plan that is still open here when the next begins: it was decided, or it is void.

        A death's plan comes at any moment: hand-overs that are under way go on. Before any other they are committed.
        What a server's death leaves undecided may build on the plan, or not: its copies stay.
        """
        standing = self._state.standing
        if standing.prepared is not None:
            stands = not undecided and death
            if standing.clock is not None or (stands and self._stands_on(standing.prepared, following)):
                self.switch()
            elif not undecided:
                self._drop(standing.prepared.id)
        if not death:
            self._clear()

    def _stands_on(self, prepared: Configuration, following: Configuration) -> bool:
        """Return whether `following`, of a death, leaves blocks where the prepared configuration puts them."""
        return self._moves != Moves() and moves(self._state.node, prepared, following) == Moves()

    def _clear(self) -> None:
        """Release what was handed over, which is with its new owner, and copies that nobody wants any more."""
        state = self._state
        self.sources.commit()
        if state.standing.current is not None:
            state.followed_ledger.forget(others_than=state.standing.current.members)
        frozen = state.store.held(BlockStatus.FROZEN)
        state.store.values.begin(int(state.store.versions[frozen].max(initial=-2)) + 2)  # nobody in the job reads them
        state.release(frozen.tolist())
        copies = state.store.held(BlockStatus.FOLLOWER).tolist()
        state.release([block for block in copies if not state.is_named(block)])
        state.give_back_past()
        state.forget_strangers()

    def feed(self, target: NodeId, link: Link) -> bool:
        """See `Plans`."""
        with self._state.changed:
            return self.sources.feed(target, link)

    def _stream_opened(self) -> None:
        if self._preparing != NO_CONFIGURATION and self.sources.is_open():
            self.prepared(self._preparing)  # this plan, or a death's that came into it

    def unfed(self) -> Mapping[NodeId, tuple[Member, ConfigId]]:
        """See `Plans`."""
        with self._state.changed:
            return self.sources.unfed()

    def prepared(self, number: ConfigId) -> None:
        """Answer PREPARED for `number` once the streams to all new owners are open, or what has become of it since.

        A plan that was answered may be armed, and then no new owner can be done without. What a server's death has left
        undecided waits for nobody: the answer says what is here.
        """
        state = self._state
        with state.changed:
            if number == state.standing.config_id:
                self._acknowledge_switch()
                self.told.say_again()
            elif not state.standing.holds(number):
                state.control.acknowledge(pb.CANCELLED, number, state.version)
            elif state.standing.undecided:
                state.control.acknowledge(pb.PREPARED, number, state.version, holdings=holdings(state.store))
            else:
                self._preparing = NO_CONFIGURATION if self.sources.is_open() else number
                if self._preparing == NO_CONFIGURATION:
                    state.control.acknowledge(pb.PREPARED, number, state.version)
                    self.follow_target.answer_synced()

    def arm(self, number: ConfigId, clock: int) -> None:
        """Let configuration `number` take effect at version `clock`."""
        state = self._state
        with state.changed:
            state.standing, answer = state.standing.arm(number, clock, state.version)
            if answer is ArmAnswer.SWITCHED:
                self._acknowledge_switch()
                self.told.say_again()
            elif answer in _ANSWERS:
                state.control.acknowledge(_ANSWERS[answer], number, state.version)
                if due(state.standing, state.told_versions()):
                    self.switch()

    def adopt(self, number: ConfigId, decided: Configuration | None = None, promoted: Sequence[Run] = ()) -> None:
        """Switch to configuration `number`, which is decided, whatever the version, or say again that it is done.

        Args:
            number: the configuration's.
            decided: after a server's death, what has been decided of it; None: it is what is prepared.
            promoted: the blocks that their owners have at once.
        """
        state = self._state
        with state.changed:
            state.standing = state.standing.decide(number, decided, promoted)
            if state.standing.decided(number):
                self.switch()
            elif number == state.standing.config_id:
                self._acknowledge_switch()
                self.told.say_again()

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
        if state.standing.decided(number):  # not one that a server's death has left undecided: its copies are needed
            self.sources.end_plan()
            self.sources.close_unused()
            copies = [block for block in self._moves.incoming + self._moves.copies if not state.is_named(block)]
            is_copy = having(state.store.status, BlockStatus.FOLLOWER)
            state.release(sorted(self._moves.fresh + [block for block in copies if is_copy[block]]))
            if self._moves.feeders:
                self.follow_target.begin(Moves(), False, number)
            self._moves = Moves()
        if self._preparing == number:
            self._preparing = NO_CONFIGURATION
        state.standing = state.standing.cancel(number)
        state.forget_strangers()
        state.retry()

    def committed(self, number: ConfigId) -> bool:
        """Let go of frozen copies and streams; return whether this server has left the job by it."""
        state = self._state
        with state.changed:
            if state.standing.decided(number):
                self.switch()
                return False
            if state.standing.has_left(number):
                return False
            if state.standing.prepared is not None:  # said again, as each stream of directives begins with what stands
                return False
            state.standing = state.standing.commit()
            self._clear()
            return not state.standing.is_member

    # ---- the switch ------------------------------------------------------------------------------------------------

    def switch(self) -> None:
        """Put the prepared configuration in force and tell everybody. Called under the lock.

        No byte is copied and no block touched one by one: this is what training waits for. A server that switches
        by its clock leaves its peers a moment to reach theirs: told at once, they would redo a step that is nearly
        done. To the protocol that is a slow channel.
        """
        state = self._state
        by_clock = due(state.standing, state.told_versions())
        assert state.standing.prepared is not None
        for node in state.subscriptions.keys() & state.standing.prepared.ranks.keys():
            state.subscriptions[node].flush(
                state.standing.config_id
            )  # a joiner begins with what comes before the NOTICE
        state.standing = state.standing.switch()
        state.new_gathering()
        promote(state, self.sources, list(members(state.standing.promoted)))
        state.adopt_entries()
        self.sources.leave()
        self.sources.end_plan()
        notice = state.frame(NoticeMeta())
        if by_clock:
            self._later(GRACE_SECONDS, lambda: state.outbox.notice(notice))
        else:
            state.outbox.notice(notice)
        self._acknowledge_switch()
        self.follow_target.answer_arrived()
        state.retry()
        self.told.tell()

    def _acknowledge_switch(self) -> None:
        """Answer SWITCHED once the hand-overs are sent and, where this server leaves, its ledger is told: it may go.

        So is what it has written down of followed blocks that others own now: the next plan may move them to a server
        that has not heard of it.
        """
        state = self._state
        if self.sources.is_handing_over:
            return
        number, version = state.standing.config_id, state.version
        moved = sum(source.bytes_moved for source in state.sources.values())

        def acknowledge() -> None:
            state.control.acknowledge(pb.SWITCHED, number, version, bytes_moved=moved)

        if state.standing.is_member and not self.sources.gives_followed:
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
