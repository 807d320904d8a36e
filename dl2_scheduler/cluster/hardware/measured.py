"""This module holds speeds that jobs measured where their tasks lay: the rows of tables and of live slots."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations
from statistics import fmean, median
from typing import Any

MOST_PERMUTED = 4
"""Groups up to which placements that differ only in the groups' numbers are recognised as the same."""


PlacementKey = tuple[Any, ...]
"""What all placements have that differ only in the order of jobs and the numbers of groups."""


@dataclass(frozen=True)
class MeasuredJob:
    """A `MeasuredJob` is one job of a placement.

    Attributes:
        model: that it trains.
        workers: the group of each of its workers.
        servers: the group of each of its servers.
        speeds: samples a second, one for each time that the placement was measured.
        cpu: cores that its workers and its servers used together, the mean of these times; None: not known.
    """

    model: str
    workers: tuple[int, ...]
    servers: tuple[int, ...]
    speeds: tuple[float, ...]
    cpu: tuple[float, float] | None = None

    @property
    def speed(self) -> float:
        """Return the median of its speeds."""
        return median(self.speeds)


@dataclass(frozen=True)
class MeasuredPlacement:
    """A `MeasuredPlacement` says where all tasks of a cluster lay, and how fast each job trained meanwhile.

    Attributes:
        jobs: all that trained.
        others: cores that all but these jobs' tasks used meanwhile, one for each time; empty: not known.
    """

    jobs: tuple[MeasuredJob, ...]
    others: tuple[float, ...] = ()

    @property
    def key(self) -> PlacementKey:
        """Return what all placements have that differ only in the order of jobs and the numbers of groups."""
        return placement_key([(job.model, job.workers, job.servers) for job in self.jobs])


def merged(rows: Iterable[MeasuredPlacement]) -> tuple[MeasuredPlacement, ...]:
    """Return rows of which no two have the same placement: what was measured several times is one row."""
    found: dict[PlacementKey, list[MeasuredPlacement]] = {}
    for row in rows:
        found.setdefault(row.key, []).append(_ordered(row))
    return tuple(_joined(same) for same in found.values())


def _ordered(row: MeasuredPlacement) -> MeasuredPlacement:
    """Return a row with its jobs in an order, and its groups by numbers, that all rows of its key have."""
    _, names = canonical([(job.model, job.workers, job.servers) for job in row.jobs])
    jobs = [
        MeasuredJob(*renumbered((job.model, job.workers, job.servers), names), job.speeds, job.cpu) for job in row.jobs
    ]
    return MeasuredPlacement(tuple(sorted(jobs, key=lambda job: (job.model, job.workers, job.servers))), row.others)


def _joined(rows: Sequence[MeasuredPlacement]) -> MeasuredPlacement:
    jobs = []
    for same in zip(*(row.jobs for row in rows), strict=True):
        used = [job.cpu for job in same if job.cpu is not None]
        cpu = (round(fmean(w for w, _ in used), 3), round(fmean(s for _, s in used), 3)) if used else None
        speeds = tuple(speed for job in same for speed in job.speeds)
        jobs.append(MeasuredJob(same[0].model, same[0].workers, same[0].servers, speeds, cpu))
    return MeasuredPlacement(tuple(jobs), tuple(cores for row in rows for cores in row.others))


Places = tuple[str, tuple[int, ...], tuple[int, ...]]
"""A job's model, and the groups of its workers and its servers."""


def placement_key(jobs: Sequence[Places]) -> PlacementKey:
    """Return what all placements have that differ only in the order of jobs and the numbers of groups."""
    return canonical(jobs)[0]


def canonical(jobs: Sequence[Places]) -> tuple[PlacementKey, Mapping[int, int]]:
    """Return the least form of a placement over all numberings of its groups, and that numbering.

    The form has the jobs in an order of their own, each as `Places` with sorted groups.
    """
    used = sorted({group for _, workers, servers in jobs for group in (*workers, *servers)})
    numbers = permutations(range(len(used))) if len(used) <= MOST_PERMUTED else iter([tuple(range(len(used)))])
    forms = []
    for order in numbers:
        names = dict(zip(used, order, strict=True))
        forms.append((tuple(sorted(renumbered(job, names) for job in jobs)), order))
    key, order = min(forms)
    return key, dict(zip(used, order, strict=True))


def renumbered(job: Places, names: Mapping[int, int]) -> Places:
    """Return a job whose groups have other numbers, in the order of those.

    Args:
        job: with its groups.
        names: the new number of each of them.
    """
    model, *roles = job
    workers, servers = (tuple(sorted(names[group] for group in role)) for role in roles)
    return model, workers, servers
