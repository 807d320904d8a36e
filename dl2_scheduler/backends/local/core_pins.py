"""This module keeps the tasks of a virtual node to cores of its own, so that only neighbours disturb each other."""

from collections.abc import Iterable, Mapping, Sequence

from dl2_scheduler.backends.local.job_records import JobRecord
from dl2_scheduler.backends.local.runtime import JobReport, JobRuntime
from dl2_scheduler.cluster.jobs import Node

Cores = frozenset[int]


class CorePins:
    """`CorePins` move tasks to the cores of their nodes.

    Args:
        nodes: virtual.
        cores: those that may be used, by their numbers.
        runtime: runs the tasks.
    """

    def __init__(self, nodes: Sequence[Node], cores: Cores, runtime: JobRuntime):
        self._all = cores
        self._of = _shared_out([node.name for node in nodes], sorted(cores))
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


def core_words(nodes: Sequence[Node], cores: Cores) -> str:
    """Return which cores nodes have, for people.

    Args:
        nodes: virtual.
        cores: those that may be used.
    """
    of = _shared_out([node.name for node in nodes], sorted(cores))
    if not of:
        return f"{len(cores)} cores are too few for each node to have its own, so that tasks run on all of them"
    return ", ".join(f"{name} has core{'s' * (len(own) > 1)} {_range(own)}" for name, own in of.items())


def _shared_out(names: Sequence[str], cores: Sequence[int]) -> Mapping[str, Cores]:
    """Return the cores of each node, as even as can be; none where there are fewer than nodes."""
    if len(cores) < len(names):
        return {}
    bounds = [round(number * len(cores) / len(names)) for number in range(len(names) + 1)]
    return {name: frozenset(cores[first:last]) for name, first, last in zip(names, bounds, bounds[1:], strict=False)}


def _range(cores: Cores) -> str:
    first, last = min(cores), max(cores)
    return (
        f"{first} to {last}" if len(cores) > 1 and last - first == len(cores) - 1 else " ".join(map(str, sorted(cores)))
    )
