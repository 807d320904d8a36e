"""This module checks a policy's answer before anything acts on it.

A live cluster then asks its fallback instead; a simulation ends.
"""

import reprlib

import numpy as np

from dl2_scheduler.cluster.free_resources import FreeResources, NodeRule
from dl2_scheduler.cluster.snapshot import Allocation, Grant, JobState, Snapshot


class UnfitAnswer(Exception):
    """An `UnfitAnswer` is raised where a policy answered what cannot be done; the message says why."""


def check(snapshot: Snapshot, allocation: Allocation, room: FreeResources) -> FreeResources:
    """Refuse an answer that cannot be done, and return the nodes, filled with it.

    Args:
        snapshot: the cluster.
        allocation: the allocation of a policy.
        room: the room that it was asked to fill; not all policies do.

    Raises:
        UnfitAnswer: it is for a job that is not there, breaks a job's bounds, or does not fit.
    """
    if not (isinstance(allocation, Allocation) and all(isinstance(each, Grant) for each in allocation.grants.values())):
        raise UnfitAnswer(f"it answered {_shown.repr(allocation)}, which is no Allocation of Grants")
    unknown = set(allocation.grants) - {state.job.id for state in snapshot.jobs}
    if unknown:
        raise UnfitAnswer(f"it gave to {min(map(str, unknown))}, which is no job of this slot")
    for state in snapshot.jobs:
        _check_counts(state, allocation.of(state.job.id))
    grants = [allocation.of(state.job.id) for state in snapshot.jobs]
    counts = [(grant.workers, grant.servers) for grant in grants]
    if counts == [(room.workers(number), room.servers(number)) for number in range(len(counts))]:
        return room
    for rule in (room.rule, NodeRule.PACK):
        again = FreeResources(snapshot, rule)
        if _fill(again, counts):
            return again
    raise UnfitAnswer("its grants do not fit on the nodes")


_shown = reprlib.Repr()
_shown.maxother = 100


def _check_counts(state: JobState, grant: Grant) -> None:
    job, counts = state.job, (grant.workers, grant.servers)
    if not all(isinstance(count, int | np.integer) for count in counts):
        raise UnfitAnswer(f"it gave {job.id} {counts[0]!r} workers and {counts[1]!r} servers: not numbers of tasks")
    if counts == (0, 0):
        return
    for role, count, least, most in (
        ("workers", grant.workers, job.min_workers, job.max_workers),
        ("servers", grant.servers, job.min_servers, job.max_servers),
    ):
        if not least <= count <= most:
            raise UnfitAnswer(f"it gave {job.id} {count} {role}, which may have {least} to {most}, or nothing at all")


def _fill(room: FreeResources, counts: list[tuple[int, int]]) -> bool:
    """Return whether all tasks fit. The largest go first: what fits at all nearly always fits so."""
    tasks = [
        (float(demands[number].max()), -number, -role)
        for role, demands in enumerate(room.demands)
        for number in range(len(counts))
    ]
    return all(
        room.give(-number, *((0, 1) if role else (1, 0)))
        for _, number, role in sorted(tasks, reverse=True)
        for _ in range(counts[-number][-role])
    )
