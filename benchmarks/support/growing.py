"""A job of one worker gets a second one, and loses it: for how long nobody trains, by our ways and by those of others.

Others are torchrun, which starts all workers again from a checkpoint, and torchft, where it is installed. Each job has
two workers on this machine, whose device is emulated (`train_torch`).
"""

import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from typing import Any

from benchmarks.scripts.train_growing import ELASTIC, TORCHFT, TORCHRUN
from benchmarks.support.beside_ddp import DEVICE_MS
from benchmarks.support.kvstores import ONE_THREAD, free_port, started
from dl2_scheduler.backends.trial import Trial
from dl2_scheduler.cluster.errors import TrialFailed

SCRIPT = "benchmarks.scripts.train_growing"
_STEPS = 30
"""A count of workers is there when they have made so many steps."""
_PATIENCE = 300.0
_LEAVE_SECONDS = 30.0
_LIGHTHOUSE = """
import sys, time
from torchft.coordination import LighthouseServer
server = LighthouseServer(bind=sys.argv[1], min_replicas=1, join_timeout_ms=1000, quorum_tick_ms=100)
time.sleep(1e6)
"""

_Ask = Callable[[int], object]
"""It makes the job have so many workers."""


@dataclass(frozen=True)
class MadeStep:
    """A `MadeStep` was made by some worker.

    Attributes:
        at: CLOCK_MONOTONIC, in seconds.
        number: of the step.
        workers: that made it.
    """

    at: float
    number: int
    workers: int


@dataclass(frozen=True)
class Changed:
    """This is what a change of the workers cost.

    Attributes:
        pause_ms: the longest time in which nobody has made a step, less the time of a usual one.
        again: steps that were made again.
    """

    pause_ms: float
    again: int


def growing(folder: Path, model: str, rounds: int) -> Iterator[dict[str, Any]]:
    """Yield a row for each system, of the medians of so many jobs, in turn.

    Args:
        folder: of the jobs.
        model: one of `support.models`.
        rounds: jobs of each system.

    Raises:
        TrialFailed: a job did not come through.
    """
    systems: Mapping[str, Callable[[Path, str], Any]] = {
        "ours, one server": lambda own, its: _elastic(own, its, 1),
        "ours, all-reduce": lambda own, its: _elastic(own, its, 0),
        TORCHRUN: _torchrun,
        **({TORCHFT: _torchft} if find_spec(TORCHFT) else {}),
    }
    if TORCHFT not in systems:
        print("torchft is not installed, and left out: pip install torchft", file=sys.stderr)
    joins: dict[str, list[Changed]] = {name: [] for name in systems}
    leaves: dict[str, list[Changed]] = {name: [] for name in systems}
    for number in range(rounds):
        for name, job in systems.items():
            print(f"{model}: {name}, round {number + 1} of {rounds}", file=sys.stderr, flush=True)
            own = folder / f"{name.replace(', ', '-').replace(' ', '-')}-{model}-{number}"
            (own / "steps").mkdir(parents=True)
            with job(own, model) as ask:
                _until(own / "steps", 1, 0.0)
                joins[name].append(_changed(own / "steps", ask, 2))
                if name != TORCHFT:  # 0.2.0: who is left ends with an AssertionError in its DistributedDataParallel
                    leaves[name].append(_changed(own / "steps", ask, 1))
    for name in systems:
        yield {
            "model": model,
            "system": name,
            **_told("join", joins[name]),
            **_told("leave", leaves[name]),
            "load": os.getloadavg()[0],
        }


def _told(what: str, changes: Sequence[Changed]) -> dict[str, Any]:
    """Return the columns of what was measured of some changes; "-": none were."""
    names = (f"{what}: nobody trains, ms", f"{what}: most ms", f"{what}: steps again")
    if not changes:
        return dict.fromkeys(names, "-")
    pauses = [change.pause_ms for change in changes]
    again = statistics.median(change.again for change in changes)
    return dict(zip(names, (statistics.median(pauses), max(pauses), again), strict=True))


