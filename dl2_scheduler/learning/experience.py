"""This module keeps what jobs did for a critic to learn from: the same from simulated clusters and from live ones."""

from collections import deque
from collections.abc import Collection, Hashable, Sequence
from enum import IntEnum
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dl2_scheduler.cluster.interfaces import JobOutcome, SlotOutcome
from dl2_scheduler.cluster.jobs import MOST_TASKS
from dl2_scheduler.cluster.ranges import MOST_SPEED
from dl2_scheduler.cluster.snapshot import JobState, Snapshot
from dl2_scheduler.learning.plain import numbers, whole
from dl2_scheduler.policies.learnt.features import F32, width

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_MEMORY = 16  # slots of one configuration over which its speed is averaged
_MOST_FINISHED = 60_000  # job-slots that are kept of jobs that ended
_LEAST_REMAINING = 1e-3  # slots: a job that ends as it begins


class ScalingKind(IntEnum):
    """A `ScalingKind` says what a job did at the start of a slot: it costs training time."""

    NONE = 0
    CHANGE = 1
    START = 2


class SlotConfiguration(NamedTuple):
    """A slot's configuration says how a job ran in a slot, all as numbers; 0 servers: it is a job without any."""

    model: int
    scaling: int
    servers: int
    workers: int


class Experience:
    """The progress of jobs in every configuration that they had, and how long jobs took to end.

    Args:
        models: types that are known.
        most_finished: job-slots that are kept of jobs that ended; the latest.

    Attributes:
        speeds: by `SlotConfiguration`, mean samples a second over a slot, what scaling cost included, and slots seen.
    """

    def __init__(self, models: Sequence[str], most_finished: int = _MOST_FINISHED):
        self.speeds: dict[SlotConfiguration, tuple[float, int]] = {}
        self._number = {model: index for index, model in enumerate(models)}
        self._pending: dict[tuple[Hashable, Hashable], list[tuple[int, F32]]] = {}
        self._finished: deque[tuple[F32, float]] = deque(maxlen=most_finished)

    def state(self) -> dict[str, Any]:
        """Return what a checkpoint keeps."""
        rows, slots = self.finished()
        return {"speeds": self.speeds, "pending": self._pending, "rows": rows, "slots": slots}

    def load_state(self, state: dict[str, Any]) -> None:
        """Return what a checkpoint has. Raises what `plain.restored` expects."""
        features = (width(len(self._number)),)
        self.speeds = {self._configuration(key): _speed(*value) for key, value in state["speeds"].items()}
        self._pending = {
            (cluster, job): [(whole(slot), numbers(row[None], np.float32, features)[0]) for slot, row in seen]
            for (cluster, job), seen in state["pending"].items()
        }
        if len(state["slots"]):
            rows, slots = numbers(state["rows"], np.float32, features), numbers(state["slots"], np.float64)
            if not (slots > 0).all():
                raise ValueError("jobs that took no time")
            self._finished.extend(zip(rows, slots.tolist(), strict=True))

    def _configuration(self, key: Sequence[int]) -> SlotConfiguration:
        """Return what a checkpoint has. Raises ValueError: there is no such one."""
        found = SlotConfiguration(*map(whole, key))
        runs = 0 <= found.servers <= MOST_TASKS and 1 <= found.workers <= MOST_TASKS
        if not (runs and found.model < len(self._number) and found.scaling < len(ScalingKind)):
            raise ValueError(f"no configuration: {found}")
        return found

    def record(self, cluster: Hashable, snapshot: Snapshot, rows: F32, outcome: SlotOutcome) -> None:
        """Record a slot of a cluster.

        Args:
            cluster: which; its job ids are its own.
            snapshot: at the start of the slot.
            rows: see `features`, of the snapshot's jobs.
            outcome: of the slot.
        """
        for state, row, done in zip(snapshot.jobs, rows, outcome.jobs, strict=True):
            pending = self._pending.setdefault((cluster, done.id), [])
            pending.append((snapshot.slot, row))
            if done.finished is not None:
                end = done.finished / snapshot.slot_seconds
                self._finished.extend((before, max(end - slot, _LEAST_REMAINING)) for slot, before in pending)
                del self._pending[cluster, done.id]
            elif _ran(state, done) and not done.lost and state.job.model in self._number:
                self._record_speed(state, done, snapshot.slot_seconds)

    def forget(self, cluster: Hashable, but: Collection[Hashable] = ()) -> None:
        """Forget the jobs that a cluster still has: they will not be seen again.

        Args:
            cluster: which.
            but: ids of jobs that will.
        """
        for key in [key for key in self._pending if key[0] == cluster and key[1] not in but]:
            del self._pending[key]

    def _record_speed(self, state: JobState, done: JobOutcome, slot_seconds: float) -> None:
        key = SlotConfiguration(
            self._number[state.job.model],
            scaling(state, done.servers, done.workers),
            done.servers,
            done.workers,
        )
        speed = done.epochs * state.job.samples_per_epoch / slot_seconds
        mean, count = self.speeds.get(key, (0.0, 0))
        count = min(count + 1, _MEMORY)
        self.speeds[key] = mean + (speed - mean) / count, count

    def finished(self) -> tuple[F32, Floats]:
        """Return the job-slots of jobs that have ended since.

        Returns:
            Their rows, (samples, features), and the slots that the jobs still took, (samples,).
        """
        return np.array([row for row, _ in self._finished]), np.array([slots for _, slots in self._finished])


def _ran(state: JobState, done: JobOutcome) -> bool:
    return done.workers > 0 and (done.servers > 0 or not state.job.has_servers)


def _speed(mean: float, count: int) -> tuple[float, int]:
    """Return a mean of a checkpoint, and of how many. Raises ValueError: it is none."""
    if not (isinstance(mean, float) and 0 <= mean <= MOST_SPEED):
        raise ValueError(f"a speed of {str(mean)[:40]}")
    return mean, whole(count, 1)


def scaling(state: JobState, servers: int, workers: int) -> ScalingKind:
    """Return what a job does that is given these counts.

    Args:
        state: of the job, with its counts of the slot before.
        servers: it is given.
        workers: it is given.
    """
    if not state.workers:
        return ScalingKind.START
    return ScalingKind.NONE if (servers, workers) == (state.servers, state.workers) else ScalingKind.CHANGE
