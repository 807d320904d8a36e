"""The learnt policy's network, as numbers: what inference needs, without a framework."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from dl2_scheduler.policies.learnt.actions import ACTIONS
from dl2_scheduler.policies.learnt.array_files import Shape, length_of
from dl2_scheduler.policies.learnt.features import F32, KNOTS, SLOT_FEATURES, SlotInputs, count_basis, width
from dl2_scheduler.policies.learnt.scores import Scores

_LINEAR = ("base", "hidden", "out", "rank", "slot", "stop")
_WITHOUT_BIAS = ("workers", "servers", "priority")
ARRAYS = (
    *(f"{name}.{part}" for name in _LINEAR for part in ("weight", "bias")),
    *(f"{name}.weight" for name in _WITHOUT_BIAS),
    "share",
)
"""Names of a network's arrays."""


def shapes(models: int, found: Mapping[str, Shape]) -> dict[str, Shape]:
    """Return the shapes that a network's arrays have together, by name.

    Args:
        models: types that it knows.
        found: shapes of a file's arrays, by which the sizes of the hidden layers are known.
    """
    features, knots = width(models), len(KNOTS)
    hidden, rank, slot = (length_of(found, f"{name}.bias") for name in ("base", "rank", "slot"))
    return {
        "base.weight": (hidden, features),
        "base.bias": (hidden,),
        "hidden.weight": (hidden, hidden),
        "hidden.bias": (hidden,),
        "out.weight": (ACTIONS, hidden),
        "out.bias": (ACTIONS,),
        "rank.weight": (rank, features),
        "rank.bias": (rank,),
        "slot.weight": (slot, SLOT_FEATURES),
        "slot.bias": (slot,),
        "stop.weight": (1, slot),
        "stop.bias": (1,),
        "workers.weight": (hidden, knots),
        "servers.weight": (hidden, knots),
        "priority.weight": (ACTIONS, rank),
        "share": (hidden,),
    }


@dataclass(frozen=True)
class Weights:
    """The weights are those of two hidden layers that all jobs share, and of a small network that decides when to stop.

    Attributes:
        models: types that the network knows.
        arrays: by name, as `learning.networks.SharedPolicy` has them.
    """

    models: tuple[str, ...]
    arrays: Mapping[str, F32]

    def scores(self, rows: F32, share: F32, most: int) -> Scores:
        """Return the network of one slot.

        Args:
            rows: features, (jobs, features).
            share: see `Scores`.
            most: the largest count of any role.
        """
        given = self.arrays
        base = rows @ given["base.weight"].T + given["base.bias"]
        basis = count_basis(most)
        slot = np.maximum(rows[:1, -SLOT_FEATURES:] @ given["slot.weight"].T + given["slot.bias"], 0)
        return Scores(
            base,
            basis @ given["workers.weight"].T,
            basis @ given["servers.weight"].T,
            given["share"],
            share,
            np.ascontiguousarray(given["hidden.weight"].T),
            given["hidden.bias"],
            np.ascontiguousarray(given["out.weight"].T),
            given["out.bias"],
            np.maximum(rows @ given["rank.weight"].T + given["rank.bias"], 0) @ given["priority.weight"].T,
            float((slot @ given["stop.weight"].T + given["stop.bias"])[0, 0]),
        )


def share_of(inputs: SlotInputs) -> F32:
    """Return a worker's and a server's dominant share, times the jobs of the lane, (jobs, 2): see `Scores.share`."""
    jobs = np.bincount(inputs.lane, minlength=len(inputs.load))
    return (inputs.share * jobs[inputs.lane][:, None]).astype(np.float32)
