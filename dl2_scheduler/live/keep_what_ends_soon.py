"""This module keeps jobs from being suspended where that cannot pay, whatever the policy decides. It is pure.

Suspending a job gives its tasks' room to others sooner by the time R that it still needs, and costs two starts: of the
job that begins in its place, and its own once more. With one start of S seconds it cannot pay where R is at most 2 S,
however short the other job is. A job that trains and cannot be saved, as on Kubernetes without checkpoint.url, keeps
its minimum: it could not go on later, so the cluster would not suspend it. This belongs to the step `spare` of
`slot_decision`.
"""

from collections.abc import Mapping, Sequence

from dl2_scheduler.cluster.free_resources import FreeResources
from dl2_scheduler.cluster.snapshot import JobState, SpeedReport
from dl2_scheduler.live.shrink_before_suspend import give_back
from dl2_scheduler.live.slot_draft import SlotDraft, regranted

_STARTS = 2  # that a suspension costs
_UNSAVED = "kept at its minimum instead of suspended: without checkpoint.url it could not go on later"


def keep(draft: SlotDraft, start_seconds: float) -> SlotDraft:
    """Return a decision in which a running job that ends soon keeps what it has, where it was to be suspended.

    One that cannot be saved keeps its minimum.

    The other running jobs get their minima beside it, then those that were to begin, as far as these fit; what is left
    goes to them in turn, up to what they were given.

    Args:
        draft: the decision so far.
        start_seconds: how long a job takes to start; 0: not known, or nothing.
    """
    jobs = draft.snapshot.jobs
    reports = {report.job: report for report in draft.snapshot.reports}
    left = {
        index: _seconds_left(state, reports.get(state.job.id))
        for index, state in enumerate(jobs)
        if state.workers and not draft.grants[index].workers
    }
    soon = [index for index, seconds in left.items() if seconds <= _STARTS * start_seconds]
    unsaved = [index for index in left if index not in soon and not jobs[index].saves]
    for kept in ({**dict.fromkeys(soon, True), **dict.fromkeys(unsaved, False)}, _least_of(soon + unsaved, jobs)):
        if kept and (found := _keeping(draft, kept, left, start_seconds)) is not None:
            return found
    return draft


def _least_of(indices: Sequence[int], jobs: Sequence[JobState]) -> dict[int, bool]:
    """Return those that could not go on later, with their minimum: the others may be suspended where all do not fit."""
    return {index: False for index in indices if not jobs[index].saves}


def _keeping(
    draft: SlotDraft, kept: Mapping[int, bool], left: Mapping[int, float], start_seconds: float
) -> SlotDraft | None:
    """Return the decision in which some running jobs are kept; None: that does not fit, as nodes have gone.

    Args:
        draft: the decision so far.
        kept: by index, whether it keeps all that it has, and not its minimum alone.
        left: by index, for how many seconds it still trains.
        start_seconds: see `keep`.
    """
    jobs, grants = draft.snapshot.jobs, draft.grants
    room = FreeResources(draft.snapshot, draft.rule)
    granted = [index for index, grant in enumerate(grants) if grant.workers]
    runs = [index for index in granted if jobs[index].workers or jobs[index].starting]
    has = [(jobs[index].workers, jobs[index].servers) if kept[index] else room.least[index] for index in kept]
    fits = all(room.give(index, *counts) for index, counts in zip(kept, has, strict=True))
    if not fits or not all(room.give_least(index) for index in runs):
        return None
    begins = [index for index in granted if index not in runs and room.give_least(index)]
    give_back(room, grants, [*runs, *begins])
    names = ", ".join(str(jobs[index].job.id) for index in kept)
    why = f": {names} soon ends, and is kept" if all(kept.values()) else f": {names} is kept"
    instead = {index: _kept(left[index], start_seconds) if whole else _UNSAVED for index, whole in kept.items()}
    found = {
        state.job.id: regranted(room, index, grants[index], why, instead.get(index, ""))
        for index, state in enumerate(jobs)
    }
    return draft.revised(found, room)


def _kept(left: float, start_seconds: float) -> str:
    return f"kept instead of suspended: it ends in about {left:.0f} s, and a start takes {start_seconds:.0f} s"


def _seconds_left(state: JobState, report: SpeedReport | None) -> float:
    """Return how long a job still trains as it does now; infinity: nobody knows."""
    return state.seconds_left(report.samples_per_second if report is not None else 0.0)
