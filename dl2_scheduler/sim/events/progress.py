"""This module keeps how far jobs are in time that events divide: exact ends, and what is left between them."""

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Mask = NDArray[np.bool_]

_DONE = 1e-12  # part of its work that a job may lack by rounding when it ends


class Progress:
    """`Progress` keeps what each job has left to do, in any unit of work; a rate is work a second.

    Args:
        arrival: of each job, in seconds, (jobs,).
        work: of each job, (jobs,).

    Attributes:
        arrival: as given.
        work: as given.
        now: seconds since the beginning.
        left: work that each job needs still, (jobs,).
        finish: when each ended, in seconds, (jobs,); NaN: it has not.
        begins: until when each stands still whatever its rate, in seconds, (jobs,): what a change of it costs.
    """

    def __init__(self, arrival: Floats, work: Floats):
        self.arrival, self.work = np.asarray(arrival, dtype=float), np.asarray(work, dtype=float)
        self.now = 0.0
        self.left: Floats = self.work.copy()
        self.finish: Floats = np.full(len(self.work), np.nan)
        self.begins: Floats = np.zeros(len(self.work))

    @property
    def present(self) -> Mask:
        """Return the jobs that have arrived and not ended."""
        mask: Mask = (self.arrival <= self.now) & np.isnan(self.finish)
        return mask

    @property
    def over(self) -> bool:
        """Return whether all jobs have ended."""
        return not np.isnan(self.finish).any()

    def next_arrival(self) -> float:
        """Return when the next job arrives, in seconds; infinity: none will."""
        return float(self.arrival[self.arrival > self.now].min(initial=np.inf))

    def next_finish(self, rates: Floats) -> float:
        """Return when the next job ends at these rates, in seconds; infinity: none does."""
        return float(self._ends(rates).min(initial=np.inf))

    def advance(self, to: float, rates: Floats) -> Ints:
        """Let time pass, each job at its rate until it ends, and return the jobs that ended, by index.

        Args:
            to: until when, in seconds. A job that arrives before then begins no sooner.
            rates: of each job, (jobs,); those of jobs that are not there do not count.
        """
        runs, ends = self.present, self._ends(rates)
        trains = np.maximum(to - np.maximum(self.now, self.begins), 0.0)
        left = np.where(runs, self.left - np.maximum(rates, 0.0) * trains, self.left)
        ended = runs & ((ends <= to) | (left <= _DONE * self.work))
        self.finish[ended] = np.minimum(ends, to)[ended]
        self.left = np.where(ended, 0.0, left)
        self.now = to
        found: Ints = ended.nonzero()[0]
        return found

    def _ends(self, rates: Floats) -> Floats:
        """Return when each job ends at these rates, in seconds; infinity: it does not."""
        with np.errstate(divide="ignore", invalid="ignore"):
            since = np.maximum(self.now, self.begins)
            ends = np.where(self.present & (rates > 0), since + self.left / rates, np.inf)
        found: Floats = ends
        return found
