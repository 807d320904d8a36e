"""Our policies as classes of the simulator of Sia's authors: it gives a policy what its class is told of."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from benchmarks.sia_simulator.choice import ChoiceSettings, rank_weights
from benchmarks.sia_simulator.length_aware import LengthAwareChoice


def length_aware_policy(base: type, told_restart: Callable[[str], float], settings: ChoiceSettings) -> type:
    """Return our policy as a class of the simulator's.

    Args:
        base: the simulator's class `SiaPolicy`.
        told_restart: seconds that a job of this name is said to take to restart.
        settings: of the choice.
    """

    class LengthAwarePolicy(base):  # type: ignore[misc, valid-type]
        def populate_valid_configs(self, *arguments: Any) -> None:
            super().populate_valid_configs(*arguments)
            configurations = [(name, int(nodes), int(gpus)) for name, nodes, gpus in self.idx_to_config_map.values()]
            self._choice = LengthAwareChoice(configurations, self.cluster_total_gpus, told_restart, settings)

        def optimize(self, jobs: Any, nodes: Any, base_allocations: Any) -> dict[str, Any]:
            return self._choice.optimize(jobs, nodes, base_allocations)

    return LengthAwarePolicy


def length_aware_sia(base: type, told_restart: Callable[[str], float], settings: ChoiceSettings) -> type:
    """Return Sia with our estimates of lengths as a class of the simulator's.

    Nothing else of it changes: its integer program has a weight for each job, all alike, and these are ours. The
    heaviest is 1: Sia would rather suspend a job that weighs more.

    Args:
        base: the simulator's class `SiaPolicy`.
        told_restart: seconds that a job of this name is said to take to restart.
        settings: of the weights.
    """

    class LengthAwareSia(length_aware_policy(base, told_restart, settings)):  # type: ignore[misc]
        def optimize(self, jobs: Mapping[str, Any], nodes: Any, base_allocations: Any) -> Any:
            outlooks = self._choice.outlooks(jobs, base_allocations)
            weights = rank_weights(np.array([outlook.alone for outlook in outlooks]), settings.preference)
            self._weights = dict(zip(jobs, weights / weights.max(initial=1.0), strict=True))
            return base.optimize(self, jobs, nodes, base_allocations)  # type: ignore[attr-defined]

        def _SiaPolicy__solve_mip_rescaled(  # noqa: N802  the base's own method, as Python spells private names
            self, problem: Mapping[str, Sequence[Any]], gpus: Any, _: Any, pinned: Any
        ) -> Any:
            names = [*problem["adaptive"][0], *problem["rigid"][0]]
            weights = np.array([[self._weights[name] for name in names]], dtype=np.float32)
            return super()._SiaPolicy__solve_mip_rescaled(problem, gpus, weights, pinned)

    return LengthAwareSia
