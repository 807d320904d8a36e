"""Shortcuts for the simulator of Sia's authors: it computes the same numbers in a fifth of the time.

It fits a performance model to each job again and again, by automatic differentiation; here the slope is written out,
and what has been computed from the same numbers is remembered.
"""

from collections.abc import Callable
from functools import lru_cache
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np

from benchmarks.sia_simulator.choice import Floats


def take_shortcuts(goodput: ModuleType, job: ModuleType, applications: ModuleType) -> None:
    """Make the simulator remember what it has computed, and differentiate its error by hand.

    Args:
        goodput: its module of goodput functions.
        job: its module of jobs.
        applications: its module of applications.
    """
    goodput.autograd = SimpleNamespace(grad=lambda _: error_slope, numpy=np)
    job.fit_perf_params = _remembered(job.fit_perf_params)
    goodput.GoodputFunction.optimize = _remembered_optimum(goodput.GoodputFunction.optimize)
    application = applications.Application
    application.get_max_local_bsz = lru_cache(maxsize=None)(application.get_max_local_bsz)


def error_slope(
    parameters: Floats, nodes: Floats, replicas: Floats, batch: Floats, compute: Floats, step: Floats
) -> Floats:
    """Return the gradient of the error of Pollux's performance model (Qiao et al., OSDI 2021, section 4.1).

    A step takes (compute^g + network^g)^(1/g) seconds, where compute = constant + slope x batch, and network is a
    constant and a slope of the slowest link, for each replica beyond two. The error is the sum of the root mean square
    errors of two logarithms, of computing and of steps, with priors 0.001 (g - 1)^2 and 0.01 (slope / constant)^2.

    Args:
        parameters: constant and slope of computing, of the network between nodes and within one, and g; (7,).
        nodes: of each measurement; (measurements,).
        replicas: of each.
        batch: of one replica in each.
        compute: measured seconds of computing.
        step: measured seconds of a step.
    """
    fixed, slope, far, far_slope, near, near_slope, power = parameters
    among, within = nodes > 1, (nodes <= 1) & (replicas > 1)
    further = np.maximum(replicas - 2, 1e-8)
    computing = fixed + slope * batch
    network = np.where(among, far, np.where(within, near, 1e-8))
    network = network + np.where(among, far_slope, np.where(within, near_slope, 1e-8)) * further
    powers = computing**power, network**power
    total = powers[0] + powers[1]
    off_compute, off_step = np.log(computing) - np.log(compute), np.log(total) / power - np.log(step)
    by_compute, by_step = _slope_of_rms(off_compute), _slope_of_rms(off_step)
    by_computing = by_compute / computing + by_step * powers[0] / computing / total
    by_network = by_step * powers[1] / network / total
    mixed = (powers[0] * np.log(computing) + powers[1] * np.log(network)) / (power * total)
    return np.array([
        by_computing.sum(),
        (by_computing * batch).sum(),
        by_network[among].sum() - 2e-2 * far_slope**2 / far**3,
        (by_network * further)[among].sum() + 2e-2 * far_slope / far**2,
        by_network[within].sum() - 2e-2 * near_slope**2 / near**3,
        (by_network * further)[within].sum() + 2e-2 * near_slope / near**2,
        (by_step * (mixed - np.log(total) / power**2)).sum() + 2e-3 * (power - 1),
    ])  # fmt: skip


def _slope_of_rms(errors: Floats) -> Floats:
    with np.errstate(invalid="ignore", divide="ignore"):  # as automatic differentiation: nan where all errors are 0
        return np.asarray(errors / (len(errors) * np.sqrt((errors**2).mean())))


def _remembered(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function of arrays that remembers its results."""
    results: dict[Any, Any] = {}

    def remembered(*arrays: Any) -> Any:
        key = tuple(map(_key, arrays))
        if key not in results:
            results[key] = function(*arrays)
        return results[key]

    return remembered


def _remembered_optimum(optimize: Callable[..., Any]) -> Callable[..., Any]:
    """Return the method that finds a job's best batch size, remembering what it found for the same model."""
    results: dict[Any, Any] = {}

    def remembered(self: Any, *arguments: Any, **named: Any) -> Any:
        key = (
            self._perf_params,
            tuple(map(_key, self._grad_params)),
            self._init_batch_size,
            tuple(map(_key, arguments)),
            tuple((name, _key(value)) for name, value in sorted(named.items())),
        )
        if key not in results:
            results[key] = optimize(self, *arguments, **named)
        return results[key]

    return remembered


def _key(value: Any) -> Any:
    return (value.dtype.str, value.shape, value.tobytes()) if isinstance(value, np.ndarray) else value
