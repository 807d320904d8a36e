"""This module says in which configurations the speed of a job would be worth knowing.

It is the knowledge gradient (Frazier, Powell and Dayanik, The Knowledge-Gradient Policy for Correlated Normal Beliefs,
2009), for the plan of a whole cluster: worlds are drawn that agree with what jobs have reported. In each of them one
more report is imagined, of the speed that the configuration has there. The speeds are fitted anew, the cluster is
planned anew, and what the new plan gains over the one without that report is the value in this world. A report tells
of configurations beside its own, too, as far as the fit says.
"""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from dl2_scheduler.cluster.free_resources import SLACK, FreeResources, NodeRule, dominant_shares
from dl2_scheduler.cluster.jobs import Job
from dl2_scheduler.cluster.snapshot import Allocation, JobState, Snapshot, SpeedReport
from dl2_scheduler.cluster.speeds import Grid
from dl2_scheduler.live.exploration.telling import TellingConfiguration
from dl2_scheduler.policies.rules.planner import fill_by_jumps
from dl2_scheduler.policies.rules.speed_fit import FittedSpeeds
from dl2_scheduler.world_model.future import largest

Counts = tuple[int, int]
"""Servers and workers."""

_DRAWN, _PLANNED = 16, 6  # worlds that say how well speeds are known, and those in which the cluster is planned anew
_OF_TYPE = 4  # configurations of a type whose value is computed
_LEAST_DEVIATION = 0.03  # of the logarithm of a speed: what is known better is not asked for
_REACH = 20.0  # slots for which knowledge counts: later the jobs are others, and what jobs do anyway has told as much
_WITHIN = NormalDist().inv_cdf(0.9)  # deviations between which 80% lie
_LEAST_SPEED = 1e-12


@dataclass(frozen=True)
class _Candidate:
    """A `_Candidate` may be worth trying.

    Attributes:
        job: a job of the type, with the largest maxima.
        at: its counts.
        drawn: its speed in each drawn world.
        hope: how much faster it may be than what is known to do with as much, as part of the type's top speed.
    """

    job: Job
    at: Counts
    drawn: NDArray[np.float64]
    hope: float

    @property
    def deviation(self) -> float:
        return float(np.log(self.drawn).std())


def telling_configurations(
    present: Snapshot,
    given: Allocation,
    fitted: FittedSpeeds,
    rule: NodeRule,
    random: np.random.Generator,
    seconds: float = np.inf,
) -> list[TellingConfiguration]:
    """Return the configurations whose speed is worth knowing, of those that a running job could be given now.

    Args:
        present: the cluster.
        given: what its jobs have been given.
        fitted: to what jobs of the cluster reported.
        rule: the rule by which tasks find their node.
        random: source of the worlds that are drawn.
        seconds: how long to compute; those that are most hoped for come first.
    """
    deadline = time.monotonic() + seconds
    candidates = _candidates(present, given, fitted, random, deadline) if present.jobs else []
    if not candidates:
        return []
    value = _PlanValue(present, fitted, rule)
    found = []
    for each in sorted(candidates, key=lambda candidate: -candidate.hope):
        if time.monotonic() > deadline:
            break
        gain = float(np.mean([value.of_report(each, speed) for speed in each.drawn[:_PLANNED].tolist()]))
        if gain > 0:
            found.append(_telling(each, present, fitted, gain * _REACH))
    return found


def _telling(candidate: _Candidate, present: Snapshot, fitted: FittedSpeeds, gain: float) -> TellingConfiguration:
    grid, (servers, workers) = fitted.grid(candidate.job), candidate.at
    job = candidate.job
    running = {(state.servers, state.workers) for state in _running(present, job)}
    now = sorted(at for at in running if at[0] <= job.max_servers and at[1] <= job.max_workers)  # maxima may be lowered
    relative = tuple((*at, float(grid[candidate.at] / grid[at])) for at in now)
    spread = float(np.exp(_WITHIN * candidate.deviation)) - 1
    return TellingConfiguration(candidate.job.model, servers, workers, relative, spread, gain)


class _PlanValue:
    """A `_PlanValue` says how much better the cluster would be planned if something more were known.

    Args:
        present: the cluster.
        fitted: to what jobs of the cluster reported.
        rule: the rule by which tasks find their node.
    """

    def __init__(self, present: Snapshot, fitted: FittedSpeeds, rule: NodeRule):
        self._present, self._fitted, self._rule = present, fitted, rule
        grids = [fitted.grid(state.job) for state in present.jobs]
        self._tops = [max(float(grid.max()), _LEAST_SPEED) for grid in grids]
        self._values = [grid / top for grid, top in zip(grids, self._tops, strict=True)]
        self._plan = self._planned(self._values)

    def of_report(self, candidate: _Candidate, speed: float) -> float:
        """Return what the cluster gains each slot if a job reports this speed, in jobs that train at their top speed.

        Args:
            candidate: the configuration of the job.
            speed: in samples a second.
        """
        model, (servers, workers) = candidate.job.model, candidate.at
        knows = self._fitted.hopeful(0.0)
        knows.observe([SpeedReport("", model, servers, workers, speed)])
        values = [
            knows.grid(state.job) / top if state.job.model == model else value
            for state, top, value in zip(self._present.jobs, self._tops, self._values, strict=True)
        ]
        return max(0.0, _worth(values, self._planned(values)) - _worth(values, self._plan))

    def _planned(self, values: Sequence[Grid]) -> list[Counts]:
        """Return the counts that each job is given."""
        allocation = fill_by_jumps(FreeResources(self._present, self._rule), values)
        grants = [allocation.of(state.job.id) for state in self._present.jobs]
        return [(grant.servers, grant.workers) for grant in grants]


