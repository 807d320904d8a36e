"""This benchmark says how far rules lie over pod search in the graph scheduler's clusters: a learner's headroom.

    python -m benchmarks.placement_graph_headroom [--sequences N] [--settings fat-tree/1 vl2/1 ...]

Two partitions (2 x 20 servers, VL2 4 x 10, BCube 2 x 32), 60 jobs in each, in the world of the paper's formulas. Times
are intervals from a job's arrival to its end, in the mean; docs/reference/graph.md says what follows from them.
"""

import argparse
import os
from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.placement import FIRST
from benchmarks.support.report import as_program, finish
from dl2_scheduler.cluster.hardware.placements import PlacedSpeed
from dl2_scheduler.figures.placement.contenders import FITTED, PlacementComparison, compare_placements
from dl2_scheduler.figures.placement.graph_contenders import GRAPH_PLANNERS, graph_contenders, graph_planner_names
from dl2_scheduler.sim.metrics import estimate
from dl2_scheduler.sim.placed.formula.clusters import NetworkType, ServerType
from dl2_scheduler.sim.placed.formula.fitted import fitted_formula
from dl2_scheduler.sim.placed.formula.world import Formula
from dl2_scheduler.sim.placed.scenario import Scenario

RATE = 15.0
"""Jobs of an interval for 100 servers, as the paper has them."""
SETTINGS: Mapping[str, tuple[NetworkType, ServerType, float, float]] = {
    "fat-tree/1": (NetworkType.FAT_TREE, ServerType.DEFAULT, 1.0, RATE),
    "fat-tree/1, 1.5 times the rate": (NetworkType.FAT_TREE, ServerType.DEFAULT, 1.0, 1.5 * RATE),
    "fat-tree/4": (NetworkType.FAT_TREE, ServerType.DEFAULT, 4.0, RATE),
    "fat-tree/8": (NetworkType.FAT_TREE, ServerType.DEFAULT, 8.0, RATE),
    "vl2/1": (NetworkType.VL2, ServerType.DEFAULT, 1.0, RATE),
    "bcube/1": (NetworkType.BCUBE, ServerType.DEFAULT, 1.0, RATE),
    "servers i": (NetworkType.FAT_TREE, ServerType.WIDE, 1.0, RATE),
    "servers i, twice the rate": (NetworkType.FAT_TREE, ServerType.WIDE, 1.0, 2 * RATE),
    "servers ii": (NetworkType.FAT_TREE, ServerType.UNEVEN, 1.0, RATE),
    "servers iii": (NetworkType.FAT_TREE, ServerType.MIXED, 1.0, RATE),
}
"""By name: networks with their oversubscription, or a fat-tree's servers; and jobs an interval for 100 servers."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sequences", type=int, default=10)
    parser.add_argument("--planners", nargs="+", default=list(GRAPH_PLANNERS), choices=list(GRAPH_PLANNERS))
    parser.add_argument("--settings", nargs="+", default=list(SETTINGS), choices=list(SETTINGS))
    arguments = parser.parse_args()
    rows: list[dict[str, Any]] = []
    for name in arguments.settings:
        scenario = graph_scenario(name)
        policies = graph_contenders(scenario, {FITTED: graph_fitted(scenario)}, arguments.planners)
        found = compare_placements(scenario, policies, range(FIRST, FIRST + arguments.sequences))
        rows += (rows_here := _rows(name, found))
        for row in rows_here:
            print(row, flush=True)
    return finish("placement_graph_headroom", rows, [], ["numpy", "numba", "scipy"])


def graph_scenario(name: str) -> Scenario:
    """Return a setting's scenario."""
    network, servers, oversubscription, rate = SETTINGS[name]
    return Scenario.graph(network, servers, small=True, oversubscription=oversubscription, mean=rate)


def graph_fitted(scenario: Scenario) -> PlacedSpeed:
    """Return a model of a scenario's speeds, fitted to noisy samples."""
    assert isinstance(scenario.world, Formula)
    return fitted_formula(scenario.world)


def best_planner(found: PlacementComparison) -> str:
    """Return the name of the planner with fitted speeds that is best."""
    return min((name for name in graph_planner_names(FITTED) if name in found.means), key=found.mean)


def _rows(setting: str, found: PlacementComparison) -> Sequence[dict[str, Any]]:
    best = best_planner(found)
    rows = []
    for name, means in found.means.items():
        gain = found.under(best, name)
        row = {"setting": setting, "policy": name, "intervals": round(estimate(means.tolist()).mean, 3)}
        margin = None if gain.margin is None else round(gain.margin, 1)
        rows.append({**row, "best planner under it %": round(gain.mean, 1), "+-": margin})
    bound = round(float(found.bounds[:, 0].mean()), 3)
    return [*rows, {"setting": setting, "policy": "bound: each job alone", "intervals": bound}]


if __name__ == "__main__":
    for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        os.environ.setdefault(variable, "1")
    as_program(main)
