"""Measure how fast the scheduler decides and the simulator runs.

    python -m benchmarks.scheduler [--policy RUN]

A slot of the learnt policy is from a snapshot to an allocation, filled until nothing fits, each task on its node. An
inference's time is the slot's over their number: state, network, choice, node. `start ms` is the part of a slot that
makes arrays of a snapshot, once. One slot is decided again while the program of `dl2 serve --learn --learn-cores 1`
dreams of its cluster. The simulator is measured in slots a second of each policy, 20 jobs on 24 nodes, beside the same
in plain Python: without numba, in a process of its own. The Gymnasium environment is measured in steps a second under
random actions, 16 clusters of 24 nodes with 20 jobs: its own vector form beside Gymnasium's.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import gymnasium
import numpy as np
import torch

from benchmarks.support.dreaming_beside import dreaming
from benchmarks.support.report import as_program, finish, under
from dl2_scheduler.cluster.free_resources import FreeResources, NodeRule
from dl2_scheduler.cluster.jobs import Job
from dl2_scheduler.cluster.snapshot import JobState, Snapshot
from dl2_scheduler.gym import ID
from dl2_scheduler.learning.lessons import Lessons
from dl2_scheduler.learning.networks import SharedPolicy
from dl2_scheduler.learning.rollout import Clusters, roll_out
from dl2_scheduler.policies.learnt.dl2 import Dl2, load
from dl2_scheduler.policies.learnt.weights import Weights
from dl2_scheduler.policies.registry import make_policy
from dl2_scheduler.sim.arrivals import Pattern, generate
from dl2_scheduler.sim.catalogue import CATALOGUE
from dl2_scheduler.sim.shipped import shipped_speeds
from dl2_scheduler.sim.simulator import SimulatedCluster, run
from dl2_scheduler.sim.trace import parse_cluster

SPEEDS = shipped_speeds(17, 17)
REPEATS = 9
BESIDE = 500  # repeats beside a learner: so many that both run for seconds
_MODES = ("vector_entry_point", "sync")
_NEVER = -1e9  # score of stopping: the slot is filled to its maximum
SLOTS = ((24, 30), (500, 40), (500, 200), (2_000, 200), (10_000, 1_000))
JOBS, LANES, MOST_SLOTS = 20, 8, 40
ENVIRONMENTS, STEPS = 16, 300
POLICIES = ("drf", "fifo", "srtf", "tetris", "optimus", "planner")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--policy", type=Path, help="a run's folder; left out: a network that knows nothing")
    parser.add_argument("--plain", action="store_true", help=argparse.SUPPRESS)  # what `_in_plain_python` runs
    arguments = parser.parse_args()
    torch.manual_seed(0)
    weights = load(arguments.policy) if arguments.policy else SharedPolicy(SPEEDS.models).weights()
    if arguments.plain:
        print(json.dumps(_simulated(weights)))
        return 0
    slots = {(nodes, jobs): _slot(weights, nodes, jobs) for nodes, jobs in SLOTS}
    small, large = slots[500, 40], slots[10_000, 1_000]
    beside = _beside_dreams(weights, 500, 40)
    goals = [
        under("one inference, median of a slot of 40 jobs on 500 nodes", 0.05, small["inference ms"], "ms"),
        under("a slot of 40 jobs on 500 nodes", 30, small["slot ms"], "ms"),
        under("a slot of 40 jobs on 500 nodes, while a learner dreams of them", 30, beside["slot ms"], "ms"),
        under("a slot of 1,000 jobs on 10,000 nodes", 1000, large["slot ms"], "ms"),
    ]
    rows: list[dict[str, Any]] = [{"what": "a slot of dl2", **row} for row in slots.values()]
    rows.append({"what": "a slot of dl2 beside dreams", **beside})
    compiled, plain = _simulated(weights), _in_plain_python()
    rows += [
        {"what": f"simulated: {name}", "slots/s": rate, "plain slots/s": plain[name], "ratio": rate / plain[name]}
        for name, rate in compiled.items()
    ]
    rows += [{"what": f"gym, {ENVIRONMENTS} clusters: {mode}", "steps/s": _steps(mode)} for mode in _MODES]
    columns = dict.fromkeys(column for row in rows for column in row)
    whole = [{column: row.get(column) for column in columns} for row in rows]
    return finish("scheduler", whole, goals, ("numpy", "numba", "torch", "gymnasium"))


def _slot(weights: Weights, nodes: int, jobs: int, repeats: int = REPEATS) -> dict[str, Any]:
    stop = {**weights.arrays, "stop.bias": np.full(1, _NEVER, np.float32)}
    policy = Dl2(Weights(weights.models, stop))
    snapshot = _snapshot(nodes, jobs)
    times = []
    for _ in range(repeats + 1):  # the first one compiles
        started = time.perf_counter()
        allocation = policy.allocate(snapshot, FreeResources(snapshot))
        times.append(1000 * (time.perf_counter() - started))
    whole = median(times[1:])
    return {
        "nodes": nodes,
        "jobs": jobs,
        "slot ms": whole,
        "inferences": policy.inferences,
        "tasks": sum(grant.workers + grant.servers for grant in allocation.grants.values()),
        "inference ms": whole / policy.inferences,
        "start ms": _median_ms(lambda: FreeResources(snapshot)),
    }


def _beside_dreams(weights: Weights, nodes: int, jobs: int) -> dict[str, Any]:
    """Return the row of a slot that is decided while a learner's program dreams of this very cluster."""
    with TemporaryDirectory() as folder, dreaming(Path(folder), _snapshot(nodes, jobs), SPEEDS) as computed:
        began, before = time.monotonic(), computed()
        found = _slot(weights, nodes, jobs, BESIDE)
        return {**found, "learner's part of a core": (computed() - before) / (time.monotonic() - began)}