def _changed(folder: Path, ask: _Ask, workers: int) -> Changed:
    """Make the job have so many workers, and return what came of it."""
    asked = time.monotonic()
    ask(workers)
    _until(folder, workers, asked)
    steps = _steps(folder)
    first = max(step.at for step in steps if step.at < asked)
    found = [step for step in steps if step.at >= first]
    gaps = [(later.at - step.at, step, later) for step, later in pairwise(found)]
    longest, before, after = max(gaps, key=lambda gap: gap[0])
    alone = [step.at for step in steps if step.workers == 1 and step.at < asked]
    usual = statistics.median(later - at for at, later in pairwise(alone[-_STEPS:]))
    reached = max(step.number for step in found if step.at <= before.at)
    return Changed(1000 * (longest - usual), max(0, reached + 1 - after.number))


def _steps(folder: Path) -> list[MadeStep]:
    """Return all whole lines of all workers, by time."""
    found = []
    for file in folder.glob("*.steps"):
        for line in file.read_text().splitlines(keepends=True):
            if line.endswith("\n"):
                at, number, workers = line.split()
                found.append(MadeStep(float(at), int(number), int(workers)))
    return sorted(found, key=lambda step: step.at)


def _until(folder: Path, workers: int, since: float) -> None:
    """Wait until so many workers have made their steps since a time."""
    deadline = time.monotonic() + _PATIENCE
    while sum(step.workers == workers and step.at > since for step in _steps(folder)) < workers * _STEPS:
        if time.monotonic() > deadline:
            raise TrialFailed(f"{workers} workers did not train within {_PATIENCE:g} s: see {folder.parent}")
        time.sleep(0.2)


# ---- the systems -----------------------------------------------------------------------------------------------------


def _arguments(system: str, model: str, folder: Path) -> list[str]:
    return [SCRIPT, system, model, str((folder / "steps").resolve()), "--device", str(DEVICE_MS)]


@contextmanager
def _elastic(folder: Path, model: str, servers: int) -> Iterator[_Ask]:
    options = () if servers else ("--mode", "all-reduce")
    with Trial(folder, "growing", _arguments(ELASTIC, model, folder), 1, servers, options) as job:
        yield lambda workers: job.scale(workers=workers)


@contextmanager
def _torchrun(folder: Path, model: str) -> Iterator[_Ask]:
    """Run an agent for each worker. It waits one second for others, not 30, and looks for them ten times a second.

    Each round makes a store of its own: of one that is shared (PyTorch 2.13) an agent that joins is told by nobody.
    """
    how = ["--nnodes=1:2", "--nproc-per-node=1", "--rdzv-backend=c10d", f"--rdzv-endpoint=127.0.0.1:{free_port()}"]
    how += ["--rdzv-id=growing", "--rdzv-conf=last_call_timeout=1", "--monitor-interval=0.1", "--max-restarts=100"]
    command = ["-m", "torch.distributed.run", *how, "-m", *_arguments(TORCHRUN, model, folder)]
    with _each(folder, command, {**os.environ, "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}) as ask:
        yield ask


@contextmanager
def _torchft(folder: Path, model: str) -> Iterator[_Ask]:
    """Run a process for each replica, and their lighthouse."""
    address = f"127.0.0.1:{free_port()}"
    environment = {**os.environ, "TORCHFT_LIGHTHOUSE": f"http://{address}"}
    replica = ["-m", *_arguments(TORCHFT, model, folder)]
    with (
        (folder / "lighthouse.log").open("wb") as log,
        started(["-c", _LIGHTHOUSE, address], os.environ, log.fileno()),
        _each(folder, replica, environment) as ask,
    ):
        yield ask


@contextmanager
def _each(folder: Path, command: list[str], environment: Mapping[str, str]) -> Iterator[_Ask]:
    """Run the same command once for each worker."""
    running: list[subprocess.Popen[bytes]] = []
    with (folder / "log").open("wb") as log, ExitStack() as stack:

        def ask(workers: int) -> None:
            while len(running) < workers:
                running.append(stack.enter_context(started(command, {**environment, **ONE_THREAD}, log.fileno())))
            while len(running) > workers:
                _end(running.pop())

        ask(1)
        try:
            yield ask
        finally:
            ask(0)


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a process by SIGTERM, which takes its own along."""
    process.terminate()
    process.wait(_LEAVE_SECONDS)
