"""This is a policy of one's own: the job that needs the fewest epochs is first (docs/guides/write-a-policy.md).

dl2 serve --slots 2x8 --policy examples.fewest_epochs_first:FewestEpochsFirst
"""

from dl2_scheduler.cluster.free_resources import FreeResources
from dl2_scheduler.cluster.snapshot import Allocation, Snapshot


class FewestEpochsFirst:
    """This policy serves the jobs first that still need the fewest epochs."""

    def allocate(self, snapshot: Snapshot, room: FreeResources) -> Allocation:
        """Give every job its minimum in that order, then as many more of both roles as fit."""
        order = sorted(range(len(snapshot.jobs)), key=lambda number: snapshot.jobs[number].remaining_epochs)
        for number in order:
            job = snapshot.jobs[number].job
            room.give(number, job.min_workers, job.min_servers)
        for number in order:
            while room.workers(number) and room.give_next(number):
                pass
        return room.allocation([f"place {order.index(number) + 1} in the queue" for number in range(len(order))])
