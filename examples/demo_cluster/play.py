"""One play: `dl2 serve` with a policy, the jobs submitted as they arrive, watched to their ends."""

import json
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from rich.console import Console

from dl2_scheduler.live.client import ClusterClient
from examples.demo_cluster.jobs import KINDS, DemoJob
from examples.demo_cluster.served import DL2, ENDED, served
from protos import cluster_pb2 as pb

SLOTS, SLOT = "2x4", "10s"  # a worker takes nearly a slot to start: with shorter ones policies decide ahead of it

_LOOK_SECONDS = 0.5
_TELL_SECONDS = 5.0
_SERVE_SECONDS = 90.0
_LONGEST_SECONDS = 900.0


class PlayError(Exception):
    """The demo could not be played."""


@dataclass(frozen=True)
class Look:
    """A look tells what all jobs had at one time.

    Attributes:
        at: seconds from the first submission.
        counts: workers and servers by job.
    """

    at: float
    counts: Mapping[str, tuple[int, int]]


@dataclass
class Played:
    """This is what came of a play.

    Attributes:
        policy: that decided.
        folder: of the cluster.
        looks: in order.
        seconds: from each job's submission to its end.
        scores: of the jobs that have finished and written one.
        problems: what went wrong, for people.
    """

    policy: str
    folder: Path
    looks: list[Look] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=dict)
    scores: dict[str, float] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)

    @property
    def mean(self) -> float:
        """Completion time, seconds."""
        return sum(self.seconds.values()) / len(self.seconds)


def play(name: str, policy: str, jobs: Sequence[DemoJob], folder: Path, console: Console) -> Played:
    """Play all jobs to their ends.

    Args:
        name: for people.
        policy: as `dl2 serve --policy` takes it.
        jobs: by arrival.
        folder: for the cluster's state and the jobs' results.
        console: where it is told.

    Raises:
        PlayError: the jobs did not end in time.
        TrialFailed: nobody serves them.
    """
    played = Played(name, folder)
    folder.mkdir(parents=True)
    with _serving(policy, folder, console) as client:
        found = _watch(client, jobs, played, console)
    for job in jobs:
        _take(played, job, found[job.name], folder)
    return played


def command(console: Console, *arguments: str) -> None:
    """Run dl2 as a person would, and show what it says.

    Raises:
        PlayError: it has failed.
    """
    console.print(f"[bold]$ dl2 {' '.join(arguments)}[/bold]")
    done = subprocess.run([str(DL2), *arguments], text=True, capture_output=True, check=False)
    console.print((done.stdout + done.stderr).rstrip(), markup=False)
    if done.returncode:
        raise PlayError(f"dl2 {arguments[0]} ended with status {done.returncode}")


@contextmanager
def _serving(policy: str, folder: Path, console: Console) -> Iterator[ClusterClient]:
    options = ["--slots", SLOTS, "--slot", SLOT, "--policy", policy]
    console.print(f"[bold]$ dl2 serve {' '.join(options)} --folder {folder}[/bold]")
    with served(folder, options, _SERVE_SECONDS) as (_, client):
        yield client


def _watch(client: ClusterClient, jobs: Sequence[DemoJob], played: Played, console: Console) -> dict[str, pb.JobStatus]:
    """Submit each job when it arrives, look until all have ended."""
    began, told, waiting = time.monotonic(), 0.0, list(jobs)
    while True:
        at = time.monotonic() - began
        while waiting and waiting[0].arrival <= at:
            job = waiting.pop(0)
            client.submit(job.document((played.folder / f"{job.name}.json").resolve()), Path.cwd())
            console.print(f"{at:4.0f} s  $ dl2 submit {job.name}.yaml")
        found = {job.name: job for job in client.jobs()}
        played.looks.append(Look(at, {name: (job.workers, job.servers) for name, job in found.items()}))
        if at - told >= _TELL_SECONDS:
            told = at
            console.print(f"{at:4.0f} s  {_line(found)}", markup=False)
        if not waiting and all(job.phase in ENDED for job in found.values()):
            return found
        if at > _LONGEST_SECONDS:
            raise PlayError(f"jobs have not ended after {at:.0f} s: {_line(found)}; see {played.folder}/logs")
        time.sleep(_LOOK_SECONDS)


def _line(found: Mapping[str, pb.JobStatus]) -> str:
    """Return the workers and servers of each job, and its epochs, as a line of text."""
    return "  ".join(
        f"{name} {job.phase}"
        if job.phase != "running"
        else f"{name} {job.workers}w{job.servers}s {job.epochs_done:.0f}/{job.epochs:.0f}"
        for name, job in found.items()
        if job.phase not in ENDED
    )


def _take(played: Played, job: DemoJob, status: pb.JobStatus, folder: Path) -> None:
    played.seconds[job.name] = status.ended - status.submitted
    kind, result = KINDS[job.kind], folder / f"{job.name}.json"
    if status.phase != "finished":
        played.problems.append(f"{played.policy}: {job.name} {status.phase}: {status.reason}; its log: {status.log}")
    elif not result.exists():
        played.problems.append(f"{played.policy}: {job.name} has finished and written no result")
    else:
        played.scores[job.name] = json.loads(result.read_text())[kind.score]
        if not kind.trained(played.scores[job.name]):
            played.problems.append(f"{played.policy}: {job.name} is not trained: {kind.unit} {played.scores[job.name]}")
