"""This benchmark runs the same real jobs under several placement policies, on two nodes of this machine that are real.

    python -m benchmarks.placement_live [--policies load-balance,best-fit,lif-own,local-search,learnt] [--rounds 2]

`dl2 serve` places jobs of four kinds (`benchmarks.scripts.train_placed`), one worker and one server each, that arrive
over a minute; a node is an equal part of the cores, and its tasks run on no others. What LIF and the planner know is
fitted to the shipped table of measured placements first (`dl2 fit --places`); `learnt` learns with that model in
simulations of such jobs, for a minute. Within a round all policies have the same jobs, in an order of its own;
completion times run from a job's submission to its end.
"""

import argparse
import shutil
import statistics
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.support.learnt_live import learn_for_nodes
from benchmarks.support.report import FOLDER, BenchmarkGoal, as_program, at_least, finish
from dl2_scheduler.cluster.errors import SchedulerError, TrialFailed
from dl2_scheduler.commands.cluster.fit_places import fit_places
from dl2_scheduler.live.client import ClusterClient
from dl2_scheduler.sim.placed.measured.shipped_table import SHIPPED_TABLE
from examples.demo_cluster.served import ENDED, served

POLICIES = "load-balance,best-fit,lif-own,local-search,learnt"
FITTED = ("lif-own", "lif-lb", "local-search", "annealing")
"""Policies that need the folder of what was fitted."""
LEARNT = "learnt"
GOALS = {"load-balance": 20.0, "best-fit": 10.0, "lif-own": 5.0, "local-search": 0.0}
"""Percent that the learnt policy is to be under others, at least."""

EPOCHS: Mapping[str, int] = {"device": 16, "digits": 190, "table": 75, "wide": 8}
"""Of a job of each kind: about 20 s alone."""
NODES, SLOTS, TASK_SLOTS = 2, 8, 2
"""Of the cluster, of a node, and of a task: four jobs at once."""
_ARRIVE_SECONDS = 60.0
_BEGIN_SECONDS, _MOST_SECONDS, _LOOK_SECONDS = 60.0, 900.0, 0.5
_OURS = ".placement_live"  # marks a folder that a later call may empty
_DOCUMENT = """
apiVersion: dl2.scheduler/v1alpha1
kind: ElasticJob
metadata: {{name: {name}}}
spec:
  modelType: {kind}
  epochs: {epochs}
  workers:
    max: 1
    template:
      spec:
        containers:
          - command: [python, -m, benchmarks.scripts.train_placed]
            args: [{kind}, --epochs, "{epochs}"]
            resources: {{requests: {{slots: {slots}}}}}
  servers:
    max: 1
    template: {{spec: {{containers: [{{resources: {{requests: {{slots: {slots}}}}}}}]}}}}
"""


Times = dict[str, float]
"""Seconds, by the job's name."""

Round = Mapping[str, Times | str]
"""By policy the times of its jobs; or why they did not all end."""


@dataclass(frozen=True)
class Arrival:
    """An `Arrival` is a job that is to be submitted.

    Attributes:
        name: of the job.
        kind: that it trains.
        at: seconds after the first.
    """

    name: str
    kind: str
    at: float

    def document(self) -> str:
        """Return its ElasticJob."""
        return _DOCUMENT.format(name=self.name, kind=self.kind, epochs=EPOCHS[self.kind], slots=TASK_SLOTS)


