"""This module asks a live cluster's placement policy, slot by slot, which running tasks are to move."""

from collections.abc import Callable, Iterable, Sequence

from dl2_scheduler.cluster.hardware.view import PlacementView
from dl2_scheduler.cluster.placement.guarded_placement import GuardedPlacement
from dl2_scheduler.cluster.placement.task_moves import MoveCost, MoveTerms, TaskMove
from dl2_scheduler.cluster.snapshot import JobId

REST_SLOTS = 3
"""Slots in which no further task of a job is moved."""


class TaskMover:
    """A `TaskMover` has tasks moved where it pays. A job of which one was moved rests for some slots.

    Args:
        policy: says which.
        most: tasks that are moved in a slot; 0: none.
        cost: returns what a move costs here; None: nobody knows yet, so that nothing is moved.

    Attributes:
        policy: as above.
    """

    def __init__(self, policy: GuardedPlacement, most: int, cost: Callable[[], MoveCost | None]):
        self.policy, self._most, self._cost = policy, most, cost
        self._rest: dict[JobId, int] = {}

    def moves(self, view: PlacementView, still: Iterable[int], nodes: Sequence[str]) -> tuple[TaskMove, ...]:
        """Return the moves of a slot; asked once in each.

        Args:
            view: of the cluster, in which no task misses a place. Jobs that are about to change have no rate.
            still: indices of jobs whose tasks stay where they are.
            nodes: their names.
        """
        self._rest = {job: left - 1 for job, left in self._rest.items() if left > 1}
        cost = self._cost() if self._most else None
        if cost is None or len(nodes) < 2 or not len(view.placed.job):
            return ()
        resting = {index for index, state in enumerate(view.jobs) if state.job.id in self._rest}
        terms = MoveTerms(cost, self._most, frozenset(still) | resting)
        found = self.policy.moves(view, terms, nodes)
        self._rest |= {view.jobs[move.job].job.id: REST_SLOTS + 1 for move in found}
        return found
