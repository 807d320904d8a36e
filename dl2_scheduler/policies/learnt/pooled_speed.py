"""This module predicts the speeds of all jobs of a cluster from where their tasks lie: our reward model in use."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from dl2_scheduler.cluster.hardware.machines import Floats, Ints
from dl2_scheduler.cluster.hardware.placements import PlacementArrays
from dl2_scheduler.cluster.hardware.profiles import Profile
from dl2_scheduler.policies.learnt.pooled_network import F32, PooledInputs, PooledNetwork, complete_jobs, pooled_inputs
from dl2_scheduler.policies.learnt.pooled_tries import tried_logarithms

_TRIES_AT_ONCE = 128
"""Tries that are rated together: each holds numbers of all tasks, which take much memory in large clusters."""


@dataclass(frozen=True)
class PooledSpeed:
    """See `TriedSpeed`: predicted by a fitted network.

    Attributes:
        arrays: of the network: see `PooledNetwork`.
        base: samples a second of one worker and one server on two nodes, of each model, (models,).
    """

    arrays: Mapping[str, F32]
    base: Floats

    def rates(self, placements: PlacementArrays) -> Floats:
        """See `PlacedSpeed.rates`."""
        whole, kept = complete_jobs(placements)
        rates = np.zeros(len(placements.model))
        if whole.any():
            rates[whole] = self._rates(kept, pooled_inputs(kept))
        return rates

    def tried(self, placements: PlacementArrays, job: int, groups: Ints) -> Floats:
        """See `TriedSpeed.tried`."""
        whole, kept = complete_jobs(placements)
        found = np.zeros((len(groups), len(placements.model)))
        if not whole.any():
            return found
        inputs, numbers = pooled_inputs(kept), np.flatnonzero(whole)
        found[:, whole] = self._rates(kept, inputs)
        own, network = int(whole[:job].sum()), PooledNetwork(self.arrays)
        outputs = network.tasks(inputs)
        for start in range(0, len(groups) if whole[job] else 0, _TRIES_AT_ONCE):
            part = groups[start : start + _TRIES_AT_ONCE]
            (tries, jobs), logarithms = tried_logarithms(network, inputs, outputs, own, part)
            found[start + tries, numbers[jobs]] = np.exp(logarithms) * self.base[kept.model[jobs]]
        return found

    def _rates(self, placements: PlacementArrays, inputs: PooledInputs) -> Floats:
        """Return the rates of jobs that all have both roles, (jobs,)."""
        found: Floats = np.exp(PooledNetwork(self.arrays).logarithms(inputs)) * self.base[placements.model]
        return found


def base_speeds(profiles: Mapping[str, Profile]) -> Floats:
    """Return samples a second of one worker and one server on two nodes, of each model in alphabetical order."""
    return np.array([profiles[name].batch / profiles[name].step_s for name in sorted(profiles)])
