"""This module shows on stderr how far a command is."""

import math

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn


class Bar:
    """A `Bar` shows each part of the work, with the time that is left."""

    def __init__(self) -> None:
        columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
        self._progress = Progress(*columns, TextColumn("{task.fields[numbers]}"), console=Console(stderr=True))
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
        text = " ".join(f"{name} {value:.4g}" for name, value in numbers.items() if math.isfinite(value))
        self._progress.update(self._tasks[what], completed=done, total=whole, numbers=text)
