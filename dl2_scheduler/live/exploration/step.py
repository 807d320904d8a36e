"""This module chooses jobs that run for one slot with other counts, so that their speed there is known. It is pure.

It is the step `explore` of `slot_decision`, the last one, and only takes what the others have left: a job that was to
run on as it does is given other counts within its own bounds, where these fit beside all that was decided. The others
keep what they have. Nobody explores while a job waits, as that would wait for the slower job's end.
"""

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from dl2_scheduler.cluster.free_resources import SLACK, Amounts, FreeResources
from dl2_scheduler.cluster.snapshot import Grant, JobId, JobState, SpeedReport
from dl2_scheduler.live.exploration.telling import TellingConfiguration
from dl2_scheduler.live.slot_draft import SlotDraft

_MOST_JOBS = 3  # that explore in a slot, each of another type: what they tell together is less than their sum
_MOST_TRIED = 4  # configurations that are fitted into the nodes: a slot's decision does not wait for long
_LEAST_CAPACITY = 1e-12  # of a resource that no node has
_LEAST_LEFT = 2.0  # times the exploration that a job trains still: what ends meanwhile may not tell its speed


@dataclass(frozen=True)
class ExplorationTerms:
    """`ExplorationTerms` say what exploring costs, and how much of it is allowed.

    Attributes:
        allowed: cluster-seconds that may be spent, as `budget` has them.
        slots: for which a job keeps the counts that it explores: as many as lie between two of its scalings.
        scaling_seconds: see `Telling`.
    """

    allowed: float
    slots: int = 1
    scaling_seconds: float = 0.0


@dataclass(frozen=True)
class ExploringJob:
    """An `ExploringJob` may run with other counts than were decided.

    Attributes:
        index: of the job, in the snapshot.
        configuration: what it would run with.
        charge: what it costs of the budget, in cluster-seconds.
        worth: what is gained beyond what the job loses, in slots of a job.
    """

    index: int
    configuration: TellingConfiguration
    charge: float
    worth: float


def explore(
    draft: SlotDraft,
    telling: Iterable[TellingConfiguration],
    terms: ExplorationTerms,
    permitted: Callable[[SlotDraft], bool],
) -> tuple[SlotDraft, dict[JobId, float]]:
    """Return a decision in which some jobs explore, and what each of them costs of the budget, in cluster-seconds.

    Those that are worth most for what they cost come first, one of each type.

    Args:
        draft: the decision, as it would be done.
        telling: configurations worth trying.
        terms: what it costs, and how much is allowed.
        permitted: whether a decision keeps to the limits of a slot.
    """
    charges: dict[JobId, float] = {}
    if not all(grant.workers for grant in draft.grants):
        return draft, charges
    explored: set[str] = set()
    allowed, tried = terms.allowed, 0
    for each in sorted(_worthwhile(draft, telling, terms), key=lambda each: -each.worth / each.charge):
        if each.configuration.model in explored or each.charge > allowed:
            continue
        if len(explored) == _MOST_JOBS or tried == _MOST_TRIED:
            break
        tried += 1
        found = _with(draft, each, terms)
        if found is not None and permitted(found):
            draft, allowed = found, allowed - each.charge
            explored.add(each.configuration.model)
            charges[draft.snapshot.jobs[each.index].job.id] = each.charge
    return draft, charges


def _worthwhile(
    draft: SlotDraft, telling: Iterable[TellingConfiguration], terms: ExplorationTerms
) -> Iterator[ExploringJob]:
    """Yield what is worth more than it costs, with each job that may do it."""
    free, total = draft.room.free.sum(axis=0), np.maximum(draft.room.capacity.sum(axis=0), _LEAST_CAPACITY)
    reports = {report.job: report for report in draft.snapshot.reports}
    grants = draft.grants
    seconds = terms.slots * draft.snapshot.slot_seconds
    may = [
        index
        for index, state in enumerate(draft.snapshot.jobs)
        if _runs_on(state, grants[index], reports.get(state.job.id), _LEAST_LEFT * seconds)
    ]
    for configuration in telling:
        for index in may:
            state = draft.snapshot.jobs[index]
            expected = configuration.speed_over(state.servers, state.workers)
            if not _is_for(configuration, state) or expected is None:
                continue
            now, then = _taken(draft.room, index, state), _taken(draft.room, index, configuration)
            if (then - now > free + SLACK).any():
                continue
            charge = float((np.maximum(now, then) / total).max()) * (seconds + terms.scaling_seconds)
            lost = terms.slots * max(0.0, 1 - expected) + 2 * terms.scaling_seconds / draft.snapshot.slot_seconds
            if configuration.gain > lost:
                yield ExploringJob(index, configuration, charge, configuration.gain - lost)


def _runs_on(state: JobState, grant: Grant, report: SpeedReport | None, least_seconds: float) -> bool:
    """Return whether a job trains, was to go on as it does, and does so for long enough."""
    runs = state.workers > 0 and not state.starting and (grant.workers, grant.servers) == (state.workers, state.servers)
    if not runs or report is None or (report.workers, report.servers) != (state.workers, state.servers):
        return False
    return least_seconds <= state.seconds_left(report.samples_per_second) < math.inf


def _is_for(configuration: TellingConfiguration, state: JobState) -> bool:
    job, workers, servers = state.job, configuration.workers, configuration.servers
    other = (workers, servers) != (state.workers, state.servers)
    within = job.min_workers <= workers <= job.max_workers and job.min_servers <= servers <= job.max_servers
    return job.model == configuration.model and other and within


def _taken(room: FreeResources, index: int, counts: JobState | TellingConfiguration) -> Amounts:
    """Return what a job takes of each resource with these counts."""
    workers, servers = (demands[index] for demands in room.demands)
    taken: Amounts = counts.workers * workers + counts.servers * servers
    return taken


def _with(draft: SlotDraft, exploring: ExploringJob, terms: ExplorationTerms) -> SlotDraft | None:
    """Return the decision with a job that explores; None: it does not fit beside the others."""
    chosen, jobs, grants = exploring.configuration, draft.snapshot.jobs, draft.grants
    before = grants[exploring.index]
    reason = "; ".join(filter(None, (_reason(chosen, before, terms.slots), before.reason)))
    grants[exploring.index] = Grant(chosen.workers, chosen.servers, reason, before.decided)
    room = FreeResources(draft.snapshot, draft.rule)
    if not all(room.give(index, grant.workers, grant.servers) for index, grant in enumerate(grants)):
        return None
    return draft.revised({state.job.id: grant for state, grant in zip(jobs, grants, strict=True)}, room)


def _reason(chosen: TellingConfiguration, before: Grant, slots: int) -> str:
    counts = f"{chosen.workers}+{chosen.servers} instead of {before.workers}+{before.servers}"
    how_long = "this slot" if slots == 1 else f"{slots} slots"
    return f"{counts} for {how_long}, to learn: speeds of {chosen.model} there are known within ±{chosen.spread:.0%}"
