"""This module lets no job wait for ever, whatever the policy decides. It is pure.

A job that was granted nothing in `MOST_SLOTS` slots in a row has its minimum from then on, until it ends: the oldest of
such jobs first, then what others run with. Those that train and could not go on later keep their minimum before it. As
jobs end, each of them comes to its turn. It is the step `serve` of `slot_decision`.
"""

from collections.abc import Iterable, Mapping
from types import MappingProxyType

from dl2_scheduler.cluster.free_resources import FreeResources
from dl2_scheduler.cluster.jobs import Job
from dl2_scheduler.cluster.snapshot import Allocation, Grant, JobId, Snapshot
from dl2_scheduler.live.recorded_slots import RecordedSlot
from dl2_scheduler.live.shrink_before_suspend import give_back
from dl2_scheduler.live.slot_draft import SlotDraft, regranted

MOST_SLOTS = 50
"""Slots in a row in which a policy may grant a job nothing."""

JobKey = tuple[JobId, float]
"""Id and arrival: a name may be used again."""

Waited = Mapping[JobKey, int]
"""Slots in a row in which each job was granted nothing; `MOST_SLOTS` stays so until the job ends."""

NOBODY: Waited = MappingProxyType({})

_SERVED = f"has its minimum until it ends, as it was granted nothing in {MOST_SLOTS} slots in a row"


def key_of(job: Job) -> JobKey:
    """Return what tells a job from others of its name, before it and after it."""
    return job.id, job.arrival


def count_waiting(waited: Waited, snapshot: Snapshot, allocation: Allocation) -> dict[JobKey, int]:
    """Return how long the jobs of a slot have waited when it has been decided.

    Args:
        waited: until this slot.
        snapshot: the snapshot of the slot.
        allocation: the allocation that was decided.
    """
    jobs = (state.job for state in snapshot.jobs)
    return {key_of(job): _count(waited.get(key_of(job), 0), allocation.of(job.id)) for job in jobs}


def _count(before: int, grant: Grant) -> int:
    """Return a job's count after a slot. One that was served had come to its turn before what is read of a history."""
    if before >= MOST_SLOTS or _SERVED in grant.reason:
        return MOST_SLOTS
    return 0 if grant.workers else before + 1


def waiting_in(slots: Iterable[RecordedSlot]) -> dict[JobKey, int]:
    """Return how long jobs have waited at the end of a history."""
    found: dict[JobKey, int] = {}
    for slot in slots:
        found = count_waiting(found, slot.snapshot, slot.allocation)
    return found


def serve(draft: SlotDraft, waited: Waited) -> SlotDraft:
    """Return a decision in which those that have waited for too long have their minimum.

    It is the draft itself where nothing of it has to change.
    """
    jobs, grants = draft.snapshot.jobs, draft.grants
    owed = [index for index, state in enumerate(jobs) if waited.get(key_of(state.job), 0) >= MOST_SLOTS]
    if all(grants[index].workers for index in owed):
        return draft
    room = FreeResources(draft.snapshot, draft.rule)
    stays = [index for index, state in enumerate(jobs) if state.workers and not state.saves and grants[index].workers]
    stays = [index for index in stays if index not in owed and room.give_least(index)]
    begun = [index for index in owed if room.give_least(index) and not grants[index].workers]
    if not begun:
        return draft
    others = [index for index, grant in enumerate(grants) if grant.workers and index not in (*owed, *stays)]
    others.sort(key=lambda index: not (jobs[index].workers or jobs[index].starting))
    kept = stays + [index for index in others if room.give_least(index)]
    give_back(room, grants, kept + [index for index in owed if grants[index].workers and room.workers(index)])
    names = ", ".join(str(jobs[index].job.id) for index in begun)
    why, instead = f": {names} has waited for too long", dict.fromkeys(begun, _SERVED)
    found = {
        state.job.id: regranted(room, index, grants[index], why, instead.get(index, ""))
        for index, state in enumerate(jobs)
    }
    return draft.revised(found, room)
