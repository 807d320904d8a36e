"""This module makes jobs shrink before any is suspended, whatever the policy decides. It is pure.

It is the step `spare` of `slot_decision`.
"""

from collections.abc import Sequence
from operator import itemgetter

from dl2_scheduler.cluster.free_resources import FreeResources
from dl2_scheduler.cluster.snapshot import Grant
from dl2_scheduler.live.slot_draft import SlotDraft, regranted

_KEPT = "kept at its minimum instead of suspended: others shrink first"


def spare(draft: SlotDraft) -> SlotDraft:
    """Return a decision that gives a job with processes nothing only where the minima of all do not fit.

    Jobs that a policy would suspend, also while they start, get their minimum, the oldest first, as far as it fits
    beside the minima of those that it gave something. What is left goes to these in turn, a task at a time, up to what
    they were given.
    """
    jobs, grants = draft.snapshot.jobs, draft.grants
    granted = [index for index, grant in enumerate(grants) if grant.workers]
    runs = [state.workers > 0 or state.starting for state in jobs]
    suspended = [index for index, grant in enumerate(grants) if runs[index] and not grant.workers]
    if not suspended:
        return draft
    room = FreeResources(draft.snapshot, draft.room.rule)
    if not all(room.give_least(index) for index in granted):  # in another order than the policy's, they may not fit
        return draft
    kept = [index for index in suspended if room.give_least(index)]
    if not kept:
        return draft
    give_back(room, grants, granted)
    names = ", ".join(str(jobs[index].job.id) for index in kept)
    why, instead = f", so that {names} is not suspended", dict.fromkeys(kept, _KEPT)
    found = {
        state.job.id: regranted(room, index, grants[index], why, instead.get(index, ""))
        for index, state in enumerate(jobs)
    }
    return draft.revised(found, room)


def give_back(room: FreeResources, grants: Sequence[Grant], shrunk: Sequence[int]) -> None:
    """Give jobs that were shrunk what is left, a task each in turn, up to what they were granted.

    Args:
        room: filled with the minima.
        grants: what each job was granted, by its index in the snapshot.
        shrunk: the indices of the jobs that get something back.
    """
    waiting = list(shrunk)
    while waiting:
        waiting = [index for index in waiting if _give_one(room, index, grants[index])]


def _give_one(room: FreeResources, index: int, grant: Grant) -> bool:
    """Give a job one task of the role of which it has the smaller part of its grant; return whether one fitted."""
    lacks = [(room.workers(index) / grant.workers, 1, 0)]
    if grant.servers:
        lacks.append((room.servers(index) / grant.servers, 0, 1))
    return any(room.give(index, *role) for part, *role in sorted(lacks, key=itemgetter(0)) if part < 1)
