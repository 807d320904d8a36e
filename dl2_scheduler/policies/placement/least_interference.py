"""This module holds LIF (Harmony, section VI): a task goes where the group's tasks are slowed down least together."""

from dataclasses import dataclass
from itertools import zip_longest

import numpy as np

from dl2_scheduler.cluster.hardware.machines import Floats
from dl2_scheduler.cluster.hardware.placements import Interference, PlacementArrays
from dl2_scheduler.policies.placement.balance import used_parts
from dl2_scheduler.policies.placement.draft import Draft

_TIE = 1e-9
"""Scores that differ less are equal."""


@dataclass(frozen=True)
class LeastInterference:
    """This rule takes the group whose tasks' predicted slowdowns, the new one's among them, have the least sum.

    On an idle cluster all sums are alike, so that ties decide: the papers do not say how.

    Attributes:
        interference: predicts the slowdowns.
        own_first: of equals the group with most tasks of the same job (`LIF-own`), then the one that is used least;
            else the one that is used least at once (`LIF-lb`).
        across: the interference reaches from one group of a node to another, so that these are tried in turn.
    """

    interference: Interference
    own_first: bool = False
    across: bool = False

    def dislike(self, draft: Draft, job: int, role: int) -> Floats:
        """See `GroupRule.dislike`: the ranks of the groups, best first."""
        arrays, groups = draft.arrays(), len(draft.free)
        sums = self._sums(draft, arrays, job, role)
        own = np.bincount(arrays.group[arrays.job == job], minlength=groups) if self.own_first else np.zeros(groups)
        order = np.lexsort((used_parts(draft), -own, np.round(sums / _TIE)))
        ranks = np.empty(groups)
        ranks[order] = np.arange(groups)
        return ranks

    def _sums(self, draft: Draft, arrays: PlacementArrays, job: int, role: int) -> Floats:
        """Return what the tasks of each group would be slowed down together with a new one, (groups,)."""
        groups = len(draft.free)
        sums = np.zeros(groups)
        by_node = draft.view.machines.groups_of
        turns = zip_longest(*by_node) if self.across else [range(groups)]
        for turn in turns:
            new = np.array([group for group in turn if group is not None])
            beside = PlacementArrays(
                arrays.model,
                np.append(arrays.job, np.full(len(new), job)),
                np.append(arrays.role, np.full(len(new), role)),
                np.append(arrays.group, new),
                arrays.number,
            )
            found = np.bincount(beside.group, self.interference.slowdown(beside), minlength=groups)
            sums[new] = found[new]
        return sums
