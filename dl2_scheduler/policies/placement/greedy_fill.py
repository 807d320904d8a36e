"""This module places job by job and task by task, each on the group that a rule likes best."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

import numpy as np

from dl2_scheduler.cluster.hardware.machines import Floats
from dl2_scheduler.cluster.hardware.placements import SERVER, WORKER
from dl2_scheduler.cluster.hardware.view import PlacementView, Places
from dl2_scheduler.policies.placement.balance import BestFit
from dl2_scheduler.policies.placement.draft import Draft, missing_tasks


class GroupRule(Protocol):
    """A `GroupRule` says how much a group is worth to a task."""

    def dislike(self, draft: Draft, job: int, role: int) -> Floats:
        """Return a number for each group, (groups,): a task goes where it is least, the first of equals.

        Args:
            draft: as far as it is.
            job: index of the task's job in the view.
            role: of the task.
        """


class JobOrder(Enum):
    """A `JobOrder` says who is placed first."""

    ARRIVAL = "arrival"
    SHORTEST = "shortest"


@dataclass(frozen=True)
class GreedyFill:
    """See `PlacementPolicy`: a rule decides about one task after another, a job's workers and servers in turn.

    Attributes:
        rule: of the groups.
        order: of the jobs.
        skipping: a job that does not fit lets the next one try; else all behind it wait, too.
    """

    rule: GroupRule
    order: JobOrder = JobOrder.ARRIVAL
    skipping: bool = False

    def place(self, view: PlacementView) -> Places:
        """See `PlacementPolicy.place`."""
        draft = Draft(view)
        for job in waiting(view, self.order):
            if not (fill(draft, job, self.rule) or fill_empty(draft, job)) and not self.skipping:
                break
        return draft.placement()


def waiting(view: PlacementView, order: JobOrder) -> list[int]:
    """Return the jobs that miss tasks, those that are placed first at the beginning."""
    jobs = [int(job) for job in view.missing.any(axis=1).nonzero()[0]]
    return jobs if order is JobOrder.ARRIVAL else sorted(jobs, key=lambda job: remaining_work(view, job))


def remaining_work(view: PlacementView, job: int) -> float:
    """Return the seconds that one worker would still compute for a job, if nothing were exchanged."""
    state = view.jobs[job]
    profile = view.profiles[state.job.model]
    steps = state.remaining_epochs * state.job.samples_per_epoch / profile.batch
    return steps * profile.alone_s / max(1, state.job.max_workers)


def fill(draft: Draft, job: int, rule: GroupRule) -> bool:
    """Give a job's missing tasks their places, all or none, and return whether it got them.

    Args:
        draft: that gets them.
        job: index of the job.
        rule: of the groups.
    """
    return _fill(draft, job, missing_tasks(draft.view, job), rule)


def fill_empty(draft: Draft, job: int) -> bool:
    """Pack a job for which a rule finds no places, though nothing else lies anywhere; return whether it got places.

    Else it would wait for ever: `check_minimum_fits` admits what can be packed.

    Args:
        draft: that gets them.
        job: index of the job.
    """
    if any(draft.tasks):
        return False
    workers, servers = ([role] * int(draft.view.missing[job, role]) for role in (WORKER, SERVER))
    return any(_fill(draft, job, roles, BestFit()) for roles in (workers + servers, servers + workers))


def _fill(draft: Draft, job: int, roles: Iterable[int], rule: GroupRule) -> bool:
    """Give tasks of a job their places in this order, all or none, and return whether they got them."""
    for role in roles:
        fitting = draft.fitting(job, role)
        if not len(fitting):
            draft.drop(job)
            return False
        draft.put(job, role, int(fitting[np.argmin(rule.dislike(draft, job, role)[fitting])]))
    return True
