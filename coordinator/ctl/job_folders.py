"""This module reads the jobs of this user on this machine, as their launchers wrote them into the state folder.

The folder's layout stands in docs/concepts/architecture.md, "A job's folder".
"""

import json
import os
import socket
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from coordinator.core.job import names_who_stopped
from elastic_ps.core.errors import ConfigurationError
from elastic_ps.core.exit_status import signal_of
from elastic_ps.system.process.proc_stat import birth_of, is_of_this_boot

_PIDS = 1 << 31
_TIMES = 1e11  # unix seconds; the year 5138


class JobNotFound(Exception):
    """There is no such job, or it is not clear which is meant; the message lists those that run."""


@dataclass(frozen=True)
class LocalJob:
    """A local job is one job's folder on this machine.

    Attributes:
        name: of the job and of its folder.
        coordinator: host:port.
        folder: where its journal, ledger, logs and token are.
        pid: of its launcher; 0 where none is known.
        birth: tells its launcher from later processes of this number; "" where it is not known.
        coordinator_pid: of its coordinator; 0 where none is known.
        coordinator_birth: likewise.
        started: unix seconds.
        ended: unix seconds; None while it runs, or was lost.
        status: exit status of its launcher; None until the job is over, which is a little before its end.
        reason: why it is over; empty until then.
        identity: of the training run, in its checkpoints too; "" where it is not known.
        host: the name of its launcher's machine; "" where it is not known.
    """

    name: str
    coordinator: str
    folder: Path
    pid: int = 0
    birth: str = ""
    coordinator_pid: int = 0
    coordinator_birth: str = ""
    started: float = 0.0
    ended: float | None = None
    status: int | None = None
    reason: str = ""
    identity: str = ""
    host: str = ""

    @property
    def token_file(self) -> Path:
        """The file that holds the job token as hex digits."""
        return self.folder / "token"

    @property
    def launcher_alive(self) -> bool:
        """Return whether its launcher still runs on this machine."""
        return _alive(self.pid, self.birth)

    @property
    def processes_alive(self) -> bool:
        """Return whether its launcher or its coordinator still runs on this machine."""
        return self.launcher_alive or _alive(self.coordinator_pid, self.coordinator_birth)

    @property
    def elsewhere(self) -> str:
        """Return the name of the machine that its processes are on, where that is another one; "": it is not.

        Users may have one state folder on many machines. What ran on this one before its last start has its name.
        """
        is_other = self.birth and not is_of_this_boot(self.birth) and self.host != socket.gethostname()
        return self.host if is_other else ""

    @property
    def checkpoints(self) -> Path:
        """The folder of its checkpoints, unless they were to go elsewhere."""
        return self.folder / "checkpoints"

    def is_of(self, pid: int, birth: str) -> bool:
        """Return whether this very process launched it. Releases of before told no birth: there the number counts."""
        return self.pid == pid and self.birth in ("", birth)

    @property
    def was_stopped(self) -> bool:
        """Return whether somebody has had its coordinator end it, and its scripts have not ended of themselves."""
        return self.status == 0 and names_who_stopped(self.reason)

    @property
    def how_it_ended(self) -> str:
        """Return how a job that has ended did, in a word."""
        if not self.status:
            return "stopped" if self.was_stopped else "finished"
        return "stopped" if signal_of(self.status) else "failed"


def all_jobs(folder: Path) -> list[LocalJob]:
    """Return every job that has a readable job.json, in order of their start.

    Raises:
        ConfigurationError: the folder cannot be looked into.
    """
    try:
        paths = sorted(folder.glob("*/job.json"))
    except OSError as error:
        raise ConfigurationError(
            f"{folder} cannot be read: {error.strerror}; have XDG_STATE_HOME name the folder that elasticrun writes to"
        ) from error
    found = [job for path in paths if (job := read_job(path.parent)) is not None]
    return sorted(found, key=lambda job: (job.started, job.name))


def find_job(folder: Path, name: str | None) -> LocalJob:
    """Return a job by its name, or the only one that runs.

    Raises:
        JobNotFound: there is no such job, it has ended, or no name was given and not exactly one runs.
    """
    jobs = all_jobs(folder)
    running = [job for job in jobs if job.ended is None and job.processes_alive]
    listed = ", ".join(job.name for job in running) or "none"
    if name is None:
        if not running:
            lost = [job for job in jobs if job.ended is None]
            where = " or on other machines" if any(job.elsewhere for job in lost) else ""
            names = ", ".join(job.name for job in lost)
            but = f", but some are lost{where} ({names}: `elasticctl status NAME` says more)" if lost else ""
            raise JobNotFound(
                f"no job runs under {folder}{but}; start one: elasticrun --workers 2 --servers 1 train.py"
            )
        if len(running) > 1:
            raise JobNotFound(f"name the job, as {len(running)} jobs run under {folder}: {listed}")
        return running[0]
    for job in jobs:
        if job.name == name and job.ended is None:
            return job
        if job.name == name:
            why = f" ({job.reason})" if job.reason else ""
            raise JobNotFound(
                f"job {name!r} has ended with status {job.status}{why}; see {job.folder}; running: {listed}"
            )
    if name and os.path.exists(folder / name / "job.json"):  # a name may be too long for a file's
        raise JobNotFound(f"job {name!r} cannot be known: {folder / name / 'job.json'} is damaged; running: {listed}")
    raise JobNotFound(f"no job {name!r} under {folder}; running: {listed}")


def ended_job(folder: Path, name: str) -> LocalJob | None:
    """Return the job of a name that has ended; None: there is none, or it has not."""
    return next((job for job in all_jobs(folder) if job.name == name and job.ended is not None), None)


def read_job(folder: Path) -> LocalJob | None:
    """Return the job of a folder; None where it has no readable job.json (yet)."""
    try:
        value = json.loads((folder / "job.json").read_text())
        return LocalJob(
            name=str(value["name"]),
            coordinator=str(value["coordinator"]),
            folder=folder,
            pid=_pid(value.get("pid")),
            birth=str(value.get("birth") or ""),
            coordinator_pid=_pid(value.get("coordinator_pid")),
            coordinator_birth=str(value.get("coordinator_birth") or ""),
            started=_time(value.get("started") or 0),
            ended=None if value.get("ended") is None else _time(value["ended"]),
            status=None if value.get("status") is None else int(value["status"]),
            reason=str(value.get("reason") or ""),
            identity=str(value.get("identity") or ""),
            host=str(value.get("host") or ""),
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError):
        return None


def _pid(value: Any) -> int:
    """Return a process id; raise ValueError where no process can have it."""
    pid = int(value or 0)
    if not 0 <= pid < _PIDS:
        raise ValueError(f"{pid} is no process id")
    return pid


def _time(value: Any) -> float:
    """Return unix seconds; raise ValueError where no calendar has that moment."""
    seconds = float(value)
    if not 0 <= seconds < _TIMES:  # neither is NaN
        raise ValueError(f"{seconds} is no time")
    return seconds


def _alive(pid: int, birth: str) -> bool:
    """Return whether a process runs; pid 0 is none, and without its birth any process of its number counts."""
    if birth or not pid:
        return pid > 0 and birth_of(pid) == birth
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
