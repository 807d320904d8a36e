"""The planner takes a job from any configuration to any larger one, greedily by gain per unit of resource."""

import heapq
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dl2_scheduler.cluster.compiled import compiled
from dl2_scheduler.cluster.free_resources import FreeResources
from dl2_scheduler.cluster.snapshot import Allocation, Snapshot
from dl2_scheduler.cluster.speeds import Grid
from dl2_scheduler.policies.rules.estimates import SpeedEstimates

_LEAST_COST = 1e-12
_LEAST_GAIN = 1e-12


@dataclass
class Planner:
    """Maximises the sum over jobs of speed / top speed. A climb by single steps, as Optimus's, ends on local optima.

    Attributes:
        speeds: fitted online it is a real scheduler; with true ones a bound that is nearly reached.
    """

    speeds: SpeedEstimates

    def allocate(self, snapshot: Snapshot, room: FreeResources) -> Allocation:
        """See `AllocationPolicy.allocate`."""
        self.speeds.observe(snapshot.reports)
        grids = [np.maximum(self.speeds.grid(state.job), 0.0) for state in snapshot.jobs]
        return fill_by_jumps(room, [grid / max(grid.max(), _LEAST_COST) for grid in grids])


def fill_by_jumps(room: FreeResources, values: Sequence[Grid]) -> Allocation:
    """Fill a room greedily so that the sum of values grows.

    Args:
        room: to be filled.
        values: of each job, what a configuration is worth, by (servers, workers) from 0 on; (0, 0) is worth nothing.
    """
    total = np.maximum(room.capacity.sum(axis=0), _LEAST_COST)
    jobs = []
    for number, value in enumerate(values):
        worker, server = (demands[number] / total for demands in room.demands)
        workers, servers = room.least[number]
        worth = value.copy()
        worth[:servers], worth[:, :workers] = 0.0, 0.0  # a job does not run with less than its minimum
        jobs.append(_Jumps(worth, _shares(value.shape, worker, server)))
    queue = [jump for number, each in enumerate(jobs) if (jump := each.best(number, 0, 0)) is not None]
    heapq.heapify(queue)
    while queue:
        _, number, servers, workers = heapq.heappop(queue)
        if not room.give(number, workers - room.workers(number), servers - room.servers(number)):
            jobs[number].close(servers, workers)
        jump = jobs[number].best(number, room.servers(number), room.workers(number))
        if jump is not None:
            heapq.heappush(queue, jump)
    return room.allocation()


def _shares(shape: Sequence[int], worker: NDArray[np.float64], server: NDArray[np.float64]) -> NDArray[np.float64]:
    servers, workers = np.ogrid[: shape[0], : shape[1]]
    found: NDArray[np.float64] = (servers[..., None] * server + workers[..., None] * worker).max(axis=-1)
    return found


@dataclass
class _Jumps:
    """Where one job can go.

    Attributes:
        value: of each configuration, by (servers, workers).
        share: dominant share.
    """

    value: Grid
    share: NDArray[np.float64]

    def close(self, servers: int, workers: int) -> None:
        """Note that this configuration does not fit, nor any that has as many or more of both roles."""
        self.value[servers:, workers:] = 0.0

    def best(self, number: int, servers: int, workers: int) -> tuple[float, int, int, int] | None:
        """Return the best jump as (minus its gain per unit, the job, servers, workers), or None where none is a gain.

        Args:
            number: the job's index.
            servers: it has now.
            workers: it has now.
        """
        rate, to_servers, to_workers = _best_jump(self.value, self.share, servers, workers)
        return (-rate, number, to_servers, to_workers) if rate else None


@compiled
def _best_jump(
    value: NDArray[np.float64], share: NDArray[np.float64], servers: int, workers: int
) -> tuple[float, int, int]:
    """Return the most gain per unit of a jump to larger counts, and to which; 0: none is a gain.

    Args:
        value: see `_Jumps`.
        share: see `_Jumps`.
        servers: from where.
        workers: from where.
    """
    best, to_servers, to_workers = 0.0, servers, workers
    for more_servers in range(servers, value.shape[0]):
        for more_workers in range(workers, value.shape[1]):
            gain = value[more_servers, more_workers] - value[servers, workers]
            if gain > _LEAST_GAIN:
                cost = share[more_servers, more_workers] - share[servers, workers]
                rate = gain / max(cost, _LEAST_COST)
                if rate > best:
                    best, to_servers, to_workers = rate, more_servers, more_workers
    return best, to_servers, to_workers
