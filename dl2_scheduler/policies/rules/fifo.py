"""First in, first out: the oldest job gets all that it can use, then the next."""

from collections.abc import Iterable
from dataclasses import dataclass

from dl2_scheduler.cluster.free_resources import FreeResources
from dl2_scheduler.cluster.snapshot import Allocation, Snapshot
from dl2_scheduler.policies.rules.minima import refuse_minima


def fill_in_order(order: Iterable[int], room: FreeResources, published: bool) -> None:
    """Give each job in turn its minimum, then its next bundle (`FreeResources.give_next`) until it has its maximum.

    Args:
        order: indices of jobs in the snapshot.
        room: to fill.
        published: end the slot at the first bundle that does not fit, where otherwise the next job is tried; and give
            no job more than the smaller of its two maxima.
    """
    for number in order:
        if published:
            if not _fill_published(number, room):
                return
        elif room.give_least(number):
            while room.give_next(number):
                pass


def _fill_published(number: int, room: FreeResources) -> bool:
    """Give bundles to a job as the published code does; return False where one did not fit, which ends the slot."""
    job = room.snapshot.jobs[number].job
    return all(room.give_together(number) for _ in range(min(job.max_workers, job.max_servers)))


@dataclass(frozen=True)
class Fifo:
    """This policy serves jobs in the order of their arrival.

    Attributes:
        published: see `fill_in_order`.
    """

    published: bool = False

    def allocate(self, snapshot: Snapshot, room: FreeResources) -> Allocation:
        """See `AllocationPolicy.allocate`."""
        if self.published:
            refuse_minima(snapshot)
        fill_in_order(range(len(snapshot.jobs)), room, self.published)
        return room.allocation()
