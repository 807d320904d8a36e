"""A history keeps what jobs of one model have shown to a scheduler: their lengths, speeds, noise and restarts."""

from copy import copy
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from benchmarks.sia_simulator.choice import Floats

_UNKNOWN_SECONDS = 1800.0
"""On one GPU: what a job of a model is taken to have left at least, of which none has ended yet."""
_LAST_PART = 0.08  # of the usual work: what a job that has passed it is taken to have left
_POINTS = 16  # of the work, at which noise is remembered


@dataclass(frozen=True)
class NoiseTrack:
    """A track holds the noise of a job's gradients, as it was estimated while the job went on.

    Attributes:
        parts: of its whole work that was done, from 0 on; (points,).
        squares: squared norm of the gradient at each; (points,).
        variances: variance of the gradient at each; (points,).
    """

    parts: Floats
    squares: Floats
    variances: Floats


@dataclass
class ModelHistory:
    """A history holds what jobs of one model have shown since the scheduler began.

    Attributes:
        totals: work that each job had done when it ended, by the speeds that were fitted to it.
        noise: of the job that ended last of those that were seen in more than 16 rounds, until there is one of the job
            that was seen most often; None before any has ended.
        fits: speedup function of each GPU type, from the job that has run on most GPUs of it.
        depths: on how many GPUs that was.
        starts: number of starts and restarts.
        restart_seconds: what all of them took.
    """

    totals: list[float] = field(default_factory=list)
    noise: NoiseTrack | None = None
    fits: dict[str, Any] = field(default_factory=dict)
    depths: dict[str, int] = field(default_factory=dict)
    starts: int = 0
    restart_seconds: float = 0.0
    _speeds: dict[str, tuple[Any, NoiseTrack, Floats]] = field(default_factory=dict)

    def remaining(self, done: float, single: float) -> float:
        """Return the work that a job is expected to have left.

        Jobs that ended with more say it. Before any has ended, a job has as much left as it has done, or half an hour
        on one GPU.

        Args:
            done: work that it has done.
            single: its speed on one GPU of the type that suits it best.
        """
        if not self.totals:
            return max(done, _UNKNOWN_SECONDS * single)
        least = _LAST_PART * float(np.mean(self.totals))
        longer = [total for total in self.totals if total > done]
        return max(float(np.mean(longer)) - done, least) if longer else least

    def restart(self, told: float) -> float:
        """Return the seconds that a restart takes.

        Args:
            told: seconds that the scheduler is told; it counts as one that was seen.
        """
        return (told + self.restart_seconds) / (1 + self.starts)

    def saw_restart(self, seconds: float) -> None:
        """Count a restart that is over.

        Args:
            seconds: that it took; 0 of none.
        """
        if seconds > 0:
            self.starts += 1
            self.restart_seconds += seconds

    def saw_fit(self, gpu_type: str, depth: int, speedup: Any) -> None:
        """Keep the speedup function of a job, unless that of a job on more GPUs is known.

        A fit to a few GPUs takes more of them to cost nothing.

        Args:
            gpu_type: on which it has run.
            depth: on how many GPUs at most.
            speedup: as fitted to the job.
        """
        if depth >= self.depths.get(gpu_type, 1):
            self.depths[gpu_type] = depth
            self.fits[gpu_type] = speedup

    def saw_end(self, total: float, seen: list[tuple[float, float, float]]) -> None:
        """Learn from a job that has ended.

        Args:
            total: work that it had done.
            seen: (work done, squared norm and variance of its gradient), once a round.
        """
        self.totals.append(total)
        if len(seen) < 2 or (self.noise is not None and len(seen) <= len(self.noise.parts)):
            return
        work, squares, variances = np.array(seen)[np.unique(np.linspace(0, len(seen) - 1, _POINTS).astype(int))].T
        parts = work / total
        parts[0] = 0.0
        rising = np.diff(parts, prepend=-1.0) > 0
        self.noise = NoiseTrack(parts[rising], squares[rising], variances[rising])

    def speeds(self, gpu_type: str, counts: Floats) -> Floats | None:
        """Return the speeds that a job of the model has on a GPU type over its work, or None if they are not known yet.

        Args:
            gpu_type: on which it runs.
            counts: nodes and GPUs of the type's configurations; (2, configurations).

        Returns:
            speeds at each point of the noise track; (points, configurations).
        """
        speedup = self.fits.get(gpu_type)
        if speedup is None or self.noise is None:
            return None
        known = self._speeds.get(gpu_type)
        if known is None or known[0] is not speedup or known[1] is not self.noise:
            known = (speedup, self.noise, noisy_speeds(speedup, self.noise, counts))
            self._speeds[gpu_type] = known
        return known[2]


def noise_of(speedup: Any) -> tuple[float, float]:
    """Return squared norm and variance of the gradient, by which a speedup function of the simulator goes.

    Args:
        speedup: the function.
    """
    square, variance = speedup._goodput_fn._grad_params
    return float(square), float(variance)


def noisy_speeds(speedup: Any, noise: NoiseTrack, counts: Floats) -> Floats:
    """Return the speeds that a speedup function of the simulator gives to other noise; (points, configurations).

    Args:
        speedup: the function.
        noise: at each point.
        counts: nodes and GPUs of each configuration; (2, configurations).
    """
    points, configurations = len(noise.parts), counts.shape[1]
    goodput, other = copy(speedup._goodput_fn), copy(speedup)
    repeated = (np.repeat(each, configurations) for each in (noise.squares, noise.variances))
    goodput._grad_params = type(goodput._grad_params)(*repeated)
    other._goodput_fn = goodput
    nodes, gpus = np.tile(counts, points)
    return np.asarray(other.get_goodput(nodes, gpus), dtype=float).reshape(points, configurations)