def main() -> int:
    """Run all rounds, print, write build/bench/placement_live.json."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--policies", default=POLICIES, help="joined by commas; spread: the kernel places")
    parser.add_argument("--rounds", type=int, default=2, help="each with an order of jobs of its own (default 2)")
    parser.add_argument("--jobs", type=int, default=12, help="of a round, as many of each kind (default 12)")
    parser.add_argument("--folder", type=Path, default=FOLDER / "placement_live", help="of the clusters and policies")
    arguments = parser.parse_args()
    folder: Path = arguments.folder.resolve()
    if folder.exists() and any(folder.iterdir()) and not (folder / _OURS).exists():
        raise SystemExit(f"--folder {folder} has files that are not this benchmark's: give a new one, or an empty one")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    (folder / _OURS).touch()
    fit_places([], Path(str(SHIPPED_TABLE)), folder / "model")
    policies = arguments.policies.split(",")
    if LEARNT in policies:
        learn_for_nodes(folder / "model", folder / LEARNT, NODES, SLOTS, TASK_SLOTS, _tell)
    rounds = [
        _round(policies, list(arrivals_of(arguments.jobs, number)), folder, number)
        for number in range(arguments.rounds)
    ]
    return finish("placement_live", list(_rows(policies, rounds)), _goals(policies, rounds), ["numpy", "mxnet"])


def _round(policies: Sequence[str], arrivals: Sequence[Arrival], folder: Path, number: int) -> Round:
    """Return what came of each policy; they follow one another in an order that the number decides.

    Args:
        policies: by their names.
        arrivals: of the jobs.
        folder: of the clusters.
        number: of the round.
    """
    found: dict[str, Times | str] = {}
    for policy in np.random.default_rng(number).permutation(policies).tolist():
        fitted = folder / (LEARNT if policy == LEARNT else "model")
        placement = f"{policy}:{fitted}" if policy in (*FITTED, LEARNT) else policy
        try:
            times = found[policy] = played(placement, arrivals, folder / f"{policy}-{number}")
            _tell(f"{policy}, round {number}: {_mean(times):.1f} s")
        except SchedulerError as error:
            found[policy] = str(error)
            _tell(f"{policy}, round {number}, which does not count for any policy: {error}")
    return found


def _counted(policies: Sequence[str], rounds: Sequence[Round]) -> dict[str, list[Times]]:
    """Return the completion times under each policy in the rounds in which all jobs ended under every policy."""
    whole = [times for each in rounds if len(times := _ended(each)) == len(each)]
    return {policy: [times[policy] for times in whole] for policy in policies}


def _ended(found: Round) -> dict[str, Times]:
    """Return the completion times of the policies under which all jobs of a round ended."""
    return {policy: times for policy, times in found.items() if not isinstance(times, str)}


def arrivals_of(jobs: int, seed: int) -> Iterator[Arrival]:
    """Yield the jobs of a round, at equal distances.

    Args:
        jobs: how many.
        seed: of their order.
    """
    kinds = [kind for kind, _ in zip(list(EPOCHS) * jobs, range(jobs), strict=False)]
    for number, kind in enumerate(np.random.default_rng(seed).permutation(kinds).tolist()):
        yield Arrival(f"{kind}-{number}", kind, _ARRIVE_SECONDS * number / jobs)


def played(placement: str, arrivals: Sequence[Arrival], folder: Path) -> Times:
    """Return each job's seconds from its submission to its end.

    Args:
        placement: as `dl2 serve` has it.
        arrivals: of the jobs.
        folder: of the cluster.

    Raises:
        TrialFailed: a job fails, or all take too long.
    """
    folder.mkdir(parents=True)
    options = ("--slots", f"{NODES}x{SLOTS}", "--slot", "3s", "--policy", "fifo", "--placement", placement)
    with served(folder, (*options, "--isolation", "none"), _BEGIN_SECONDS) as (_, cluster):
        began = time.monotonic()
        for arrival in arrivals:
            time.sleep(max(0.0, began + arrival.at - time.monotonic()))
            cluster.submit(arrival.document(), Path.cwd())
        return _completion_times(cluster, began + _MOST_SECONDS, folder.name)


def _completion_times(cluster: ClusterClient, deadline: float, name: str) -> Times:
    while time.monotonic() < deadline:
        jobs = cluster.jobs()
        if wrong := [job for job in jobs if job.phase in ("failed", "stopped")]:
            raise TrialFailed(f"{name}: {wrong[0].name} is {wrong[0].phase}: {wrong[0].reason}")
        if all(job.phase in ENDED for job in jobs):
            return {job.name: job.ended - job.submitted for job in jobs}
        time.sleep(_LOOK_SECONDS)
    raise TrialFailed(f"{name}: jobs did not end within {_MOST_SECONDS:g} s")


def _tell(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _mean(times: Mapping[str, float]) -> float:
    return statistics.fmean(times.values())


def _rows(policies: Sequence[str], rounds: Sequence[Round]) -> Iterator[dict[str, Any]]:
    """Yield a row of each policy, with the mean completion times of each kind, and why rounds of it failed."""
    for policy, counted in _counted(policies, rounds).items():
        row: dict[str, Any] = {"placement": policy, "rounds": len(counted), "jobs": sum(map(len, counted))}
        row["mean s"] = statistics.fmean(map(_mean, counted)) if counted else None
        for number, each in enumerate(rounds):
            times = each[policy]
            row[f"round {number}"] = None if isinstance(times, str) else _mean(times)
        for kind in EPOCHS:
            of_kind = [seconds for each in counted for name, seconds in each.items() if name.startswith(f"{kind}-")]
            row[kind] = statistics.fmean(of_kind) if of_kind else None
        failed = {number: why for number, each in enumerate(rounds) if isinstance(why := each[policy], str)}
        yield {**row, "failed": "; ".join(f"round {number}: {why}" for number, why in failed.items()) or None}


def _goals(policies: Sequence[str], rounds: Sequence[Round]) -> list[BenchmarkGoal]:
    """Return how far the learnt policy lies under the others, and in how many rounds all jobs ended."""
    counted = _counted(policies, rounds)
    means = {policy: statistics.fmean(map(_mean, each)) for policy, each in counted.items() if each}
    ended = sum(len(_ended(each)) for each in rounds)
    whole = at_least("rounds of a policy whose jobs all ended", len(policies) * len(rounds), ended, "")
    return [whole] + [
        at_least(f"{LEARNT} under {policy}", limit, 100 * (1 - means[LEARNT] / means[policy]), "%")
        for policy, limit in GOALS.items()
        if LEARNT in means and policy in means
    ]


if __name__ == "__main__":
    as_program(main)
