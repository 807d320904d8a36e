"""This benchmark shows the graph scheduler's agents while they learn: figure 10, and what choices are rewarded for.

    python -m benchmarks.placement_graph_learning [--figures 10 rewards] [--updates N] [--paper-updates N] ...

It is `dl2 figure graph-10` and `graph-rewards` at a chosen size, with the paper's claims as goals: several agents are
better than one, and one is worse than Tetris. Runs are kept in build/bench/graph_learning, by their seeds: remove it to
learn anew.
"""

import argparse
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from benchmarks.support.report import FOLDER, BenchmarkGoal, as_program, at_most, finish
from dl2_scheduler.figures.draw import Picture, Row
from dl2_scheduler.figures.placement.contenders import SHORTEST
from dl2_scheduler.figures.placement.graph_lab import GraphLab, GraphScale, StudyScale
from dl2_scheduler.figures.placement.graph_learning import ONE, SEVERAL, by_reward, several_or_one
from dl2_scheduler.learning.placement.graph.rewards import RewardKind

_SIZES = StudyScale()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--figures", nargs="+", choices=list(_FIGURES), default=list(_FIGURES), help="to draw")
    parser.add_argument("--updates", type=int, default=_SIZES.rewards.updates, help="from rewards, after lessons")
    parser.add_argument("--paper-updates", type=int, default=_SIZES.paper.updates, help="in the paper's way")
    parser.add_argument("--rate", type=float, default=_SIZES.paper.rate, help="of Adam, in the paper's way")
    parser.add_argument("--jobs", type=int, default=_SIZES.jobs, help="of a sequence, of each partition")
    parser.add_argument("--sequences", type=int, default=_SIZES.sequences, help="that policies are compared on")
    parser.add_argument("--seed", type=int, default=0, help="of learning")
    arguments = parser.parse_args()
    study = StudyScale(
        arguments.jobs,
        arguments.sequences,
        replace(_SIZES.paper, updates=arguments.paper_updates, rate=arguments.rate),
        replace(_SIZES.rewards, updates=arguments.updates),
    )
    folder = FOLDER / "graph_learning"
    folder.mkdir(parents=True, exist_ok=True)
    lab = GraphLab(folder, GraphScale(study=study), arguments.seed, lambda text: print(text, flush=True))
    rows: list[dict[str, Any]] = []
    goals: list[BenchmarkGoal] = []
    for name in arguments.figures:
        make, goals_of = _FIGURES[name]
        found = make(lab).rows
        rows += [{"figure": name, **row} for row in found]
        goals += goals_of(found)
    return finish("placement_graph_learning", rows, goals, ["numpy", "torch", "numba"])


def _claims(rows: Sequence[Row]) -> list[BenchmarkGoal]:
    """Return what the paper claims of several agents and one, each with what came out here, in percent."""
    bars = {(row["agents"], row["where"]): row["value"] for row in rows if row["what"] == "intervals"}
    goals = []
    for pattern in sorted({where for _, where in bars}):
        several, one = bars[f"{SEVERAL}, as in the paper", pattern], bars[f"{ONE}, as in the paper", pattern]
        tetris = min(bars["best fit", pattern], bars[f"best fit{SHORTEST}", pattern])
        ahead = 100 * (several / one - 1), 100 * (tetris / one - 1)
        goals.append(at_most(f"{pattern}: several agents over one, as in the paper", 0.0, ahead[0], "%"))
        goals.append(at_most(f"{pattern}: Tetris over one agent, as in the paper", 0.0, ahead[1], "%"))
    return goals


def _rewarded(rows: Sequence[Row]) -> list[BenchmarkGoal]:
    """Return by how much agents that are rewarded for all whom they touch lie over those of the paper's own reward."""
    last = {row["agents"]: row["value"] for row in rows}  # of the last update
    more = last[RewardKind.TOUCHED.value] - last[RewardKind.OWN.value]
    return [at_most("rewards: change of all touched over own job's progress", 0.0, more, "points")]


_FIGURES: Mapping[str, tuple[Callable[[GraphLab], Picture], Callable[[Sequence[Row]], list[BenchmarkGoal]]]] = {
    "10": (several_or_one, _claims),
    "rewards": (by_reward, _rewarded),
}


if __name__ == "__main__":
    for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        os.environ.setdefault(variable, "1")
    as_program(main)
