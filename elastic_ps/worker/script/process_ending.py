"""A worker process ends by its script's end or crash, by a drain, or by the job's end."""

import logging
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import NoReturn

from elastic_ps.core.errors import EXIT_RESTART, JobEnded
from elastic_ps.system.process.signals import SAME_SECONDS, SignalCount, handle_sigterm

log = logging.getLogger(__name__)


@contextmanager
def exits() -> Iterator[None]:
    """Turn the end of the job into the end of the script, with the process's exit status."""
    try:
        yield
    except JobEnded as error:
        log.info("%s", error.reason)
        if error.status not in (0, EXIT_RESTART):
            print(f"elastic_ps: {error.reason}", file=sys.stderr)
        try:
            sys.exit(error.status)  # and not by `raise SystemExit`, which a `ScriptEnding` would not see
        except SystemExit as end:
            raise end from error


class ScriptEnding:
    """A `ScriptEnding` remembers how the script ends: one that dies of an exception, or exits with a status, has not
    finished.

    `raise SystemExit(3)` tells nobody in Python; its status comes from whoever sees the process end.
    """

    def __init__(self) -> None:
        self.failed = False
        self._excepthook, sys.excepthook = sys.excepthook, self._raised
        self._exit, sys.exit = sys.exit, self._exits

    def _raised(self, kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        self.failed = True
        self._excepthook(kind, error, trace)

    def _exits(self, status: str | int | None = None, /) -> NoReturn:
        if threading.current_thread() is threading.main_thread():  # elsewhere it ends that thread alone
            self.failed = status not in (None, 0)
        self._exit(status)


def drain_on_sigterm(leave: Callable[[], str], end: Callable[[str], None], same_seconds: float = SAME_SECONDS) -> None:
    """Let SIGTERM drain the worker: the job goes on without it, and it ends with status 0.

    Args:
        leave: asks for it; returns why the worker has to end all the same, "": it need not.
        end: called with that reason, or at a second SIGTERM.
        same_seconds: within which a second SIGTERM is the first one.
    """
    signals = SignalCount(same_seconds)

    def ask_to_leave() -> None:
        if why := leave():
            end(why)

    def heard() -> None:
        if count := signals.heard():
            work = ask_to_leave if count == 1 else lambda: end("a second SIGTERM")
            threading.Thread(target=work, name="drain", daemon=True).start()

    if threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        handle_sigterm(heard)  # a `multiprocessing.Pool` of the script ends its forks so
