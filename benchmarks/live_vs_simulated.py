"""This benchmark compares real jobs on this machine, tasks isolated, with the same jobs simulated from their history.

    python -m benchmarks.live_vs_simulated [--policy drf] [--rounds 2] [--longer 1]

Each round plays six MXNet jobs under the policy. They are simulated with the speeds and the costs of
scaling that `dl2 fit` finds in the history of that round, and beside it with those of the round before.
"""

import argparse
import os
import shutil
import sys
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, median
from typing import Any

from rich.console import Console

from benchmarks.support.mxnet_jobs import mxnet_jobs
from benchmarks.support.report import as_program, at_most, finish
from dl2_scheduler.cluster.free_resources import NodeRule
from dl2_scheduler.live.history import History
from dl2_scheduler.live.recorded_slots import RecordedSlot
from dl2_scheduler.policies.registry import make_live_policy
from dl2_scheduler.replay.costs import Costs, scaling_costs
from dl2_scheduler.replay.measured import SpeedFit, fit_speeds
from dl2_scheduler.replay.predicted import predict
from examples.demo_cluster.play import play

FOLDER = Path("build/bench/live_vs_simulated")
CLUSTER = ["--slots", "2x4", "--slot", "10s"]  # a worker takes nearly a slot to start
GOAL = 0.15


@dataclass(frozen=True)
class LivePlay:
    """A play is one round of real jobs.

    Attributes:
        number: from 0 on.
        slots: that it recorded.
        table: of its speeds.
        costs: of its scalings.
        load: of the machine in the last minute of it, its own processes too.
    """

    number: int
    slots: list[RecordedSlot]
    table: SpeedFit
    costs: Costs
    load: float


def main() -> int:
    """Measure, print, write build/bench/live_vs_simulated.json."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--policy", default="drf", help="as `dl2 serve` takes it (default drf)")
    parser.add_argument("--rounds", type=int, default=2, help="each with the same jobs (default 2)")
    parser.add_argument("--longer", type=int, default=1, help="times their epochs (default 1)")
    options = parser.parse_args()
    shutil.rmtree(FOLDER, ignore_errors=True)
    rounds: list[LivePlay] = []
    rows: list[dict[str, Any]] = []
    for number in range(options.rounds):
        rounds.append(_play(number, options.policy, options.longer))
        rows += _rows(rounds[-1], rounds[-1], options.policy)
        if number:
            rows += _rows(rounds[-1], rounds[-2], options.policy)
    means = {
        kind: [row for row in rows if row["job"] == "mean" and row["fitted_to"] == kind] for kind in ("it", "last")
    }
    typical = median(abs(row["error"]) for row in rows if row["job"] != "mean" and row["fitted_to"] == "it")
    print(f"median of the jobs' errors: {typical:.1%}", file=sys.stderr)
    for row in means["last"]:
        print(f"round {row['round']} from the round before: {row['error']:+.1%}", file=sys.stderr)
    worst = max(abs(row["error"]) for row in means["it"])
    goal = at_most("mean completion time: largest error of a round", GOAL, worst, "")
    return finish("live_vs_simulated", rows, [goal], packages=("mxnet", "grpcio"))


def _play(number: int, policy: str, longer: int) -> LivePlay:
    folder = FOLDER / str(number)
    contender = {"played": [*CLUSTER, "--policy", policy]}
    (played,) = play(contender, mxnet_jobs(longer, folder), folder, Console(stderr=True, highlight=False))
    load = os.getloadavg()[0]
    with closing(History.of_folder(played.folder)) as history:
        slots = list(history.slots())
    table = fit_speeds(slots)
    costs = scaling_costs(slots, table)
    for name, cost in (("start", costs.start), ("join", costs.join), ("end", costs.end)):
        print(f"round {number}: {name} {cost}", file=sys.stderr)
    return LivePlay(number, slots, table, costs, load)


def _rows(played: LivePlay, fitted: LivePlay, policy: str) -> list[dict[str, Any]]:
    """Return rows of each job of a round, and of their mean, simulated with what was fitted to a round."""
    cost = fitted.costs.scaling
    found = predict(played.slots, fitted.table, make_live_policy(policy), NodeRule.SPREAD, cost)
    times = {str(one.past.job.id): (one.past.seconds, one.seconds) for one in found if one.past.seconds}
    live, simulated = (mean(each) for each in zip(*times.values(), strict=True))
    return [
        {
            "round": played.number,
            "fitted_to": "it" if played is fitted else "last",
            "job": job,
            "live_seconds": lived,
            "simulated_seconds": expected,
            "error": expected / lived - 1,
            "start_cost": cost.start,
            "join_cost": cost.join,
            "load": played.load,
        }
        for job, (lived, expected) in {**times, "mean": (live, simulated)}.items()
    ]


if __name__ == "__main__":
    as_program(main)
