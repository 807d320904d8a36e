"""This module plans with a model of speeds: the best of some rules' places, then moved and swapped while it pays."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from dl2_scheduler.cluster.free_resources import SLACK
from dl2_scheduler.cluster.hardware.machines import Floats, Ints
from dl2_scheduler.cluster.hardware.placements import PlacedSpeed, TriedSpeed
from dl2_scheduler.cluster.hardware.view import PlacementView, Places
from dl2_scheduler.policies.placement.draft import Draft
from dl2_scheduler.policies.placement.greedy_fill import GroupRule, JobOrder, fill, fill_empty, waiting

Goal = Callable[[PlacementView, Floats], Floats]
"""What is to be as large as possible: a number of the jobs' rates, (..., jobs), of each of the leading axes."""
Change = list[tuple[int, int, int]]
"""Tasks that get another group: role, index of the task, group."""

LEAST_GAIN = 1e-9
"""Part of a goal: what is larger by less is as large, but for rounding."""
_MOST_ROUNDS = 20
"""Moves of a job: each makes the goal larger, and there may be very many that do so a little."""
_MOST_TURNS = 5


def progress_rate(view: PlacementView, rates: Floats) -> Floats:
    """Return the sum over jobs of the part of their training that they do in a second (Harmony's reward)."""
    found: Floats = (rates / view.whole_work).sum(axis=-1)
    return found


def less_remaining(view: PlacementView, rates: Floats) -> Floats:
    """Return minus the sum of the seconds that jobs with places still need at these rates."""
    found: Floats = -np.where(rates > 0, view.work_left / np.maximum(rates, 1e-12), 0.0).sum(axis=-1)
    return found


@dataclass(frozen=True)
class JobPatience:
    """`JobPatience` lets a job wait for places that are nearly as good as those that it would have alone.

    Attributes:
        part: of its goal alone by which its places have to make the goal larger, at least.
        alone: samples a second of a job of a model, with so many workers and servers, at its best places.
    """

    part: float
    alone: Callable[[str, int, int], float]


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
        patience: of jobs that may wait; None: they wait for nothing else.
    """

    speeds: PlacedSpeed
    starts: Sequence[GroupRule]
    goal: Goal = less_remaining
    order: JobOrder = JobOrder.SHORTEST
    skipping: bool = True
    may_wait: bool = False
    patience: JobPatience | None = None

    def place(self, view: PlacementView) -> Places:
        """See `PlacementPolicy.place`."""
        return self.plan(view).placement()

    def plan(self, view: PlacementView) -> Draft:
        """Return the places as a draft, which others may improve."""
        draft = Draft(view)
        for job in waiting(view, self.order):
            least = self.least(draft, job)
            if self._put(draft, job):
                if least > -np.inf and self.value(draft) < least:
                    draft.drop(job)
            elif not self.skipping:
                break
        if len(draft.groups) > 1:
            self._improve_together(draft)
        return draft

    def value(self, draft: Draft) -> float:
        """Return what a draft's places are worth."""
        return float(self.goal(draft.view, self.speeds.rates(draft.arrays())))

    def least(self, draft: Draft, job: int, worth: float | None = None) -> float:
        """Return what the places are to be worth with a job's, as it waits else; minus infinity: it does not wait.

        Args:
            draft: without the job's places.
            job: its index.
            worth: what the draft's places are worth; None: it has to be found out.
        """
        if not self.may_wait or not any(draft.tasks):
            return -np.inf
        value, view = self.value(draft) if worth is None else worth, draft.view
        if self.patience is None:
            return value
        rates, about = np.zeros(len(view.jobs)), view.jobs[job].job
        rates[job] = self.patience.alone(about.model, about.max_workers, about.max_servers)
        return value + self.patience.part * float(self.goal(view, rates))

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
            return fill_empty(draft, job)
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
            if value <= before + LEAST_GAIN * abs(before):
                return

    def _improve(self, draft: Draft, job: int) -> None:
        """Make the best change of a job's places again and again, until none is better."""
        value = self.value(draft)
        for _ in range(_MOST_ROUNDS):
            changes = list(fitting(draft, job, self._moves(draft, job)))
            values = self._values(draft, job, changes) if changes else np.array([value])
            if values.max() <= value + LEAST_GAIN * abs(value):
                return
            value = float(values.max())
            for role, index, group in changes[int(values.argmax())]:
                draft.move(job, role, index, group)

    def _moves(self, draft: Draft, job: int) -> Iterator[Change]:
        """Yield changes of a job's places: moves of one task, swaps of two."""
        return moves(draft, job)

    def _values(self, draft: Draft, job: int, changes: Sequence[Change]) -> Floats:
        """Return what the places are worth after each of several changes of a job's places, (changes,)."""
        workers, servers = draft.groups[job]
        tries = np.tile([*workers, *servers], (len(changes), 1))
        for row, change in enumerate(changes):
            for role, index, group in change:
                tries[row, role * len(workers) + index] = group
        return self.values_at(draft, job, tries)

    def values_at(self, draft: Draft, job: int, tries: Ints) -> Floats:
        """Return what the places are worth with a job's new tasks at each of several places, (tries,).

        Args:
            draft: in which the job has places.
            job: its index.
            tries: groups of its new workers, then of its new servers, (tries, tasks).
        """
        arrays = draft.arrays()
        own = np.flatnonzero(arrays.job == job)
        new = own[len(own) - tries.shape[1] :]  # what it had before does not move
        if isinstance(self.speeds, TriedSpeed):
            groups = np.tile(arrays.group[own], (len(tries), 1))
            groups[:, len(own) - len(new) :] = tries
            return self.goal(draft.view, self.speeds.tried(arrays, job, groups))
        found = np.empty(len(tries))
        for row, groups in enumerate(tries):
            where = arrays.group.copy()
            where[new] = groups
            found[row] = self.goal(draft.view, self.speeds.rates(replace(arrays, group=where)))
        return found


def fitting(draft: Draft, job: int, changes: Iterable[Change]) -> Iterator[Change]:
    """Yield those changes of a job's places for which there is room.

    Args:
        draft: with its places.
        job: index of the job.
        changes: of one task, or of a worker and a server.
    """
    worker, server = draft.view.demand[job]
    room = [(draft.free - each >= -SLACK).all(axis=1).tolist() for each in (worker, server)]
    for change in changes:
        role, _, group = change[0]
        if len(change) == 1:
            fits = room[role][group]
        else:
            after = draft.free[[group, change[1][2]]] + (server - worker) * np.array([[1.0], [-1.0]])
            fits = bool((after >= -SLACK).all())
        if fits:
            yield change


def moves(draft: Draft, job: int) -> Iterator[Change]:
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
