"""`dl2 serve` in a process of its own, for as long as something is played or measured."""

import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from dl2_scheduler.cluster.errors import NotServed, SchedulerError, TrialFailed
from dl2_scheduler.live.client import ClusterClient

ENDED = ("finished", "failed", "stopped")
"""Phases of jobs."""

DL2 = Path(sys.executable).parent / "dl2"

_LOOK_SECONDS = 0.1


@contextmanager
def served(folder: Path, options: Sequence[str], seconds: float) -> Iterator[tuple[int, ClusterClient]]:
    """Run `dl2 serve`, and yield its process's id and its client. No job outlives it, however it ends.

    Args:
        folder: of the cluster; what it says goes into a file beside it, with the suffix .log.
        options: of `dl2 serve`, but for the folder.
        seconds: that it may take to begin, and its jobs to end.

    Raises:
        TrialFailed: it did not begin.
    """
    with ExitStack() as stack, folder.with_suffix(".log").open("wb") as log:
        command = [str(DL2), "serve", *options, "--folder", str(folder)]
        process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)
        stack.callback(process.wait)
        stack.callback(process.send_signal, signal.SIGTERM)
        client = stack.enter_context(ClusterClient(folder))
        _until_answered(client, process, seconds, log.name)
        stack.callback(_end_jobs, client, seconds)
        yield process.pid, client


def _until_answered(client: ClusterClient, process: "subprocess.Popen[bytes]", seconds: float, log: str) -> None:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline and process.poll() is None:
        try:
            client.jobs()
        except NotServed:
            time.sleep(_LOOK_SECONDS)
        else:
            return
    raise TrialFailed(f"dl2 serve did not begin: see {log}")


def _end_jobs(client: ClusterClient, seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while (left := [job.name for job in client.jobs() if job.phase not in ENDED]) and time.monotonic() < deadline:
        for name in left:
            try:
                client.stop(name)
            except SchedulerError:
                continue  # it has ended meanwhile
        time.sleep(_LOOK_SECONDS)
