"""Many simulated clusters that advance in lockstep, one slot at a time: the dynamics, in arrays."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dl2_scheduler.cluster.jobs import Job
from dl2_scheduler.cluster.snapshot import LEAST_REMAINING, JobState, SpeedReport
from dl2_scheduler.cluster.speeds import Speeds
from dl2_scheduler.sim.variation import Variation, by_arrival

Floats = NDArray[np.float64]
Counts = NDArray[np.int64]
Mask = NDArray[np.bool_]

_OF_SLOT = ("done", "workers", "servers", "slots_run", "speeds", "_owed", "_joins")
_COUNTS = frozenset({"workers", "servers", "joined_0", "joined_1"})
_NOT_YET = -1.0
_DONE = 1e-9  # part of its epochs that a job may lack by rounding when it ends


@dataclass(frozen=True)
class ScalingCost:
    """A `ScalingCost` is what it costs a job that its counts change, in seconds from the start of that slot on.

    Attributes:
        start: in which it does not train as it begins, or begins again after it had nothing.
        change: in which it does not train as its counts change while it runs.
        join: in which it trains on as it was where it is given more, until its new tasks have joined.
    """

    start: float = 0.0
    change: float = 0.0
    join: float = 0.0


NO_COST = ScalingCost()
"""As in the paper's simulation."""

MEASURED = ScalingCost(start=9.4, change=0.1)
"""Of our elastic runtime: medians of `make bench-scaling_cost`, the digits example on two cores that others used too.

start: from the launch to the first training step, anew or from a checkpoint; without what a cluster does before, as the
pull of a container's image. change: what steps took above undisturbed ones when a worker or a server joined or left,
the largest of the four. docs/reference/traces.md has them all.
"""


@dataclass(frozen=True)
class SlotProgress:
    """A `SlotProgress` says what became of a slot; arrays are (lanes, jobs).

    Attributes:
        epochs: trained.
        ended: which jobs ended in it.
    """

    epochs: Floats
    ended: Mask


