"""This benchmark learns the graph scheduler's agents and compares them with rules and planners, on unseen sequences.

    python -m benchmarks.placement_graph [--seeds 5] [--sequences 10] [--settings ...] [--agents FOLDER ...]

One set of weights is learnt in five small clusters (fat-trees oversubscribed 1 and 8 times, VL2, BCube, and servers of
type ii), and judged in all settings of `benchmarks.placement_graph_headroom`, in the world of the paper's formulas.
What is learnt sees this world only in 480 noisy samples of pairs of servers, to which a model of speeds is fitted: it
imitates a patient planner in clusters with the speeds of the model, and the model picks of what agents propose. Rules
are in the order of jobs that suits them best; LIF knows the true interference.
"""

import argparse
import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.placement import FIRST
from benchmarks.placement_graph_headroom import SETTINGS, graph_fitted, graph_scenario
from benchmarks.support.report import FOLDER, BenchmarkGoal, as_program, at_least, at_most, finish, under
from dl2_scheduler.cluster.free_resources import NodeRule
from dl2_scheduler.cluster.hardware.view import PlacementView, Places
from dl2_scheduler.cluster.interfaces import PlacementPolicy
from dl2_scheduler.figures.placement.contenders import FITTED, SHORTEST, PlacementComparison, compare_placements
from dl2_scheduler.figures.placement.graph_contenders import (
    GRAPH_PLANNERS,
    graph_contenders,
    graph_planner_names,
)
from dl2_scheduler.figures.placement.graph_lab import LEARNT_IN, checked, lesson_clusters
from dl2_scheduler.learning.placement.graph.lessons import first_lessons
from dl2_scheduler.learning.placement.graph.run import GraphSettings, learn_agents
from dl2_scheduler.policies.learnt.graph.agent_files import open_agents, save_agents
from dl2_scheduler.policies.learnt.graph.agents import GraphAgents
from dl2_scheduler.policies.placement.balance import BestFit
from dl2_scheduler.policies.placement.pods import PodFill
from dl2_scheduler.policies.rules.fixed_demand import FixedDemand
from dl2_scheduler.sim.metrics import estimate
from dl2_scheduler.sim.placed.cluster import PlacedCluster
from dl2_scheduler.sim.placed.scenario import Scenario
from dl2_scheduler.sim.simulator import steps

RULES = {"load balancing": 60.0, "best fit": 60.0, "tetris-dot": 60.0, "LIF-true, lb": 60.0, "LIF-true, own": 35.0}
"""By how many percent the agents are to lie under each."""
SPREAD = 10.0
"""Percent that the worst seed may lie over the median one: none collapses."""
CHECKED, ALONE = "agents, seed ", "agents alone, seed "
"""What names begin with: agents of which the fitted model picks, and agents that decide alone."""
SEQUENCES = 10


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=5, help="sets of weights that are learnt")
    parser.add_argument("--taught", type=int, default=GraphSettings().taught, help="sequences of a round of imitation")
    parser.add_argument("--updates", type=int, default=GraphSettings().updates, help="from rewards")
    parser.add_argument("--sequences", type=int, default=SEQUENCES, help="that agents are judged on")
    parser.add_argument("--rules", nargs="*", default=list(RULES), choices=list(RULES), help="to compare with")
    parser.add_argument("--planners", nargs="+", default=list(GRAPH_PLANNERS), choices=list(GRAPH_PLANNERS))
    parser.add_argument("--settings", nargs="+", default=list(SETTINGS), choices=list(SETTINGS))
    parser.add_argument("--agents", type=Path, nargs="*", default=[], help="folders of earlier runs: nothing is learnt")
    arguments = parser.parse_args()
    began = time.monotonic()
    learnt = [_opened(run) for run in arguments.agents] or list(_learnt(arguments))
    minutes = (time.monotonic() - began) / 60 / len(learnt)
    rows: list[dict[str, Any]] = []
    goals: list[BenchmarkGoal] = []
    for name in arguments.settings:
        found = _compared(name, learnt, arguments)
        rows += (rows_here := _rows(name, found))
        goals += _goals(name, found)
        for row in rows_here:
            print(row, flush=True)
    for picks, what in ((False, ""), (True, ", and a model that picks")):
        name = f"300 new jobs on 2,000 servers by 20 agents{what}"
        goals.append(under(name, 1.0, decision_seconds(picks), "seconds"))
    if not arguments.agents:
        goals.append(at_most("training, mean of the seeds", 120.0, minutes, "minutes"))
    return finish("placement_graph", rows, goals, ["numpy", "torch", "numba"])


def _learnt(arguments: argparse.Namespace) -> Iterator[GraphAgents]:
    """Yield the agents of each seed, and write them into folders that `agents:` opens."""
    settings = GraphSettings(taught=arguments.taught, updates=arguments.updates)
    seen, planners = lesson_clusters([each.scenario() for each in LEARNT_IN])
    lessons = first_lessons(seen, FixedDemand(), planners, settings.taught, settings.disturbed)
    for seed in range(arguments.seeds):
        agents = learn_agents(seen, FixedDemand(), planners, lessons, settings, seed, _judged)
        save_agents(FOLDER / f"graph_agents_{seed}", agents, seen[0].profiles)
        yield agents


