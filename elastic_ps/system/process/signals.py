"""This module hands on the signals by which people and systems end a program."""

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

_OF_THE_TERMINAL = (signal.SIGINT, signal.SIGHUP)
_SIGNALS = (*_OF_THE_TERMINAL, signal.SIGTERM)


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
