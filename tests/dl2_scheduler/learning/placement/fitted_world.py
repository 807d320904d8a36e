"""A scenario whose world is a model of speeds, fitted in a moment to few samples."""

from dataclasses import replace
from functools import cache

from dl2_scheduler.learning.placement.reward_model import FitSettings, fit_pooled
from dl2_scheduler.sim.placed.samples import draw_samples
from dl2_scheduler.sim.placed.scenario import Scenario


@cache
def fitted_scenario(mean: float = 3.0, jobs: int = 15, servers: int = 6) -> Scenario:
    """Return Harmony's testbed with few jobs, in the world of a fitted model."""
    true = Scenario.harmony(mean, servers=servers)
    samples = draw_samples(true.machines, true.profiles, true.world, 200, 0)
    world = fit_pooled(samples, true.profiles, servers, FitSettings(epochs=4))
    return replace(true, world=world, workload=replace(true.workload, jobs=jobs))
