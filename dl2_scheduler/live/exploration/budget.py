"""This module counts how much of a cluster has run for the sake of learning, and how much more may. It is pure.

It is a token bucket in cluster-seconds: one is the whole cluster for a second, and a job's part of the cluster is its
dominant share. A slot with jobs brings in a part of the time that it took, when it is over; a job that explores pays
for its share.
"""

from dataclasses import dataclass, replace

SAVED_SLOTS = 50.0
"""Slots whose income may be saved, so that after a quiet time not too much is tried at once."""


@dataclass(frozen=True)
class ExplorationBudget:
    """An `ExplorationBudget` says what has been spent, and what is left. What is spent has always come in before.

    Attributes:
        lived: seconds of slots with jobs that are over.
        spent: cluster-seconds that exploring jobs took.
        saved: cluster-seconds that may be spent now.
        jobs: how often a job has explored.
        slot: the last slot with jobs that has begun; -1: none has.
        began: unix seconds: when it did.
        length: seconds that it may take, so that no jump of the clock brings in more; 0: it is over.
    """

    lived: float = 0.0
    spent: float = 0.0
    saved: float = 0.0
    jobs: int = 0
    slot: int = -1
    began: float = 0.0
    length: float = 0.0

    def at_slot(self, slot: int, seconds: float, part: float, now: float) -> "ExplorationBudget":
        """Return the budget when a slot with jobs begins; one that is decided once more changes nothing.

        Args:
            slot: its number, which is lower than that of the last one where a cluster's databases were deleted.
            seconds: its length; it may end early.
            part: of the cluster's capacity that may be spent.
            now: unix seconds.
        """
        if slot == self.slot:
            return self
        before = self.ended(part, now)
        saved = min(before.saved, part * seconds * SAVED_SLOTS)
        return replace(before, saved=saved, slot=slot, began=now, length=seconds)

    def ended(self, part: float, now: float) -> "ExplorationBudget":
        """Return the budget when the last slot with jobs is over.

        Args:
            part: of the cluster's capacity that may be spent.
            now: unix seconds.
        """
        lived = min(max(now - self.began, 0.0), self.length)
        return replace(self, lived=self.lived + lived, saved=self.saved + part * lived, length=0.0)

    def paid(self, cluster_seconds: float, jobs: int) -> "ExplorationBudget":
        """Return the budget after so many jobs have explored; negative numbers take it back."""
        spent, saved = self.spent + cluster_seconds, self.saved - cluster_seconds
        return replace(self, spent=max(spent, 0.0), saved=saved, jobs=max(self.jobs + jobs, 0))

    @property
    def part_spent(self) -> float:
        """The part of the cluster's capacity that has been spent, in all slots with jobs."""
        return self.spent / self.lived if self.lived else 0.0
