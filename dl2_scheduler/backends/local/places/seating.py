"""This module says which task of a job is on which of the nodes that the job's tasks have. It is pure."""

from collections.abc import Sequence
from typing import NamedTuple

from dl2_scheduler.backends.local.job_records import JobRecord, NodePlaces, Seats
from dl2_scheduler.backends.local.runtime import SERVER, WORKER, JobReport


class Seated(NamedTuple):
    """A `Seated` job's tasks have their nodes.

    Attributes:
        seats: the node of each task that has joined.
        places: the same nodes as before, those of tasks that have joined first, in the order of the tasks' ids.
    """

    seats: Seats
    places: NodePlaces


def seated(record: JobRecord, report: JobReport) -> Seated:
    """Give a job's tasks its nodes: each keeps the one that it has while the job has it, others get what is left.

    So the death of one task, or its move, moves no other. A task that is leaving, and counted no more, stays where it
    is.

    Args:
        record: of the job.
        report: what its coordinator just said.
    """
    before = dict(record.seats)
    seats: dict[str, str] = {}
    ordered: list[tuple[str, ...]] = []
    for role, names in zip((WORKER, SERVER), record.places, strict=True):
        ids = [task.id for task in report.tasks if task.role == role]
        found, left = _of_role(ids, names, before)
        ordered.append((*(found[each] for each in ids if each in found), *left))
        there = {**before, **found}
        seats |= {each: there[each] for each in ids if each in there}
    return Seated(tuple(seats.items()), (ordered[0], ordered[1]))


def _of_role(ids: Sequence[str], names: Sequence[str], before: dict[str, str]) -> tuple[dict[str, str], list[str]]:
    """Return the node of each task of a role, and the nodes that are left for tasks to come."""
    left, found = list(names), dict[str, str]()
    for each in ids:
        if before.get(each) in left:
            found[each] = before[each]
            left.remove(before[each])
    for each in ids:
        if each not in found and left:
            found[each] = left.pop(0)
    return found, left
