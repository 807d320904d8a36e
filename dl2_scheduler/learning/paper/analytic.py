"""The analytical model of training speed on which offline reinforcement learning learns (DL2, section 6.2)."""

import numpy as np
from scipy.optimize import nnls

from dl2_scheduler.cluster.speeds import Grid, Speeds
from dl2_scheduler.policies.rules.speed_forms import terms


def analytical(speeds: Speeds) -> Speeds:
    """Fit Optimus's model of a synchronous step (Optimus, section 3.2) to true speeds; where it errs, it errs.

    The seconds of a sample are a sum of terms in 1/workers, 1, workers/servers, workers and servers, whose coefficients
    are found by non-negative least squares of the relative error.

    Args:
        speeds: of each model.
    """
    return Speeds({model: _fitted(speeds.grids[model]) for model in speeds.models})


def _fitted(grid: Grid) -> Grid:
    servers, workers = np.mgrid[1 : grid.shape[0], 1 : grid.shape[1]].astype(float)
    at, speed = terms(servers, workers), grid[1:, 1:]
    runs = speed > 0
    coefficients, _ = nnls(at[runs] * speed[runs][:, None], np.ones(int(runs.sum())))
    found = np.zeros_like(grid)
    found[1:, 1:] = 1 / np.maximum(at @ coefficients, 1e-12)
    return found
