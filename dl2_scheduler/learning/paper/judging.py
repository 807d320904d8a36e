"""This module judges how good a policy is on episodes, whatever it is."""

from dl2_scheduler.cluster.free_resources import FreeResources, NodeRule
from dl2_scheduler.cluster.interfaces import AllocationPolicy
from dl2_scheduler.cluster.speeds import Speeds
from dl2_scheduler.learning.lessons import Lessons
from dl2_scheduler.learning.rollout import Episode, mean_completion, tell_of_starved
from dl2_scheduler.sim.simulator import SimulatedCluster

MOST_SLOTS = 1000
"""Of an episode: a policy may starve jobs, and those of the paper's network often do while it learns."""


def cluster_of(episode: Episode, lessons: Lessons, speeds: Speeds) -> SimulatedCluster:
    """Return the cluster in which an episode takes place.

    Args:
        episode: of the lessons.
        lessons: which say what scaling costs.
        speeds: of the simulated jobs.
    """
    return SimulatedCluster(episode.jobs, episode.nodes, speeds, cost=lessons.cost, variation=episode.variation)


def completion_time(cluster: SimulatedCluster, policy: AllocationPolicy, who: str = "the policy") -> float:
    """Return the mean over jobs in slots; those that have not ended after `MOST_SLOTS` count as if they ended then.

    Args:
        cluster: at its start.
        policy: decides.
        who: is judged, for people: the log says how many jobs have not ended.
    """
    lanes = cluster.lanes
    while not cluster.done and lanes.slot < MOST_SLOTS:
        snapshot = cluster.snapshot()
        cluster.apply(policy.allocate(snapshot, FreeResources(snapshot, NodeRule.SPREAD)))
        cluster.finish_slot()
    tell_of_starved(lanes, who)
    return float(mean_completion(lanes)[0])