def _opened(run: Path) -> GraphAgents:
    found = open_agents(run).agents
    if not isinstance(found, GraphAgents):
        raise SystemExit(
            f"--agents {run}: as in the paper, for one cluster alone: give agents that share their weights"
        )
    return found


def _judged(updates: int, excess: float) -> None:
    print(f"{updates} updates: {excess:+.1%} over the planner", flush=True)


def _compared(setting: str, learnt: Sequence[GraphAgents], arguments: argparse.Namespace) -> PlacementComparison:
    """Return rules, planners, and agents with the fitted model and alone, on the same sequences."""
    scenario = graph_scenario(setting)
    fitted = {FITTED: graph_fitted(scenario)}
    others = graph_contenders(scenario, fitted, arguments.planners)
    shown = {
        name: policy
        for name, policy in others.items()
        if name.removesuffix(SHORTEST) not in RULES or name.removesuffix(SHORTEST) in arguments.rules
    }
    for seed, agents in enumerate(learnt):
        shown |= {f"{CHECKED}{seed}": checked(agents, scenario), f"{ALONE}{seed}": agents}
    return compare_placements(scenario, shown, range(FIRST, FIRST + arguments.sequences))


class _Timed:
    """See `PlacementPolicy`: best fit decides, and agents are asked for the time that they take for the second batch.

    Args:
        agents: that are asked.
    """

    def __init__(self, agents: PlacementPolicy):
        self._agents, self._rule, self._asked = agents, PodFill(BestFit()), 0
        self.seconds, self.jobs = float("nan"), 0

    def place(self, view: PlacementView) -> Places:
        """See `PlacementPolicy.place`."""
        self._asked += 1
        if self._asked == 2:
            self._agents.place(view)  # compiles
            began = time.perf_counter()
            self._agents.place(view)
            self.seconds, self.jobs = time.perf_counter() - began, int(view.missing.any(axis=1).sum())
        return self._rule.place(view)


def decision_seconds(picks: bool) -> float:
    """Return the seconds that 20 agents, one after another on one core, take for 300 jobs that nobody lets wait.

    Args:
        picks: a fitted model picks of what they propose; else they decide alone.
    """
    from dl2_scheduler.learning.placement.graph.net import GraphNet  # torch, which judging does not need

    scenario = Scenario.graph()
    never = dict(GraphNet(len(scenario.profiles)).policy().arrays.items())
    never |= {"wait.bias": never["wait.bias"] - 1e3, "forward.weight": -np.ones_like(never["forward.weight"])}
    asked: PlacementPolicy = GraphAgents(never)
    if picks:
        model = checked(GraphAgents(never), scenario)
        asked = replace(model, search=replace(model.search, may_wait=False))
    timed = _Timed(asked)
    length = scenario.workload.interval_seconds
    jobs = [job for job in scenario.jobs(FIRST) if job.arrival <= 2 * length]
    where = scenario.machines, scenario.topology, scenario.profiles, scenario.world
    cluster = PlacedCluster(jobs, *where, timed, length)
    for _ in zip(range(2), steps(cluster, FixedDemand(), NodeRule.SPREAD), strict=False):
        pass
    print(f"{timed.jobs} jobs in {timed.seconds:.2f} s")
    return timed.seconds * 300 / timed.jobs


def _median(found: PlacementComparison, kind: str) -> str:
    """Return the name of the median agents of a kind, the worse of the two in the middle."""
    return sorted((name for name in found.means if name.startswith(kind)), key=found.mean)[_seeds(found) // 2]


def _seeds(found: PlacementComparison) -> int:
    return sum(name.startswith(CHECKED) for name in found.means)


def _rows(setting: str, found: PlacementComparison) -> list[dict[str, Any]]:
    middle, rows = _median(found, CHECKED), []
    for name, means in found.means.items():
        gain = found.under(middle, name)
        margin = None if gain.margin is None else round(gain.margin, 1)
        row = {"setting": setting, "policy": name, "intervals": round(estimate(means.tolist()).mean, 3)}
        rows.append({**row, "median agents under it %": round(gain.mean, 1), "+-": margin})
    bound = round(float(found.bounds[:, 0].mean()), 3)
    return [*rows, {"setting": setting, "policy": "bound: each job alone", "intervals": bound}]


def _goals(setting: str, found: PlacementComparison) -> list[BenchmarkGoal]:
    middle = _median(found, CHECKED)
    limit = 5.0 if SETTINGS[setting][2] >= 4 else 2.0
    goals = [
        at_least(f"{setting}: under {rule}", percent, found.under(middle, found.best(rule)).mean, "%")
        for rule, percent in RULES.items()
        if rule in found.means
    ]
    for name in (each for each in graph_planner_names(FITTED) if each in found.means):
        goals.append(at_least(f"{setting}: under {name}", limit, found.under(middle, name).mean, "%"))
    for kind, what in ((CHECKED, "the worst seed"), (ALONE, "the worst seed alone")):
        seeds = [found.mean(name) for name in found.means if name.startswith(kind)]
        over = 100 * (max(seeds) / found.mean(_median(found, kind)) - 1)
        goals.append(at_most(f"{setting}: {what} over the median one", SPREAD, over, "%"))
    return goals


if __name__ == "__main__":
    for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        os.environ.setdefault(variable, "1")
    as_program(main)
