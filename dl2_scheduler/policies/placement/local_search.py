"""This module plans with a model of speeds: the best of some rules' places, then moved and swapped while it pays."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from dl2_scheduler.cluster.free_resources import SLACK
from dl2_scheduler.cluster.hardware.machines import Floats
from dl2_scheduler.cluster.hardware.placements import PlacedSpeed
from dl2_scheduler.cluster.hardware.view import PlacementView, Places
from dl2_scheduler.policies.placement.draft import Draft
from dl2_scheduler.policies.placement.greedy_fill import GroupRule, JobOrder, fill, waiting

Goal = Callable[[PlacementView, Floats], float]
"""What is to be as large as possible: a number of the jobs' rates, (jobs,)."""

_LEAST_GAIN = 1e-9
_MOST_ROUNDS = 20
"""Moves of a job: each makes the goal larger, and there may be very many that do so a little."""
_MOST_TURNS = 5


def progress_rate(view: PlacementView, rates: Floats) -> float:
    """Return the sum over jobs of the part of their training that they do in a second (Harmony's reward)."""
    return float((rates / view.whole_work).sum())


def less_remaining(view: PlacementView, rates: Floats) -> float:
    """Return minus the sum of the seconds that jobs with places still need at these rates."""
    return -float(np.where(rates > 0, view.work_left / np.maximum(rates, 1e-12), 0.0).sum())


@dataclass(frozen=True)
class LocalSearch:
    """See `PlacementPolicy`: job by job the best of the starts' places, improved task by task.

    Attributes:
        speeds: fitted ones; true ones only as a bound.
        starts: rules whose places are where the search begins.
        goal: see `Goal`.
        order: of the jobs.
        skipping: see `GreedyFill`.
        may_wait: a job whose best places make the goal smaller than it is without it waits while others run.
    """

    speeds: PlacedSpeed
    starts: Sequence[GroupRule]
    goal: Goal = less_remaining
    order: JobOrder = JobOrder.SHORTEST
    skipping: bool = True
    may_wait: bool = False

    def place(self, view: PlacementView) -> Places:
        """See `PlacementPolicy.place`."""
        return self.plan(view).placement()

    def plan(self, view: PlacementView) -> Draft:
        """Return the places as a draft, which others may improve."""
        draft = Draft(view)
        for job in waiting(view, self.order):
            without = self.value(draft) if self.may_wait and any(draft.tasks) else -np.inf
            if self._put(draft, job):
                if without > -np.inf and self.value(draft) < without:
                    draft.drop(job)
            elif not self.skipping:
                break
        if len(draft.groups) > 1:
            self._improve_together(draft)
        return draft

    def value(self, draft: Draft) -> float:
        """Return what a draft's places are worth."""
        return self.goal(draft.view, self.speeds.rates(draft.arrays()))

    def _put(self, draft: Draft, job: int) -> bool:
        """Give a job the best places that the search finds, and return whether there are any."""
        if not self._start(draft, job):
            return False
        self._improve(draft, job)
        return True

    def _start(self, draft: Draft, job: int) -> bool:
        """Give a job the best of the rules' places, and return whether one fits it."""
        found: list[tuple[float, tuple[list[int], list[int]]]] = []
        for rule in self.starts:
            if fill(draft, job, rule):
                found.append((self.value(draft), draft.groups[job]))
                draft.drop(job)
        if not found:
            return False
        _, best = max(found, key=lambda each: each[0])
        draft.put_all(job, best)
        return True

    def _improve_together(self, draft: Draft) -> None:
        """Improve jobs in turn, as those that came first did not know of the others, until none gets better."""
        value = self.value(draft)
        for _ in range(_MOST_TURNS):
            for job in draft.groups:
                self._improve(draft, job)
            before, value = value, self.value(draft)
            if value <= before + _LEAST_GAIN * abs(before):
                return

    def _improve(self, draft: Draft, job: int) -> None:
        """Make the best change of a job's places again and again, until none is better."""
        value = self.value(draft)
        for _ in range(_MOST_ROUNDS):
            best = max(self._changes(draft, job), key=lambda each: each[0], default=None)
            if best is None or best[0] <= value + _LEAST_GAIN * abs(value):
                return
            value = best[0]
            for role, index, group in best[1]:
                draft.move(job, role, index, group)

    def _changes(self, draft: Draft, job: int) -> Iterator[tuple[float, list[tuple[int, int, int]]]]:
        """Yield the changes that fit, each with what the places are worth then: moves of one task, swaps of two."""
        for change in moves(draft, job):
            undo = [(role, index, draft.move(job, role, index, group)) for role, index, group in change]
            if (draft.free[[group for *_, group in change]] >= -SLACK).all():
                yield self.value(draft), change
            for role, index, group in reversed(undo):
                draft.move(job, role, index, group)


def moves(draft: Draft, job: int) -> Iterator[list[tuple[int, int, int]]]:
    """Yield lists of (role, index of the task, group): a task to another group, or a worker and a server exchanged."""
    workers, servers = (tuple(each) for each in draft.groups[job])
    may = [draft.view.may(job, role) for role in (0, 1)]
    for role, own in enumerate((workers, servers)):
        for index, here in enumerate(own):
            if here in own[:index]:
                continue  # a task of the same kind on the same group has been tried
            for group in draft.reach(job).tolist():
                if group != here and may[role][group]:
                    yield [(role, index, group)]
    for one, here in enumerate(workers):
        for other, there in enumerate(servers):
            if (
                here != there
                and may[0][there]
                and may[1][here]
                and here not in workers[:one]
                and there not in servers[:other]
            ):
                yield [(0, one, there), (1, other, here)]
