"""This module judges how good a policy is on episodes, whatever it is."""

import numpy as np

from dl2_scheduler.cluster.free_resources import FreeResources, NodeRule
from dl2_scheduler.cluster.interfaces import AllocationPolicy
from dl2_scheduler.cluster.speeds import Speeds
from dl2_scheduler.learning.lessons import Lessons
from dl2_scheduler.learning.rollout import Episode
from dl2_scheduler.sim.simulator import SimulatedCluster

MOST_SLOTS = 1000
"""Of an episode: a policy may starve jobs."""


def cluster_of(episode: Episode, lessons: Lessons, speeds: Speeds) -> SimulatedCluster:
    """Return the cluster in which an episode takes place.

    Args:
        episode: of the lessons.
        lessons: which say what scaling costs.
        speeds: of the simulated jobs.
    """
    return SimulatedCluster(episode.jobs, episode.nodes, speeds, cost=lessons.cost, variation=episode.variation)


def completion_time(cluster: SimulatedCluster, policy: AllocationPolicy) -> float:
    """Mean over jobs in slots; those that still run after `MOST_SLOTS` count as if they ended then."""
    lanes = cluster.lanes
    while not cluster.done and lanes.slot < MOST_SLOTS:
        snapshot = cluster.snapshot()
        cluster.apply(policy.allocate(snapshot, FreeResources(snapshot, NodeRule.SPREAD)))
        cluster.finish_slot()
    return float(np.where(np.isnan(lanes.finish), lanes.slot, lanes.finish)[0].mean() - lanes.arrival[0].mean())
