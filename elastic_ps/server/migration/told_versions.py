"""Workers are told what a server's blocks have come to once the followers have it."""

from collections.abc import Callable

from elastic_ps.core.configuration import NO_CONFIGURATION, NodeId
from elastic_ps.server.migration.follow_sources import FollowSources
from elastic_ps.server.migration.follow_target import FollowTarget
from elastic_ps.server.phases import due
from elastic_ps.server.state.server_state import ServerState
from elastic_ps.transport.frame_metas import FollowedMeta
from elastic_ps.transport.frames import Frame
from elastic_ps.transport.send_queue import Link
from protos import elastic_pb2 as pb


class ToldVersions:
    """`ToldVersions` takes what followers acknowledge, and lets everybody know what waited for it.

    Args:
        state: the server's.
        sources: its streams.
        follow_target: of the same server.
        switch: puts the prepared configuration in force; called under the lock.
    """

    def __init__(
        self, state: ServerState, sources: FollowSources, follow_target: FollowTarget, switch: Callable[[], None]
    ):
        self._state = state
        self._sources = sources
        self._follow_target = follow_target
        self._switch = switch
        self._level = NO_CONFIGURATION  # whose followers have been said to be level

    def followed(self, target: NodeId, frame: Frame, link: Link) -> None:
        """Take note that a follower holds blocks at a version, and tell what waited for it.

        Args:
            target: the follower.
            frame: its FOLLOWED.
            link: the connection on which it says so.
        """
        state = self._state
        with state.changed:
            source = state.sources.get(target)
            if source is None or source.link is not link or target in state.standing.dead:
                return
            state.store.span(frame.runs)
            said = frame.of(FollowedMeta)
            if said.slot is not None:
                source.records.followed(said.slot)
            self._sources.followed(target, source.counted(said.runs, said.snapshot), frame.version)
            self.tell()

    def tell(self) -> None:
        """Tell what followers have by now: to the ledger, to workers, to the coordinator; switch where it is due."""
        state = self._state
        state.write_told()
        state.tell()
        if state.snapshot is not None or state.subscriptions:
            state.changed.notify_all()  # who saves blocks or copies them to a shadow waits for followers, too
        if due(state.standing, state.told_versions()):
            self._switch()
        elif state.held:
            state.retry()
        self._answer_followed()

    def _answer_followed(self, again: bool = False) -> None:
        """Say when the followers in force have had all of this server's blocks since they are in force."""
        state, current = self._state, self._state.standing.current
        if current is None or not current.followers or not state.standing.is_member:
            return
        if (self._level == current.id and not again) or state.is_awaiting_blocks():
            return
        if state.acknowledged.are_level(state.owned(), state.store.versions):
            self._level = current.id
            state.control.acknowledge(pb.FOLLOWED, current.id, state.version)

    def say_again(self) -> None:
        """Say what has come true of the configuration in force: a coordinator that was started again has not heard."""
        self._follow_target.answer_arrived()
        self._answer_followed(again=True)
