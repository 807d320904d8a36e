"""A policy that plays: counts in turn, whatever jobs do, so that a cluster decides and scales for long."""

from dl2_scheduler.cluster.free_resources import FreeResources
from dl2_scheduler.cluster.snapshot import Allocation, Snapshot

EVERY = 20
"""Slots from one scaling to the next."""


class InTurn:
    """This policy gives one worker, and one server or two in turn."""

    def allocate(self, snapshot: Snapshot, room: FreeResources) -> Allocation:
        """See `AllocationPolicy.allocate`."""
        servers = 1 + snapshot.slot // EVERY % 2
        for number in range(len(snapshot.jobs)):
            room.give(number, 1, servers)
        return room.allocation([f"{servers} in turn"] * len(snapshot.jobs))
