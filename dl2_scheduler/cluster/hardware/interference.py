"""This module fits how much slower tasks compute for the cores and the traffic of others: LIF's two forms.

The papers that compare with LIF say no more of it than "linear" and "quadratic in cpu and bandwidth use, by least
squares"; this is the plainest reading of that.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from dl2_scheduler.cluster.hardware.machines import Floats, Ints
from dl2_scheduler.cluster.hardware.placements import PlacementArrays
from dl2_scheduler.cluster.hardware.profiles import Profile


@dataclass(frozen=True)
class LoadPoint:
    """A `LoadPoint` is one measurement of a job beside a load.

    Attributes:
        cpu: cores that the load uses.
        traffic: MB/s that it sends and receives.
        slowdown: what the job's step took more than alone, as a part of that.
    """

    cpu: float
    traffic: float
    slowdown: float


@dataclass(frozen=True)
class LoadInterference:
    """See `Interference`: a function of what other jobs' tasks in the group use, with coefficients by model.

    Attributes:
        coefficients: of 1, cpu, traffic, and in the quadratic form cpu^2, traffic^2, cpu * traffic, (models, 3 or 6).
        cpu: cores that a task uses alone, (models, 2), by role.
        traffic: MB/s that it exchanges alone, (models, 2).
    """

    coefficients: Floats
    cpu: Floats
    traffic: Floats

    @classmethod
    def fitted(
        cls, profiles: Mapping[str, Profile], points: Mapping[str, Sequence[LoadPoint]], quadratic: bool
    ) -> "LoadInterference":
        """Return the form that misses measurements least.

        Args:
            profiles: of models, whose alphabetical order is that of the arrays.
            points: measurements of each of them.
            quadratic: the form.
        """
        names = sorted(profiles)
        rows = []
        for name in names:
            loads = np.array([[point.cpu, point.traffic, point.slowdown] for point in points[name]])
            rows.append(np.linalg.lstsq(_terms(loads[:, 0], loads[:, 1], quadratic), loads[:, 2], rcond=None)[0])
        return cls(np.array(rows), *used_alone(profiles))

    def slowdown(self, placements: PlacementArrays) -> Floats:
        """See `Interference.slowdown`."""
        model = placements.model[placements.job]
        cpu, traffic = self.cpu[model, placements.role], self.traffic[model, placements.role]
        terms = _terms(beside(placements, cpu), beside(placements, traffic), self.coefficients.shape[1] > 3)
        found: Floats = np.maximum(0.0, (terms * self.coefficients[model]).sum(axis=1))
        return found


def used_alone(profiles: Mapping[str, Profile]) -> tuple[Floats, Floats]:
    """Return the cores, and the MB/s, that tasks use alone: each (models, 2), by role; models in alphabetical order."""
    known = [profiles[name] for name in sorted(profiles)]
    exchanged = [profile.size_mb / profile.step_s for profile in known]
    cpu = np.array([[profile.cpu_worker, profile.cpu_server] for profile in known])
    return cpu, np.repeat(np.array(exchanged)[:, None], 2, axis=1)


def _terms(cpu: Floats, traffic: Floats, quadratic: bool) -> Floats:
    terms = [np.ones_like(cpu), cpu, traffic]
    if quadratic:
        terms += [cpu**2, traffic**2, cpu * traffic]
    return np.stack(terms, axis=-1)


def beside(placements: PlacementArrays, use: Floats) -> Floats:
    """Return what other jobs' tasks in each task's group use together, (tasks,).

    Args:
        placements: of all tasks.
        use: of each task, (tasks,).
    """
    own: Ints = placements.group * len(placements.model) + placements.job
    by_group, by_own = np.bincount(placements.group, use), np.bincount(own, use)
    found: Floats = by_group[placements.group] - by_own[own]
    return found
