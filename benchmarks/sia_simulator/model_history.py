"""A history keeps what jobs of one model have shown to a scheduler: their lengths, speeds and restarts."""

from dataclasses import dataclass, field

import numpy as np

from benchmarks.sia_simulator.choice import Floats

_UNKNOWN_SECONDS = 1800.0
"""On one GPU: what a job of a model is taken to have left at least, of which none has ended yet."""
_LAST_PART = 0.08  # of the usual work: what a job that has passed it is taken to have left


@dataclass
class ModelHistory:
    """A history holds what jobs of one model have shown since the scheduler began.

    Attributes:
        totals: work that each job had done when it ended, by the speeds that were fitted to it.
        tables: speeds of each configuration of a GPU type, from the job that has run on most GPUs of it.
        depths: on how many GPUs that was.
        starts: number of starts and restarts.
        restart_seconds: what all of them took.
    """

    totals: list[float] = field(default_factory=list)
    tables: dict[str, Floats] = field(default_factory=dict)
    depths: dict[str, int] = field(default_factory=dict)
    starts: int = 0
    restart_seconds: float = 0.0

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

    def saw_speeds(self, gpu_type: str, depth: int, speeds: Floats) -> None:
        """Keep the speeds that were fitted to a job, unless those of a job on more GPUs are known.

        Args:
            gpu_type: on which it has run.
            depth: on how many GPUs at most.
            speeds: in each configuration of that type.
        """
        if depth >= self.depths.get(gpu_type, 1):
            self.depths[gpu_type] = depth
            self.tables[gpu_type] = speeds

    def beyond(self, gpu_type: str, speeds: Floats, deepest: int) -> Floats:
        """Return a job's speeds, those beyond what it has run in proportion to what others showed there.

        A fit to a few GPUs takes more of them to cost nothing.

        Args:
            gpu_type: of the configurations.
            speeds: as fitted to the job, in each configuration of the type, fewest GPUs first.
            deepest: number of the largest configuration that it has run in.
        """
        table = self.tables.get(gpu_type)
        if table is None or table[deepest] <= 0:
            return speeds
        return np.concatenate([speeds[: deepest + 1], table[deepest + 1 :] * (speeds[deepest] / table[deepest])])
