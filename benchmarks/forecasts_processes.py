"""This benchmark checks forecasts of `dl2 serve` with real processes, as `dl2 jobs` shows them while jobs run.

    python -m benchmarks.forecasts_processes [--jobs 40] [--seed 0] [--policy drf]

A cluster of 16 task slots runs on this machine. Its jobs are real but for accelerator and network, which are emulated:
see `benchmarks.scripts.emulated`. Each needs two workers and two servers at least, so that jobs wait. Forecasts count
from the first quarter of the jobs on.
"""

import argparse
import os
import shutil
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import mean, median
from typing import Any

from benchmarks.support.emulated_jobs import arrivals, document
from benchmarks.support.report import BenchmarkGoal, as_program, at_least, at_most, finish
from dl2_scheduler.cluster.jobs import Job
from dl2_scheduler.live.client import ClusterClient
from dl2_scheduler.live.history import History
from dl2_scheduler.live.recorded_slots import RecordedSlot
from dl2_scheduler.replay.past import is_first
from examples.demo_cluster.served import ENDED, served
from protos import cluster_pb2 as pb

STATE = Path("build/bench/forecasts_processes")
SLOTS, SLOT = "2x8", 10.0
LONGER = 3  # times the epochs that these jobs have elsewhere
GAP = 1.5  # times the seconds from one arrival to the next
LEAST = 2
_BEGIN_SECONDS, _LONGEST_SECONDS, _LOOK_SECONDS = 90.0, 1200.0, 1.0


@dataclass
class SeenCluster:
    """A `SeenCluster` keeps what `dl2 jobs` has shown, and when it came about.

    Attributes:
        forecasts: by job and event, in the order in which they were made: when, and what was expected.
        came: when events have come about, unix seconds, by job and event.
        submitted: when jobs were, unix seconds.
    """

    forecasts: dict[tuple[str, str], dict[float, pb.ExpectedTime]] = field(default_factory=dict)
    came: dict[tuple[str, str], float] = field(default_factory=dict)
    submitted: dict[str, float] = field(default_factory=dict)

    def look(self, jobs: Sequence[pb.JobStatus]) -> None:
        """Take what is shown now."""
        for job in jobs:
            self.submitted[job.name] = job.submitted
            if job.phase == "finished":
                self.came.setdefault((job.name, "end"), job.ended)
            for event, expected in (("start", job.forecast.start), ("end", job.forecast.end)):
                if job.forecast.HasField("start" if event == "start" else "end"):
                    self.forecasts.setdefault((job.name, event), {}).setdefault(job.forecast.made, expected)

    def look_back(self, slots: Iterable[RecordedSlot]) -> None:
        """Take from the history when jobs began to train: who looks each second sees it a second or more too late.

        A job of which nobody knows when it began, as one that has ended in its first slot, has no start that counts.
        """
        for slot in slots:
            states = {state.job.id: state for state in slot.snapshot.jobs}
            for done in slot.outcome.jobs if slot.outcome else ():
                state, name = states[done.id], str(done.id)
                if is_first(state, done) and done.since is not None:
                    self.came.setdefault((name, "start"), self.submitted[name] + done.since - state.job.arrival)


def main() -> int:
    """Run, print, write build/bench/forecasts_processes.json."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=40, help="that arrive (default 40)")
    parser.add_argument("--seed", type=int, default=0, help="of the arrivals (default 0)")
    parser.add_argument("--policy", default="drf", help="as dl2 serve takes it (default drf)")
    options = parser.parse_args()
    shutil.rmtree(STATE, ignore_errors=True)
    STATE.mkdir(parents=True)
    jobs = [replace(job, epochs=LONGER * job.epochs) for job in arrivals(options.jobs, options.seed, GAP)]
    place = ["--slots", SLOTS, "--slot", f"{SLOT:g}s", "--isolation", "none", "--policy", options.policy]
    seen, loads = SeenCluster(), list[float]()
    with served(STATE / "cluster", place, _BEGIN_SECONDS) as (_, client):
        play(jobs, client, seen, loads)
    look_back(seen, STATE / "cluster")
    rows = [row_of(event, seen, first_jobs(jobs)) | {"mean load": mean(loads)} for event in ("start", "end")]
    return finish("forecasts_processes", rows, list(goals(rows)), ("numpy", "grpcio"))


def play(jobs: Sequence[Job], client: ClusterClient, seen: SeenCluster, loads: list[float]) -> None:
    """Submit each job when it arrives, and look until all have ended.

    Args:
        jobs: by arrival.
        client: of the cluster.
        seen: takes what is shown.
        loads: takes how busy the machine was.
    """
    waiting, began = list(jobs), time.monotonic()
    while True:
        at = time.monotonic() - began
        while waiting and waiting[0].arrival <= at:
            client.submit(document(waiting.pop(0), least=LEAST), Path.cwd())
        found = client.jobs()
        seen.look(found)
        loads.append(os.getloadavg()[0])
        if not waiting and all(job.phase in ENDED for job in found):
            return
        if at > jobs[-1].arrival + _LONGEST_SECONDS:
            raise TimeoutError(f"jobs have not ended after {at:.0f} s: see {STATE}")
        time.sleep(_LOOK_SECONDS)


def look_back(seen: SeenCluster, folder: Path) -> None:
    """Let a cluster that has been served in a folder know when its jobs began; see `SeenCluster.look_back`."""
    with closing(History.of_folder(folder)) as history:
        seen.look_back(history.slots())


def first_jobs(jobs: Sequence[Job]) -> set[str]:
    """Return the names of those whose forecasts do not count, as the forecaster gets to know the cluster."""
    return {str(job.id) for job in jobs[: len(jobs) // 4]}


def row_of(event: str, seen: SeenCluster, first: set[str]) -> dict[str, Any]:
    """Return how often the intervals of an event held.

    Args:
        event: start or end.
        seen: what was shown.
        first: names of the jobs that do not count.
    """
    held, errors, names = [], [], set()
    for (job, which), made in seen.forecasts.items():
        came = seen.came.get((job, which))
        if which != event or job in first or came is None:
            continue
        names.add(job)
        held += [expected.low <= came <= expected.high for expected in made.values()]
        errors += [abs(expected.at - came) for expected in made.values()]
    return {
        "of": event,
        "forecasts": len(held),
        "jobs": len(names),
        "held %": 100 * mean(held) if held else 0.0,
        "median error s": median(errors) if errors else 0.0,
    }


def goals(rows: Sequence[dict[str, Any]]) -> Iterator[BenchmarkGoal]:
    """Yield what was promised, of all rows of an event together."""
    for event in ("start", "end"):
        some = [row for row in rows if row["of"] == event and row["forecasts"]]
        held = sum(row["held %"] * row["forecasts"] for row in some) / max(1, sum(row["forecasts"] for row in some))
        yield at_least(f"80% intervals that held, of {event}s", 75.0, held, "%")
        yield at_most(f"80% intervals that held, of {event}s", 85.0, held, "%")


if __name__ == "__main__":
    as_program(main)
