"""This module makes the rules and planners that the graph scheduler is compared with, pod by pod."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from dl2_scheduler.cluster.errors import BadInput
from dl2_scheduler.cluster.hardware.placements import PlacedSpeed
from dl2_scheduler.cluster.interfaces import PlacementPolicy
from dl2_scheduler.figures.placement.contenders import SHORTEST
from dl2_scheduler.policies.placement.balance import BestFit, LoadBalancing, TetrisDot
from dl2_scheduler.policies.placement.greedy_fill import GroupRule, JobOrder
from dl2_scheduler.policies.placement.least_interference import LeastInterference
from dl2_scheduler.policies.placement.local_search import JobPatience, progress_rate
from dl2_scheduler.policies.placement.pods import PodFill, PodSearch
from dl2_scheduler.sim.placed.formula.world import Formula
from dl2_scheduler.sim.placed.scenario import Scenario

GRAPH_PLANNERS = ("pod search", "pod search that waits", "patient pod search")
"""Names of the planners, before the speeds that they know."""
PATIENCE = 0.75
"""Of the last planner; see `JobPatience`."""


def graph_rules(scenario: Scenario) -> dict[str, GroupRule]:
    """Return the rules by their names; LIF knows the world's interference, as in the paper.

    Raises:
        BadInput: the scenario's world is not that of the paper's formulas.
    """
    if not isinstance(scenario.world, Formula):
        raise BadInput("the graph scheduler's rules need the world of its formulas: give Scenario.graph's")
    true = scenario.world.interference
    return {
        "load balancing": LoadBalancing(),
        "best fit": BestFit(),
        "tetris-dot": TetrisDot(),
        "LIF-true, lb": LeastInterference(true, across=True),
        "LIF-true, own": LeastInterference(true, own_first=True, across=True),
    }


def graph_planner_names(speeds: str) -> tuple[str, ...]:
    """Return the names of the planners that know these speeds, TRUE or FITTED."""
    return tuple(f"{name}, {speeds}" for name in GRAPH_PLANNERS)


def graph_planners(
    scenario: Scenario, worlds: Mapping[str, PlacedSpeed], names: Sequence[str] = GRAPH_PLANNERS
) -> dict[str, PodSearch]:
    """Return planners by their names: the best of some rules' places in each pod, improved; then the best pod.

    Args:
        scenario: where they decide.
        worlds: speeds that they know, by name.
        names: of the planners, without speeds.
    """
    found: dict[str, PodSearch] = {}
    for name, speeds in worlds.items():
        known = graph_rules(replace(scenario, world=speeds))  # LIF of these speeds, too
        starts = [known[each] for each in ("load balancing", "best fit", "LIF-true, own")]
        waits = PodSearch(speeds, starts, progress_rate, may_wait=True)
        patience = JobPatience(PATIENCE, replace(scenario, world=speeds).speed_alone)
        every = PodSearch(speeds, starts), waits, replace(waits, patience=patience)
        found |= zip(graph_planner_names(name), every, strict=True)
    return {name: each for name, each in found.items() if name.split(", ")[0] in names}


def graph_contenders(
    scenario: Scenario, worlds: Mapping[str, PlacedSpeed], names: Sequence[str] = GRAPH_PLANNERS
) -> dict[str, PlacementPolicy]:
    """Return all rules in both orders, and planners, by their names.

    Args:
        scenario: where they decide.
        worlds: see `graph_planners`.
        names: see there.
    """
    rules = graph_rules(scenario)
    found: dict[str, PlacementPolicy] = {name: PodFill(rule) for name, rule in rules.items()}
    found |= {name + SHORTEST: PodFill(rule, JobOrder.SHORTEST, skipping=True) for name, rule in rules.items()}
    return found | graph_planners(scenario, worlds, names)