class Lanes:
    """Arrays of (lanes, jobs), each lane's jobs by arrival, then id; a lane with fewer jobs is filled up at its end.

    Args:
        lanes: the jobs of each.
        speeds: of their models; several: of each lane its own, of the same models.
        slot_seconds: length of a slot.
        cost: of scaling.
        variations: of each lane's speeds; empty: all jobs train as fast as their models.

    Attributes:
        slot: number of the present one, the same in all lanes.
        real: where there is a job.
        speed_factor: a job's true speed over its model's.
        saves: whether a job can be suspended and go on later, see `JobState.saves`.
        starting: whether its processes were being started when the lanes were made; see `begin`.
        jobs: of each lane, in the order of the arrays.
        done: epochs trained.
        workers: of the slot before.
        servers: of the slot before.
        slots_run: slots in which a job had both.
        speeds: of the slot before, in samples a second; 0 where a job did not run.
        finish: when a job ended, in slots; NaN: it has not.
    """

    def __init__(
        self,
        lanes: Sequence[Sequence[Job]],
        speeds: Speeds | Sequence[Speeds],
        slot_seconds: float = 1200.0,
        cost: ScalingCost = NO_COST,
        variations: Sequence[Variation] = (),
    ):
        shape = len(lanes), max(len(jobs) for jobs in lanes)
        self.slot = 0
        self.slot_seconds = slot_seconds
        self.jobs = [sorted(jobs, key=by_arrival) for jobs in lanes]
        worlds = [speeds] if isinstance(speeds, Speeds) else list(speeds)
        self.models = worlds[0].models
        self._grids = np.maximum([[world.grids[model] for model in self.models] for world in worlds], 0.0)
        self._world = np.zeros((1, 1), dtype=np.int64) if len(worlds) == 1 else np.arange(len(worlds))[:, None]
        self._cost = cost
        self.real, self.has_servers = np.zeros(shape, dtype=bool), np.zeros(shape, dtype=bool)
        self.model = np.zeros(shape, dtype=np.int64)
        self.arrival = np.full(shape, np.inf)
        self.epochs, self.estimate, self.samples = np.ones(shape), np.ones(shape), np.ones(shape)
        for lane, jobs in enumerate(self.jobs):
            for number, job in enumerate(jobs):
                where = lane, number
                self.real[where], self.has_servers[where] = True, job.has_servers
                self.model[where] = self.models.index(job.model)
                self.arrival[where] = job.arrival / slot_seconds
                self.epochs[where], self.estimate[where] = job.epochs, job.estimate
                self.samples[where] = job.samples_per_epoch
        self.speed_factor = np.ones(shape)
        self.saves, self.starting = np.ones(shape, dtype=bool), np.zeros(shape, dtype=bool)
        for lane, variation in enumerate(variations):
            size = len(self.jobs[lane])
            self.speed_factor[lane, :size] = variation.factors(size)
        self.done = np.zeros(shape)
        self.workers, self.servers, self.slots_run = (np.zeros(shape, dtype=np.int64) for _ in range(3))
        self.speeds = np.zeros(shape)
        self.finish = np.full(shape, np.nan)
        self._owed, self._joins = np.zeros(shape), np.zeros(shape)  # yet to pass, in slots, of what changes cost
        self._joined: tuple[Counts, ...] = self.workers, self.servers  # that train while others join

    @property
    def present(self) -> Mask:
        """Jobs that have arrived and not ended."""
        mask: Mask = self.real & (self.arrival <= self.slot) & np.isnan(self.finish)
        return mask

    @property
    def over(self) -> Mask:
        """By lane, whether all its jobs have ended."""
        over: Mask = ~(self.real & np.isnan(self.finish)).any(axis=1)
        return over

    @property
    def remaining(self) -> Floats:
        """Epochs that jobs need still, as `JobState.remaining_epochs`."""
        left = self.estimate - self.done
        return np.where(left > 0, left, LEAST_REMAINING * self.estimate)

    def advance(self, workers: Counts, servers: Counts) -> SlotProgress:
        """Train for a slot with these counts; a job without one of its roles does not run."""
        runs = self.present & (workers > 0) & ((servers > 0) == self.has_servers)
        workers, servers = np.where(runs, workers, 0), np.where(runs, servers, 0)
        speeds = self._speeds(runs, workers, servers)
        lost = self._lost(workers, servers)
        rate = speeds * self.slot_seconds / self.samples
        need = self.epochs - self.done
        slow, slowly = self._joining(runs, workers, servers, lost)
        trained = np.minimum(rate * (1 - lost - slow) + slowly, need)
        ended = runs & (trained >= need * (1 - _DONE)) & (rate > 0)
        with np.errstate(divide="ignore", invalid="ignore"):
            last = slow + (need - slowly) / rate
            if self._cost.join:
                last = np.where(need < slowly, slow * need / slowly, last)
            self.finish[ended] = (self.slot + lost + last)[ended]
        self.done += trained
        self.speeds = speeds
        self.slots_run += runs
        self.workers, self.servers = workers, servers
        self.starting[:] = False  # what begins in a simulated slot has its counts at once
        self.slot += 1
        return SlotProgress(trained, ended)

    def _speeds(self, runs: Mask, workers: Counts, servers: Counts) -> Floats:
        """Return the speeds with these counts, in samples a second; 0 where a job does not run."""
        speeds: Floats = np.where(runs, self._grids[self._world, self.model, servers, workers] * self.speed_factor, 0.0)
        return speeds

    def _lost(self, workers: Counts, servers: Counts) -> Floats:
        """Return the part of the slot in which a job does not train because of a scaling, now or before."""
        began = (workers > 0) & (self.workers == 0)
        changed = (self.workers > 0) & ((workers != self.workers) | (servers != self.servers))
        start, change = self._cost.start / self.slot_seconds, self._cost.change / self.slot_seconds
        begins = began & ~self.starting  # the others owe what is left of their start
        owed = np.where(begins, start, np.where(workers > 0, self._owed, 0.0) + np.where(changed, change, 0.0))
        lost = np.minimum(owed, 1.0)
        self._owed = owed - lost
        return lost

    def _joining(self, runs: Mask, workers: Counts, servers: Counts, lost: Floats) -> tuple[Floats | float, ...]:
        """Return the part of the slot, after what is lost of it, in which jobs train as they were, and their epochs
        then.
        """
        if not self._cost.join:
            return 0.0, 0.0
        more = (self.workers > 0) & ((workers > self.workers) | (servers > self.servers))
        same = runs & (workers == self.workers) & (servers == self.servers)
        joining = self._joins > 0
        self._joined = tuple(
            np.where(joining, before, now)
            for before, now in zip(self._joined, (self.workers, self.servers), strict=True)
        )
        joins = np.where(runs & more, self._cost.join / self.slot_seconds, np.where(same, self._joins, 0.0))
        passed = np.minimum(joins, 1.0)
        self._joins = joins - passed
        slow = np.maximum(passed - lost, 0.0)
        return slow, self._speeds(runs, *self._joined) * self.slot_seconds / self.samples * slow

    def begin(self, lane: int, states: Iterable[JobState]) -> None:
        """Let jobs of a lane be as far as these states say; the others have not begun.

        A job whose maxima were lowered may still have more than any speed is known of: it begins with the most there.
        """
        by_id = {state.job.id: state for state in states}
        most_servers, most_workers = (count - 1 for count in self._grids.shape[2:])
        for number, job in enumerate(self.jobs[lane]):
            if (state := by_id.get(job.id)) is not None:
                self.done[lane, number], self.slots_run[lane, number] = state.epochs_done, state.slots_run
                self.workers[lane, number] = min(state.workers, most_workers)
                self.servers[lane, number] = min(state.servers, most_servers)
                self.saves[lane, number], self.starting[lane, number] = state.saves, state.starting
                if state.starting and not state.workers:  # else its coordinator comes back, and workers train on
                    left = max(self._cost.start - state.starting_seconds, 0.0)
                    self._owed[lane, number] = left / self.slot_seconds

    def states(self, lane: int) -> tuple[JobState, ...]:
        """Return a lane's jobs, as policies see them."""
        return tuple(
            JobState(
                self.jobs[lane][number],
                float(self.done[lane, number]),
                int(self.slots_run[lane, number]),
                int(self.workers[lane, number]),
                int(self.servers[lane, number]),
                bool(self.starting[lane, number]),
                bool(self.saves[lane, number]),
            )
            for number in self.present[lane].nonzero()[0]
        )

    def reports(self, lane: int) -> tuple[SpeedReport, ...]:
        """Return the speeds that a lane's jobs measured in the slot before."""
        return tuple(
            SpeedReport(
                job.id,
                job.model,
                int(self.servers[lane, number]),
                int(self.workers[lane, number]),
                float(self.speeds[lane, number]),
            )
            for number, job in enumerate(self.jobs[lane])
            if self.workers[lane, number]
        )

    def state(self) -> dict[str, NDArray[Any] | int]:
        """Return how far the jobs are: all that the next slot depends on but what the lanes were made with."""
        arrays = {name: getattr(self, name) for name in _OF_SLOT}
        joined = {f"joined_{number}": counts for number, counts in enumerate(self._joined)}
        return {"slot": self.slot, **arrays, **joined, "finish": np.where(np.isnan(self.finish), _NOT_YET, self.finish)}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Go on from there, in lanes that were made with the same.

        Args:
            state: as `state` gives it.

        Raises:
            KeyError, ValueError: it is not of such lanes.
        """
        found = {name: np.asarray(state[name]).copy() for name in (*_OF_SLOT, "joined_0", "joined_1", "finish")}
        for name, array in found.items():
            kind = self.workers.dtype if name in (*_COUNTS, "slots_run") else self.done.dtype
            if array.shape != self.real.shape or array.dtype != kind or not np.isfinite(array).all():
                raise ValueError(f"{name} of other lanes")
            if name in _COUNTS and not ((array >= 0) & (array < min(self._grids.shape[2:]))).all():
                raise ValueError(f"{name} beyond the speeds")
        for name in _OF_SLOT:
            setattr(self, name, found[name])
        self._joined = found["joined_0"], found["joined_1"]
        self.finish = np.where(found["finish"] == _NOT_YET, np.nan, found["finish"])
        self.slot = int(state["slot"])

    def ends(self) -> Floats:
        """Return when each job has ended, in slots; of one that has not, now, or when it will arrive, (lanes, jobs).

        Where there is no job it is NaN.
        """
        here = self.real & np.isnan(self.finish)
        found: Floats = np.where(here, np.maximum(self.slot, self.arrival), self.finish)
        return found

    def lacking(self) -> Floats:
        """Return the slots that each job lacks at least, (lanes, jobs): it would train as fast as its model can.

        So simulations that are cut differ by what jobs lack then, however long these are.
        """
        found, left = np.zeros(self.real.shape), (self.epochs - self.done) * self.samples / self.slot_seconds
        for lane, number in zip(*(self.real & np.isnan(self.finish)).nonzero(), strict=True):
            job = self.jobs[lane][number]
            grid = self._grids[self._world[min(lane, len(self._world) - 1), 0], self.model[lane, number]]
            fastest = Speeds({job.model: grid}).grid_of(job).max() * self.speed_factor[lane, number]
            found[lane, number] = left[lane, number] / fastest
        return found

    def completion_times(self) -> Floats:
        """Return the slots from each job's arrival to its end, (lanes, jobs); NaN where it has not ended."""
        times: Floats = self.finish - self.arrival
        return times


def comparable(ended: Floats, lacking: Floats) -> Floats:
    """Return the mean ends of simulations that were cut, with what jobs lack more than where they lack least.

    What they lack in all alike is left out: one job of days would hide every difference in a part of the mean.

    Args:
        ended: mean ends in slots, where jobs that were cut ended there, (contestants, ...).
        lacking: the means of `Lanes.lacking`, likewise.
    """
    found: Floats = ended + lacking - lacking.min(axis=0)
    return found
