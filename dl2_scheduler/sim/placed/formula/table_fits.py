"""This module fits models of interference to samples of the formula world, as the graph scheduler's table III does."""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
from scipy.optimize import minimize

from dl2_scheduler.cluster.hardware.machines import GRAPH, Floats, Machines
from dl2_scheduler.cluster.hardware.placements import SERVER, WORKER, PlacementArrays
from dl2_scheduler.sim.placed.formula.world import FormulaInterference, Loads

SAMPLES = 480
"""As many as the paper has."""
_MOST_BESIDE = 3  # jobs on a server of 4 GPUs
_MOST_GENERATED = 4.0  # cores that the generator of load uses


def fit_errors(interference: FormulaInterference, noise: float = 0.15, seed: int = 0) -> Mapping[str, float]:
    """Return how far fitted models miss samples, in the order of table III: its own form is the third.

    Errors are absolute, as a part of the mean slowdown: the paper does not say which it means.

    Args:
        interference: of which samples are taken, on a server of two processors and four GPUs.
        noise: standard deviation of the logarithm of a measured slowdown.
        seed: of jobs, places and noise.
    """
    rng = np.random.default_rng(seed)
    server = replace(interference, machines=Machines.alike(GRAPH, 1))
    loads = Loads(*np.array([_sampled(server, rng) for _ in range(SAMPLES)]).T)
    measured = interference.coefficients.slowdown(loads) * np.exp(rng.normal(0.0, noise, SAMPLES))
    constant = np.ones((SAMPLES, 1))
    cpu, pcie = (np.column_stack(pair) for pair in (loads[:2], loads[2:]))
    linear = np.column_stack([constant, cpu, pcie])
    quadratic = np.column_stack([linear, *(_squares(each) for each in (cpu, pcie))])
    found = {
        "linear": _residual(linear, measured),
        "quadratic": _residual(quadratic, measured),
        "own form": _exponential(cpu, np.column_stack([constant, pcie]), measured),
        "without PCIe": _exponential(cpu, constant, measured),
        "without CPU": _residual(np.column_stack([constant, pcie]), measured),
    }
    return {name: float(np.abs(residual).mean() / measured.mean()) for name, residual in found.items()}


def _sampled(server: FormulaInterference, rng: np.random.Generator) -> list[float]:
    """Return what lies beside a job's worker, one of the server's jobs, and beside them a generator of load."""
    jobs = 2 + int(rng.integers(_MOST_BESIDE))
    job, role = np.repeat(np.arange(jobs), 2), np.tile([WORKER, SERVER], jobs)
    group = np.where(job == 0, 0, rng.integers(2, size=2 * jobs))
    group[2] = 0  # at least one beside it
    placements = PlacementArrays(rng.integers(len(server.cpu), size=jobs), job, role, group, np.arange(jobs))
    found = [float(each[0]) for each in server.loads(placements)]
    found[0] += float(rng.uniform(0.0, _MOST_GENERATED))
    return found


def _squares(pair: Floats) -> Floats:
    return np.column_stack([pair**2, pair[:, 0] * pair[:, 1]])


def _residual(terms: Floats, measured: Floats) -> Floats:
    found: Floats = terms @ np.linalg.lstsq(terms, measured, rcond=None)[0] - measured
    return found


def _exponential(cpu: Floats, terms: Floats, measured: Floats) -> Floats:
    """Return what is missed by an exponential of the CPU's loads, and other terms, all fitted.

    Args:
        cpu: what lies beside, and what is used, (samples, 2).
        terms: linear ones, (samples, n).
        measured: slowdowns, (samples,).
    """

    def residual(exponents: Floats) -> Floats:
        """Return what is missed with these two, and the best of all other coefficients."""
        grown = np.exp(np.clip(cpu @ exponents, -30.0, 30.0))
        return _residual(np.column_stack([terms, grown]), measured)

    best = minimize(lambda exponents: float((residual(exponents) ** 2).sum()), [0.1, 0.1], method="Nelder-Mead")
    return residual(best.x)
