"""This module says which running tasks would be better elsewhere: a plan to join there and leave here, with its cost.

One task moves, or all that a job has in a group, where the model of speeds says that it pays. With r the predicted
speeds of the jobs on both nodes before a move and r' after it, it gains H * sum(log(r' / r)) seconds of training, H
being the time until the first of these jobs ends: later their nodes are others. It has to gain `_MARGIN` times what it
costs, and to be worth `_LEAST_GAIN` of a job's speed, which is about as much as a fitted model is wrong by. As the sum
of logarithms of all speeds grows by each move, no sequence of moves of the same jobs comes back to where it was:
nothing oscillates while the model stays.

All jobs on both nodes have to be known to the model and to have measured a speed, so that nothing is moved beside a job
that starts, grows, or of which nobody knows how it disturbs others.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dl2_scheduler.cluster.durations import in_words
from dl2_scheduler.cluster.free_resources import SLACK
from dl2_scheduler.cluster.hardware.machines import Floats, Ints
from dl2_scheduler.cluster.hardware.placements import PlacedSpeed, PlacementArrays
from dl2_scheduler.cluster.hardware.view import PlacementView
from dl2_scheduler.cluster.placement.task_moves import MoveTerms, TaskMove

_MARGIN = 2.0
_LEAST_GAIN = 0.1
_MOST_JOBS = 64
"""Jobs whose tasks are tried, those with the most work left."""
_MOST_TARGETS = 16
"""Groups that are tried for a task: those with most of it free."""
_MOST_NAMED = 2
"""Other jobs that a sentence names."""
_NAMED_FROM = 0.02
_ROLES = ("worker", "server")


@dataclass(frozen=True)
class _Gain:
    """A `_Gain` is what a move is predicted to bring.

    Attributes:
        tasks: that move, rows of `view.placed`.
        target: the group that they go to.
        jobs: on both nodes, its own among them.
        ratio: of each of them the speed after the move, over the one before.
        lasts: seconds, of training that is faster.
        costs: seconds of training.
        worth: seconds of training, less the costs.
    """

    tasks: Ints
    target: int
    jobs: Ints
    ratio: Floats
    lasts: float
    costs: float
    worth: float


def propose_moves(
    view: PlacementView, speeds: PlacedSpeed, terms: MoveTerms, names: Sequence[str]
) -> tuple[TaskMove, ...]:
    """Return the moves that pay, the best first. No two of them have a node, or a job on their nodes, in common.

    Args:
        view: of the cluster, with models numbered as the speeds know them.
        speeds: fitted: a job's speed follows from what lies in the groups where it has tasks.
        terms: what may be moved.
        names: of the nodes.
    """
    search = _Search(view, speeds, terms)
    gains = sorted(search.gains(), key=lambda gain: -gain.worth)
    jobs: set[int] = set()
    groups: set[int] = set()
    moves: list[TaskMove] = []
    left = terms.most
    for gain in gains:
        move = search.told(gain, names)
        both = {move.source, move.target}
        if len(move.roles) <= left and jobs.isdisjoint(gain.jobs.tolist()) and groups.isdisjoint(both):
            jobs.update(gain.jobs.tolist())
            groups |= both
            left -= len(move.roles)
            moves.append(move)
    return tuple(moves)


class _Search:
    """A `_Search` looks at single tasks in other groups.

    Args:
        view: of the cluster.
        speeds: fitted.
        terms: what may be moved.
    """

    def __init__(self, view: PlacementView, speeds: PlacedSpeed, terms: MoveTerms):
        self._view, self._speeds, self._terms = view, speeds, terms
        self._steady = (view.rates > 0) & [state.job.samples_known for state in view.jobs]
        self._left = view.work_left / np.maximum(view.rates, 1e-12)

    def gains(self) -> Iterator[_Gain]:
        """Yield the moves that pay."""
        if self._terms.most < 1:
            return
        for job in self._movable():
            for tasks in self._parts(job):
                yield from self._of_tasks(tasks)

    def _parts(self, job: int) -> Iterator[Ints]:
        """Yield what of a job may move together: a task of each role in each group, and all that it has there."""
        placed = self._view.placed
        own = np.flatnonzero(placed.job == job)
        for group in np.unique(placed.group[own]):
            here = own[placed.group[own] == group]
            for role in np.unique(placed.role[here]):
                yield here[placed.role[here] == role][-1:]  # another of the same role in the same group is no other
            if 1 < len(here) <= self._terms.most:
                yield here

    def _movable(self) -> list[int]:
        steady = [job for job in np.flatnonzero(self._steady).tolist() if job not in self._terms.still]
        return sorted(steady, key=lambda job: -self._left[job])[:_MOST_JOBS]

    def _of_tasks(self, tasks: Ints) -> Iterator[_Gain]:
        view, placed = self._view, self._view.placed
        job, here = int(placed.job[tasks[0]]), int(placed.group[tasks[0]])
        demand = view.demand[job, placed.role[tasks]].sum(axis=0)
        fits = (demand <= np.maximum(view.free, 0.0) + SLACK).all(axis=1)
        for role in np.unique(placed.role[tasks]):
            fits &= view.may(job, int(role))
        fits[here] = False
        targets = np.flatnonzero(fits)
        order = np.argsort(-view.free[targets].sum(axis=1), kind="stable")
        for target in targets[order][:_MOST_TARGETS].tolist():
            if (gain := self._gain(tasks, target)) is not None:
                yield gain

    def _gain(self, tasks: Ints, target: int) -> _Gain | None:
        """Return what moving tasks brings; None: it does not pay, or nobody can know."""
        placed = self._view.placed
        job, both = int(placed.job[tasks[0]]), (int(placed.group[tasks[0]]), target)
        jobs: Ints = np.unique(placed.job[np.isin(placed.group, both)])
        if not self._steady[jobs].all():
            return None
        near = self._near(jobs)
        moved = placed.group.copy()
        moved[tasks] = target
        before = self._rates(placed.group, near, jobs)
        after = self._rates(moved, near, jobs)
        if not ((before > 0) & (after > 0) & np.isfinite(before) & np.isfinite(after)).all():
            return None  # a type that the model does not know
        ratio: Floats = after / before
        gain = float(np.log(ratio).sum())
        costs = self._costs(tasks, near, float(before[np.flatnonzero(jobs == job)[0]]))
        lasts = float(self._left[jobs].min()) - self._terms.cost.away - self._terms.cost.stopped
        if gain < np.log1p(_LEAST_GAIN) or gain * lasts < _MARGIN * costs:
            return None
        return _Gain(tasks, target, jobs, ratio, lasts, costs, gain * lasts - costs)

    def _near(self, jobs: Ints) -> NDArray[np.bool_]:
        """Return which tasks decide about the speeds of some jobs: of all jobs that share a group with one of them.

        All that these have, wherever: a model leaves a job out that lacks a role, and with it what others feel of it.
        """
        placed = self._view.placed
        beside = np.isin(placed.group, placed.group[np.isin(placed.job, jobs)])
        near: NDArray[np.bool_] = np.isin(placed.job, placed.job[beside])
        return near

    def _rates(self, group: Ints, tasks: NDArray[np.bool_], jobs: Ints) -> Floats:
        placed = self._view.placed
        arrays = PlacementArrays(placed.model, placed.job[tasks], placed.role[tasks], group[tasks], placed.number)
        found: Floats = self._speeds.rates(arrays)[jobs]
        return found

    def _costs(self, tasks: Ints, near: NDArray[np.bool_], rate: float) -> float:
        """Return the seconds of training that a job loses while tasks of it move."""
        placed, cost = self._view.placed, self._terms.cost
        job = int(placed.job[tasks[0]])
        without = near.copy()
        without[tasks] = False
        for role in np.unique(placed.role[tasks]):
            if not (without & (placed.job == job) & (placed.role == role)).any():
                without[tasks[placed.role[tasks] == role]] = True  # the last of its role leaves when others have joined
        lacks = 1.0 - float(self._rates(placed.group, without, np.array([job]))[0]) / rate
        return cost.stopped + cost.away * min(1.0, max(0.0, lacks))

    def told(self, gain: _Gain, names: Sequence[str]) -> TaskMove:
        """Return a move with why it is made.

        Args:
            gain: what it brings.
            names: of the nodes.
        """
        view, placed = self._view, self._view.placed
        job, source = int(placed.job[gain.tasks[0]]), int(placed.group[gain.tasks[0]])
        roles = tuple(placed.role[gain.tasks].tolist())
        from_, to = (names[int(view.machines.node_of[group])] for group in (source, gain.target))
        own = {int(each): float(ratio) for each, ratio in zip(gain.jobs, gain.ratio, strict=True)}
        others = sorted(own.keys() - {job}, key=lambda other: -abs(np.log(own[other])))
        felt = [other for other in others if abs(own[other] - 1) >= _NAMED_FROM][:_MOST_NAMED]
        steps = [f"its steps {_shorter(own[job])}"]
        steps += [f"those of {view.jobs[other].job.id} {_shorter(own[other])}" for other in felt]
        what = f"a {_ROLES[roles[0]]} moves" if len(roles) == 1 else f"{len(roles)} tasks move"
        why = (
            f"{what} from {from_} to {to}: {', '.join(steps)} for about {in_words(gain.lasts)}; "
            f"the move costs {in_words(gain.costs)} of its training{self._terms.cost.words}"
        )
        return TaskMove(job, roles, source, gain.target, why)


def _shorter(ratio: float) -> str:
    """Return how much shorter steps are at so many times the speed, for people."""
    part = 1.0 - 1.0 / ratio
    if abs(part) < 0.005:
        return "as long as before"
    return f"{100 * abs(part):.0f}% {'shorter' if part >= 0 else 'longer'}"
