"""Every job gets exactly the workers and servers that its owner asked for: what is left to decide is where."""

from dataclasses import dataclass

from dl2_scheduler.cluster.free_resources import FreeResources
from dl2_scheduler.cluster.snapshot import Allocation, Grant, Snapshot


@dataclass(frozen=True)
class FixedDemand:
    """This policy grants each job its maxima, whether they fit or not: the placement lets those wait that do not."""

    def allocate(self, snapshot: Snapshot, room: FreeResources) -> Allocation:
        """See `AllocationPolicy.allocate`."""
        return Allocation(
            {state.job.id: Grant(state.job.max_workers, state.job.max_servers) for state in snapshot.jobs}
        )
