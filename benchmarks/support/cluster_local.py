"""This is the local part of `benchmarks.cluster`: one live scaling in its parts, and memory over many slots."""

import json
import os
import shutil
import statistics
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.support.report import BenchmarkGoal, under
from coordinator.client import CoordinatorClient
from coordinator.ctl.job_folders import read_job
from dl2_scheduler.backends.trial import scaled
from dl2_scheduler.cluster.errors import TrialFailed
from dl2_scheduler.live.client import ClusterClient
from elastic_ps.control.token import read_token
from examples.demo_cluster.served import DL2, served
from protos import elastic_pb2 as pb

FOLDER = Path("build/bench/cluster")
JOB = "digits"
CHANGES: Mapping[str, tuple[int, int]] = {
    "one worker more": (2, 1),
    "one worker less": (1, 1),
    "one server more": (1, 2),
    "one server less": (1, 1),
}
"""Workers and servers after each, in turn."""

PARTS = ("command", "request", "process start", "registration", "assignment", "migration", "worker update")
WARM = 0.2  # part of the slots in which processes still grow to what they need
MEMORY_SLOT = "250ms"
_POLL_SECONDS = 0.1
_BEGIN_SECONDS = 120.0
_DOCUMENT = """
apiVersion: dl2.scheduler/v1alpha1
kind: ElasticJob
metadata: {name: digits}
spec:
  modelType: digits
  epochs: 1000000
  scaling: SCALING
  workers:
    template: {spec: {containers: [{command: [python, examples/digits.py], args: [--epochs, "1000000"]}]}}
"""
_MANUAL, _BY_POLICY = "Manual", "Scheduler"


@dataclass(frozen=True)
class Split:
    """A split tells what one scaling took, in its parts; milliseconds.

    Attributes:
        what: happened.
        parts: by name of `PARTS`; what was not in it is missing.
        whole: from the command, or the request, to committed.
    """

    what: str
    parts: Mapping[str, float]
    whole: float


def scalings(rounds: int) -> list[dict[str, Any]]:
    """Return rows: medians of each change's parts.

    Args:
        rounds: in which each change happens twice, by `dl2 scale` and by its request alone: the difference is what
            the command costs.
    """
    splits: list[Split] = []
    options = ("--slots", "1x8", "--slot", "10m", "--policy", "drf", "--isolation", "none")
    with _serving("scaling", options, _MANUAL) as (_, cluster), _coordinator("scaling") as client:
        for number in range(2 * rounds):
            by_command = number % 2 == 0
            for what, (workers, servers) in CHANGES.items():
                splits.append(_scale(what, workers, servers, cluster, client, by_command))
            print(f"scaling: round {number + 1} of {2 * rounds}", file=sys.stderr, flush=True)
    return [_row(what, [split for split in splits if split.what == what]) for what in CHANGES]


def _scale(
    what: str, workers: int, servers: int, cluster: ClusterClient, client: CoordinatorClient, by_command: bool
) -> Split:
    counts = ("--workers", str(workers), "--servers", str(servers))
    command = [str(DL2), "scale", JOB, *counts, "--folder", str(FOLDER / "scaling")]

    began = time.time()
    if by_command:
        with ExitStack() as stack:  # looked at while the command still ends
            done = scaled(client, lambda: stack.enter_context(program(command)))
    else:
        done = scaled(client, lambda: cluster.scale(JOB, workers, servers))
    start = max(done.start_seconds.values(), default=0.0) * 1000
    registration, *later = done.plan.steps_ms
    asked = (done.plan.started - began) * 1000
    return Split(
        what,
        {
            "command" if by_command else "request": asked,
            "process start": start,
            "registration": max(0.0, registration - start),
            **dict(zip(PARTS[4:], later, strict=True)),
        },
        (done.plan.ended - began) * 1000,
    )


@contextmanager
def program(command: Sequence[str]) -> Iterator[None]:
    """Run a program meanwhile, and wait for it. Raises TrialFailed: it did not end well."""
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    try:
        yield
    finally:
        status = process.wait()
    if status:
        raise TrialFailed(f"{' '.join(command)}: status {status}")


def _row(what: str, splits: Sequence[Split]) -> dict[str, Any]:
    found: dict[str, list[float]] = defaultdict(list)
    for split in splits:
        for name, milliseconds in split.parts.items():
            found[name].append(milliseconds)
    medians = {name: statistics.median(found[name]) for name in PARTS}
    medians["command"] -= medians["request"]  # it was measured with the request that it makes
    whole = statistics.median(split.whole for split in splits if "command" in split.parts)
    parts = {f"{name} ms": milliseconds for name, milliseconds in medians.items()}
    return {"what": what, "scalings": len(splits), **parts, "command to committed ms": whole}


