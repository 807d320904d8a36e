"""This module keeps what slots have measured, by placements: a slot costs the same, however many came before it."""

from collections import deque
from collections.abc import Collection

from dl2_scheduler.cluster.hardware.measured import MeasuredPlacement, PlacementKey, merged

_MOST_REPEATS = 9
"""Measurements of one placement that count, the latest: the machine may have changed since."""


class SlotPlacements:
    """These `SlotPlacements` are the latest different ones that slots have measured, in the order of their last slot.

    Args:
        most: that are kept.
    """

    def __init__(self, most: int):
        self._most = most
        self._rows: dict[PlacementKey, deque[MeasuredPlacement]] = {}

    def add(self, row: MeasuredPlacement) -> None:
        """Take in what a slot has measured."""
        self._put(row.key, [row])

    def take(self, later: "SlotPlacements") -> None:
        """Take over what others hold, which have been measured later, and leave them empty."""
        for key, rows in later._rows.items():
            self._put(key, rows)
        later._rows = {}

    def keys(self, models: Collection[str]) -> set[PlacementKey]:
        """Return the keys of the placements of which every job is of a type that a model knows."""
        return {key for key, rows in self._rows.items() if _known(rows[-1], models)}

    def rows(self, models: Collection[str]) -> list[MeasuredPlacement]:
        """Return these placements, one row for each: what was measured several times is one."""
        return [merged(rows)[0] for rows in self._rows.values() if _known(rows[-1], models)]

    def _put(self, key: PlacementKey, rows: Collection[MeasuredPlacement]) -> None:
        kept = self._rows.pop(key, None) or deque(maxlen=_MOST_REPEATS)
        kept.extend(rows)
        self._rows[key] = kept
        if len(self._rows) > self._most:
            del self._rows[next(iter(self._rows))]


def _known(row: MeasuredPlacement, models: Collection[str]) -> bool:
    return all(job.model in models for job in row.jobs)
