"""This module holds the decision of a slot while it passes the steps of `slot_decision`."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from dl2_scheduler.cluster.free_resources import FreeResources, NodeRule
from dl2_scheduler.cluster.snapshot import Allocation, Grant, JobId, Snapshot


@dataclass(frozen=True)
class SlotDraft:
    """A `SlotDraft` is a slot's decision as one step hands it to the next.

    Attributes:
        snapshot: the cluster at the slot's start.
        rule: the rule by which tasks find their node.
        allocation: what has been decided so far.
        room: the nodes, filled with the grants of `allocation`.
    """

    snapshot: Snapshot
    rule: NodeRule
    allocation: Allocation
    room: FreeResources

    @property
    def grants(self) -> list[Grant]:
        """The grant of each job, in the order of the snapshot."""
        return [self.allocation.of(state.job.id) for state in self.snapshot.jobs]

    def revised(self, grants: Mapping[JobId, Grant], room: FreeResources) -> "SlotDraft":
        """Return the draft with other grants, and a `room` that is filled with them."""
        return replace(self, allocation=Allocation(grants), room=room)


def regranted(room: FreeResources, index: int, wanted: Grant, why: str, instead: str = "") -> Grant:
    """Return what a step of the decision gives a job, with the reason where it is other than what was wanted.

    Args:
        room: filled by the step.
        index: of the job, in the snapshot.
        wanted: what the job was to get.
        why: is said behind the counts.
        instead: is said in place of the counts and `why`; "": nothing is.
    """
    workers, servers = room.workers(index), room.servers(index)
    if (workers, servers) == (wanted.workers, wanted.servers):
        return wanted
    reason = instead or f"{workers}+{servers} instead of {wanted.workers}+{wanted.servers}{why}"
    return Grant(workers, servers, "; ".join(filter(None, (reason, wanted.reason))))
