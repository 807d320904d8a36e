"""This module keeps Harmony's experience: choices, their rewards, and the states behind them."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from dl2_scheduler.cluster.hardware.machines import Floats, Ints
from dl2_scheduler.learning.placement.harmony.tasks import HarmonyLockstep
from dl2_scheduler.learning.placement.lockstep.tasks import Mask
from dl2_scheduler.policies.learnt.placer import F32

Round = tuple[Ints, F32, F32, Mask, Ints]
"""One choice of some clusters: which, jobs, servers, allowed, chosen."""


class Transitions(NamedTuple):
    """These `Transitions` are choices; rows are choices.

    Attributes:
        jobs: see `tasks.look`.
        servers: see there.
        allowed: actions, (choices, actions).
        chosen: (choices,).
        reward: of the interval, (choices,).
        next_jobs: of the state behind it.
        next_servers: of that state.
        goes_on: 0 where there is none, (choices,).
    """

    jobs: Tensor
    servers: Tensor
    allowed: Tensor
    chosen: Tensor
    reward: Tensor
    next_jobs: Tensor
    next_servers: Tensor
    goes_on: Tensor

    @classmethod
    def of(cls, rounds: Sequence[Round], reward: Floats, after: HarmonyLockstep) -> "Transitions":
        """Return the choices of an interval.

        Args:
            rounds: of some clusters each.
            reward: of each cluster, (clusters,).
            after: the clusters behind the interval.
        """
        which, jobs, servers, allowed, chosen = (np.concatenate(each) for each in zip(*rounds, strict=True))
        going = np.flatnonzero(after.active)
        last_jobs, last_servers, _ = after.inputs(going)
        following = np.full(len(after.active), -1)
        following[going] = len(which) + np.arange(len(going))
        behind = np.empty(len(which), dtype=np.int64)
        for row in range(len(which) - 1, -1, -1):
            behind[row] = following[which[row]]
            following[which[row]] = row
        every_jobs, every_servers = np.concatenate([jobs, last_jobs]), np.concatenate([servers, last_servers])
        goes_on = (behind >= 0).astype(np.float32)
        here = jobs, servers, allowed, chosen, reward[which].astype(np.float32)
        there = every_jobs[behind], every_servers[behind], goes_on
        return cls(*(torch.from_numpy(array) for array in (*here, *there)))

    def part(self, which: Tensor) -> "Transitions":
        """Return some of the choices."""
        return Transitions(*(each[which] for each in self))


class ChoiceReplay:
    """A `ChoiceReplay` keeps the last choices.

    Args:
        most: how many.
    """

    def __init__(self, most: int):
        self._most = most
        self._kept: list[Transitions] = []

    def add(self, new: Transitions) -> None:
        """Add choices; the oldest intervals go where there are too many."""
        self._kept.append(new)
        while sum(len(each.chosen) for each in self._kept[1:]) >= self._most:
            del self._kept[0]

    def sample(self, count: int, rng: np.random.Generator) -> Transitions:
        """Return so many of the choices, all alike and some of them more than once."""
        sizes = np.array([len(each.chosen) for each in self._kept])
        drawn = rng.integers(sizes.sum(), size=count)
        starts = np.concatenate([[0], np.cumsum(sizes)])
        of = np.searchsorted(starts, drawn, side="right") - 1
        parts = [
            each.part(torch.from_numpy(drawn[of == number] - starts[number]))
            for number, each in enumerate(self._kept)
            if (of == number).any()
        ]
        return Transitions(*(torch.cat(each) for each in zip(*parts, strict=True)))
