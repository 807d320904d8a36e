"""Live learning with real processes: `dl2 serve --learn` from imitated DRF, beside DRF and the planner, same arrivals.

    python -m benchmarks.live_learning_processes [--jobs 52] [--seeds 0 1 2]

Three clusters of 16 task slots run at the same time on this machine, so that what else it does concerns all. Their jobs
are real but for accelerator and network, which are emulated: see `benchmarks.scripts.emulated`. Nobody knows
their speeds. The planner fits them to what jobs report: it is the rule that one would take instead. The clusters'
forecasts are checked, too, as `benchmarks.forecasts_processes` does. An hour a seed.
"""

import argparse
import json
import os
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from typing import Any

import torch

from benchmarks.forecasts_processes import SeenCluster, first_jobs, look_back, row_of
from benchmarks.forecasts_processes import goals as forecast_goals
from benchmarks.scripts.emulated import KINDS
from benchmarks.support.emulated_jobs import arrivals, document, emulated_speeds
from benchmarks.support.report import BenchmarkGoal, as_program, at_least, at_most, finish, under
from dl2_scheduler.cluster.free_resources import NodeRule
from dl2_scheduler.cluster.interfaces import AllocationPolicy
from dl2_scheduler.cluster.jobs import Job
from dl2_scheduler.learning.recorded import learn_history
from dl2_scheduler.learning.run_folder import RunFolder
from dl2_scheduler.live.client import ClusterClient
from dl2_scheduler.live.exploration.explorer import EXPLORATION_FILE
from dl2_scheduler.policies.registry import DL2, make_policy
from dl2_scheduler.policies.rules.drf import Drf
from dl2_scheduler.sim.history import Recording
from dl2_scheduler.sim.lanes import ScalingCost
from dl2_scheduler.sim.simulator import SimulatedCluster, run
from dl2_scheduler.sim.trace import parse_cluster
from examples.demo_cluster.served import ENDED, served
from protos import cluster_pb2 as pb

STATE = Path("build/bench/live_learning_processes")
NODES, SERVED = parse_cluster("2x8slots"), "2x8"
PACE = 2.5  # times what steps take elsewhere: so three clusters leave two cores time to spare
SLOT = 10.0
COST = ScalingCost(start=2.5, change=0.2, join=3.0)  # of these jobs, roughly: for what is simulated
DRF, PLANNER, LEARNING = "drf", "planner", "learning"
_IMITATED, _PASSES, _JUDGED = 6, 12, 4  # sequences, and passes over the former
_OTHER_SEEDS = 1000  # of sequences that are simulated: never those that live
_BEGIN_SECONDS, _LONGEST_SECONDS = 90.0, 900.0  # for a cluster; for jobs, after the last has come
_LOOK_SECONDS, _TELL_EVERY = 1.0, 30


