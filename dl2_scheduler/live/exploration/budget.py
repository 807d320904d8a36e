"""This module counts how much of a cluster has run for the sake of learning, and how much more may. It is pure.

It is a token bucket in cluster-seconds: one is the whole cluster for a second, and a job's part of the cluster is its
dominant share. A slot with jobs brings in a part of its length; a job that explores pays for its share.
"""

from dataclasses import dataclass, replace

SAVED_SLOTS = 50.0
"""Slots whose income may be saved, so that after a quiet time not too much is tried at once."""


@dataclass(frozen=True)
class ExplorationBudget:
    """An `ExplorationBudget` says what has been spent, and what is left. What is spent has always come in before.

    Attributes:
        lived: seconds of slots with jobs.
        spent: cluster-seconds that exploring jobs took.
        saved: cluster-seconds that may be spent now.
        jobs: how often a job has explored.
        slot: the last slot that has brought in something; -1: none has.
    """

    lived: float = 0.0
    spent: float = 0.0
    saved: float = 0.0
    jobs: int = 0
    slot: int = -1

    def at_slot(self, slot: int, seconds: float, part: float) -> "ExplorationBudget":
        """Return the budget when a slot with jobs begins; one that is decided once more brings in nothing.

        Args:
            slot: its number.
            seconds: its length.
            part: of the cluster's capacity that may be spent.
        """
        if slot <= self.slot:
            return self
        saved = min(self.saved + part * seconds, part * seconds * SAVED_SLOTS)
        return replace(self, lived=self.lived + seconds, saved=saved, slot=slot)

    def paid(self, cluster_seconds: float, jobs: int) -> "ExplorationBudget":
        """Return the budget after so many jobs have explored; negative numbers take it back."""
        spent, saved = self.spent + cluster_seconds, self.saved - cluster_seconds
        return replace(self, spent=max(spent, 0.0), saved=saved, jobs=max(self.jobs + jobs, 0))

    @property
    def part_spent(self) -> float:
        """The part of the cluster's capacity that has been spent, in all slots with jobs."""
        return self.spent / self.lived if self.lived else 0.0
