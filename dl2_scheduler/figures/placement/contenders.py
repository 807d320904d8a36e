"""This module makes the rules and planners that placement policies are compared with, for one scenario."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from dl2_scheduler.cluster.hardware.interference import LoadInterference
from dl2_scheduler.cluster.hardware.machines import Floats
from dl2_scheduler.cluster.hardware.placements import PlacedSpeed
from dl2_scheduler.cluster.interfaces import PlacementPolicy
from dl2_scheduler.policies.placement.annealing import Annealing
from dl2_scheduler.policies.placement.balance import BestFit, LoadBalancing, TetrisDot
from dl2_scheduler.policies.placement.greedy_fill import GreedyFill, GroupRule, JobOrder
from dl2_scheduler.policies.placement.least_interference import LeastInterference
from dl2_scheduler.policies.placement.local_search import LocalSearch, progress_rate
from dl2_scheduler.policies.rules.fixed_demand import FixedDemand
from dl2_scheduler.sim.metrics import Estimate, estimate
from dl2_scheduler.sim.placed.placed_speed import Mechanistic
from dl2_scheduler.sim.placed.probing import probe
from dl2_scheduler.sim.placed.scenario import Scenario

SHORTEST = ", shortest first"
"""What the name of a rule ends with that places short jobs first, and lets others by where one does not fit."""

TRUE, FITTED = "true", "fitted"
"""Speeds that planners know: what their names end with."""
_PLANNERS = ("local search", "local search that waits", "annealing")


def fitted_interference(scenario: Scenario, quadratic: bool) -> LoadInterference:
    """Return LIF's form, fitted to probes of the scenario's world; each model is probed on the first node's hardware.

    Args:
        scenario: whose world is mechanistic.
        quadratic: the form.
    """
    strength = scenario.world.strength if isinstance(scenario.world, Mechanistic) else 1.0
    points = probe(scenario.profiles, scenario.machines.nodes[0], strength)
    return LoadInterference.fitted(scenario.profiles, points, quadratic)


def rules(scenario: Scenario) -> dict[str, GroupRule]:
    """Return the rules by their names; the last two know what nobody knows."""
    linear, quadratic = (fitted_interference(scenario, form) for form in (False, True))
    found: dict[str, GroupRule] = {
        "load balancing": LoadBalancing(),
        "best fit": BestFit(),
        "tetris-dot": TetrisDot(),
        "LIF-linear, lb": LeastInterference(linear),
        "LIF-quadratic, lb": LeastInterference(quadratic),
        "LIF-linear, own": LeastInterference(linear, own_first=True),
        "LIF-quadratic, own": LeastInterference(quadratic, own_first=True),
    }
    if isinstance(scenario.world, Mechanistic):
        found["LIF-true, lb"] = LeastInterference(scenario.world.contention)
        found["LIF-true, own"] = LeastInterference(scenario.world.contention, own_first=True)
    return found


def planner_names(speeds: str) -> tuple[str, ...]:
    """Return the names of the planners that know these speeds, TRUE or FITTED."""
    return tuple(f"{name}, {speeds}" for name in _PLANNERS)


def contenders(scenario: Scenario, fitted: PlacedSpeed | None = None) -> dict[str, PlacementPolicy]:
    """Return all rules in both orders, and planners, by their names.

    Args:
        scenario: where they decide.
        fitted: a model of its speeds; None: there are only planners that know the true ones.
    """
    known = rules(scenario)
    found: dict[str, PlacementPolicy] = {name: GreedyFill(rule) for name, rule in known.items()}
    found |= {name + SHORTEST: GreedyFill(rule, JobOrder.SHORTEST, skipping=True) for name, rule in known.items()}
    starts = [known[name] for name in ("load balancing", "best fit", "LIF-quadratic, own")]
    for name, speeds in ((TRUE, scenario.world), (FITTED, fitted)):
        if speeds is not None:
            search = LocalSearch(speeds, starts)
            waits = LocalSearch(speeds, starts, progress_rate, may_wait=True)
            found |= zip(planner_names(name), (search, waits, Annealing(search)), strict=True)
    return found


@dataclass(frozen=True)
class PlacementComparison:
    """A `PlacementComparison` holds mean completion times, in intervals, of several policies on the same job sequences.

    Attributes:
        means: by policy, those of each sequence, (sequences,).
        bounds: of each sequence: of jobs alone, and of the linear program, (sequences, 2).
    """

    means: Mapping[str, Floats]
    bounds: Floats

    def under(self, name: str, other: str) -> Estimate:
        """Return by how many percent one policy's completion times lie under another's, over the sequences.

        Args:
            name: of the one.
            other: of the other.
        """
        return estimate((100 * (1 - self.means[name] / self.means[other])).tolist())

    def mean(self, name: str) -> float:
        """Return a policy's mean over the sequences."""
        return float(self.means[name].mean())

    def best(self, name: str) -> str:
        """Return the name of a rule in the order of jobs that suits it best."""
        return min((name, name + SHORTEST), key=self.mean)


def compare_placements(
    scenario: Scenario,
    policies: Mapping[str, PlacementPolicy],
    seeds: Sequence[int],
    tell: Callable[[str], None] = lambda _: None,
) -> PlacementComparison:
    """Run policies on the same sequences of jobs.

    Args:
        scenario: where.
        policies: by their names.
        seeds: of the sequences.
        tell: called with the name of each policy that is done.
    """
    sequences = [scenario.jobs(seed) for seed in seeds]

    def means(policy: PlacementPolicy) -> Iterator[float]:
        for jobs in sequences:
            yield float(scenario.completion_times(FixedDemand(), policy, jobs).mean())

    found = {}
    for name, policy in policies.items():
        found[name] = np.array(list(means(policy)))
        tell(name)
    return PlacementComparison(found, np.array([scenario.bounds(jobs) for jobs in sequences]))
