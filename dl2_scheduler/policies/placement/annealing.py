"""This module plans all new jobs of an interval together, by simulated annealing from a local search's places."""

import math
from dataclasses import dataclass

import numpy as np

from dl2_scheduler.cluster.free_resources import SLACK
from dl2_scheduler.cluster.hardware.view import PlacementView, Places
from dl2_scheduler.policies.placement.draft import Draft
from dl2_scheduler.policies.placement.local_search import LocalSearch

_HOT, _COLD = 0.02, 0.0002
"""Temperatures at the first and the last trial, as parts of the goal's size at the start."""


@dataclass(frozen=True)
class Annealing:
    """See `PlacementPolicy`: tasks of all new jobs move at random, at first also where it does not pay.

    Attributes:
        search: gives the places to begin with, and the goal.
        trials: moves that are tried for each new task of an interval.
        seed: of the moves; an interval's differ from another's by its time.
    """

    search: LocalSearch
    trials: int = 200
    seed: int = 0

    def place(self, view: PlacementView) -> Places:
        """See `PlacementPolicy.place`."""
        draft = self.search.plan(view)
        return self._anneal(draft) if draft.groups else Places()

    def _anneal(self, draft: Draft) -> Places:
        rng = np.random.default_rng([self.seed, int(draft.view.now)])
        tasks = [
            (job, role, i) for job, roles in draft.groups.items() for role in (0, 1) for i in range(len(roles[role]))
        ]
        value = best = self.search.value(draft)
        places, size = draft.placement(), abs(value)
        trials = self.trials * len(tasks)
        for trial in range(trials):
            job, role, index = tasks[rng.integers(len(tasks))]
            if not draft.view.may(job, role)[group := int(rng.integers(len(draft.free)))]:
                continue
            before = draft.move(job, role, index, group)
            temperature = size * _HOT * (_COLD / _HOT) ** (trial / trials)
            if (draft.free[group] >= -SLACK).all():
                now = self.search.value(draft)
                if now >= value or rng.random() < math.exp((now - value) / temperature):
                    value = now
                    if value > best:
                        best, places = value, draft.placement()
                    continue
            draft.move(job, role, index, before)
        return places
