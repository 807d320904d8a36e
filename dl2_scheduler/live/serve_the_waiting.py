"""No job waits forever, whatever a policy decides: pure. The rule of every live cluster.

A job that was granted nothing in `MOST_SLOTS` slots in a row has its minimum from then on, until it ends: the oldest of
such jobs first, then what others run with. As jobs end, each of them comes to its turn.
"""

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType

from dl2_scheduler.cluster.free_resources import FreeResources, NodeRule
from dl2_scheduler.cluster.snapshot import Allocation, Grant, JobId, Snapshot
from dl2_scheduler.live.shrink_before_suspend import give_back
from dl2_scheduler.live.slots import RecordedSlot

MOST_SLOTS = 50
"""In a row, that a policy may grant a job nothing."""

REMEMBERED_SLOTS = 4 * MOST_SLOTS
"""Of a history, that tell after a restart who has waited."""

Waited = Mapping[JobId, int]
"""Slots in a row in which a job was granted nothing; `MOST_SLOTS` stays so until it ends."""

NOBODY: Waited = MappingProxyType({})


def counted(waited: Waited, snapshot: Snapshot, allocation: Allocation) -> dict[JobId, int]:
    """After one more slot, of the jobs that are there."""
    return {state.job.id: _counted(waited.get(state.job.id, 0), allocation.of(state.job.id)) for state in snapshot.jobs}


def _counted(before: int, grant: Grant) -> int:
    if before >= MOST_SLOTS:
        return before
    return 0 if grant.workers else before + 1


def waited_in(slots: Iterable[RecordedSlot]) -> dict[JobId, int]:
    """Of a history."""
    found: dict[JobId, int] = {}
    for slot in slots:
        found = counted(found, slot.snapshot, slot.allocation)
    return found


def served(
    snapshot: Snapshot, allocation: Allocation, rule: NodeRule, waited: Waited
) -> tuple[Allocation, FreeResources | None]:
    """A decision in which those that have waited too long have their minimum, and a room filled with it.

    Args:
        snapshot: the cluster.
        allocation: that was decided, for all its jobs.
        rule: by which tasks find their node.
        waited: until now.

    Returns:
        The decision itself, and None, where nothing of it has to change.
    """
    grants = [allocation.of(state.job.id) for state in snapshot.jobs]
    owed = [n for n, state in enumerate(snapshot.jobs) if waited.get(state.job.id, 0) >= MOST_SLOTS]
    if all(grants[number].workers for number in owed):
        return allocation, None
    room = FreeResources(snapshot, rule)
    begun = [number for number in owed if room.give_least(number) and not grants[number].workers]
    if not begun:
        return allocation, None
    others = [number for number, grant in enumerate(grants) if grant.workers and number not in owed]
    others.sort(key=lambda number: not (snapshot.jobs[number].workers or snapshot.jobs[number].starting))
    kept = [number for number in others if room.give_least(number)]
    give_back(room, grants, kept + [number for number in owed if grants[number].workers and room.workers(number)])
    names = ", ".join(str(snapshot.jobs[number].job.id) for number in begun)
    found = [_grant(room, number, grants, begun, names) for number in range(len(grants))]
    return Allocation({state.job.id: grant for state, grant in zip(snapshot.jobs, found, strict=True)}), room


def _grant(room: FreeResources, number: int, grants: Sequence[Grant], begun: Sequence[int], names: str) -> Grant:
    """With its reason, where it is other than decided."""
    wanted, (workers, servers) = grants[number], (room.workers(number), room.servers(number))
    if (workers, servers) == (wanted.workers, wanted.servers):
        return wanted
    if number in begun:
        why = f"has its minimum until it ends, as it was granted nothing in {MOST_SLOTS} slots in a row"
    else:
        why = f"{workers}+{servers} instead of {wanted.workers}+{wanted.servers}: {names} has waited for too long"
    return Grant(workers, servers, "; ".join(filter(None, (why, wanted.reason))))
