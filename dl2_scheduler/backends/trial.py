"""This module runs a real job of one's own, to measure it.

The job is started by elasticrun, operated through its coordinator, and read at its end.
"""

import json
import os
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from coordinator.archive import Archive, read_archive
from coordinator.client import ClientError, CoordinatorClient
from dl2_scheduler.cluster.errors import TrialFailed
from elastic_ps.control.token import read_token
from elastic_ps.system.process.own_programs import own_program
from elastic_ps.system.process.proc_stat import stat_fields
from protos import elastic_pb2 as pb

_POLL_SECONDS = 0.02
_STEPS_BEFORE = 20  # of a job that is restarted
_START = 19  # of the fields behind the name in /proc/PID/stat, as proc(5) counts from 3 on


class Trial:
    """A `Trial` is one job under elasticrun. It is a context manager: the job ends with the block.

    Args:
        folder: for its state and log.
        name: the name of the job.
        module: the module that workers run, with its arguments.
        workers: how many it starts with.
        servers: how many it starts with; 0: it has none (`--mode all-reduce` among the options).
        options: further ones of elasticrun.

    Attributes:
        folder: the folder of the job.
        process: elasticrun's process.
        start_seconds: as in `ScalingResult`, of all scalings.
    """

    def __init__(
        self, folder: Path, name: str, module: Sequence[str], workers: int, servers: int, options: Sequence[str] = ()
    ):
        self.folder = folder.resolve() / "elastic_ps" / "jobs" / name
        self.start_seconds: dict[str, float] = {}
        self._log = folder / f"{name}.log"
        folder.mkdir(parents=True, exist_ok=True)
        environment = {**os.environ, "XDG_STATE_HOME": str(folder.resolve())}
        command = [*own_program("elastic_ps.launch"), "--workers", str(workers)]
        command += ["--servers", str(servers)] if servers else []
        with self._log.open("wb") as output:
            self.process = subprocess.Popen(
                [*command, "--name", name, *options, "-m", *module],
                stdout=output,
                stderr=subprocess.STDOUT,
                env=environment,
            )
        self._client: CoordinatorClient | None = None

    def __enter__(self) -> "Trial":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.stop()

    def stop(self) -> Archive | None:
        """End the job, and return what its folder tells, or None where it had not begun."""
        if self.process.poll() is None:
            self.process.terminate()
            self.process.wait(60)
        if self._client is not None:
            self._client.close()
            self._client = None
        return read_archive(self.folder) if (self.folder / "journal.sqlite").exists() else None

    @property
    def client(self) -> CoordinatorClient:
        """The client of the job's coordinator. Raises TrialFailed: the job has not begun."""
        if self._client is None:
            described = json.loads((self.folder / "job.json").read_text())
            if described["pid"] != self.process.pid:  # of an earlier job of this name
                raise TrialFailed(f"the job has not begun yet: see {self._log}")
            self._client = CoordinatorClient(described["coordinator"], read_token(self.folder / "token"))
        return self._client

    def version(self) -> int:
        """Return the job's version now; 0 before it has begun."""
        try:
            return int(self.client.status().version)
        except (OSError, ValueError, KeyError, ClientError, TrialFailed):
            return 0

    def until(self, version: int, seconds: float = 600.0) -> None:
        """Wait until the job has reached a version.

        Raises:
            TrialFailed: it has ended before, or the time is over.
        """
        deadline = time.monotonic() + seconds
        while self.version() < version:
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise TrialFailed(f"version {version} was not reached: see {self._log}")
            time.sleep(_POLL_SECONDS)

    def scale(
        self,
        servers: int | None = None,
        mode: "pb.MigrationMode" = pb.LIVE,
        workers: int | None = None,
        seconds: float = 600.0,
    ) -> pb.Plan:
        """Change the number of servers, workers, or both, and return the committed plan.

        Args:
            servers: how many; None: as they are.
            mode: the mode by which blocks migrate.
            workers: how many; None: as they are.
            seconds: to wait.

        Raises:
            TrialFailed: it was cancelled, or the time is over.
        """
        done = scaled(self.client, lambda: self.client.scale(workers, servers, mode=mode, cause="trial"), seconds)
        self.start_seconds |= done.start_seconds
        return done.plan


@dataclass(frozen=True)
class ScalingResult:
    """A `ScalingResult` says what a request for other counts led to.

    Attributes:
        plan: committed.
        start_seconds: of each node that joined, by its id: from the birth of its process to its registration, within
            the 20 ms between two looks. Of a process of this machine's, not of a container's.
        seen: when each node that came was first found registered, by its id; unix seconds.
    """

    plan: pb.Plan
    start_seconds: Mapping[str, float]
    seen: Mapping[str, float]


def scaled(client: CoordinatorClient, ask: Callable[[], object], seconds: float = 600.0) -> ScalingResult:
    """Ask for other counts of a running job, and look until they are there.

    Args:
        client: the client of the job's coordinator.
        ask: wishes.
        seconds: to wait.

    Raises:
        TrialFailed: the plan was cancelled, or the time is over.
    """
    known, starts = {plan.id for plan in client.plans()}, dict.fromkeys(_pids(client), 0.0)
    seen: dict[str, float] = {}
    ask()
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        fresh = {node: pid for node, pid in _pids(client).items() if node not in starts}
        seen |= dict.fromkeys(fresh, time.time())
        starts |= {node: age(pid) for node, pid in fresh.items()}
        for plan in client.plans():
            if plan.id not in known and plan.phase in ("COMMITTED", "CANCELLED", "DROPPED"):
                if plan.phase != "COMMITTED":
                    raise TrialFailed(f"plan {plan.id} was cancelled: {plan.reason}")
                return ScalingResult(plan, {node: starts.get(node, 0.0) for node in plan.joined}, seen)
        time.sleep(_POLL_SECONDS)
    raise TrialFailed(f"no plan was committed within {seconds:g} s")


def _pids(client: CoordinatorClient) -> dict[str, int]:
    """Return the process of each node that has registered, by its id."""
    return {node.member.id: node.pid for node in client.status().nodes if node.pid}


def age(pid: int) -> float:
    """Return the seconds since a process was born; 0 where there is none any more. It reads Linux' /proc."""
    try:
        fields = stat_fields(pid)
        uptime = float(Path("/proc/uptime").read_text().split()[0])
    except OSError:
        return 0.0
    return uptime - int(fields[_START]) / os.sysconf("SC_CLK_TCK")


def restarted(
    folder: Path,
    name: str,
    module: Sequence[str],
    workers: int,
    servers: tuple[int, int],
    options: Sequence[str] = (),
) -> float:
    """Measure what other counts cost without scaling: the job is saved, ended, and started from its checkpoint.

    Args:
        folder: for the jobs' state and logs.
        name: the name of the job.
        module: the module that workers run, with its arguments.
        workers: before and after.
        servers: before, and after.
        options: further ones of elasticrun.

    Returns:
        Seconds from the wish to the first step with the new counts.

    Raises:
        TrialFailed: a job did not begin.
    """
    with Trial(folder, name, module, workers, servers[0], options) as job:
        job.until(_STEPS_BEFORE)
        began = time.monotonic()
        saved = job.client.checkpoint((job.folder / "checkpoints").as_uri())
        job.stop()
        restoring = (*options, "--restore", saved.url)
        with Trial(folder, f"{name}-again", module, workers, servers[1], restoring) as again:
            again.until(saved.version + 1)
            return time.monotonic() - began
