"""This module makes policies that simulated futures ask, where nobody may wait for ever for somebody's own code."""

from dl2_scheduler.cluster.interfaces import AllocationPolicy
from dl2_scheduler.live.deadline import Bounded
from dl2_scheduler.policies.registry import make_live_policy
from dl2_scheduler.policies.user_policy import is_own


def make_bounded_policy(name: str) -> AllocationPolicy:
    """Do what `make_live_policy` does; a policy of a user's own has to answer in time, as in the live loop.

    Raises:
        BadInput: there is no such policy.
    """
    policy = make_live_policy(name)
    return Bounded(policy) if is_own(name) else policy
