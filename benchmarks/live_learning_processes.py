"""Live learning with real processes: `dl2 serve --learn` from imitated DRF, beside DRF, with the same arrivals.

    python -m benchmarks.live_learning_processes [--jobs 52] [--seed 0]

Two clusters of 16 task slots run at the same time on this machine, so that what else it does concerns both. Their jobs
are real but for accelerator and network, which are emulated: see `benchmarks.scripts.emulated`. Nobody knows
their speeds.
"""

import argparse
import os
import re
import shutil
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np
import torch

from benchmarks.scripts.emulated import KINDS, SAMPLES
from benchmarks.support.report import BenchmarkGoal, as_program, at_least, at_most, finish
from dl2_scheduler.cluster.free_resources import NodeRule
from dl2_scheduler.cluster.interfaces import AllocationPolicy
from dl2_scheduler.cluster.jobs import Job
from dl2_scheduler.cluster.speeds import Speeds
from dl2_scheduler.learning.recorded import learn_history
from dl2_scheduler.learning.run_folder import RunFolder
from dl2_scheduler.live.client import ClusterClient
from dl2_scheduler.policies.registry import DL2, make_policy
from dl2_scheduler.policies.rules.drf import Drf
from dl2_scheduler.sim.history import Recording
from dl2_scheduler.sim.lanes import ScalingCost
from dl2_scheduler.sim.simulator import SimulatedCluster, run
from dl2_scheduler.sim.trace import parse_cluster
from examples.demo_cluster.jobs import SCRIPT, elastic_job
from examples.demo_cluster.served import ENDED, served
from protos import cluster_pb2 as pb

STATE = Path("build/bench/live_learning_processes")
NODES, SERVED = parse_cluster("2x8slots"), "2x8"
SLOT = 4.0
MOST = 4  # workers of a job, and servers
EPOCHS = {"computing": 15, "updating": 15, "mixed": 15, "transferring": 10}
SPREAD = 0.4  # part by which a job's epochs deviate from its type's
GAP = 24.0  # seconds from one arrival to the next, on average
COST = ScalingCost(start=2.5, change=0.2, join=3.0)  # of these jobs, roughly: for what is simulated
GUARD_SLOTS = 60  # four minutes: the default's five slots are 20 seconds here, and its first errors would end it
BELOW_DRF = 0.1
THIRDS = 3
_IMITATED, _PASSES, _JUDGED = 6, 12, 4  # sequences, and passes over the former
_OTHER_SEEDS = 1000  # of sequences that are simulated: never those that live
_BEGIN_SECONDS, _LONGEST_SECONDS = 90.0, 900.0  # for a cluster; for jobs, after the last has come
_LOOK_SECONDS, _TELL_EVERY = 1.0, 30
_COMPARISON = re.compile(r"slot (\d+):.*\(([+-]\d+)%\)")
_BETTER_SLOTS = 5  # in a row, after which a policy that was taken out is used again


