"""This module keeps room for a gang that smaller ones would pass for ever, until enough has ended. Pure.

This is backfill with one reservation, for the head of the queue (EASY; Lifka, JSSPP 1995), without run times, which
nobody knows here: what comes later may have only what the head could not use.
"""

from collections.abc import Container, Sequence

from dl2_scheduler.backends.kube.apiserver.objects import NodeInfo, PodInfo
from dl2_scheduler.backends.kube.placement.free_resources import FreeNodeResources, LaterNodeResources, TaskPlacement
from dl2_scheduler.backends.kube.placement.gang_placement import claim_all, missing
from dl2_scheduler.backends.kube.placement.gangs import Gang


def starving(gangs: Sequence[Gang], now: float) -> list[Gang]:
    """Return the gangs that have waited longer than they might hold room in part, the longest first.

    Since when is told by their pods, so it outlives the scheduler.
    """
    waits = [(since, gang.job.key, gang) for gang in gangs if (since := gang.waits_since) is not None]
    found = [each for each in waits if now - each[0] >= each[2].job.gang_seconds]
    return [gang for *_, gang in sorted(found, key=lambda each: each[:2])]


class Backfill:
    """A `Backfill` says where starving gangs will fit when jobs have ended.

    Pods of others, or of no job, may stay for ever.

    Args:
        nodes: all.
        pods: that are bound.
        jobs: keys of those that this scheduler serves: they end some day.
        now: the nodes as they are.
    """

    def __init__(
        self,
        nodes: Sequence[NodeInfo],
        pods: Sequence[PodInfo],
        jobs: Container[tuple[str, str]],
        now: FreeNodeResources,
    ):
        stays = [pod for pod in pods if not pod.deleting and not (pod.job and pod.key in jobs)]
        self._later = LaterNodeResources(nodes, stays, now.names, now)

    def room(self, gang: Gang) -> list[TaskPlacement] | None:
        """Return places for all that is missing of a gang's minimum, where the least has to end first.

        Returns:
            The places; None: it never fits.
        """
        own = [self._later.put(pod) for pod in gang.bound]
        claims = claim_all(missing(gang), self._later)
        for claim in [*(claims or ()), *(claim for claim in own if claim)]:
            self._later.give_back(claim)
        return claims


def waited(seconds: float) -> str:
    """Return how long something has waited, for people."""
    return f"{seconds / 60:.0f} min" if seconds >= 60 else f"{seconds:.0f} s"
