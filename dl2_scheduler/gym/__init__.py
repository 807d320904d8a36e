"""The simulator as a Gymnasium environment, `dl2/Cluster-v0`: importing this registers it."""

import gymnasium

from dl2_scheduler.gym.environment import ClusterEnv
from dl2_scheduler.gym.vector import ClusterVectorEnv

__all__ = ["ID", "ClusterEnv", "ClusterVectorEnv"]

ID = "dl2/Cluster-v0"

gymnasium.register(
    ID,
    entry_point="dl2_scheduler.gym.environment:ClusterEnv",
    vector_entry_point="dl2_scheduler.gym.vector:ClusterVectorEnv",
)
