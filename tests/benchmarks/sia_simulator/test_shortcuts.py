"""The simulator of Sia's authors computes the same numbers in less time."""

from types import SimpleNamespace

import numpy as np
import pytest

from benchmarks.sia_simulator.shortcuts import error_slope, take_shortcuts


def test_the_slope_is_that_of_the_error():
    random = np.random.default_rng(0)
    nodes = np.array([1, 1, 2, 1])
    replicas, batch = np.array([1, 4, 8, 2]), np.array([32, 64, 32, 128])
    compute, step = random.uniform(0.1, 1, (2, 4))
    at = np.array([0.1, 0.01, 0.2, 0.05, 0.1, 0.02, 1.5])

    def error(p):
        computing = p[0] + p[1] * batch
        further = np.maximum(replicas - 2, 1e-8)
        far, near = p[2] + p[3] * further, p[4] + p[5] * further
        network = np.where(nodes > 1, far, np.where(replicas > 1, near, 1e-8 + 1e-8 * further))
        steps = (computing ** p[6] + network ** p[6]) ** (1 / p[6])
        roots = [np.sqrt((np.log(x / y) ** 2).mean()) for x, y in ((computing, compute), (steps, step))]
        return sum(roots) + 1e-3 * (p[6] - 1) ** 2 + 1e-2 * ((p[3] / p[2]) ** 2 + (p[5] / p[4]) ** 2)

    around = [(error(at + 1e-6 * unit) - error(at - 1e-6 * unit)) / 2e-6 for unit in np.eye(7)]
    assert error_slope(at, nodes, replicas, batch, compute, step) == pytest.approx(around, abs=1e-6)


def test_what_was_computed_is_computed_once():
    calls = []

    class GoodputFunction:
        _perf_params, _grad_params, _init_batch_size = (1.0,), (2.0,), 8

        def optimize(self, nodes, replicas, accumulation):
            calls.append("optimize")
            return nodes + replicas

    class Application:
        def get_max_local_bsz(self, placement):
            calls.append("batch")
            return sum(placement)

    goodput = SimpleNamespace(GoodputFunction=GoodputFunction)
    fitting = SimpleNamespace(fit_perf_params=lambda *arrays: calls.append("fit") or float(sum(map(np.sum, arrays))))
    take_shortcuts(goodput, fitting, SimpleNamespace(Application=Application))
    assert [fitting.fit_perf_params(np.arange(3), np.ones(3)) for _ in range(2)] == [6.0, 6.0]
    assert [GoodputFunction().optimize(np.arange(2), 1, accumulation=True)[1] for _ in range(2)] == [2, 2]
    application = Application()
    assert [application.get_max_local_bsz((4, 4)) for _ in range(2)] == [8, 8]
    assert calls == ["fit", "optimize", "batch"]
    assert fitting.fit_perf_params(np.arange(3), np.zeros(3)) == 3.0