# ---- memory --------------------------------------------------------------------------------------------------------


def memory(slots: int) -> list[dict[str, Any]]:
    """Return rows: resident memory of each process of a cluster that decides for so many slots, MB."""
    sizes: dict[str, list[float]] = defaultdict(list)
    options = (
        "--slots",
        "1x8",
        "--slot",
        MEMORY_SLOT,
        "--policy",
        "benchmarks.support.played:InTurn",
        "--isolation",
        "none",
    )
    with _serving("memory", options, _BY_POLICY) as (serve, cluster), _coordinator("memory") as client:
        pids = {"dl2 serve": serve, **_pids("memory", client)}
        first = last = _slot(cluster)
        while last < first + slots:
            time.sleep(_POLL_SECONDS)
            if (now := _slot(cluster)) == last:
                continue
            last = now
            for name, pid in pids.items():
                sizes[name].append(_resident(pid))
            if len(sizes["dl2 serve"]) % 100 == 0:
                print(f"memory: slot {last - first} of {slots}", file=sys.stderr, flush=True)
    return [_growth(name, some, slots) for name, some in sizes.items()]


def _growth(name: str, sizes: Sequence[float], slots: int) -> dict[str, Any]:
    """Return how memory grew from the fifth that is warm to the last tenth."""
    warm, tenth = int(len(sizes) * WARM), max(1, len(sizes) // 10)
    before, after = statistics.median(sizes[warm : warm + tenth]), statistics.median(sizes[-tenth:])
    return {
        "process": name,
        "slots": slots,
        "at first MB": sizes[0],
        "warm MB": before,
        "at the end MB": after,
        "growth MB": after - before,
        "growth percent": 100 * (after / before - 1),
    }


def memory_goals(rows: Sequence[Mapping[str, Any]]) -> list[BenchmarkGoal]:
    """Return the goals that memory stays flat."""
    return [under(f"memory of {row['process']}, growth when warm", 3, row["growth percent"], "%") for row in rows]


def _slot(cluster: ClusterClient) -> int:
    return max((decision.slot for decision in cluster.why(JOB, 1)), default=0)


def _pids(name: str, client: CoordinatorClient) -> dict[str, int]:
    """Return the process of the oldest node of each role: the others come and go."""
    job = read_job(_job_folder(name))
    assert job is not None, "it runs"
    nodes = sorted((node for node in client.status().nodes if node.pid), key=lambda node: int(node.member.id[1:]))
    roles = {role: next(node.pid for node in nodes if node.member.role == role) for role in (pb.WORKER, pb.SERVER)}
    return {
        "launcher": job.pid,
        "coordinator": job.coordinator_pid,
        "worker": roles[pb.WORKER],
        "server": roles[pb.SERVER],
    }


def _resident(pid: int) -> float:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


# ---- a cluster with one job ----------------------------------------------------------------------------------------


@contextmanager
def _serving(name: str, options: Sequence[str], scaling: str) -> Iterator[tuple[int, ClusterClient]]:
    """Run `dl2 serve` with one job that trains; yield its process's id and its client."""
    folder = FOLDER / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    with served(folder, options, _BEGIN_SECONDS) as (serve, cluster), ExitStack() as stack:
        cluster.submit(_DOCUMENT.replace("SCALING", scaling), Path.cwd())
        stack.callback(_end, cluster)
        _until(lambda: cluster.status(JOB).epochs_done > 1, f"the job does not train: see {folder}.log")
        yield serve, cluster


def _end(cluster: ClusterClient) -> None:
    cluster.stop(JOB)
    _until(lambda: cluster.status(JOB).phase in ("stopped", "failed"), "the job does not end")


def _until(look: Any, trouble: str) -> None:
    deadline = time.monotonic() + _BEGIN_SECONDS
    while not look():
        if time.monotonic() > deadline:
            raise TrialFailed(trouble)
        time.sleep(_POLL_SECONDS)


def _job_folder(name: str) -> Path:
    return (FOLDER / name).resolve() / "elastic_ps" / "jobs" / JOB


@contextmanager
def _coordinator(name: str) -> Iterator[CoordinatorClient]:
    folder = _job_folder(name)
    address = json.loads((folder / "job.json").read_text())["coordinator"]
    with CoordinatorClient(address, read_token(folder / "token")) as client:
        yield client
