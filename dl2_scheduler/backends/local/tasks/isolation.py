"""This module keeps tasks to their share of the machine's cores."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Protocol

from dl2_scheduler.backends.local.runtime import WORKER
from dl2_scheduler.backends.local.tasks.cgroups import Cgroups, CgroupsUnavailable, open_cgroups
from dl2_scheduler.cluster.errors import BadInput

CPU_SHARE = "ELASTIC_CPU_SHARE"
"""By which a worker is told to rest between its steps."""

_KEY_LENGTH = 10


class IsolationMode(StrEnum):
    """An `IsolationMode` is what `dl2 serve --isolation` takes."""

    AUTO = "auto"
    CGROUP = "cgroup"
    PACING = "pacing"
    NONE = "none"


@dataclass(frozen=True)
class Confinement:
    """A `Confinement` keeps a new task to its share.

    Attributes:
        group: path of its control group, without the end that tells tasks apart; "": none.
        limits: text by the name of a file in the group.
        environment: the environment of the task.
    """

    group: str = ""
    limits: Mapping[str, str] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)


class Isolation(Protocol):
    """An `Isolation` keeps the tasks of one cluster to their shares, which are numbers of cores."""

    def confine(self, job: str, role: str, cores: float) -> Confinement:
        """Return what keeps new tasks of a job's role to their share.

        Args:
            job: unique, also among jobs that have ended.
            role: the role of the tasks.
            cores: the cores of one task.
        """

    def tend(self, cores: Mapping[str, Mapping[str, float]]) -> None:
        """Give running tasks their shares of now, and remove what ended ones have left.

        Args:
            cores: by job and role, of all jobs that have not ended.
        """

    def limit_of(self, pid: int) -> float:
        """Return the cores that a process may use; 0: nothing limits it, or it has ended."""

    def close(self) -> None:
        """Leave nothing behind that no task needs. Those that run keep their limits."""

    @property
    def words(self) -> str:
        """Return how tasks are kept to their share, for people."""


class NoIsolation:
    """`NoIsolation` limits nothing; see `Isolation`."""

    def confine(self, job: str, role: str, cores: float) -> Confinement:
        """See `Isolation.confine`."""
        del job, role, cores
        return Confinement()

    def tend(self, cores: Mapping[str, Mapping[str, float]]) -> None:
        """See `Isolation.tend`."""

    def limit_of(self, pid: int) -> float:
        """See `Isolation.limit_of`."""
        del pid
        return 0.0

    def close(self) -> None:
        """See `Isolation.close`."""

    @property
    def words(self) -> str:
        """See `Isolation.words`."""
        return "none: slots are counted, and nothing limits what a task uses"


class Pacing(NoIsolation):
    """`Pacing` lets workers rest between steps; a running one keeps the share that it began with. See `Isolation`.

    Args:
        why: why it is not done better; "": it was asked for.
    """

    def __init__(self, why: str = ""):
        self._why = why

    def confine(self, job: str, role: str, cores: float) -> Confinement:
        """See `Isolation.confine`."""
        del job
        return Confinement(environment={CPU_SHARE: f"{cores:.6g}"} if role == WORKER else {})

    def limit_of(self, pid: int) -> float:
        """See `Isolation.limit_of`."""
        try:
            lines = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        except OSError:
            return 0.0
        given = dict(line.partition(b"=")[::2] for line in lines)
        return float(given.get(CPU_SHARE.encode(), b"0"))

    @property
    def words(self) -> str:
        """See `Isolation.words`."""
        why = f"; no cgroup quotas: {self._why}" if self._why else ""
        return f"pacing: workers rest between steps to keep to their share; nothing limits servers{why}"


class Quotas:
    """`Quotas` put each task into a control group of its own, with a quota; see `Isolation`.

    Args:
        groups: the groups that they are made in.
    """

    def __init__(self, groups: Cgroups):
        self._groups = groups

    def confine(self, job: str, role: str, cores: float) -> Confinement:
        """See `Isolation.confine`."""
        del role
        return Confinement(str(self._groups.folder / job), self._groups.limits(cores))

    def tend(self, cores: Mapping[str, Mapping[str, float]]) -> None:
        """See `Isolation.tend`."""
        for group in self._groups.all():
            if self._groups.remove(group):
                continue
            job, _, role = group.name.rpartition(".")[0].rpartition(".")  # JOB.ROLE.PID
            if (share := cores.get(job, {}).get(role)) is not None:
                self._groups.limit(group, share)

    def limit_of(self, pid: int) -> float:
        """See `Isolation.limit_of`."""
        return self._groups.limit_of(pid)

    def close(self) -> None:
        """See `Isolation.close`."""
        self._groups.close()

    @property
    def words(self) -> str:
        """See `Isolation.words`."""
        return f"cgroup quotas of every task (version {self._groups.version}, {self._groups.folder})"


def make_isolation(mode: IsolationMode, folder: Path) -> Isolation:
    """Return what can be done here, or what was asked for.

    Args:
        mode: asked for.
        folder: the folder of the cluster's state, whose tasks are told from those of others.

    Raises:
        BadInput: cgroups were asked for, and there are none for us.
    """
    if mode is IsolationMode.NONE:
        return NoIsolation()
    if mode is IsolationMode.PACING:
        return Pacing()
    key = hashlib.sha256(str(folder).encode()).hexdigest()[:_KEY_LENGTH]
    try:
        return Quotas(open_cgroups(f"dl2-{key}"))
    except CgroupsUnavailable as error:
        if mode is IsolationMode.CGROUP:
            raise BadInput(f"--isolation cgroup: {error}; give auto, pacing or none") from error
        return Pacing(str(error))
