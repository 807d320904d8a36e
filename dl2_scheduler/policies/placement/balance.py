"""This module holds the rules that look at amounts alone: load balancing, best fit, and the Tetris paper's score."""

from dataclasses import dataclass

import numpy as np

from dl2_scheduler.cluster.hardware.machines import Floats
from dl2_scheduler.policies.placement.draft import Draft


def used_parts(draft: Draft) -> Floats:
    """Return by group the sum over resources of the part that is in use, (groups,)."""
    capacity = draft.view.machines.capacity
    parts = np.where(capacity > 0, 1.0 - draft.free / np.maximum(capacity, 1e-12), 0.0)
    found: Floats = parts.sum(axis=1)
    return found


@dataclass(frozen=True)
class LoadBalancing:
    """This rule takes the group that is used least (the placement papers' LB)."""

    def dislike(self, draft: Draft, job: int, role: int) -> Floats:
        """See `GroupRule.dislike`."""
        return used_parts(draft)


@dataclass(frozen=True)
class BestFit:
    """This rule takes the fullest group in which a task fits (what the placement papers call Tetris)."""

    def dislike(self, draft: Draft, job: int, role: int) -> Floats:
        """See `GroupRule.dislike`."""
        return -used_parts(draft)


@dataclass(frozen=True)
class TetrisDot:
    """This rule takes the group whose free amounts, times those that a task needs, are most (Tetris, SIGCOMM 2014).

    It prefers empty groups, so that it is another rule than the best fit that goes under its name.
    """

    def dislike(self, draft: Draft, job: int, role: int) -> Floats:
        """See `GroupRule.dislike`."""
        capacity = np.maximum(draft.view.machines.capacity, 1e-12)
        found: Floats = -((draft.free / capacity) * (draft.view.demand[job, role] / capacity)).sum(axis=1)
        return found
