"""The reward of the Gymnasium environments is DL2's equation 1: what part of their epochs jobs trained in a slot."""

from collections.abc import Iterable

from dl2_scheduler.cluster.interfaces import SlotOutcome
from dl2_scheduler.cluster.jobs import Job


def slot_reward(jobs: Iterable[Job], outcome: SlotOutcome) -> float:
    """Return the sum over jobs of the part of its epochs that each trained in a slot, in jobs.

    Args:
        jobs: those of the slot.
        outcome: of the slot.
    """
    trained = {job.id: job.epochs for job in outcome.jobs}
    return sum(trained[job.id] / job.epochs for job in jobs)
