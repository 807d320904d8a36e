"""Dominant resource fairness (Ghodsi et al., NSDI 2011): progressive filling, the smallest dominant share first."""

import heapq
from dataclasses import dataclass

import numpy as np

from dl2_scheduler.cluster.room import Room
from dl2_scheduler.cluster.snapshot import Allocation, Snapshot


@dataclass(frozen=True)
class Drf:
    """One worker and one server at a time, so that no job lacks either role.

    Attributes:
        published: end the slot at the first bundle that does not fit, where otherwise that job alone stops.
    """

    published: bool = False

    def allocate(self, snapshot: Snapshot, room: Room) -> Allocation:
        """See `AllocationPolicy.allocate`."""
        total = room.capacity.sum(axis=0)
        shares = []
        for worker, server in zip(*room.demands, strict=True):
            with np.errstate(divide="ignore", invalid="ignore"):
                shares.append(float(np.nanmax((worker + server) / total)))
        queue = [(0.0, number) for number in range(len(snapshot.jobs))]  # by arrival where shares are equal
        while queue:
            share, number = heapq.heappop(queue)
            if room.give_together(number) if self.published else room.give(number, 1, 1):
                heapq.heappush(queue, (share + shares[number], number))
            elif self.published and room.workers(number) < snapshot.jobs[number].job.max_workers:
                break
        return room.allocation()
