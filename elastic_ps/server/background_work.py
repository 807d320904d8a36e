"""A server's background work: it copies blocks to followers and values to shadows, and gives memory back."""

import threading
import time
from collections.abc import Callable

from elastic_ps.server.state.server_state import ServerState

_DUTY = 3.0  # pause after copying a piece, in times of the copy: snapshots take at most a quarter of one core
_PACE_SECONDS = 0.05  # how often a stream that waits for its pace is looked at, between updates


class BackgroundWork:
    """`BackgroundWork` is done one piece at a time, with pauses that leave the lock to the training.

    Args:
        state: the server's.
        ended: set when this server's part in the job is over.
    """

    def __init__(self, state: ServerState, ended: threading.Event):
        self._state = state
        self._ended = ended

    def run(self) -> None:
        """Work until the end."""
        state = self._state
        while not self._ended.is_set():
            with state.changed:
                seconds = _PACE_SECONDS if self._is_paced() else None
                state.changed.wait_for(lambda seconds=seconds: self._is_due(seconds is None), seconds)  # type: ignore[misc]
                started = time.perf_counter()
                for next_piece in self._streams():
                    next_piece()
                took = time.perf_counter() - started
            self._ended.wait(took * _DUTY)

    def _is_due(self, asleep: bool) -> bool:
        """Return whether there is something to do: for a thread that sleeps also to look from time to time."""
        return self._ended.is_set() or bool(self._streams()) or (asleep and self._is_paced())

    def _is_paced(self) -> bool:
        """Return whether work may come to be without anybody's notice."""
        state = self._state
        paced = any(source.is_paced for source in state.sources.values())
        return paced or any(shadow.lags for shadow in state.subscriptions.values())

    def _streams(self) -> list[Callable[[], None]]:
        state = self._state
        work: list[Callable[[], None]] = [source.next_piece for source in state.sources.values() if source.has_work]
        if state.unused:
            work.append(state.unused.next_piece)
        for shadow in state.subscriptions.values():
            if shadow.has_work:
                work.append(lambda shadow=shadow: shadow.next_piece(state.standing.config_id))  # type: ignore[misc]
        return work
