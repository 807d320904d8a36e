"""Jobs shrink before any is suspended: pure. The rule of every live cluster, whatever its policy decides."""

from collections.abc import Sequence
from operator import itemgetter

from dl2_scheduler.cluster.free_resources import FreeResources
from dl2_scheduler.cluster.snapshot import Allocation, Grant, Snapshot


def spared(snapshot: Snapshot, allocation: Allocation, room: FreeResources) -> tuple[Allocation, FreeResources]:
    """A decision that gives a job with processes nothing only where all minima do not fit; a room filled with it.

    Jobs that a policy would suspend, also while they start, get their minimum, the oldest first, as far as it fits
    beside the minima of those that it gave something. What is left goes to these in turn, a task at a time, up to what
    they were given.

    Args:
        snapshot: the cluster.
        allocation: that was decided, for all its jobs.
        room: filled with it.
    """
    grants = [allocation.of(state.job.id) for state in snapshot.jobs]
    granted = [number for number, grant in enumerate(grants) if grant.workers]
    runs = [state.workers > 0 or state.starting for state in snapshot.jobs]
    suspended = [number for number, grant in enumerate(grants) if runs[number] and not grant.workers]
    if not suspended:
        return allocation, room
    again = FreeResources(snapshot, room.rule)
    if not all(again.give_least(number) for number in granted):  # in another order than the policy's, they may not fit
        return allocation, room
    kept = [number for number in suspended if again.give_least(number)]
    if not kept:
        return allocation, room
    give_back(again, grants, granted)
    names = ", ".join(str(snapshot.jobs[number].job.id) for number in kept)
    found = {state.job.id: _grant(again, n, grants[n], names) for n, state in enumerate(snapshot.jobs)}
    return Allocation(found), again


def give_back(room: FreeResources, grants: Sequence[Grant], granted: Sequence[int]) -> None:
    """Tasks of those that were shrunk, in turn: of the role of which a job has the smaller part of its grant."""
    waiting = list(granted)
    while waiting:
        waiting = [number for number in waiting if _give_one(room, number, grants[number])]


def _give_one(room: FreeResources, number: int, grant: Grant) -> bool:
    lacks = [(room.workers(number) / grant.workers, 1, 0), (room.servers(number) / grant.servers, 0, 1)]
    return any(room.give(number, *role) for part, *role in sorted(lacks, key=itemgetter(0)) if part < 1)


def _grant(room: FreeResources, number: int, wanted: Grant, names: str) -> Grant:
    """With its reason, where it is other than decided."""
    workers, servers = room.workers(number), room.servers(number)
    if (workers, servers) == (wanted.workers, wanted.servers):
        return wanted
    if not wanted.workers:
        why = "kept at its minimum instead of suspended: others shrink first"
    else:
        why = f"{workers}+{servers} instead of {wanted.workers}+{wanted.servers}, so that {names} is not suspended"
    return Grant(workers, servers, "; ".join(filter(None, (why, wanted.reason))))
