"""This module draws worlds that agree with what a cluster's history has told, and scenes that may be played in them."""

from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass, replace
from functools import partial
from itertools import compress

import numpy as np

from dl2_scheduler.cluster.free_resources import fits, which_fit
from dl2_scheduler.cluster.jobs import Job
from dl2_scheduler.cluster.snapshot import JobState, Snapshot
from dl2_scheduler.cluster.speeds import Grid, Speeds
from dl2_scheduler.policies.rules.speed_fit import EXPLORING
from dl2_scheduler.sim.lanes import ScalingCost
from dl2_scheduler.world_model.arrivals import drawn_day, jobs_that_came
from dl2_scheduler.world_model.future import from_present, jobs_at, largest, only_fitting, together
from dl2_scheduler.world_model.observed import ObservedCluster, with_guess

_DAY_JOBS, _DAY_SLOTS = 60, 200  # of a day that is drawn, at most
_PAST_SLOTS = 250  # in which the jobs came that are played once more
_LASTING_SLOTS = 3  # for which a configuration is thought to last, at most


@dataclass(frozen=True)
class DreamScene:
    """A `DreamScene` is what is played: it begins in the slot `PRESENT`.

    Attributes:
        jobs: those that are there, and those that come.
        begun: how far the former are.
    """

    jobs: tuple[Job, ...]
    begun: tuple[JobState, ...] = ()


class Worlds:
    """`Worlds` are several guesses of how fast a cluster's jobs train, all of which agree with what they reported.

    Jobs that fit no node, as nodes now are, are left out: under any policy they would wait to the end of each scene, so
    that the others hardly counted.

    Args:
        observed: what is known of the cluster; see `can_be_played`.
        count: the number of worlds.
        random: source of what is drawn.

    Attributes:
        present: the last slot's snapshot, with guesses.
        speeds: of each world.
        expected: the likeliest speeds.
        hoped: the speeds that a plan hopes for, so that it finds out what was not tried; as a planner's that fits them.
        cost: of scaling.
    """

    def __init__(self, observed: ObservedCluster, count: int, random: np.random.Generator):
        present = observed.present
        assert present is not None
        self.present: Snapshot = only_fitting(present)
        self.cost = observed.cost
        self._observed, self._random = observed, random
        known = observed.jobs.by_key.values()
        self._known = list(compress(known, which_fit((each.job for each in known), present.nodes)))
        types = largest([*self._came(), *(state.job for state in self.present.jobs)])
        fitted, hopeful = observed.fitted, observed.fitted.hopeful(EXPLORING)
        self.expected, self.hoped = together(types, fitted.grid), together(types, hopeful.grid)
        self.speeds = [together(types, partial(fitted.drawn, random=random)) for _ in range(count)]

    def first(self, count: int) -> "Worlds":
        """Return the first of them alone."""
        found = copy(self)
        found.speeds = self.speeds[:count]
        return found

    @property
    def hopeful(self) -> "Worlds":
        """The same worlds, in each of which what was not tried is as much faster as is hoped."""
        found = copy(self)
        found.speeds = [
            Speeds(
                {
                    model: _lifted(world.grid(model), self.expected.grid(model), self.hoped.grid(model))
                    for model in world.models
                }
            )
            for world in self.speeds
        ]
        return found

    def past(self) -> DreamScene:
        """Return the jobs that came of late, once more, on an empty cluster.

        Who plays it ends it after some hundred slots: of jobs that came over months it would see the oldest alone.
        """
        came = self._came()[-_DAY_JOBS:]
        first = max(came[-1].arrival - _PAST_SLOTS * self.present.slot_seconds, came[0].arrival)
        late = [replace(job, arrival=job.arrival - first) for job in came if job.arrival >= first]
        return DreamScene(self._from_present(late))

    def day(self) -> DreamScene:
        """Draw a day on an empty cluster."""
        return DreamScene(self._from_present(self._drawn()))

    def future(self) -> DreamScene:
        """Draw a future of the present."""
        return DreamScene((*jobs_at(self.present), *self._from_present(self._drawn())), self.present.jobs)

    def _came(self) -> list[Job]:
        return jobs_that_came(self._known, _DAY_SLOTS * self.present.slot_seconds)

    def _drawn(self) -> list[Job]:
        seconds = self.present.slot_seconds
        return drawn_day(self._known, self._observed.now + seconds, _DAY_JOBS, _DAY_SLOTS * seconds, self._random)

    def _from_present(self, jobs: Sequence[Job]) -> tuple[Job, ...]:
        """Let time 0 be the present, and guess their samples where they have not told them."""
        seconds, observed = self.present.slot_seconds, self._observed
        known = [with_guess(job, observed.samples, observed.fitted, seconds) for job in jobs]
        return tuple(from_present(known, seconds))


def can_be_played(observed: ObservedCluster) -> bool:
    """Return whether worlds can be drawn: some job of the last slot fits its nodes."""
    last = observed.last
    return last is not None and any(fits(state.job, last.snapshot.nodes) for state in last.snapshot.jobs)


def _lifted(grid: Grid, expected: Grid, hoped: Grid) -> Grid:
    found: Grid = grid * np.divide(hoped, expected, out=np.ones_like(grid), where=expected > 0)
    return found


def paying_speeds(state: JobState, grid: Grid, cost: ScalingCost, slot_seconds: float) -> Grid:
    """Return a job's mean samples a second, what scaling costs included, by (servers, workers).

    The mean is over the time for which a configuration is thought to last, as that is what pays for scaling: until the
    job ends, and no longer than `_LASTING_SLOTS`. Over the slot that begins, a start that takes longer than a slot
    would seem to be good for nothing, and so nothing would ever be started.

    Args:
        state: of the job at the slot's start.
        grid: its speeds, when nothing changes; of what it has beyond them, as its maxima were lowered, the last count.
        cost: of scaling.
        slot_seconds: length of a slot.
    """
    work = state.remaining_epochs * state.job.samples_per_epoch
    with np.errstate(divide="ignore"):
        lasting = np.clip(work / grid, slot_seconds, _LASTING_SLOTS * slot_seconds)
    if not state.workers:
        return grid * lasting / (lasting + cost.start)
    lost, joining = (np.minimum(1.0, seconds / lasting) for seconds in (cost.change, cost.join))
    found = grid * (1 - lost)
    servers, workers = min(state.servers, len(grid) - 1), min(state.workers, grid.shape[1] - 1)
    more = np.ones(grid.shape, dtype=bool)
    more[: servers + 1, : workers + 1] = False
    now = grid[servers, workers]
    found[more] += ((now - grid) * np.maximum(0.0, joining - lost))[more]
    found[servers, workers] = now
    return found
