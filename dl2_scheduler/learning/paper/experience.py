"""An update learns from what is here: samples of inferences, and the buffer of the latest (DL2, section 4.3)."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dl2_scheduler.learning.plain import numbers, whole
from dl2_scheduler.policies.learnt.actions import ACTIONS

Floats = NDArray[np.float64]

_CORRECTION, _CORRECTION_STEP = 0.1, 1e-4  # exponent of the weights against the bias of priorities; it grows to 1


class PaperExperience(NamedTuple):
    """This experience holds samples; arrays are by inference.

    Attributes:
        states: what was seen, (samples, J, row_width).
        masks: what was allowed, (samples, 3 J + 1).
        actions: what was done.
        rewards: of the slot, or of the job in it.
        following: what is seen first in the next slot, (samples, J, row_width).
        final: whether there is no next slot.
    """

    states: NDArray[Any]
    masks: NDArray[Any]
    actions: NDArray[Any]
    rewards: NDArray[Any]
    following: NDArray[Any]
    final: NDArray[Any]


class Replay:
    """The latest samples; those with more reward than the mean come back more often, in proportion.

    The published code's priority is the reward over the mean, too, with a floor that depends on the rewards' unit; here
    it is their ratio.

    Args:
        size: samples that are kept.
    """

    def __init__(self, size: int):
        self.size = size
        self.added = 0
        self._draws = 0
        self._parts: list[NDArray[Any]] = []

    def __len__(self) -> int:
        return min(self.added, self.size)

    def add(self, samples: PaperExperience) -> None:
        """Keep samples, in the place of the oldest."""
        if not self._parts:
            self._parts = [np.zeros((self.size, *part.shape[1:]), dtype=part.dtype) for part in samples]
        kept = len(samples.actions) if len(samples.actions) < self.size else self.size
        places = (self.added + np.arange(len(samples.actions) - kept, len(samples.actions))) % self.size
        for of_all, part in zip(self._parts, samples, strict=True):
            of_all[places] = part[len(samples.actions) - kept :]
        self.added += len(samples.actions)

    def draw(self, count: int, random: np.random.Generator) -> tuple[PaperExperience, Floats]:
        """Draw samples with replacement, by priority; return them and the weights, at most 1, that make up for it."""
        rewards = self._parts[3][: len(self)]
        priority = np.maximum(rewards / max(float(rewards.mean()), 1e-12), 1.0)
        bounds = np.cumsum(priority)
        numbers = np.searchsorted(bounds, random.random(count) * bounds[-1], side="right")
        numbers = np.minimum(numbers, len(self) - 1)
        exponent = min(1.0, _CORRECTION + _CORRECTION_STEP * self._draws)
        self._draws += 1
        weights: Floats = (priority[numbers] / priority.min()) ** -exponent
        return PaperExperience(*(part[numbers] for part in self._parts)), weights

    def state(self) -> dict[str, Any]:
        """Return all that the next draw depends on."""
        return {"added": self.added, "draws": self._draws, "parts": [part[: len(self)] for part in self._parts]}

    def load_state(self, state: Mapping[str, Any], places: int, width: int) -> None:
        """Go on from there.

        Args:
            state: as `state` gives it.
            places: J.
            width: see `row_width`.

        Raises:
            KeyError, ValueError: it is not of such samples.
        """
        rows, mask = (np.float32, (places, width)), (np.bool_, (places * ACTIONS + 1,))
        kinds: tuple[tuple[type[np.generic], tuple[int, ...]], ...] = (  # in the order of `PaperExperience`
            rows,
            mask,
            (np.int64, ()),
            (np.float64, ()),
            rows,
            (np.bool_, ()),
        )
        self.added, self._draws = whole(state["added"]), whole(state["draws"])
        if not state["parts"] and not self.added:
            return
        parts = [numbers(part, *kind) for part, kind in zip(state["parts"], kinds, strict=True)]
        if any(len(part) != len(self) for part in parts):
            raise ValueError("samples that are not the same in all arrays")
        self._parts = [np.zeros((self.size, *part.shape[1:]), dtype=part.dtype) for part in parts]
        for kept, part in zip(self._parts, parts, strict=True):
            kept[: len(part)] = part
