"""This policy serves the job with the shortest remaining time first."""

from dataclasses import dataclass

from dl2_scheduler.cluster.free_resources import FreeResources
from dl2_scheduler.cluster.snapshot import Allocation, JobState, Snapshot
from dl2_scheduler.policies.rules.estimates import SpeedEstimates
from dl2_scheduler.policies.rules.fifo import fill_in_order
from dl2_scheduler.policies.rules.minima import refuse_minima


@dataclass
class Srtf:
    """By the time that a job needs still at its top speed.

    Attributes:
        speeds: what is known of them.
        published: by the remaining part of the epochs instead (the published code's fault); see also `fill_in_order`.
    """

    speeds: SpeedEstimates
    published: bool = False

    def allocate(self, snapshot: Snapshot, room: FreeResources) -> Allocation:
        """See `AllocationPolicy.allocate`."""
        if self.published:
            refuse_minima(snapshot)
        self.speeds.observe(snapshot.reports)
        remaining = [self._remaining(state) for state in snapshot.jobs]
        fill_in_order(sorted(range(len(remaining)), key=remaining.__getitem__), room, self.published)
        return room.allocation()

    def _remaining(self, state: JobState) -> float:
        if self.published:
            return state.remaining_epochs / state.job.estimate
        return state.remaining_epochs * state.job.samples_per_epoch / float(self.speeds.grid(state.job).max())