def main() -> int:
    """Play each seed, print, write build/bench/live_learning_processes.json after each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=52, help="that arrive at each cluster (default 52)")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2], help="of arrivals and learning (0 1 2)")
    options = parser.parse_args()
    torch.set_num_threads(1)
    shutil.rmtree(STATE, ignore_errors=True)
    lived, simulations, told, forecasts = ([] for _ in range(4))
    for seed in options.seeds:
        state = STATE / f"seed-{seed}"
        folder = RunFolder(state / "run")
        imitate_drf(folder, options.jobs, seed)
        jobs = arrivals(options.jobs, seed, PACE)
        seen = {name: SeenCluster() for name in (DRF, PLANNER, LEARNING)}
        found, of_learning = played(jobs, folder, state, seen)
        for name, cluster in seen.items():
            look_back(cluster, state / name)
        forecasts += forecast_rows(seed, jobs, seen)
        lived += lived_rows(seed, jobs, found)
        simulations.append(simulated_row(seed, folder, options.jobs))
        explored = json.loads((state / LEARNING / EXPLORATION_FILE).read_text())
        exploring = 100 * explored["spent"] / explored["lived"]
        told.append({"seed": seed, **of_learning, "times explored": explored["jobs"], "exploring %": exploring})
        goals = [*_goals(lived, simulations, told), *forecast_goals(forecasts)]
        rows = [*lived, *simulations, *told, *forecasts]
        status = finish("live_learning_processes", rows, goals, ("numpy", "grpcio", "torch"))
    return status


def simulated(jobs: Sequence[Job], policy: AllocationPolicy) -> float:
    """Return the mean completion time in seconds."""
    cluster = SimulatedCluster(jobs, NODES, emulated_speeds(PACE), SLOT, COST)
    return SLOT * float(run(cluster, policy, NodeRule.SPREAD).mean())


def imitate_drf(folder: RunFolder, count: int, seed: int) -> None:
    """Learn the policy that the learning cluster begins with, as `dl2 bootstrap --history` makes it.

    Args:
        folder: of the run.
        count: jobs of a sequence.
        seed: of everything.
    """
    decisions = []
    for number in range(_IMITATED):
        recording = Recording(Drf())
        simulated(arrivals(count, _OTHER_SEEDS + number, PACE), recording)
        decisions += recording.decisions
    folder.begin({"seed": seed, "network": "shared"})
    learn_history(decisions, sorted(KINDS), None, _PASSES, seed, folder, lambda *_: None)


# ---- the clusters --------------------------------------------------------------------------------------------------


def played(
    jobs: Sequence[Job], folder: RunFolder, state: Path, seen: Mapping[str, SeenCluster]
) -> tuple[dict[str, dict[str, float]], dict[str, Any]]:
    """Play the jobs on three clusters of real processes.

    Args:
        jobs: by arrival.
        folder: of the run that learns.
        state: the clusters' folders are in it.
        seen: takes what clusters show of their jobs.

    Returns:
        Completion times in seconds by cluster and job; what is told of the learning and the machine.
    """
    learns = ["--policy", f"{DL2}{folder.path.absolute()}", "--learn", "--learn-cores", "1"]
    policies = {DRF: ["--policy", "drf"], PLANNER: ["--policy", "planner"], LEARNING: learns}
    place = ["--slots", SERVED, "--slot", f"{SLOT:g}s", "--isolation", "none"]
    with ExitStack() as stack:
        clients = {
            name: stack.enter_context(served(state / name, [*place, *policy], _BEGIN_SECONDS))[1]
            for name, policy in policies.items()
        }
        return _lived(jobs, clients, state, seen)


@dataclass
class WatchedLearning:
    """A `WatchedLearning` counts for how long the guard has taken the learnt policy out, and the planner has stood in.

    Attributes:
        times: that it was taken out.
        looks_out: looks at which it was out.
        looks_stood_in: looks at which the planner decided in its place.
    """

    times: int = 0
    looks_out: int = 0
    looks_stood_in: int = 0
    _was_out: bool = False

    def look(self, told: pb.PoliciesReply) -> None:
        """Look at what the cluster that learns tells."""
        out = bool(told.guard)
        self.looks_out += out
        self.looks_stood_in += bool(told.stands_in)
        if out and not self._was_out:
            self.times += 1
            print(f"the guard: {told.guard}", flush=True)
        self._was_out = out


def _lived(
    jobs: Sequence[Job], clients: Mapping[str, ClusterClient], state: Path, seen: Mapping[str, SeenCluster]
) -> tuple[dict[str, dict[str, float]], dict[str, Any]]:
    """Submit each job to all clusters when it arrives, and look until all have ended."""
    watched, waiting, loads = WatchedLearning(), list(jobs), list[float]()
    began, busy = time.monotonic(), _busy()
    while True:
        at = time.monotonic() - began
        while waiting and waiting[0].arrival <= at:
            job = waiting.pop(0)
            for client in clients.values():
                client.submit(document(job, PACE), Path.cwd())
        found = {name: client.jobs() for name, client in clients.items()}
        for name, some in found.items():
            seen[name].look(some)
        told = clients[LEARNING].policies()
        watched.look(told)
        if len(loads) % _TELL_EVERY == 0:
            said = [f"{name}: {_line(some)}" for name, some in found.items()]
            print(f"{at:5.0f} s  {' | '.join(said)} | {told.learning}; {told.comparison}", flush=True)
        loads.append(os.getloadavg()[0])
        if not waiting and all(job.phase in ENDED for some in found.values() for job in some):
            break
        if at > jobs[-1].arrival + _LONGEST_SECONDS:
            raise TimeoutError(f"jobs have not ended after {at:.0f} s: see {state}")
        time.sleep(_LOOK_SECONDS)
    return {name: _seconds(some) for name, some in found.items()}, {
        "updates": told.updates,
        "times taken out": watched.times,
        "% of the time out": 100 * watched.looks_out / len(loads),
        "% of the time stood in": 100 * watched.looks_stood_in / len(loads),
        "minutes": at / 60,
        "mean load": mean(loads),
        "cores busy": _busy(busy) / at,
    }


def _line(found: Sequence[pb.JobStatus]) -> str:
    present = [job for job in found if job.phase not in ENDED]
    counts = " ".join(f"{job.model[0]}{job.workers}+{job.servers}" for job in present)
    return f"{len(found) - len(present)} ended, {counts}"


def _seconds(found: Sequence[pb.JobStatus]) -> dict[str, float]:
    if failed := [f"{job.name}: {job.phase}, {job.reason}" for job in found if job.phase != "finished"]:
        raise RuntimeError(f"jobs have not finished: {failed}")
    return {job.name: job.ended - job.submitted for job in found}


def _busy(since: float = 0.0) -> float:
    """Return the seconds of processor time that the whole machine has used since then."""
    user, nice, system, *_ = map(int, Path("/proc/stat").read_text().splitlines()[0].split()[1:])
    return (user + nice + system) / os.sysconf("SC_CLK_TCK") - since


# ---- the report ----------------------------------------------------------------------------------------------------


def lived_rows(seed: int, jobs: Sequence[Job], found: Mapping[str, Mapping[str, float]]) -> list[dict[str, Any]]:
    """Return rows of what was lived: the halves of the arrivals, and all.

    Args:
        seed: of the jobs.
        jobs: by arrival.
        found: completion times in seconds by cluster and job.
    """
    names = [str(job.id) for job in jobs]
    half = len(names) // 2
    parts = {"first half": names[:half], "last half": names[half:], "all": names}
    rows = []
    for part, some in parts.items():
        means = {name: mean(seconds[job] for job in some) for name, seconds in found.items()}
        rows.append(
            {
                "seed": seed,
                "jobs": part,
                **{f"{name} s": value for name, value in means.items()},
                "learning below drf %": 100 * (1 - means[LEARNING] / means[DRF]),
                "learning above planner %": 100 * (means[LEARNING] / means[PLANNER] - 1),
            }
        )
    return rows


def simulated_row(seed: int, folder: RunFolder, count: int) -> dict[str, Any]:
    """Return how the weights do on other arrivals, simulated, before and after, beside who knows all speeds.

    Args:
        seed: of the run.
        folder: of the run.
        count: jobs of a sequence.
    """
    policies = {
        "drf": "drf",
        "as it began": f"{DL2}{folder.path / 'before-live'}",
        "as it ended": f"{DL2}{folder.path}",
        "planner-true": "planner-true",
    }
    judged = [arrivals(count, 2 * _OTHER_SEEDS + number, PACE) for number in range(_JUDGED)]
    speeds = emulated_speeds(PACE)
    took = {
        what: mean(simulated(jobs, make_policy(name, speeds)) for jobs in judged) for what, name in policies.items()
    }
    above = 100 * (took["as it ended"] / took["planner-true"] - 1)
    return {
        "seed": seed,
        **{f"simulated: {what}, s": value for what, value in took.items()},
        "above planner-true %": above,
    }


def forecast_rows(seed: int, jobs: Sequence[Job], seen: Mapping[str, SeenCluster]) -> list[dict[str, Any]]:
    """Return how often the clusters' forecasts held.

    Args:
        seed: of the jobs.
        jobs: by arrival.
        seen: what clusters have shown.
    """
    return [
        {"seed": seed, "cluster": name, **row_of(event, cluster, first_jobs(jobs))}
        for name, cluster in seen.items()
        for event in ("start", "end")
    ]


def _goals(
    lived: Sequence[dict[str, Any]], simulations: Sequence[dict[str, Any]], told: Sequence[dict[str, Any]]
) -> Iterator[BenchmarkGoal]:
    def mean_of(part: str, column: str) -> float:
        return mean(row[column] for row in lived if row["jobs"] == part)

    drf, planner = "learning below drf %", "learning above planner %"
    yield at_least("all jobs: mean completion time", 15, mean_of("all", drf), "% below DRF")
    yield at_most("all jobs: mean completion time", 2, mean_of("all", planner), "% above the planner")
    yield at_least("last half: mean completion time", 20, mean_of("last half", drf), "% below DRF")
    yield under("last half: mean completion time", 0, mean_of("last half", planner), "% above the planner")
    yield at_most("times that the guard took it out", 0, sum(row["times taken out"] for row in told), "")
    yield at_most("exploring, of the cluster", 2, max(row["exploring %"] for row in told), "%")
    above = mean(row["above planner-true %"] for row in simulations)
    yield at_most("simulated at the end: mean completion time", 5, above, "% above planner-true")


if __name__ == "__main__":
    as_program(main)
