"""Dominant resource fairness (Ghodsi et al., NSDI 2011) gives to the job with the smallest dominant share first."""

import heapq
from dataclasses import dataclass

import numpy as np

from dl2_scheduler.cluster.free_resources import Amounts, FreeResources
from dl2_scheduler.cluster.snapshot import Allocation, Snapshot
from dl2_scheduler.policies.rules.minima import refuse_minima


@dataclass(frozen=True)
class Drf:
    """A minimum first, then one worker and one server at a time, so that no job lacks either role.

    A job that has its maximum of one role gets one task of the other at a time, as does a job without servers.

    Attributes:
        published: end the slot at the first bundle that does not fit, where otherwise that job alone stops; and give
            no job more than the smaller of its two maxima.
    """

    published: bool = False

    def allocate(self, snapshot: Snapshot, room: FreeResources) -> Allocation:
        """See `AllocationPolicy.allocate`."""
        if self.published:
            refuse_minima(snapshot)
        whole = room.capacity.sum(axis=0)
        shares = [_share(room, whole, number, *room.bundles[number]) for number in range(len(snapshot.jobs))]
        queue = [(0.0, number) for number in range(len(snapshot.jobs))]  # by arrival where shares are equal
        while queue:
            share, number = heapq.heappop(queue)
            if not (self.published or room.workers(number)):
                if room.give_least(number):
                    heapq.heappush(queue, (_share(room, whole, number, *room.least[number]), number))
                continue
            bundle = room.next_bundle(number)
            if room.give_together(number) if self.published else room.give_next(number):
                more = shares[number] if bundle == room.bundles[number] else _share(room, whole, number, *bundle)
                heapq.heappush(queue, (share + more, number))
            elif self.published and room.workers(number) < snapshot.jobs[number].job.max_workers:
                break
        return room.allocation()


def _share(room: FreeResources, whole: Amounts, job: int, workers: int, servers: int) -> float:
    """Return the dominant share of so many workers and servers in the whole cluster's amounts."""
    worker, server = (demands[job] for demands in room.demands)
    with np.errstate(divide="ignore", invalid="ignore"):
        return float(np.nanmax((workers * worker + servers * server) / whole))
