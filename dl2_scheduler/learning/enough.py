"""This module says whether `dl2 learn` had the time that it needs, judged by the updates that it made."""

import csv
import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from time import monotonic
from typing import Any

JUDGED = "judged/jct_"
"""How the columns of a learning curve begin that hold mean completion times, by cluster."""

ENOUGH = 65
"""Updates that `Online` makes in 12 minutes on one quiet core; docs/reference/learning.md says where they lead."""

_STILL = 0.005
"""By how much less the mean completion times of two judgements in a row differ where learning has come to rest."""

_BUSY = 0.2
"""Part of the time that a program waits for a core beside others; on a quiet machine it is near 0."""

_QUEUE = Path("/proc/self/schedstat")


@dataclass(frozen=True)
class Shortage:
    """A shortage says what learning lacked.

    Attributes:
        updates: made in all.
        enough: that it needs.
        minutes: that this learning took.
        waited: part of them that it waited for a core; 0 where the system does not tell.
    """

    updates: int
    enough: int
    minutes: float
    waited: float

    def sentence(self, run: Path) -> str:
        """Return what a person should know, and do."""
        why = f": this machine was busy, {self.waited:.0%} of the time went by waiting for a core" if self.busy else ""
        lack = self.enough - self.updates
        each = self.minutes / self.updates if self.updates else 0.0
        more = f" --minutes {math.ceil(lack * each)}" if each else ""
        whole = f", or from the start with --minutes {math.ceil(self.enough * each)}" if each else ""
        return (
            f"{self.updates} updates of about {self.enough} in {self.minutes:.3g} minutes{why}; the policy may still "
            f"improve: go on with `dl2 learn --from {run} --resume{more}`{whole}"
        )

    @property
    def busy(self) -> bool:
        """Return whether others used the machine."""
        return self.waited > _BUSY

    def as_dict(self) -> dict[str, Any]:
        """Return it for the run's settings."""
        return asdict(self)


class Stopwatch:
    """Minutes since it was made, and the part of them that the main thread waited for a core.

    Args:
        now: seconds.
        queued: seconds that the main thread has waited for a core.
    """

    def __init__(self, now: Callable[[], float] = monotonic, queued: Callable[[], float] | None = None):
        self._now, self._queued = now, queued or _queued
        self._began, self._before = now(), self._queued()

    def shortage(self, updates: int, asked: int | None, made: int) -> Shortage | None:
        """Return what was lacking; None: enough updates were made, or as many as were asked for.

        Args:
            updates: in all.
            asked: for, in all; None: only a time was.
            made: since the stopwatch was made; the time is that of these.
        """
        if updates >= ENOUGH or (asked is not None and updates >= asked):
            return None
        seconds = max(self._now() - self._began, 1e-9)
        waited = min(1.0, max(0.0, (self._queued() - self._before) / seconds))
        minutes = seconds / 60 * (updates / made if made else 1.0)  # as if all had been made at this speed
        return Shortage(updates, ENOUGH, minutes, waited)


def at_rest(curve: Path) -> bool:
    """Return whether the last two judgements in a curve (CSV, `Curves`) found the policy as good on every cluster."""
    if not curve.exists():
        return False
    with curve.open(newline="") as file:
        rows = list(csv.DictReader(file))
    judged = [[float(row[name]) for name in row if name.startswith(JUDGED) and row[name]] for row in rows]
    last = [row for row in judged if row][-2:]
    return len(last) == 2 and all(abs(now / was - 1) < _STILL for was, now in zip(*last, strict=True))


def _queued() -> float:
    try:
        return int(_QUEUE.read_text().split()[1]) / 1e9
    except (OSError, ValueError, IndexError):
        return 0.0
