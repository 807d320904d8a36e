"""A `KilledJob` is a real job whose servers are killed or frozen, one after the other, whenever all is protected."""

import os
import random
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.scripts import train_tally
from coordinator.archive import Archive, read_archive
from coordinator.client import ClientError
from coordinator.ctl.exactly_once_audit import audit
from coordinator.server.journal import Journal
from tests.e2e import jobs, proofs

WORKERS = 2
REST_SECONDS = 0.6
"""How long a job has nothing under way until it is taken to be protected: followers are made again at once."""

_MODES: dict[str, tuple[str, ...]] = {
    "sync": (),
    "async": ("--consistency", "async"),
    "ssp": ("--consistency", "ssp", "--staleness", "2"),
}
_PACE = ("--pace", "0.01")
_OPTIONS = ("--replicas", "1", "--max-restarts", "100000", "--grace", "10")
_TALLY = Path(train_tally.__file__)
_PATIENCE = 120.0
_LOOK_SECONDS = 0.002
_MOMENT_SECONDS = 0.5  # within which a strike comes, once all is protected; a plan takes about two
_PLAN_SECONDS = 2.0


@dataclass(frozen=True)
class Strike:
    """A strike is one fault that a server is to meet.

    Attributes:
        signal: "kill" or "freeze".
        during: "rest" or "plan", which takes the servers from `servers` to one more, or back.
    """

    signal: str
    during: str


@dataclass(frozen=True)
class JobDraw:
    """A draw says all of a job but when its processes are scheduled.

    Attributes:
        number: of the job.
        mode: "sync", "async" or "ssp".
        transport: of its tensors.
        servers: at the start.
        lease: in seconds.
        strikes: in their order.
        seed: of moments and victims.
    """

    number: int
    mode: str
    transport: str
    servers: int
    lease: float
    strikes: tuple[Strike, ...]
    seed: str

    def __str__(self) -> str:
        return f"job {self.number} ({self.mode}, {self.transport}, {self.servers} servers)"


@dataclass
class Struck:
    """This is what came of one strike; times are unix seconds.

    Attributes:
        strike: what was done.
        victim: the server's id.
        phase: of the plan under way; "": none.
        at: when.
        noticed: when the launcher said so.
        whole: when all was protected again, by as many servers as wanted.
        trained: when each worker had made a second step since: the first may have had all its values before.
    """

    strike: Strike
    victim: str
    phase: str
    at: float
    noticed: float = 0.0
    whole: float = 0.0
    trained: float = 0.0


@dataclass
class KilledOutcome:
    """This is what came of one job.

    Attributes:
        draw: of the job.
        struck: its strikes.
        restores: how often it went back to a checkpoint.
        failure: why it did not come through; "": it did.
        problems: lost and doubled updates by the ledger's audit and by the weights.
    """

    draw: JobDraw
    struck: list[Struck] = field(default_factory=list)
    restores: int = 0
    failure: str = ""
    problems: tuple[str, ...] = ()


class KilledJob:
    """A `KilledJob` kills and freezes the servers of one job.

    Args:
        draw: of it.
        job: under elasticrun.
    """

    def __init__(self, draw: JobDraw, job: jobs.Job):
        self._draw = draw
        self._job = job
        self._chance = random.Random(draw.seed)
        self._servers = draw.servers

    def rest(self) -> float:
        """Wait until all is protected by as many servers as wanted; returns since when."""
        since = [0.0]

        def has_rested(status: Any) -> bool:
            quiet = status.phase == "running" and not status.plan.id and not status.queued and status.version > 0
            if not quiet or jobs.counts(status) != (WORKERS, self._servers):
                since[0] = 0.0
            elif not since[0]:
                since[0] = time.time()
            return bool(since[0]) and time.time() - since[0] > REST_SECONDS

        self._job.until(has_rested, "all protected", _PATIENCE)
        return since[0]

    def strike(self, strike: Strike) -> Struck:
        """Kill or freeze a server, and wait until the launcher says so."""
        if strike.during == "plan":
            self._begin_plan()
        time.sleep(self._chance.uniform(0, _MOMENT_SECONDS if strike.during == "rest" else _PLAN_SECONDS))
        status = self._job.until(lambda _: True, "a status")
        servers = sorted((n for n in status.nodes if n.member.role == 2 and n.pid), key=lambda node: node.member.id)
        victim = self._chance.choice(servers)
        said = self._job.log.stat().st_size
        struck = Struck(strike, victim.member.id, status.plan.phase if status.plan.id else "", time.time())
        os.kill(victim.pid, signal.SIGKILL if strike.signal == "kill" else signal.SIGSTOP)
        struck.noticed = self._noticed(said, struck.victim)
        return struck

    def _begin_plan(self) -> None:
        """Scale, up from what the job began with, or back to it."""
        self._servers = self._draw.servers + (self._servers == self._draw.servers)
        known = {plan.id for plan in self._job.client.plans()}
        self._job.client.scale(servers=self._servers)
        self._job.until(
            lambda status: status.plan.id or {plan.id for plan in self._job.client.plans()} - known, "a plan", _PATIENCE
        )

    def _noticed(self, said: int, victim: str) -> float:
        """Wait for the launcher's word about the victim behind what it had said; returns when it came."""
        deadline = time.monotonic() + _PATIENCE
        with self._job.log.open("rb") as log:
            log.seek(said)
            news = b""
            while time.monotonic() < deadline:
                news += log.read()
                lines = [line for line in news.split(b"\n") if line.startswith(b"[elasticrun]")]
                if any(victim.encode() in line.replace(b":", b" ").split() for line in lines):
                    return time.time()
                time.sleep(_LOOK_SECONDS)
        raise AssertionError(f"the launcher says nothing of {victim}\n{self._job.tail()}")


