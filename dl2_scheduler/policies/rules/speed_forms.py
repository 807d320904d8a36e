"""This module holds the forms of the curves that are fitted to speeds: one with servers, one without.

Each says the seconds that a sample takes as a sum of terms, whose coefficients are not negative.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dl2_scheduler.cluster.jobs import Job

_Floats = NDArray[np.float64]

_ALONE = 0.25
"""Part of the exchange with one other worker that a worker alone does, too: it fills its buckets and empties them."""


@dataclass(frozen=True)
class SpeedForm:
    """A `SpeedForm` is what is thought of speeds before anybody has reported one.

    Attributes:
        has_servers: which of the two forms it is.
        guess: coefficients before any report, as `terms` has them, (terms,).
        guess_at: servers and workers at which a fit is held to the guess, (places, 2).
    """

    has_servers: bool
    guess: _Floats
    guess_at: _Floats

    def terms(self, at: _Floats) -> _Floats:
        """Return the terms at these counts, (counts, terms).

        Args:
            at: servers and workers, (counts, 2).
        """
        return terms(at[:, 0], at[:, 1]) if self.has_servers else ring_terms(at[:, 1])

    def counts(self, max_servers: int, max_workers: int) -> _Floats:
        """Return all servers and workers with which a job of these maxima may run, (counts, 2): by servers first."""
        servers = np.arange(1, max_servers + 1) if self.has_servers else np.zeros(1)
        workers = np.arange(1, max_workers + 1)
        found: _Floats = np.stack(np.meshgrid(servers, workers, indexing="ij"), axis=-1).reshape(-1, 2).astype(float)
        return found


def terms(servers: _Floats, workers: _Floats) -> _Floats:
    """Return Optimus's terms of the seconds that a sample takes (Optimus, section 3.2), in a new last axis.

    They are in 1/workers, 1, workers/servers, workers and servers.
    """
    one = np.ones_like(workers)
    return np.stack([one / workers, one, workers / servers, workers, servers], axis=-1)


def ring_terms(workers: _Floats) -> _Floats:
    """Return the terms of the seconds that a sample takes without servers, in a new last axis.

    Computing is shared among the workers: 1/workers. Each worker sends and gets 2 (workers - 1)/workers of the model's
    bytes in a step, and does so in 2 (workers - 1) messages one after another, each of which takes some time however
    small it is. (A step has a constant number of samples, so that a part of a step is a part of a sample.) A part of
    that is left where a worker is alone, so that no coefficients say that it trains in no time.
    """
    others = workers - 1 + _ALONE
    return np.stack([1 / workers, others / workers, others], axis=-1)


WITH_SERVERS = SpeedForm(
    True,
    np.array([1.0, 0.02, 0.3, 0.01, 0.01]),
    np.array([(1.0, 1.0), (4.0, 4.0), (1.0, 16.0), (16.0, 1.0), (16.0, 16.0)]),
)
WITHOUT_SERVERS = SpeedForm(False, np.array([1.0, 0.3, 0.01]), np.array([(0.0, 1.0), (0.0, 4.0), (0.0, 16.0)]))


def form_of(job: Job) -> SpeedForm:
    """Return the form of a job's speeds."""
    return WITH_SERVERS if job.has_servers else WITHOUT_SERVERS
