"""Live against simulated: real jobs on this machine, tasks isolated, and the same jobs simulated with their own speeds.

    python -m benchmarks.live_vs_simulated [--policy drf] [--rounds 2] [--start-cost 9.4]

Each round plays the jobs of `make demo-cluster` under the policy; then `dl2 fit`'s speeds of that round go into the
simulator. The cost of a start is the simulator's default, measured elsewhere (benchmarks/scaling_cost.py).
"""

import argparse
import shutil
import sys
from contextlib import closing
from pathlib import Path
from statistics import mean, median
from typing import Any

from rich.console import Console

from benchmarks.report import at_most, finish
from dl2_scheduler.cluster.room import NodeRule
from dl2_scheduler.live.history import History
from dl2_scheduler.policies.registry import make_live_policy
from dl2_scheduler.replay.measured import speed_table
from dl2_scheduler.replay.predicted import predict
from dl2_scheduler.sim.lanes import MEASURED, ScalingCost
from examples.demo_cluster.jobs import JOBS
from examples.demo_cluster.play import play

FOLDER = Path("build/bench/live_vs_simulated")
GOAL = 0.15


def main() -> int:
    """Measure, print, write build/bench/live_vs_simulated.json."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--policy", default="drf", help="as `dl2 serve` takes it (default drf)")
    parser.add_argument("--rounds", type=int, default=2, help="each with the same jobs (default 2)")
    parser.add_argument("--start-cost", type=float, default=MEASURED.start, help="seconds (default %(default)s)")
    options = parser.parse_args()
    shutil.rmtree(FOLDER, ignore_errors=True)
    cost = ScalingCost(options.start_cost, MEASURED.change)
    rows = [row for number in range(options.rounds) for row in _round(number, options.policy, cost)]
    means = [row for row in rows if row["job"] == "mean"]
    worst = max(abs(row["error"]) for row in means)
    typical = median(abs(row["error"]) for row in rows if row["job"] != "mean")
    print(f"median of the jobs' errors: {typical:.1%}", file=sys.stderr)
    goal = at_most("mean completion time: largest error of a round", GOAL, worst, "")
    return finish("live_vs_simulated", rows, [goal], packages=("mxnet", "grpcio"))


def _round(number: int, policy: str, cost: ScalingCost) -> list[dict[str, Any]]:
    """Of each job, and of their mean."""
    folder = FOLDER / str(number)
    play(policy, policy, JOBS, folder, Console(stderr=True, highlight=False))
    with closing(History.of_folder(folder)) as history:
        slots = list(history.slots())
    found = predict(slots, speed_table(slots), make_live_policy(policy), NodeRule.SPREAD, cost)
    rows = [_row(number, str(one.past.job.id), one.past.seconds, one.seconds) for one in found if one.past.seconds]
    live, simulated = (mean(row[kind] for row in rows) for kind in ("live_seconds", "simulated_seconds"))
    return [*rows, _row(number, "mean", live, simulated)]


def _row(number: int, job: str, live: float, simulated: float) -> dict[str, Any]:
    error = simulated / live - 1
    return {"round": number, "job": job, "live_seconds": live, "simulated_seconds": simulated, "error": error}


if __name__ == "__main__":
    sys.exit(main())
