"""This module hands on the signals by which people and systems end a program."""

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

_OF_THE_TERMINAL = (signal.SIGINT, signal.SIGHUP)
_SIGNALS = (*_OF_THE_TERMINAL, signal.SIGTERM)

SAME_SECONDS = 1.0
"""Within so long a signal that comes again is the first one: who ends all processes together (systemd, a batch system,
a machine that shuts down) signals a node, and its launcher, which passes its own on. A session that is lost sends
SIGHUP twice, its shell's and the kernel's."""

ENDS_COORDINATOR = signal.SIGUSR1
"""By this a launcher ends its coordinator, last of all. SIGTERM may have come to all processes at once: nodes need the
coordinator to end in order, and only the launcher knows when they have."""


class SignalCount:
    """A `SignalCount` tells a signal that comes again from one that has been sent twice at once.

    Args:
        same_seconds: within which it is the same one.
        clock: in seconds.
    """

    def __init__(self, same_seconds: float = SAME_SECONDS, clock: Callable[[], float] = time.monotonic):
        self._same_seconds = same_seconds
        self._clock = clock
        self._first: float | None = None

    def heard(self) -> int:
        """Take note of a signal. Return 1 for the first one, 0 where that has come twice, 2 for a later one."""
        now = self._clock()
        if self._first is None:
            self._first = now
            return 1
        return 0 if now < self._first + self._same_seconds else 2


def handle_sigterm(heard: Callable[[], None]) -> None:
    """Call `heard` at each SIGTERM of this process; its forks, which others end so, end by it. For the main thread."""
    own = os.getpid()

    def handle(number: int, _frame: FrameType | None) -> None:
        if os.getpid() == own:
            heard()
        else:
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)

    signal.signal(signal.SIGTERM, handle)


def ignore_sigterm() -> None:
    """Let SIGTERM leave this process alone; not what it starts or forks, see `handle_sigterm`."""
    handle_sigterm(lambda: None)


@contextmanager
def signals_to(handler: Callable[[int], None]) -> Iterator[None]:
    """Hand SIGINT, SIGTERM and SIGHUP to `handler` meanwhile. For the main thread.

    Those of the keyboard and the terminal that this process was begun to ignore (`nohup`, a script's `program &`) stay
    ignored. Ends of its own children do not: a parent that ignores them hands that on, and nobody would hear of any.
    """

    def handle(number: int, _frame: FrameType | None) -> None:
        handler(number)

    ignored = [number for number in _OF_THE_TERMINAL if signal.getsignal(number) is signal.SIG_IGN]
    if signal.getsignal(signal.SIGCHLD) is signal.SIG_IGN:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    before = {number: signal.signal(number, handle) for number in _SIGNALS if number not in ignored}
    try:
        yield
    finally:
        for number, old in before.items():
            signal.signal(number, old)
