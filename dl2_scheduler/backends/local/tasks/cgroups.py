"""This module limits processor time by control groups of the kernel, versions 1 and 2 (cgroups(7), sched-bwc)."""

import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

_LEAST_MICROSECONDS = 1000  # of a quota
_PERIOD, _LONG_PERIOD = 20_000, 100_000
"""Microseconds. In a short one a task that has used its quota does not wait for long, and neither do those who wait
for it; the least quota is too much of it for a small share."""

_PROBE = "probe"


class CgroupsUnavailable(Exception):
    """`CgroupsUnavailable` is raised where there are no groups that we may use; the message says why."""


@dataclass(frozen=True)
class Cgroups:
    """`Cgroups` are the groups of one cluster, which all lie in one folder.

    Attributes:
        folder: the folder of the kernel's file system.
        version: the version of the interface, 1 or 2.
    """

    folder: Path
    version: int

    def limits(self, cores: float) -> Mapping[str, str]:
        """Return what to write into which file of a group, in this order.

        Args:
            cores: the cores that its processes may use together.
        """
        period = _PERIOD if cores * _PERIOD >= _LEAST_MICROSECONDS else _LONG_PERIOD
        quota = max(_LEAST_MICROSECONDS, int(cores * period))
        if self.version == 1:
            return {"cpu.cfs_period_us": str(period), "cpu.cfs_quota_us": str(quota)}
        return {"cpu.max": f"{quota} {period}"}

    def all(self) -> Iterator[Path]:
        """Yield every group."""
        if self.folder.exists():
            yield from (path for path in self.folder.iterdir() if path.is_dir())

    def limit(self, group: Path, cores: float) -> None:
        """Change a group's limit where it is another. The group may have gone."""
        with suppress(OSError):
            for name, text in self.limits(cores).items():
                if (group / name).read_text().strip() != text:
                    (group / name).write_text(text)

    def remove(self, group: Path) -> bool:
        """Remove a group that has no process, and return whether it is gone."""
        try:
            group.rmdir()
        except OSError:
            return False
        return True

    def close(self) -> None:
        """Remove the groups without processes, and the folder where none is left."""
        for group in self.all():
            self.remove(group)
        self.remove(self.folder)

    def limit_of(self, pid: int, proc: Path = Path("/proc")) -> float:
        """Return the cores that a process may use by a group of this cluster; 0: it is in none."""
        try:
            names = {line.rpartition("/")[2] for line in (proc / str(pid) / "cgroup").read_text().splitlines()}
        except OSError:  # it has ended
            return 0.0
        group = next((path for path in map(self.folder.__truediv__, names - {""}) if path.is_dir()), None)
        return _quota(group, self.version) if group else 0.0


def open_cgroups(name: str, proc: Path = Path("/proc/self")) -> Cgroups:
    """Make a folder for groups, below the one that this process is in, and try whether a limit can be set there.

    Args:
        name: the name of the folder.
        proc: what the kernel says about this process.

    Raises:
        CgroupsUnavailable: it cannot.
    """
    parent, version = _own_group(proc)
    groups = Cgroups(parent / name, version)
    try:
        if version == 2:
            _delegate(parent)
        groups.folder.mkdir(exist_ok=True)
        if version == 2:
            _delegate(groups.folder)
        probe = groups.folder / f"{_PROBE}.{os.getpid()}"
        probe.mkdir(exist_ok=True)
        try:
            for file, text in groups.limits(0.5).items():
                (probe / file).write_text(text)
        finally:
            probe.rmdir()
    except OSError as error:
        raise CgroupsUnavailable(f"{error.filename or groups.folder}: {error.strerror}") from error
    return groups


def allowed_cores(proc: Path = Path("/proc/self")) -> float:
    """Return the cores that this process may use.

    They are those of the machine, less where a group that it is in has a quota, as containers have.

    Args:
        proc: what the kernel says about this process.
    """
    cores = float(len(os.sched_getaffinity(0)))
    try:
        group, version = _own_group(proc)
    except (CgroupsUnavailable, OSError):
        return cores
    quotas = (_quota(folder, version) for folder in (group, *group.parents))
    return min([cores, *(quota for quota in quotas if quota)])


def _quota(group: Path, version: int) -> float:
    """Return the cores that a group may use; 0: it has no limit, or is none."""
    try:
        if version == 1:
            quota, period = (group / "cpu.cfs_quota_us").read_text(), (group / "cpu.cfs_period_us").read_text()
        else:
            quota, period = (group / "cpu.max").read_text().split()
        return max(0.0, int(quota) / int(period))
    except (OSError, ValueError):  # it is gone; or "max"
        return 0.0


def _delegate(group: Path) -> None:
    """Let the groups below one be limited."""
    if "cpu" not in (group / "cgroup.subtree_control").read_text().split():
        (group / "cgroup.subtree_control").write_text("+cpu")


def _own_group(proc: Path) -> tuple[Path, int]:
    """Return the folder of this process' group that limits processor time, and the version of its interface."""
    mounts = [line.split() for line in (proc / "mountinfo").read_text().splitlines()]
    groups = [line.split(":", 2) for line in (proc / "cgroup").read_text().splitlines()]
    for fields in mounts:
        kind, options = fields[fields.index("-") + 1], fields[-1].split(",")
        for _, controllers, path in groups:
            if kind == "cgroup" and "cpu" in options and "cpu" in controllers.split(","):
                return _below(Path(fields[4]), fields[3], path), 1
    for fields in mounts:
        for number, _, path in groups:
            if fields[fields.index("-") + 1] == "cgroup2" and number == "0":
                group = _below(Path(fields[4]), fields[3], path)
                if "cpu" in (group / "cgroup.controllers").read_text().split():
                    return group, 2
    raise CgroupsUnavailable("no cpu controller is mounted")


def _below(mount: Path, root: str, path: str) -> Path:
    """Return where a group's path is, of which the mount shows what is below its root."""
    inside = path.removeprefix(root) if root != "/" else path
    return mount / inside.lstrip("/")
