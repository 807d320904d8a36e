"""Blocks change their owner: plans prepared, followers fed, hand-overs taken (docs/protocol.md, "A plan").

Both ends: this server as an old owner (`Source`s to the new ones) and as a new one (the follow streams' frames).
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from elastic_ps.core.configuration import ConfigId, Configuration, NodeId
from elastic_ps.core.errors import ProtocolError
from elastic_ps.core.optimizer import Hyper
from elastic_ps.server.follow import Source
from elastic_ps.server.link import Link
from elastic_ps.server.phases import ArmAnswer, Moves, Status, moves
from elastic_ps.server.room import Room
from elastic_ps.transport.frames import Frame, Kind
from protos import elastic_pb2 as pb

log = logging.getLogger(__name__)

_ANSWERS = {ArmAnswer.ARMED: pb.ARMED, ArmAnswer.LATE: pb.LATE}


class Migration:
    """See the module. Every public method takes the room's lock.

    Args:
        room: the server's.
    """

    def __init__(self, room: Room):
        self._room = room
        self._moves = Moves()
        self._caught_up: set[NodeId] = set()
        self._fell_back = False
        self._live = False
        self._handing_over: set[NodeId] = set()  # new owners whose hand-over has not been sent yet

    # ---- directives ------------------------------------------------------------------------------------------------

    def welcome(self, configuration: Configuration) -> None:
        """A stream of directives has begun; `configuration` is in force. Called under the lock."""
        room = self._room
        if room.standing.decided(configuration.id):
            self.switch()
        elif not room.standing.is_member and configuration.id > room.standing.number:
            room.standing = replace(room.standing, current=configuration)  # what a joiner's plan will be compared with
            room.new_gathering()

    def extend(self, assignment: Sequence[int]) -> None:
        """The model has grown; `assignment` is of all its blocks, in the configuration in force. Under the lock."""
        room = self._room
        current = room.standing.current
        if current is None:
            raise ProtocolError("Extend before the first configuration")
        if len(assignment) != len(room.store.status):
            raise ProtocolError(f"Extend assigns {len(assignment)} of {len(room.store.status)} blocks")
        grown = current.extended(assignment)
        fresh = moves(room.node, current, grown).fresh
        room.standing = replace(room.standing, current=grown)
        room.store.allocate(fresh, Status.EMPTY)
        room.gathering.grow(len(room.store.status))
        for subscription in room.subscriptions.values():
            subscription.grow()
        room.retry()

    def prepare(
        self,
        configuration: Configuration,
        paused: bool,
        dead: frozenset[NodeId],
        restore: Callable[[list[int]], None] | None = None,
    ) -> Mapping[NodeId, list[int]]:
        """Hold a table ready: room for the blocks that will come.

        Args:
            configuration: of the plan.
            paused: blocks are sent at the clock, not before.
            dead: nodes whose contributions and connections end now.
            restore: fills blocks that nobody holds from a checkpoint.

        Returns:
            Blocks that this server hands over, by new owner: `feed` is due for each, then `prepared`.
        """
        room = self._room
        with room.changed:
            if room.standing.is_new(configuration.id):
                self._check(configuration)
                self._settle()
                room.outbox.disconnect(dead)
                for rank, worker in enumerate(room.gathering.workers):
                    if worker in dead:
                        room.gathering.drop_worker(rank)
                for node in dead:
                    room.subscriptions.pop(node, None)
                self._moves = moves(room.node, room.standing.current, configuration)
                self._live = not paused
                self._caught_up, self._fell_back = set(), False
                room.store.allocate(self._moves.fresh, Status.EMPTY)
                if restore is not None and self._moves.fresh:
                    restore(self._moves.fresh)
                room.store.allocate(self._moves.incoming, Status.FOLLOWER)
                room.standing = room.standing.prepare(configuration, paused, dead)
                room.changed.notify_all()
            if not room.standing.decided(configuration.id):
                return {}
            return {target: blocks for target, blocks in self._moves.out.items() if target not in room.sources}

    def _check(self, configuration: Configuration) -> None:
        known = len(self._room.store.status)
        if len(configuration.assignment) != known:
            raise ProtocolError(
                f"configuration {configuration.id} assigns {len(configuration.assignment)} blocks, "
                f"this server knows {known}: an Extend is missing"
            )

    def _settle(self) -> None:
        """A plan may still be open here when the next begins: it was decided, or it is void."""
        room = self._room
        if room.standing.prepared is not None:
            if room.standing.clock is not None:
                self.switch()
            else:
                self._drop(room.standing.prepared.id)
        self._close_sources()
        room.store.release(room.store.held(Status.FROZEN).tolist())

    def feed(self, target: NodeId, link: Link, number: ConfigId) -> bool:
        """A connection to a new owner is open: its blocks' stream begins. False: nobody needs it any more."""
        room = self._room
        with room.changed:
            if not room.standing.decided(number) or target in room.sources:
                return False
            room.sources[target] = Source(room.store, link, number, self._moves.out[target], self._live)
            room.changed.notify_all()
            return True

    def prepared(self, number: ConfigId) -> None:
        """Everything is in place for `number`: answer PREPARED, or what has become of it since."""
        room = self._room
        with room.changed:
            if number == room.standing.number:
                self._acknowledge_switch()
            elif room.standing.decided(number):
                room.control.acknowledge(pb.PREPARED, number, room.version)
                self._answer_synced()
            else:
                room.control.acknowledge(pb.CANCELLED, number, room.version)

    def arm(self, number: ConfigId, clock: int) -> None:
        """`number` takes effect at version `clock`."""
        room = self._room
        with room.changed:
            room.standing, answer = room.standing.arm(number, clock, room.version)
            if answer is ArmAnswer.SWITCHED:
                self._acknowledge_switch()
            elif answer in _ANSWERS:
                room.control.acknowledge(_ANSWERS[answer], number, room.version)
                if room.standing.due(room.store.versions[room.owned()]):
                    self.switch()

    def adopt(self, number: ConfigId) -> None:
        """`number` is decided: switch whatever the version, or say again that it is done."""
        room = self._room
        with room.changed:
            if room.standing.decided(number):
                self.switch()
            elif number == room.standing.number:
                self._acknowledge_switch()
                self._answer_arrived()

    def cancel(self, number: ConfigId) -> None:
        """The plan is void: followers and streams go."""
        with self._room.changed:
            self._drop(number)
            self._room.control.acknowledge(pb.CANCELLED, number, self._room.version)

    def _drop(self, number: ConfigId) -> None:
        room = self._room
        if room.standing.decided(number):
            self._close_sources()
            room.store.release(sorted(self._moves.fresh + self._moves.incoming))
            self._moves = Moves()
        room.standing = room.standing.cancel(number)
        room.retry()

    def committed(self, number: ConfigId) -> bool:
        """Frozen copies and streams may go. Returns whether this server has left the job by it."""
        room = self._room
        with room.changed:
            if number < room.standing.number:
                return False
            self._close_sources()
            room.store.release(room.store.held(Status.FROZEN).tolist())
            return not room.standing.is_member

    def _close_sources(self) -> None:
        for source in self._room.sources.values():
            source.link.close()
        self._room.sources.clear()

    # ---- the switch ------------------------------------------------------------------------------------------------

    def switch(self) -> None:
        """Put the prepared configuration in force and tell everybody. Called under the lock.

        No byte is copied and no block touched one by one: this is what training waits for.
        """
        room = self._room
        room.standing = room.standing.switch()
        number = room.standing.number
        room.new_gathering()
        lacking = set(self._moves.out) - set(room.sources)
        for target in lacking:
            room.control.peer_failed(target, f"{room.node} has no connection to hand its blocks over")
        self._handing_over = set(room.sources) | lacking
        for target, source in room.sources.items():
            source.hand_over(lambda target=target: self._handed_over(number, target))  # type: ignore[misc]
        room.outbox.notice(room.frame(Kind.NOTICE))
        for node in [node for node in room.subscriptions if node in room.gathering.workers]:
            self._settle_subscription(node)
        if not self._handing_over:
            self._acknowledge_switch()
        self._answer_arrived()
        room.retry()

    def _settle_subscription(self, node: NodeId) -> None:
        """A shadow is a worker now; what it was not sent yet it is owed still."""
        subscription = self._room.subscriptions[node]
        while subscription.has_work:
            subscription.next_piece(self._room.standing.number)
        del self._room.subscriptions[node]

    def _handed_over(self, number: ConfigId, target: NodeId) -> None:
        with self._room.changed:
            if number == self._room.standing.number:
                self._handing_over.discard(target)
                self._acknowledge_switch()

    def _acknowledge_switch(self) -> None:
        """Answer SWITCHED once the hand-overs are sent: a leaver may go after that."""
        room = self._room
        if not self._handing_over:
            moved = sum(source.bytes_moved for source in room.sources.values())
            room.control.acknowledge(pb.SWITCHED, room.standing.number, room.version, bytes_moved=moved)

    # ---- follow streams (as the new owner) ---------------------------------------------------------------------------

    def await_configuration(self, number: ConfigId, closed: Callable[[], bool]) -> None:
        """A stream may be faster than the control plane: wait until `number` is known here, or the stream ends."""
        with self._room.changed:
            self._room.changed.wait_for(lambda: closed() or self._room.standing.knows(number))

    def payload_bytes(self, frame: Frame) -> int:
        """Bytes that a follow stream's frame must bring."""
        store = self._room.store
        with self._room.changed:
            total = store.span(frame.runs)
            if frame.kind is Kind.RECORD:
                return 0 if frame.meta.get("absent") else total
            if frame.kind is Kind.SNAPSHOT:
                return sum(store.image_bytes(run) for run in frame.runs if self._follows(run))
            return 0

    def _follows(self, run: tuple[int, int]) -> bool:
        return bool((self._room.store.status[run[0] : sum(run)] == Status.FOLLOWER).all())

    def followed(self, sender: NodeId, frame: Frame, data: NDArray[np.uint8]) -> None:
        """A frame of a follow stream is here.

        Raises:
            ProtocolError: it does not continue what this follower holds.
        """
        room = self._room
        with room.changed:
            if frame.kind in (Kind.NOTICE, Kind.HANDOVER) and room.standing.decided(frame.configuration):
                self.switch()
            if frame.kind is Kind.NOTICE or not self._continues(sender, frame):
                return
            if frame.kind is Kind.SNAPSHOT:
                room.store.load(frame.runs[0], data, frame.version, frame.meta["counts"])
            elif frame.kind is Kind.RECORD:
                self._record(sender, frame, data)
            elif frame.kind is Kind.HANDOVER:
                self._take_over(sender, frame)
            else:
                raise ProtocolError(f"{sender} sent {frame.kind.name} on a follow stream")

    def _continues(self, sender: NodeId, frame: Frame) -> bool:
        """Whether the stream is the one that feeds the blocks it names: else it is late, and dropped."""
        theirs = self._moves.into.get(sender)
        latest = self._room.standing.prepared or self._room.standing.current
        if theirs is None or latest is None or frame.configuration != latest.id:
            log.info("dropped a %s of %s for configuration %s", frame.kind.name, sender, frame.configuration)
            return False
        return all(self._follows(run) for run in frame.runs)

    def _record(self, sender: NodeId, frame: Frame, data: NDArray[np.uint8]) -> None:
        if not frame.runs:
            self._caught_up.add(sender)
            self._fell_back |= bool(frame.meta.get("pause"))
            self._answer_synced()
            return
        store = self._room.store
        self._require_version(sender, frame)
        hyper = Hyper.from_dict(frame.meta["hyper"]) if "hyper" in frame.meta else None
        for run in frame.runs:
            for segment in store.segments(run, store.counts):
                aggregate = None
                if not frame.meta.get("absent"):
                    start = int(store.positions[segment[0]] - store.positions[run[0]])
                    aggregate = data[start : start + store.span([segment])].view(store.treatment(segment[0]).dtype)
                store.update(segment, aggregate, hyper)

    def _require_version(self, sender: NodeId, frame: Frame) -> None:
        for run in frame.runs:
            versions = self._room.store.versions[run[0] : sum(run)]
            if (versions != frame.version).any():
                raise ProtocolError(
                    f"{sender} sent {frame.kind.name} of blocks {run} at version {frame.version}, but this follower "
                    f"holds {versions.min()} to {versions.max()}: an update was lost"
                )

    def _take_over(self, sender: NodeId, frame: Frame) -> None:
        room = self._room
        empty = bool(frame.meta.get("empty"))
        if not empty:
            self._require_version(sender, frame)
        for run in frame.runs:
            room.store.status[run[0] : sum(run)] = Status.EMPTY if empty else Status.PRIMARY
        self._answer_arrived()
        room.retry()

    def _answer_synced(self) -> None:
        """Answer SYNCED once every stream has said that it has caught up (its snapshots sent, its queue empty)."""
        prepared = self._room.standing.prepared
        if prepared is None or not self._live or not (self._moves.into or self._moves.fresh):
            return
        if self._caught_up >= set(self._moves.into):
            detail = "pause" if self._fell_back else ""
            self._room.control.acknowledge(pb.SYNCED, prepared.id, self._room.version, detail=detail)

    def _answer_arrived(self) -> None:
        """Pause mode: say when every hand-over has come."""
        room = self._room
        if room.standing.paused and self._moves.into and not len(room.store.held(Status.FOLLOWER)):
            room.control.acknowledge(pb.ARRIVED, room.standing.number, room.version)

    def needs(self, peer: NodeId) -> bool:
        """Whether a broken follow stream with `peer` endangers the plan: it has blocks to bring or to get yet."""
        with self._room.changed:
            feeding = any(self._follows((block, 1)) for block in self._moves.into.get(peer, ()))
            fed = self._room.standing.prepared is not None and peer in self._moves.out
            return feeding or fed or peer in self._handing_over
