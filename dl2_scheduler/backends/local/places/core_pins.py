"""This module keeps the tasks of a virtual node to cores of its own, so that only neighbours disturb each other."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from dl2_scheduler.backends.local.job_records import JobRecord
from dl2_scheduler.backends.local.runtime import JobReport, JobRuntime
from dl2_scheduler.cluster.errors import BadInput
from dl2_scheduler.cluster.jobs import Node

Cores = frozenset[int]


class CorePins:
    """`CorePins` move tasks to the cores of their nodes.

    Args:
        nodes: virtual.
        cores: those that may be used, by their numbers.
        runtime: runs the tasks.
        threads: see `_shared_out`.
    """

    def __init__(self, nodes: Sequence[Node], cores: Cores, runtime: JobRuntime, threads: Sequence[Cores] = ()):
        self._all = cores
        self._of = _shared_out([node.name for node in nodes], cores, threads)
        self._runtime = runtime
        self._pinned: dict[int, Cores] = {}

    def keep(self, record: JobRecord, report: JobReport) -> None:
        """Move a job's tasks to the cores of their nodes.

        Args:
            record: of the job.
            report: what its coordinator just said.
        """
        seats = dict(record.seats)
        for task in report.tasks:
            if task.id in seats:
                self._pin(task.pid, self._of.get(seats[task.id], self._all))

    def forget(self, reports: Iterable[JobReport]) -> None:
        """Forget tasks that have ended: others may get their numbers.

        Args:
            reports: of all jobs that run.
        """
        there = {task.pid for report in reports for task in report.tasks}
        self._pinned = {pid: cores for pid, cores in self._pinned.items() if pid in there}

    def lacks(self, record: JobRecord, report: JobReport | None) -> bool:
        """Return whether tasks of a job that has places are still to be moved, as they have not joined."""
        there = 0 if report is None else sum(task.pid in self._pinned for task in report.tasks)
        return bool(self._of) and there < sum(map(len, record.places))

    def _pin(self, pid: int, cores: Cores) -> None:
        if self._pinned.get(pid) != cores:
            self._runtime.pin(pid, cores)
            self._pinned[pid] = cores


def check_moves(nodes: Sequence[Node], cores: Cores, threads: Sequence[Cores] = ()) -> None:
    """Refuse to move tasks between nodes that share all cores.

    Args:
        nodes: virtual.
        cores: those that may be used.
        threads: see `_shared_out`.

    Raises:
        BadInput: a move would change nothing but names.
    """
    if not _shared_out([node.name for node in nodes], cores, threads):
        raise BadInput(
            f"--move-tasks: {len(cores)} cores are too few for each of {len(nodes)} nodes to have its own, so that a "
            "move changes nothing: give fewer nodes in --slots, or leave it out"
        )


def core_words(nodes: Sequence[Node], cores: Cores, threads: Sequence[Cores] = ()) -> str:
    """Return which cores nodes have, for people.

    Args:
        nodes: virtual.
        cores: those that may be used.
        threads: see `_shared_out`.
    """
    of = _shared_out([node.name for node in nodes], cores, threads)
    if not of:
        return f"{len(cores)} cores are too few for each node to have its own, so that tasks run on all of them"
    words = ", ".join(f"{name} has core{'s' * (len(own) > 1)} {_range(own)}" for name, own in of.items())
    split = any(sum(bool(own & each) for own in of.values()) > 1 for each in threads)
    return words + "; nodes share cores of which they have one thread each: give fewer nodes" * split


def core_threads(cores: Cores, folder: Path = Path("/sys/devices/system/cpu")) -> tuple[Cores, ...]:
    """Return which of some cores are threads of the same core, as the kernel says; none where it does not.

    Args:
        cores: those that may be used.
        folder: where the kernel tells.
    """
    found: set[Cores] = set()
    for core in cores:
        try:
            text = (folder / f"cpu{core}/topology/thread_siblings_list").read_text()
            ends = [part.partition("-")[::2] for part in text.strip().split(",")]
            alike = {each for first, last in ends for each in range(int(first), int(last or first) + 1)}
        except (OSError, ValueError):
            return ()
        found.add(frozenset(alike & cores) or frozenset((core,)))
    return tuple(sorted(found, key=min))


def _shared_out(names: Sequence[str], cores: Cores, threads: Sequence[Cores]) -> Mapping[str, Cores]:
    """Return the cores of each node, as even as can be; none where there are fewer than nodes.

    Args:
        names: of the nodes.
        cores: those that may be used.
        threads: those of them that are threads of the same core: a node has all of these where cores suffice.
    """
    parts = [each & cores for each in threads if each & cores]
    known = frozenset().union(*parts)
    parts = sorted([*parts, *(frozenset((core,)) for core in cores - known)], key=min)
    if len(parts) < len(names):
        parts = [frozenset((core,)) for part in parts for core in sorted(part)]
    if len(parts) < len(names):
        return {}
    bounds = [round(number * len(parts) / len(names)) for number in range(len(names) + 1)]
    return {
        name: frozenset().union(*parts[first:last])
        for name, first, last in zip(names, bounds, bounds[1:], strict=False)
    }


def _range(cores: Cores) -> str:
    first, last = min(cores), max(cores)
    return (
        f"{first} to {last}" if len(cores) > 1 and last - first == len(cores) - 1 else " ".join(map(str, sorted(cores)))
    )
