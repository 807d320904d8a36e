"""This benchmark learns the graph scheduler's agents and compares them with rules and planners, on unseen sequences.

    python -m benchmarks.placement_graph [--seeds 5] [--updates 200] [--rack 4] [--settings ...] [--agents FOLDER ...]

One set of weights is learnt in fat-trees of two partitions, oversubscribed 1, 4 and 8 times, and judged in all settings
of `benchmarks.placement_graph_headroom`, in the world of the paper's formulas. What is learnt sees this world only in
480 noisy samples of pairs of servers, to which a model of speeds is fitted: it imitates and learns in clusters with the
speeds of the model. Rules are in the order of jobs that suits them best; LIF knows the true interference.
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
from benchmarks.placement_graph_headroom import SETTINGS, best_planner, graph_fitted, graph_scenario
from benchmarks.support.report import FOLDER, BenchmarkGoal, as_program, at_least, at_most, finish, under
from dl2_scheduler.cluster.free_resources import NodeRule
from dl2_scheduler.cluster.hardware.view import PlacementView, Places
from dl2_scheduler.cluster.interfaces import PlacementPolicy
from dl2_scheduler.figures.placement.contenders import FITTED, PlacementComparison, compare_placements
from dl2_scheduler.figures.placement.graph_contenders import GRAPH_PLANNERS, graph_contenders, graph_planners
from dl2_scheduler.learning.placement.graph_run import GraphSettings, learn_agents
from dl2_scheduler.policies.learnt.graph.agent_files import open_agents, save_agents
from dl2_scheduler.policies.learnt.graph.agents import GraphAgents
from dl2_scheduler.policies.placement.balance import BestFit
from dl2_scheduler.policies.placement.pods import PodFill
from dl2_scheduler.policies.rules.fixed_demand import FixedDemand
from dl2_scheduler.sim.metrics import estimate
from dl2_scheduler.sim.placed.cluster import PlacedCluster
from dl2_scheduler.sim.placed.scenario import Scenario
from dl2_scheduler.sim.simulator import steps

RULES = {"load balancing": 25.0, "best fit": 25.0, "tetris-dot": 25.0, "LIF-true, lb": 25.0, "LIF-true, own": 10.0}
"""By how many percent the agents are to lie under each."""
TAUGHT = (1.0, 4.0, 8.0)
"""Oversubscriptions of the fat-trees in which agents learn."""
TEACHER = GRAPH_PLANNERS[1]
SEQUENCES = 10


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=5, help="sets of weights that are learnt")
    parser.add_argument("--taught", type=int, default=GraphSettings().taught, help="sequences of a round of imitation")
    parser.add_argument("--updates", type=int, default=GraphSettings().updates, help="from rewards")
    parser.add_argument("--rack", type=int, default=4, help="servers of a rack where agents learn, five to a partition")
    parser.add_argument("--sequences", type=int, default=SEQUENCES, help="that agents are judged on")
    parser.add_argument("--planners", nargs="+", default=list(GRAPH_PLANNERS), choices=list(GRAPH_PLANNERS))
    parser.add_argument("--settings", nargs="+", default=list(SETTINGS), choices=list(SETTINGS))
    parser.add_argument("--agents", type=Path, nargs="*", default=[], help="folders of earlier runs: nothing is learnt")
    arguments = parser.parse_args()
    began = time.monotonic()
    opened = {f"agents, {run.name}": open_agents(run).agents for run in arguments.agents}
    learnt: dict[str, PlacementPolicy] = dict(opened) or dict(_learnt(arguments))
    minutes = (time.monotonic() - began) / 60 / len(learnt)
    rows: list[dict[str, Any]] = []
    goals: list[BenchmarkGoal] = []
    for name in arguments.settings:
        scenario = graph_scenario(name)
        others = graph_contenders(scenario, {FITTED: graph_fitted(scenario)}, arguments.planners)
        seeds = range(FIRST, FIRST + arguments.sequences)
        found = compare_placements(scenario, others | learnt, seeds)
        rows += (rows_here := _rows(name, found, list(learnt)))
        goals += _goals(name, found, list(learnt))
        for row in rows_here:
            print(row, flush=True)
    goals.append(under("300 new jobs on 2,000 servers by 20 agents", 1.0, decision_seconds(), "seconds"))
    if not arguments.agents:
        goals.append(at_most("training, mean of the seeds", 120.0, minutes, "minutes"))
    return finish("placement_graph", rows, goals, ["numpy", "torch", "numba"])


def _learnt(arguments: argparse.Namespace) -> Iterator[tuple[str, PlacementPolicy]]:
    """Yield agents of each seed with their names, and write them into folders that `agents:` opens."""
    scenarios = [Scenario.graph(small=True, oversubscription=each, rack=arguments.rack) for each in TAUGHT]
    seen = [replace(scenario, world=graph_fitted(scenario)) for scenario in scenarios]
    planners = [graph_planners(each, {FITTED: each.world})[f"{TEACHER}, {FITTED}"] for each in seen]
    for seed in range(arguments.seeds):
        settings = GraphSettings(taught=arguments.taught, updates=arguments.updates)
        agents = learn_agents(seen, FixedDemand(), planners, settings, seed, print)
        save_agents(FOLDER / f"graph_agents_{seed}", agents, scenarios[0].profiles)
        yield f"agents, seed {seed}", agents


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


def decision_seconds() -> float:
    """Return the seconds that 20 agents, one after another on one core, take for 300 jobs that nobody lets wait."""
    from dl2_scheduler.learning.placement.graph_net import GraphNet  # torch, which judging does not need

    scenario = Scenario.graph()
    never = dict(GraphNet(len(scenario.profiles)).policy().arrays.items())
    never |= {"wait.bias": never["wait.bias"] - 1e3, "forward.weight": -np.ones_like(never["forward.weight"])}
    timed = _Timed(GraphAgents(never))
    length = scenario.workload.interval_seconds
    jobs = [job for job in scenario.jobs(FIRST) if job.arrival <= 2 * length]
    where = scenario.machines, scenario.topology, scenario.profiles, scenario.world
    cluster = PlacedCluster(jobs, *where, timed, length)
    for _ in zip(range(2), steps(cluster, FixedDemand(), NodeRule.SPREAD), strict=False):
        pass
    print(f"{timed.jobs} jobs in {timed.seconds:.2f} s")
    return timed.seconds * 300 / timed.jobs


def _median(found: PlacementComparison, learnt: Sequence[str]) -> str:
    """Return the name of the median agents, the worse of the two in the middle."""
    return sorted(learnt, key=found.mean)[len(learnt) // 2]


def _rows(setting: str, found: PlacementComparison, learnt: Sequence[str]) -> list[dict[str, Any]]:
    middle, rows = _median(found, learnt), []
    for name, means in found.means.items():
        gain = found.under(middle, name)
        margin = None if gain.margin is None else round(gain.margin, 1)
        row = {"setting": setting, "policy": name, "intervals": round(estimate(means.tolist()).mean, 3)}
        rows.append({**row, "median agents under it %": round(gain.mean, 1), "+-": margin})
    bound = round(float(found.bounds[:, 0].mean()), 3)
    return [*rows, {"setting": setting, "policy": "bound: each job alone", "intervals": bound}]


def _goals(setting: str, found: PlacementComparison, learnt: Sequence[str]) -> list[BenchmarkGoal]:
    middle, planner = _median(found, learnt), best_planner(found)
    limit = 5.0 if SETTINGS[setting][2] >= 4 else 2.0
    goals = [
        at_least(f"{setting}: under {rule}", percent, found.under(middle, found.best(rule)).mean, "%")
        for rule, percent in RULES.items()
    ]
    return [*goals, at_least(f"{setting}: under {planner}", limit, found.under(middle, planner).mean, "%")]


if __name__ == "__main__":
    for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        os.environ.setdefault(variable, "1")
    as_program(main)
