"""The roll-out planner tries what jobs could have until the next end, and simulates the greedy rule from there."""

from dataclasses import dataclass, field

import numpy as np

from dl2_scheduler.cluster.free_resources import SLACK, FreeResources
from dl2_scheduler.cluster.interfaces import PolicyTrigger
from dl2_scheduler.cluster.snapshot import Allocation, Snapshot
from dl2_scheduler.policies.pool.roll_forward import Floats, Ints, planned
from dl2_scheduler.policies.rules.estimates import SpeedEstimates


@dataclass
class RollOut:
    """This policy looks ahead over the jobs that are there, as if no other arrived.

    Attributes:
        speeds: known, or fitted.
        pairs: a worker always comes with one server.
        trigger: when it is asked.
    """

    speeds: SpeedEstimates
    pairs: bool = False
    trigger: PolicyTrigger = field(default=PolicyTrigger.EVENT, init=False)

    def allocate(self, snapshot: Snapshot, room: FreeResources) -> Allocation:
        """See `AllocationPolicy.allocate`."""
        self.speeds.observe(snapshot.reports)
        if not snapshot.jobs:
            return Allocation()
        grids = [np.maximum(self.speeds.grid(state.job), 0.0) for state in snapshot.jobs]
        units = _units(room)
        servers = [_servers(grid, units, self.pairs) for grid in grids]
        curves = np.array([_curve(grid, suited) for grid, suited in zip(grids, servers, strict=True)])
        left = np.array([state.remaining_epochs * state.job.samples_per_epoch for state in snapshot.jobs])
        for number, workers in enumerate(planned(left, curves, units).tolist()):
            while workers and not room.give(number, workers, int(servers[number][workers])):
                workers -= 1
        return room.allocation()


def _units(room: FreeResources) -> int:
    """Return how many of the smallest worker the room holds, all nodes taken as one, but no more than jobs can use."""
    total = room.capacity.sum(axis=0)
    usable = sum(state.job.max_workers for state in room.snapshot.jobs)
    each = np.array([(total[need > 0] / need[need > 0]).min() for need in room.demands[0] if (need > 0).any()])
    return min(usable, int(each.max(initial=0.0) + SLACK))


def _servers(grid: Floats, units: int, pairs: bool) -> Ints:
    """Return how many servers suit 0, 1, ... units of a job; 0: it cannot have so many."""
    suited = np.zeros(units + 1, dtype=np.int64)
    for workers in range(1, min(units, grid.shape[1] - 1) + 1):
        best = workers if pairs else int(grid[:, workers].argmax())
        suited[workers] = best if best < len(grid) else 0
    return suited


def _curve(grid: Floats, servers: Ints) -> Floats:
    """Return the samples a second by units."""
    return np.array([grid[suited, workers] if suited else 0.0 for workers, suited in enumerate(servers.tolist())])
