"""This module gives a user's own policy a time within which it must answer.

One that never does would keep the loop, and all that people ask of it. Our own policies are not bounded: they answer,
but their first decision may have to be compiled, which takes as long as it takes.
"""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from dl2_scheduler.cluster.free_resources import FreeResources
from dl2_scheduler.cluster.interfaces import AllocationPolicy
from dl2_scheduler.cluster.snapshot import Allocation, Snapshot

SECONDS = 120.0
"""By default."""

_AGAIN = 1.0  # a policy may swallow what is raised in it


class _Alarm(BaseException):
    """An `_Alarm` is raised in the middle of a policy: it is none of the exceptions that the policy may expect."""


class Bounded:
    """A `Bounded` policy raises TimeoutError where it has not answered in time. See `AllocationPolicy`.

    Only Python code is interrupted, and only in the main thread, where signals arrive; elsewhere it has all the time.

    Args:
        policy: is asked.
        seconds: the time that it has.
    """

    def __init__(self, policy: AllocationPolicy, seconds: float = SECONDS):
        self._policy = policy
        self._seconds = seconds

    def allocate(self, snapshot: Snapshot, room: FreeResources) -> Allocation:
        """See `AllocationPolicy.allocate`."""
        try:
            with _alarm(self._seconds):
                return self._policy.allocate(snapshot, room)
        except _Alarm as error:
            raise TimeoutError(f"no answer after {self._seconds:g} s") from error


@contextmanager
def _alarm(seconds: float) -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    on = True

    def ring(_number: int, _frame: FrameType | None) -> None:
        if on:
            raise _Alarm

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds, _AGAIN)
    try:
        try:
            yield
        finally:
            on = False
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
