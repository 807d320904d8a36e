"""This module makes of others' speeds what one's own cluster may expect, as far as the two agree where both tried.

Nodes may be faster there than here. So what others measured is scaled by how much faster types were here, and it is the
less sure the further the two were apart after that.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from dl2_scheduler.cluster.jobs import Job
from dl2_scheduler.cluster.snapshot import SpeedReport
from dl2_scheduler.learning.federated.knowledge import ClusterKnowledge, type_digest
from dl2_scheduler.policies.rules.speed_fit import FittedSpeeds, KnownSpeed, Reports
from dl2_scheduler.replay.measured import Counts

_Floats = NDArray[np.float64]

_SPREAD, _SPREAD_WEIGHT = 0.1, 4  # of others' log speeds around one's own before anything is compared; comparisons
_CLUSTER_SPREAD = 0.2  # of how much faster another cluster is, before anything was compared
_TYPE_SPREAD = 0.1  # and of a type beside the others of that cluster
_TOO_FAR = 0.5  # spread from which on another cluster tells nothing of this one
_LEAST_SPREAD = 0.02
_MOST_CONFIGURATIONS = 256  # of a type, the most measured: fitting takes the third power of their number


@dataclass
class BorrowedSpeeds:
    """`BorrowedSpeeds` are what others' speeds say of one's own cluster.

    Attributes:
        speeds: by type and configuration, without those that were measured here.
        missed: by how much others' log speeds were off, after scaling, where both clusters know a configuration.
        far: clusters that are too far off to tell anything.
    """

    speeds: dict[str, dict[Counts, KnownSpeed]] = field(default_factory=dict)
    missed: list[float] = field(default_factory=list)
    far: int = 0

    @property
    def count(self) -> int:
        """The number of configurations of all types that are borrowed."""
        return sum(map(len, self.speeds.values()))

    @property
    def off(self) -> float:
        """The part by which others' speeds are off one's own; NaN: nothing could be compared."""
        return float(np.sqrt(np.mean(np.square(self.missed)))) if self.missed else math.nan


def borrowed_speeds(
    own: Mapping[str, Reports], others: Sequence[ClusterKnowledge], jobs: Sequence[Job]
) -> BorrowedSpeeds:
    """Return what may be expected here.

    Args:
        own: reports of one's own jobs, by type.
        others: what other clusters tell.
        jobs: a job of each type that came here, with the largest maxima, and one without servers where such came:
            nothing else is borrowed.
    """
    found, told = BorrowedSpeeds(), dict[str, dict[Counts, list[KnownSpeed]]]()
    for other in others:
        compared = [(job.model, _Compared.of(own.get(job.model, {}), each, job)) for job, each in _known(other, jobs)]
        logs = [value for _, each in compared for value in each.logs]
        scale = float(np.mean(logs)) if logs else 0.0
        missed = [value for _, each in compared for value in each.logs - each.scale(scale)]
        squares = _SPREAD_WEIGHT * _SPREAD**2 + float(np.square(missed).sum())
        spread = math.sqrt(squares / (_SPREAD_WEIGHT + len(missed)))
        found.missed += missed
        if spread > _TOO_FAR:
            found.far += 1
            continue
        for model, each in compared:
            of_type = told.setdefault(model, {})
            for at, speed in each.expected(scale, math.hypot(spread, _CLUSTER_SPREAD / math.sqrt(1 + len(logs)))):
                if at not in own.get(model, {}):
                    of_type.setdefault(at, []).append(speed)
    found.speeds = {
        model: {at: _together(speeds) for at, speeds in of_type.items()} for model, of_type in told.items() if of_type
    }
    return found


@dataclass(frozen=True)
class _Compared:
    """A `_Compared` type is one that another cluster knows, beside what is known of it here.

    Attributes:
        told: what the other one tells, the most measured configurations that jobs may have here.
        logs: logarithms of one's own speeds over the other's, where they can be compared.
    """

    told: Reports
    logs: _Floats

    @classmethod
    def of(cls, own: Reports, told: Reports, job: Job) -> "_Compared":
        possible = [at for at in told if _may_have(job, at)]
        most = sorted(possible, key=lambda at: (-told[at][0], at))[:_MOST_CONFIGURATIONS]
        return cls({at: told[at] for at in most}, _log_ratios(own, {at: told[at] for at in most}, job))

    def scale(self, of_cluster: float) -> float:
        """Return the logarithm of how much faster this type is here, which is between its own and the cluster's."""
        return (float(self.logs.sum()) + of_cluster) / (len(self.logs) + 1)

    def expected(self, of_cluster: float, spread: float) -> Iterator[tuple[Counts, KnownSpeed]]:
        """Yield speeds that may be expected here.

        Args:
            of_cluster: logarithm of how much faster all types are here.
            spread: of the cluster's log speeds around one's own.
        """
        sure = max(_LEAST_SPREAD, math.hypot(spread, _TYPE_SPREAD / math.sqrt(1 + len(self.logs))))
        faster = math.exp(self.scale(of_cluster))
        for at, (_, mean) in self.told.items():
            yield at, KnownSpeed(mean * faster, sure)


def _known(other: ClusterKnowledge, jobs: Sequence[Job]) -> Iterator[tuple[Job, Reports]]:
    """Yield types that have come here too."""
    for job in jobs:
        if reports := other.speeds.get(type_digest(job.model)):
            yield job, reports


def _may_have(job: Job, at: Counts) -> bool:
    """Return whether a job may have these servers and workers."""
    return job.has_servers == (at[0] > 0) and at[0] <= job.max_servers and at[1] <= job.max_workers


def _log_ratios(own: Reports, told: Reports, job: Job) -> _Floats:
    """Return logarithms of one's own speeds over another's where both tried, else over what is fitted to those."""
    if both := own.keys() & told.keys():
        return np.log([own[at][1] / told[at][1] for at in sorted(both)])
    here = [at for at in sorted(own) if _may_have(job, at)]
    if not here or not told:
        return np.zeros(0)
    fitted = FittedSpeeds()
    fitted.observe(SpeedReport(0, job.model, *at, mean) for at, (_, mean) in told.items())
    grid = fitted.grid(job)
    return np.log([own[at][1] / grid[at] for at in here])


def _together(speeds: Sequence[KnownSpeed]) -> KnownSpeed:
    """Return the mean of the logarithms, each weighted by how sure it is."""
    logs, spreads = np.log([each.samples_per_second for each in speeds]), np.array([each.spread for each in speeds])
    weights = spreads**-2.0
    mean = float((weights * logs).sum() / weights.sum())
    return KnownSpeed(math.exp(mean), max(_LEAST_SPREAD, float(weights.sum()) ** -0.5))
