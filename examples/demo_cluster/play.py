"""This module lets policies play the same jobs at the same time, each on a cluster of its own, and watches them."""

import shutil
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from rich.console import Console

from coordinator.archive import read_archive
from coordinator.ctl.exactly_once_audit import audit
from dl2_scheduler.live.client import ClusterClient
from examples.demo_cluster.jobs import SubmittedJob
from examples.demo_cluster.served import DL2, ENDED, served
from protos import cluster_pb2 as pb

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
        problems: what went wrong, for people.
    """

    policy: str
    folder: Path
    looks: list[Look] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)

    @property
    def mean(self) -> float:
        """Completion time, seconds."""
        return sum(self.seconds.values()) / len(self.seconds)


def play(
    contenders: Mapping[str, Sequence[str]],
    jobs: Sequence[SubmittedJob],
    folder: Path,
    console: Console,
    past: Played | None = None,
) -> list[Played]:
    """Play all jobs to their ends, in every contender's cluster at the same time.

    So whatever else the machine does concerns them all.

    Args:
        contenders: options of `dl2 serve`, but for the folder, by the names of the policies for people.
        jobs: by arrival.
        folder: for a folder of each cluster's state.
        console: where it is told.
        past: the play whose cluster each of them goes on from, with all that it has seen; None: they are new.

    Raises:
        PlayError: the jobs did not end in time.
        TrialFailed: nobody serves them.
    """
    plays = [Played(name, folder / name) for name in contenders]
    with ExitStack() as stack:
        for played in plays:
            if past is None:
                played.folder.mkdir(parents=True)
            else:
                shutil.copytree(past.folder, played.folder)
        clients = [stack.enter_context(_serving(contenders[played.policy], played.folder, console)) for played in plays]
        found = _watch(clients, jobs, plays, console)
    for played, of_cluster in zip(plays, found, strict=True):
        for job in jobs:
            status = of_cluster[job.name]
            played.seconds[job.name] = status.ended - status.submitted
            if status.phase != "finished":
                what = f"{played.policy}: {job.name} {status.phase}: {status.reason}; its log: {status.log}"
                played.problems.append(what)
    return plays


def prove(played: Played, jobs: Sequence[SubmittedJob], samples: int, global_batch: int) -> None:
    """Add to a play's problems what speaks against every sample having been used once, by what servers applied.

    Args:
        played: all its jobs have ended.
        jobs: those that were played.
        samples: of an epoch of each.
        global_batch: of each, in samples.
    """
    for job in jobs:
        ledger = read_archive(played.folder / "elastic_ps" / "jobs" / job.name).ledger
        proof = audit(ledger, samples, global_batch, job.epochs)
        played.problems += [f"{played.policy}: {job.name}: {problem}" for problem in proof.problems]


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
def _serving(options: Sequence[str], folder: Path, console: Console) -> Iterator[ClusterClient]:
    console.print(f"[bold]$ dl2 serve {' '.join(options)} --folder {folder}[/bold]")
    with served(folder, options, _SERVE_SECONDS) as (_, client):
        yield client


def _watch(
    clients: Sequence[ClusterClient], jobs: Sequence[SubmittedJob], plays: Sequence[Played], console: Console
) -> list[dict[str, pb.JobStatus]]:
    """Submit each job when it arrives, look until all have ended; return how each cluster's jobs did."""
    began, told, waiting, names = time.monotonic(), 0.0, list(jobs), {job.name for job in jobs}
    while True:
        at = time.monotonic() - began
        while waiting and waiting[0].arrival <= at:
            job = waiting.pop(0)
            for client in clients:
                client.submit(job.document, Path.cwd())
            console.print(f"{at:4.0f} s  $ dl2 submit {job.name}.yaml")
        found = [{job.name: job for job in client.jobs() if job.name in names} for client in clients]
        for played, of_cluster in zip(plays, found, strict=True):
            played.looks.append(Look(at, {name: (job.workers, job.servers) for name, job in of_cluster.items()}))
        lines = [f"{played.policy:8}{_line(of_cluster)}" for played, of_cluster in zip(plays, found, strict=True)]
        if at - told >= _TELL_SECONDS:
            told = at
            for line in lines:
                console.print(f"{at:4.0f} s  {line}", markup=False)
        if not waiting and all(job.phase in ENDED for of_cluster in found for job in of_cluster.values()):
            return found
        if at > _LONGEST_SECONDS:
            folders = ", ".join(str(played.folder / "logs") for played in plays)
            raise PlayError(f"jobs have not ended after {at:.0f} s: {'; '.join(lines)}; see {folders}")
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
