"""This module gives the speeds that the product ships: a smooth form for each model, fitted to measurements.

See `fit_speeds` for how they were fitted.
"""

import json
from dataclasses import dataclass
from importlib import resources

import numpy as np
from numpy.typing import NDArray

from dl2_scheduler.cluster.speeds import Grid, Speeds

FILE = resources.files("dl2_scheduler.sim") / "shipped.json"

DEGREE = 4
COEFFICIENTS = (DEGREE + 1) * (DEGREE + 2) // 2
# Most models were measured with 1, 3, 5, ... tasks. In plain logarithms the step from 1 to 3 would be a third of the
# whole range, and a polynomial swings inside it.
_SHIFT, _MIDDLE = 4.0, 8.0

_Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Fit:
    """A fit gives a model's speed as a smooth function of servers and workers.

    It is the exponential of a polynomial in log((servers + 4) / 8) and log((workers + 4) / 8).

    Attributes:
        coefficients: of `terms`.
        most_servers: that were measured.
        most_workers: that were measured.
        most_together: servers and workers of one measurement.
        points: measurements that the fit is of.
        mean_error: of the fit at them, relative.
        p95_error: 95th percentile of it.
    """

    coefficients: tuple[float, ...]
    most_servers: int
    most_workers: int
    most_together: int
    points: int
    mean_error: float
    p95_error: float

    def grid(self, max_servers: int, max_workers: int) -> Grid:
        """Return the speed in samples a second, (servers, workers), from 0 on.

        Nobody has measured jobs without servers there. With W workers they are taken to be as fast as with W servers
        too: W servers with equal parts of the model send and get as many bytes as each worker does, twice the model in
        all, and in a ring of W workers each sends and gets 2 (W - 1) / W of it.

        Beyond what was measured the speed is that of the last measured counts in the same ratio: it neither grows nor
        falls any more.
        """
        grid = np.zeros((max_servers + 1, max_workers + 1))
        grid[1:, 1:] = self._speeds(*np.mgrid[1 : max_servers + 1, 1 : max_workers + 1].astype(float))
        alone = np.arange(1.0, max_workers + 1)
        grid[0, 1:] = self._speeds(alone, alone)
        return grid

    def _speeds(self, servers: _Floats, workers: _Floats) -> _Floats:
        limits = (self.most_servers / servers, self.most_workers / workers, self.most_together / (servers + workers))
        part = np.minimum(1.0, np.minimum.reduce(limits))
        at = terms(np.maximum(1.0, servers * part), np.maximum(1.0, workers * part))
        found: _Floats = np.exp(at @ np.array(self.coefficients))
        return found


def terms(servers: _Floats, workers: _Floats) -> _Floats:
    """Return the terms of the polynomial, in a new last axis."""
    x, y = np.log((servers + _SHIFT) / _MIDDLE), np.log((workers + _SHIFT) / _MIDDLE)
    return np.stack([x**i * y**j for i in range(DEGREE + 1) for j in range(DEGREE + 1 - i)], axis=-1)


def shipped_fits() -> dict[str, Fit]:
    """Return the fits by model, in alphabetical order."""
    models = json.loads(FILE.read_text(encoding="utf-8"))["models"]
    return {name: Fit(**{**fields, "coefficients": tuple(fields["coefficients"])}) for name, fields in models.items()}


def shipped_speeds(max_servers: int = 16, max_workers: int = 16) -> Speeds:
    """Return the speeds of the models of the catalogue.

    Args:
        max_servers: of the jobs, at least.
        max_workers: of the jobs, at least.
    """
    return Speeds({name: fit.grid(max_servers, max_workers) for name, fit in shipped_fits().items()})