def _worth(values: Sequence[Grid], plan: Sequence[Counts]) -> float:
    return sum(float(value[at]) for value, at in zip(values, plan, strict=True))


def _running(present: Snapshot, like: Job) -> list[JobState]:
    return [state for state in present.jobs if _is_alike(state.job, like) and state.workers and not state.starting]


def _candidates(
    present: Snapshot, given: Allocation, fitted: FittedSpeeds, random: np.random.Generator, deadline: float
) -> list[_Candidate]:
    """Return the most hopeful configurations of each type that has reported and runs, of as many as time suffices."""
    room, found = FreeResources(present), []
    worker, server = (np.array(demands) for demands in room.demands)
    grants = [given.of(state.job.id) for state in present.jobs]
    total = room.capacity.sum(axis=0)
    taken = sum(grant.workers * worker[at] + grant.servers * server[at] for at, grant in enumerate(grants))
    free = total - taken
    for job in largest(state.job for state in present.jobs):
        if time.monotonic() > deadline:
            break
        reachable = _reachable(present, room, free, job) if job.model in fitted.models else set()
        if reachable:
            draws = np.stack([fitted.drawn(job, random) for _ in range(_DRAWN)])
            number = next(at for at, state in enumerate(present.jobs) if _is_alike(state.job, job))
            shares = _shares(draws[0].shape, worker[number], server[number], total)
            known = best_within(fitted.grid(job), shares)
            each = (_candidate(job, at, draws, known) for at in sorted(reachable))
            found += sorted(_unsure(each), key=lambda candidate: -candidate.hope)[:_OF_TYPE]
    return found


def _unsure(candidates: Iterator[_Candidate]) -> Iterator[_Candidate]:
    return (each for each in candidates if each.hope > 0 and each.deviation >= _LEAST_DEVIATION)


def _is_alike(job: Job, other: Job) -> bool:
    """Return whether two jobs are of one type, and both have servers, or none."""
    return (job.model, job.has_servers) == (other.model, other.has_servers)


def _reachable(present: Snapshot, room: FreeResources, free: NDArray[np.float64], like: Job) -> set[Counts]:
    """Return the counts, other than its own, that a running job like this could have beside what the others have."""
    found: set[Counts] = set()
    for index, state in enumerate(present.jobs):
        job = state.job
        if not _is_alike(job, like) or not state.workers or state.starting:
            continue
        worker, server = (demands[index] for demands in room.demands)
        servers, workers = np.mgrid[job.min_servers : job.max_servers + 1, job.min_workers : job.max_workers + 1]
        more = (workers - state.workers)[..., None] * worker + (servers - state.servers)[..., None] * server
        fits = (more <= free + SLACK).all(axis=-1) & ~((workers == state.workers) & (servers == state.servers))
        found |= set(zip(servers[fits].tolist(), workers[fits].tolist(), strict=True))
    return found


def _shares(
    shape: tuple[int, ...], worker: NDArray[np.float64], server: NDArray[np.float64], total: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return the dominant share of each configuration, (servers, workers)."""
    servers, workers = np.mgrid[: shape[0], : shape[1]][..., None]
    return dominant_shares(servers * server + workers * worker, total)


def best_within(expected: Grid, shares: NDArray[np.float64]) -> Grid:
    """Return the best speed that is expected of what takes no more than each configuration.

    Args:
        expected: speeds, (servers, workers).
        shares: of each, likewise.
    """
    order = np.argsort(shares, axis=None)
    best = np.maximum.accumulate(expected.ravel()[order])
    found: Grid = best[np.searchsorted(shares.ravel()[order], shares + SLACK, side="right") - 1]
    return found


def _candidate(job: Job, at: Counts, draws: NDArray[np.float64], known: Grid) -> _Candidate:
    """Return a configuration with what is hoped of it: the expected improvement over the best that takes no more."""
    drawn = draws[(slice(None), *at)]
    hope = float(np.maximum(drawn - known[at], 0.0).mean() / max(known.max(), _LEAST_SPEED))
    return _Candidate(job, at, drawn, hope)
