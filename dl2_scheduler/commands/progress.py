"""This module shows on stderr how far a command is: bars on a terminal, lines elsewhere."""

import math
import threading
import time

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from elastic_ps.system.terminal import say

_EVERY = 20.0  # seconds between lines


def new_progress() -> "Bar | Lines":
    """Return what shows progress where stderr goes to."""
    console = Console(stderr=True)
    return Bar(console) if console.is_terminal else Lines()


class Bar:
    """A `Bar` shows each part of the work, with the time that is left.

    Args:
        console: a terminal.
    """

    def __init__(self, console: Console) -> None:
        columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
        self._progress = Progress(*columns, TextColumn("{task.fields[numbers]}"), console=console)
        self._tasks: dict[str, TaskID] = {}

    def __enter__(self) -> "Bar":
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def tell(self, what: str, done: int, whole: int, numbers: dict[str, float]) -> None:
        """See `learning.bootstrap.Tell`."""
        if what not in self._tasks:
            self._tasks[what] = self._progress.add_task(what, total=whole, numbers="")
        self._progress.update(self._tasks[what], completed=done, total=whole, numbers=_text(numbers))


class Lines:
    """These `Lines` say what is done when that changes, and now and then: a part may take minutes.

    Args:
        every: seconds between lines.
    """

    def __init__(self, every: float = _EVERY) -> None:
        self._every, self._began = every, time.monotonic()
        self._what, self._line = "", ""
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._repeat, name="progress", daemon=True)

    def __enter__(self) -> "Lines":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def tell(self, what: str, done: int, whole: int, numbers: dict[str, float]) -> None:
        """See `learning.bootstrap.Tell`."""
        is_new, self._what = what != self._what, what
        self._line = f"{what}: {done} of {whole} {_text(numbers)}".rstrip()
        if is_new:
            self._say()

    def _repeat(self) -> None:
        while not self._over.wait(self._every):
            if self._line:
                self._say()

    def _say(self) -> None:
        say(f"{time.monotonic() - self._began:.0f} s: {self._line}", err=True)


def _text(numbers: dict[str, float]) -> str:
    return " ".join(f"{name} {value:.4g}" for name, value in numbers.items() if math.isfinite(value))
