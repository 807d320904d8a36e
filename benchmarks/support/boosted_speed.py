"""This module predicts speeds by gradient boosting over hand-made features: the strong baseline of reward models."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.ensemble import HistGradientBoostingRegressor

from dl2_scheduler.cluster.hardware.machines import Floats
from dl2_scheduler.cluster.hardware.placements import SERVER, WORKER, PlacementArrays
from dl2_scheduler.policies.learnt.pooled_network import pooled_inputs
from dl2_scheduler.sim.placed.samples import PlacedSamples


def features(placements: PlacementArrays, models: int) -> Floats:
    """Return what boosting reads of each job: its model, counts and spread, and its roles' average neighbours by kind.

    Args:
        placements: of all tasks.
        models: how many there are.
    """
    inputs = pooled_inputs(placements)
    kinds = np.eye(2 * models)[inputs.kind]
    groups = np.zeros((int(inputs.group.max()) + 1, 2 * models))
    np.add.at(groups, inputs.group, kinds)
    beside = groups[inputs.group] - kinds
    found = [np.eye(models)[inputs.model], inputs.counts]
    for role in (WORKER, SERVER):
        of_role = inputs.role == role
        sums = np.zeros((len(inputs.model), 2 * models))
        np.add.at(sums, inputs.job[of_role], beside[of_role])
        found += [sums / np.bincount(inputs.job[of_role])[:, None], beside[inputs.first]]
    return np.concatenate(found, axis=1)


@dataclass(frozen=True)
class BoostedSpeed:
    """See `PlacedSpeed`.

    Attributes:
        trees: fitted to logarithms of speeds over those of the profiles.
        base: those, (models,).
    """

    trees: Any
    base: Floats

    @classmethod
    def fitted(cls, samples: PlacedSamples, base: Floats) -> "BoostedSpeed":
        """Fit trees to samples.

        Args:
            samples: measured.
            base: see the class.
        """
        rows = np.concatenate([features(each, len(base)) for each in samples.clusters])
        model = np.concatenate([each.model for each in samples.clusters])
        trees = HistGradientBoostingRegressor(max_iter=400, loss="absolute_error", random_state=0)
        trees.fit(rows, np.log(np.concatenate(samples.rates) / base[model]))
        return cls(trees, base)

    def rates(self, placements: PlacementArrays) -> Floats:
        """See `PlacedSpeed.rates`."""
        found: Floats = np.exp(self.trees.predict(features(placements, len(self.base)))) * self.base[placements.model]
        return found
