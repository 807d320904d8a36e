"""This module averages what jobs of one model reported, and notices where the model itself has changed its speed."""

from collections import deque

import numpy as np

Counts = tuple[int, int]
"""Servers and workers."""

_REMEMBERED = 30  # reports of a configuration over which its speed is averaged: the latest
_KNOWN = 3  # reports after which a configuration's speed counts as known
_LATEST, _AGREE, _CHANGED = 10, 0.8, 0.25  # of so many reports so many are off by so much in logarithm: it has changed


class LatestReports:
    """`LatestReports` are the last ones of one model in configurations whose speed was known."""

    def __init__(self) -> None:
        self._latest: deque[tuple[Counts, float, float]] = deque(maxlen=_LATEST)  # with the mean of those before

    def average(self, means: dict[Counts, tuple[int, float]], at: Counts, speed: float) -> None:
        """Take a report into the means of all configurations of the model, which change as a whole if the model has.

        What was reported before a change would count for ever else in configurations that no job has any more.

        Args:
            means: of each configuration, how many reports count, and their mean; changed.
            at: the configuration.
            speed: that was reported, in samples a second.
        """
        if means.get(at, (0, 0.0))[0] >= _KNOWN:
            self._latest.append((at, speed, means[at][1]))
            self._follow(means)
        count, mean = means.get(at, (0, 0.0))
        count = min(count + 1, _REMEMBERED)
        means[at] = count, mean + (speed - mean) / count

    def _follow(self, means: dict[Counts, tuple[int, float]]) -> None:
        """Scale all means where nearly all of the latest reports are off in one direction, and forget these reports."""
        if len(self._latest) < _LATEST:
            return
        before = {at: mean for at, _, mean in reversed(self._latest)}  # as it was before the first of them
        strays = np.log([speed / before[at] for at, speed, _ in self._latest])
        least, most = np.quantile(strays, [1 - _AGREE, _AGREE])
        if least > _CHANGED or most < -_CHANGED:
            change = float(np.exp(np.median(strays)))
            means.update({at: (1, before.get(at, mean) * change) for at, (_, mean) in means.items()})
            self._latest.clear()