def main() -> int:
    """Imitate, live, print, write build/bench/live_learning_processes.json."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=52, help="that arrive at either cluster (default 52)")
    parser.add_argument("--seed", type=int, default=0, help="of the arrivals and of learning (default 0)")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    shutil.rmtree(STATE, ignore_errors=True)
    folder = RunFolder(STATE / "run")
    imitate_drf(folder, arguments.jobs, arguments.seed)
    jobs = arrivals(arguments.jobs, arguments.seed)
    learnt = f"{DL2}{folder.path.absolute()}"
    learns = ["--policy", learnt, "--learn", "--learn-cores", "1", "--guard-slots", str(GUARD_SLOTS)]
    with _serving("drf", ["--policy", "drf"]) as drf, _serving("learning", learns) as learning:
        lived = live(jobs, drf, learning)
    rows = [*_thirds(jobs, lived), *_simulated(folder, arguments.jobs)]
    return finish(
        "live_learning_processes", [*rows, lived.told], list(_goals(rows, lived)), ("numpy", "grpcio", "torch")
    )


# ---- the jobs ------------------------------------------------------------------------------------------------------


def arrivals(count: int, seed: int) -> list[Job]:
    """Return jobs by arrival: each kind as often, in an order that is drawn."""
    random = np.random.default_rng(seed)
    kinds = [kind for _ in range(0, count, len(KINDS)) for kind in random.permutation(list(KINDS))]
    at, jobs = 0.0, []
    for number, kind in enumerate(kinds[:count]):
        epochs = float(round(EPOCHS[kind] * random.uniform(1 - SPREAD, 1 + SPREAD)))
        task = {"slots": 1}
        jobs.append(Job(f"job-{number}", at, kind, epochs, float(SAMPLES), task, task, MOST, MOST))
        at = round(at + GAP * random.uniform(0.2, 1.8), 1)
    return jobs


def document(job: Job) -> str:
    """Return the ElasticJob of a job."""
    arguments = [job.model, "--epochs", f"{job.epochs:.0f}"]
    return elastic_job(str(job.id), job.model, int(job.epochs), ["python", "-m", SCRIPT], arguments, (MOST, MOST))


def speeds() -> Speeds:
    """Return the speeds of the kinds, as they are emulated: for simulations alone."""
    counts = range(MOST + 1)
    return Speeds(
        {
            name: np.array([[kind.samples_per_second(w, s) if w and s else 0.0 for w in counts] for s in counts])
            for name, kind in KINDS.items()
        }
    )


def simulated(jobs: Sequence[Job], policy: AllocationPolicy) -> float:
    """Mean completion time in seconds."""
    return SLOT * float(run(SimulatedCluster(jobs, NODES, speeds(), SLOT, COST), policy, NodeRule.SPREAD).mean())


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
        simulated(arrivals(count, _OTHER_SEEDS + number), recording)
        decisions += recording.decisions
    folder.begin({"seed": seed, "network": "shared"})
    learn_history(decisions, sorted(KINDS), None, _PASSES, seed, folder, lambda *_: None)


# ---- the clusters --------------------------------------------------------------------------------------------------


@dataclass
class Operator:
    """An `Operator` brings a policy back once the guard finds it better (docs/reference/live-learning.md).

    Attributes:
        comparisons: parts by which jobs would end later than under DRF, percent, by slot.
        out: times at which the policy was taken out and came back, in seconds; None: it has not come back.
    """

    comparisons: dict[int, int] = field(default_factory=dict)
    out: list[tuple[float, float | None]] = field(default_factory=list)

    def look(self, at: float, cluster: ClusterClient, told: pb.PoliciesReply) -> None:
        """Look at the guard, and act.

        Args:
            at: seconds since the first arrival.
            cluster: that learns.
            told: by it.
        """
        if found := _COMPARISON.search(told.comparison):
            self.comparisons[int(found[1])] = int(found[2])
        last = list(self.comparisons.values())[-_BETTER_SLOTS:]
        if not told.guard:
            return
        if not self.out or self.out[-1][1] is not None:
            self.out.append((at, None))
            print(f"{at:5.0f} s  {told.guard}", flush=True)
        if len(last) == _BETTER_SLOTS and max(last) < 0:
            self.out[-1] = self.out[-1][0], at
            print(f"{at:5.0f} s  $ dl2 policy use {told.policy}", flush=True)
            cluster.use_policy(told.policy)


@dataclass(frozen=True)
class Lived:
    """This is what became of the jobs of both clusters.

    Attributes:
        drf: completion times in seconds by job.
        learning: the same.
        told: of the learning and the machine, for the report.
    """

    drf: dict[str, float]
    learning: dict[str, float]
    told: dict[str, Any]


def live(jobs: Sequence[Job], drf: ClusterClient, learning: ClusterClient) -> Lived:
    """Submit each job to both clusters when it arrives, and look until all have ended.

    Args:
        jobs: by arrival.
        drf: the cluster under DRF.
        learning: the cluster that learns.
    """
    operator, waiting, loads = Operator(), list(jobs), list[float]()
    began, busy, looks = time.monotonic(), _busy(), 0
    while True:
        at = time.monotonic() - began
        while waiting and waiting[0].arrival <= at:
            job = waiting.pop(0)
            for cluster in (drf, learning):
                cluster.submit(document(job), Path.cwd())
        found = [cluster.jobs() for cluster in (drf, learning)]
        told = learning.policies()
        operator.look(at, learning, told)
        loads.append(os.getloadavg()[0])
        if looks % _TELL_EVERY == 0:
            said = [*map(_line, found), f"{told.updates} updates; {told.comparison}"]
            print(f"{at:5.0f} s  {' | '.join(said)}", flush=True)
        looks += 1
        if not waiting and all(job.phase in ENDED for some in found for job in some):
            break
        if at > jobs[-1].arrival + _LONGEST_SECONDS:
            raise TimeoutError(f"jobs have not ended after {at:.0f} s: see {STATE}")
        time.sleep(_LOOK_SECONDS)
    told_of = {
        "updates": told.updates,
        "comparisons": len(operator.comparisons),
        "taken out": len(operator.out),
        "minutes out": sum((at if back is None else back) - out for out, back in operator.out) / 60,
        "minutes": at / 60,
        "mean load": mean(loads),
        "cores busy": _busy(busy) / at,
    }
    return Lived(*map(_seconds, found), told_of)


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


@contextmanager
def _serving(name: str, options: Sequence[str]) -> Iterator[ClusterClient]:
    """Run `dl2 serve` in a folder of its own."""
    folder = STATE / name
    folder.mkdir(parents=True)
    place = ["--slots", SERVED, "--slot", f"{SLOT:g}s", "--isolation", "none"]
    with served(folder, [*place, *options], _BEGIN_SECONDS) as (_, client):
        yield client


# ---- the report ----------------------------------------------------------------------------------------------------


def _thirds(jobs: Sequence[Job], lived: Lived) -> list[dict[str, Any]]:
    """Return rows of what was lived, by thirds of the arrivals, and all."""
    names = [str(job.id) for job in jobs]
    parts = {f"{number + 1} of {THIRDS}": list(part) for number, part in enumerate(np.array_split(names, THIRDS))}
    return [
        _row(f"lived, jobs {part}", mean(lived.learning[name] for name in some), mean(lived.drf[name] for name in some))
        for part, some in {**parts, "all": names}.items()
    ]


def _simulated(folder: RunFolder, count: int) -> list[dict[str, Any]]:
    """Return rows of other arrivals, simulated: the weights before and after, and a policy that knows all speeds."""
    before = folder.path / "before-live"
    policies = {"as it began": f"{DL2}{before}", "as it ended": f"{DL2}{folder.path}", "planner-true": "planner-true"}
    judged = [arrivals(count, 2 * _OTHER_SEEDS + number) for number in range(_JUDGED)]
    drf = mean(simulated(jobs, Drf()) for jobs in judged)
    return [
        _row(f"simulated, {what}", mean(simulated(jobs, make_policy(name, speeds())) for jobs in judged), drf)
        for what, name in policies.items()
    ]


def _row(what: str, found: float, drf: float) -> dict[str, Any]:
    return {"what": what, "mean s": found, "DRF s": drf, "below DRF %": 100 * (1 - found / drf)}


def _goals(rows: Sequence[dict[str, Any]], lived: Lived) -> Iterator[BenchmarkGoal]:
    last = rows[THIRDS - 1]
    yield at_least(f"{last['what']}: mean completion time", 100 * BELOW_DRF, last["below DRF %"], "% below DRF")
    yield at_most("minutes for which the guard took it out", 10, lived.told["minutes out"], "")


if __name__ == "__main__":
    as_program(main)
