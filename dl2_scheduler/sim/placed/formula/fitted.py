"""This module fits the graph scheduler's model of speeds to measured jobs: what its agents and planners may know.

The law of speed, the network and its routes are known, as a cluster's owner knows them; what tasks use beside each
other and the seven coefficients are not. The paper fits its own form, too, and then takes it for the truth.
"""

from dataclasses import dataclass, replace

import numpy as np
from scipy.optimize import least_squares

from dl2_scheduler.cluster.hardware.machines import GPU, GRAPH, Floats, Machines
from dl2_scheduler.cluster.hardware.placements import PlacementArrays
from dl2_scheduler.cluster.hardware.topologies.flat import flat_of
from dl2_scheduler.sim.placed.formula.world import Coefficients, Formula, FormulaInterference
from dl2_scheduler.sim.placed.samples import PlacedSamples, draw_samples

SAMPLES = 480
"""Pairs of servers with jobs on them that are measured: as many samples as the paper has."""
_NODES = 2
_FIRST_GUESS = (np.log(0.3), 0.3, 0.15, -1.0, 0.5, 0.2, 0.0)


@dataclass(frozen=True)
class _Fit:
    """These are the unknowns of the model, as a vector: logarithms of uses, then coefficients.

    Attributes:
        world: whose other parts are known.
        samples: as one cluster.
        measured: samples a second of each job, (jobs,).
    """

    world: Formula
    samples: PlacementArrays
    measured: Floats

    def interference(self, unknown: Floats) -> FormulaInterference:
        """Return what a vector says."""
        models = len(self.world.profiles)
        cpu = np.exp(unknown[: 2 * models]).reshape(models, 2)
        has_gpu = np.array([self.world.profiles[name].worker[GPU] > 0 for name in sorted(self.world.profiles)])
        pcie = np.zeros((models, 2))
        pcie[has_gpu, 0] = np.exp(unknown[2 * models : -7])
        size, a2, a3, l1, b1, b2, l2 = unknown[-7:].tolist()
        factor = float(np.exp(size))
        coefficients = Coefficients((1.0, a2, a3, l1), (b1, b2, l2)).times(factor)
        return FormulaInterference(self.world.machines, coefficients, cpu, pcie)

    def residual(self, unknown: Floats) -> Floats:
        """Return the logarithms of predicted over measured speeds, (jobs,)."""
        rates = replace(self.world, interference=self.interference(unknown)).rates(self.samples)
        found: Floats = np.log(rates / self.measured)
        return found


def fitted_formula(world: Formula, samples: int = SAMPLES, seed: int = 0, noise: float = 0.03) -> Formula:
    """Return a world whose interference is fitted to noisy speeds of random jobs on pairs of default servers.

    Args:
        world: the true one.
        samples: pairs of servers.
        seed: of jobs, places and noise.
        noise: see `draw_samples`.
    """
    pair = _on(world, Machines.alike(GRAPH, _NODES))
    drawn = draw_samples(pair.machines, world.profiles, pair, samples, seed, noise)
    many = _on(world, Machines.alike(GRAPH, _NODES * samples))
    fit = _Fit(many, _joined(drawn, len(pair.machines.sockets)), np.concatenate(drawn.rates))
    known = [world.profiles[name] for name in sorted(world.profiles)]
    cpu = np.log([[profile.cpu_worker, profile.cpu_server] for profile in known]).ravel()
    pcie = [np.log(profile.size_mb / profile.step_s / 60) for profile in known if profile.worker[GPU]]
    found = least_squares(fit.residual, np.concatenate([cpu, pcie, _FIRST_GUESS]), loss="soft_l1", f_scale=0.1)
    return replace(world, interference=replace(fit.interference(found.x), machines=world.machines))


def fit_error(world: Formula, fitted: Formula, samples: int = 500, seed: int = 1) -> float:
    """Return the mean of |predicted - true| / true over jobs of other samples, without noise.

    Args:
        world: the true one.
        fitted: the other.
        samples: pairs of servers.
        seed: of jobs and places.
    """
    true, known = (_on(each, Machines.alike(GRAPH, _NODES)) for each in (world, fitted))
    drawn = draw_samples(true.machines, world.profiles, true, samples, seed, 0.0)
    errors = [np.abs(known.rates(each) / rates - 1) for each, rates in zip(drawn.clusters, drawn.rates, strict=True)]
    return float(np.concatenate(errors).mean())


def _on(world: Formula, machines: Machines) -> Formula:
    """Return a world on other machines, whose network is flat."""
    interference = replace(world.interference, machines=machines)
    return Formula(machines, flat_of(machines), world.profiles, interference)


def _joined(samples: PlacedSamples, groups: int) -> PlacementArrays:
    """Return the clusters of samples beside each other, as one.

    Args:
        samples: clusters.
        groups: of each.
    """
    jobs = np.cumsum([0, *(len(each.model) for each in samples.clusters)])
    return PlacementArrays(
        np.concatenate([each.model for each in samples.clusters]),
        np.concatenate([each.job + first for each, first in zip(samples.clusters, jobs[:-1], strict=True)]),
        np.concatenate([each.role for each in samples.clusters]),
        np.concatenate([each.group + number * groups for number, each in enumerate(samples.clusters)]),
        np.arange(jobs[-1]),
    )