def _median_ms(work: Callable[[], object]) -> float:
    times = []
    for _ in range(REPEATS):
        started = time.perf_counter()
        work()
        times.append(1000 * (time.perf_counter() - started))
    return median(times)


def _snapshot(nodes: int, jobs: int) -> Snapshot:
    random = np.random.default_rng(1)
    states = []
    for number in range(jobs):
        model = sorted(CATALOGUE)[number % len(CATALOGUE)]
        kind = CATALOGUE[model]
        job = Job(f"job-{number}", 0.0, model, kind.epochs, kind.samples_per_epoch, {"cpu": 2, "gpu": 1}, {"cpu": 2})
        states.append(JobState(job, float(random.uniform(0, 0.9) * kind.epochs), int(random.integers(0, 30))))
    machines = parse_cluster(f"{nodes}x8cpu,8gpu")
    return Snapshot(0, 1200.0, machines, tuple(states))


def _simulated(weights: Weights) -> dict[str, float]:
    """Return the slots a second of each policy alone, and of the learnt one in all lanes of a lockstep together."""
    machines = parse_cluster("24x8cpu,8gpu")
    jobs = generate(Pattern.GOOGLE, JOBS, 3)
    found = {}
    for name in POLICIES:
        run(SimulatedCluster(jobs[:1], machines, SPEEDS), make_policy(name, SPEEDS), NodeRule.SPREAD)  # compiles
        cluster = SimulatedCluster(jobs, machines, SPEEDS)
        started = time.perf_counter()
        run(cluster, make_policy(name, SPEEDS), NodeRule.SPREAD)
        found[name] = cluster.lanes.slot / (time.perf_counter() - started)
    lessons = Lessons((machines,), JOBS)
    for lanes in (1, LANES):  # the first compiles
        clusters = Clusters(lessons.episodes(0, lanes), SPEEDS, weights.models)
        started = time.perf_counter()
        rollout = roll_out(clusters, weights, most_slots=MOST_SLOTS)
        found[f"dl2, {LANES} lanes in lockstep"] = len(rollout.slots) / (time.perf_counter() - started)
    return found


def _steps(mode: str) -> float:
    """Return the decisions a second; what choosing them takes is left out."""
    lanes = gymnasium.make_vec(ID, num_envs=ENVIRONMENTS, vectorization_mode=mode, jobs=JOBS)
    random = np.random.default_rng(0)
    _, info = lanes.reset(seed=0)
    whole = 0.0
    for step in range(-1, STEPS):  # the first one compiles
        actions = (random.random(info["action_mask"].shape) * info["action_mask"]).argmax(axis=1)
        started = time.perf_counter()
        *_, info = lanes.step(actions)
        whole += time.perf_counter() - started if step >= 0 else 0.0
    return STEPS * ENVIRONMENTS / whole


def _in_plain_python() -> dict[str, float]:
    command = [sys.executable, "-m", "benchmarks.scheduler", "--plain"]
    environment = {**os.environ, "NUMBA_DISABLE_JIT": "1"}
    done = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
    found: dict[str, float] = json.loads(done.stdout)
    return found


if __name__ == "__main__":
    as_program(main)