def run(draw: JobDraw, folder: Path) -> KilledOutcome:
    """Run one job through its strikes to its proof.

    Args:
        draw: of the job.
        folder: its own.
    """
    outcome = KilledOutcome(draw)
    folder.mkdir(parents=True)
    try:
        with _started(draw, folder) as job:
            killed = KilledJob(draw, job)
            killed.rest()
            for strike in draw.strikes:
                outcome.struck.append(killed.strike(strike))
                outcome.struck[-1].whole = killed.rest()
            (folder / "finish").touch()
            if (status := job.wait(_PATIENCE)) != 0:
                raise AssertionError(f"the job ended with status {status}\n{job.tail()}")
    except (AssertionError, ClientError) as error:
        outcome.failure = str(error)
    with suppress(FileNotFoundError):  # it has not begun
        _read(outcome, job.folder, folder)
    return outcome


@contextmanager
def _started(draw: JobDraw, folder: Path) -> Iterator[jobs.Job]:
    options = (*_OPTIONS, "--transport", draw.transport, "--lease", str(draw.lease))
    script = (proofs.SCRIPT if draw.mode == "sync" else _TALLY, folder, *_PACE, *_MODES[draw.mode])
    with jobs.run(folder, *script, workers=WORKERS, servers=draw.servers, options=options) as job:
        yield job


def _read(outcome: KilledOutcome, state: Path, folder: Path) -> None:
    """Read from an ended job's folder when it went on, and what its ledger and weights prove."""
    archive = read_archive(state)
    journal = Journal(state / "journal.sqlite")
    loaded = journal.load()
    journal.close()
    outcome.restores = len(loaded[0].voids) if loaded is not None else 0
    ends = _ends(archive)
    for struck in outcome.struck:
        struck.trained = max((second_after(of_worker, struck.at) for of_worker in ends), default=0.0)
    if not outcome.failure:
        outcome.problems = _problems(outcome.draw, archive, folder)


def _ends(archive: Archive) -> list[list[float]]:
    """Return the ends of each worker's steps."""
    ends: dict[str, list[float]] = {}
    for row in archive.steps:
        ends.setdefault(row.worker, []).append(row.step.end)
    return [sorted(of_worker) for of_worker in ends.values()]


def second_after(ends: Sequence[float], at: float) -> float:
    """Return the end of the second step that ended after a moment; infinite where there was none.

    Args:
        ends: of one worker's steps, in order.
        at: the moment.
    """
    after = [end for end in ends if end > at][1:2]
    return after[0] if after else float("inf")


def _problems(draw: JobDraw, archive: Archive, folder: Path) -> tuple[str, ...]:
    """Return what the ledger and the weights say against "every sample exactly once"."""
    weights = proofs.weights_in(folder)
    epochs = int(weights.pop("epochs"))
    of_sync = draw.mode == "sync"
    samples, batch = (proofs.SAMPLES, proofs.BATCH) if of_sync else (train_tally.SAMPLES, train_tally.BATCH)
    problems = list(audit(archive.ledger, samples, batch, epochs).problems)
    expected: Callable[[str], Any] = lambda _name: epochs  # noqa: E731
    if of_sync:
        expected = proofs.undisturbed(epochs, workers=WORKERS).__getitem__
    for name, value in weights.items():
        if wrong := int(np.sum(value != expected(name))):
            problems.append(f"{wrong} entries of {name} are not those of an undisturbed job")
    return tuple(problems)
