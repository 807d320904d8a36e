"""This module holds what it is to move tasks that run to another group: the terms, the move, and what is refused."""

from collections.abc import Sequence
from dataclasses import dataclass

from dl2_scheduler.cluster.errors import BadInput
from dl2_scheduler.cluster.free_resources import SLACK
from dl2_scheduler.cluster.hardware.view import PlacementView


@dataclass(frozen=True)
class MoveCost:
    """A `MoveCost` says what moving a task costs its job.

    Attributes:
        stopped: seconds in which the whole job does not train.
        away: seconds in which it trains without the task, where it has others of the role.
        words: how that is known, for people.
    """

    stopped: float
    away: float
    words: str


@dataclass(frozen=True)
class MoveTerms:
    """`MoveTerms` say what may be moved in a slot.

    Attributes:
        cost: of each move.
        most: tasks that may be moved.
        still: indices of jobs in the view whose tasks stay where they are.
    """

    cost: MoveCost
    most: int
    still: frozenset[int] = frozenset()


@dataclass(frozen=True)
class TaskMove:
    """A `TaskMove` lets tasks of one job go from one group to another.

    Attributes:
        job: its index in the view.
        roles: of the tasks, one for each.
        source: the group that they leave.
        target: the group that they join.
        why: for people.
    """

    job: int
    roles: tuple[int, ...]
    source: int
    target: int
    why: str


def check_moves(view: PlacementView, moves: Sequence[TaskMove], terms: MoveTerms) -> None:
    """Refuse moves that cannot be done, or are not within the terms: a job has one, and a target room beforehand.

    Args:
        view: of the cluster.
        moves: that a policy has answered.
        terms: what may be moved.

    Raises:
        BadInput: with what is wrong.
    """
    for move in moves:
        if not isinstance(move, TaskMove):
            raise BadInput(f"a {type(move).__name__} was answered instead of a TaskMove")
    if (count := sum(len(move.roles) for move in moves)) > terms.most:
        raise BadInput(f"moves of {count} tasks were answered where {terms.most} may be moved")
    free = view.free.copy()
    moved: set[int] = set()
    for move in moves:
        if move.job not in range(len(view.jobs)) or move.job in terms.still or move.job in moved:
            raise BadInput(f"job {move.job}: it is not there, or its tasks stay where they are")
        groups = range(len(free))
        if not move.roles or move.source not in groups or move.target not in groups or move.source == move.target:
            raise BadInput(f"job {move.job}: from group {move.source} to {move.target} is no move")
        for role in set(move.roles):
            _check_role(view, move, role)
        demand = sum(view.demand[move.job, role] for role in move.roles)
        if (demand > free[move.target].clip(0.0) + SLACK).any():
            raise BadInput(f"job {move.job}: group {move.target} has no room for its tasks")
        free[move.target] -= demand
        moved.add(move.job)


def _check_role(view: PlacementView, move: TaskMove, role: int) -> None:
    """Refuse tasks of a role that are not there, or may not go where they are to go. Raises BadInput."""
    placed = view.placed
    own = (placed.job == move.job) & (placed.role == role) & (placed.group == move.source)
    if own.sum() < move.roles.count(role):
        raise BadInput(f"job {move.job}: it has no such task in group {move.source}")
    if not view.may(move.job, role)[move.target]:
        raise BadInput(f"job {move.job}: its tasks may not go to group {move.target}")
