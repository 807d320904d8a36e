"""This module fits what planners, LIF and learners know to a simulated world, as they would to a live cluster."""

from dl2_scheduler.figures.placement.contenders import fitted_interference
from dl2_scheduler.learning.placement.reward_model import fit_world
from dl2_scheduler.policies.placement.speed_model import SpeedModel
from dl2_scheduler.sim.placed.placed_speed import Mechanistic
from dl2_scheduler.sim.placed.scenario import Scenario


def fitted_model(scenario: Scenario, samples: int) -> SpeedModel:
    """Fit a model of speeds to samples of a world; LIF's coefficients to probes, where the world can be probed.

    Args:
        scenario: whose world it is.
        samples: that the speeds are fitted to.
    """
    interference = fitted_interference(scenario, quadratic=True) if isinstance(scenario.world, Mechanistic) else None
    models = tuple(sorted(scenario.profiles))
    return SpeedModel(models, scenario.profiles, fit_world(scenario, samples), interference)
