"""This module makes policies that simulated futures ask, where somebody's own code can neither wait nor talk.

A future is played in a process that says its answers on stdout.
"""

import sys
from contextlib import redirect_stdout

from dl2_scheduler.cluster.free_resources import FreeResources
from dl2_scheduler.cluster.interfaces import AllocationPolicy
from dl2_scheduler.cluster.snapshot import Allocation, Snapshot
from dl2_scheduler.live.deadline import Bounded
from dl2_scheduler.policies.registry import make_live_policy
from dl2_scheduler.policies.user_policy import is_own


def make_bounded_policy(name: str) -> AllocationPolicy:
    """Do what `make_live_policy` does; a policy of a user's own has to answer in time, as in the live loop.

    What it prints goes to stderr.

    Raises:
        BadInput: there is no such policy.
    """
    if not is_own(name):
        return make_live_policy(name)
    with redirect_stdout(sys.stderr):
        return PrintingToStderr(Bounded(make_live_policy(name)))


class PrintingToStderr:
    """See `AllocationPolicy`: what the policy prints goes to stderr.

    Args:
        policy: is asked.
    """

    def __init__(self, policy: AllocationPolicy):
        self._policy = policy

    def allocate(self, snapshot: Snapshot, room: FreeResources) -> Allocation:
        """See `AllocationPolicy.allocate`."""
        with redirect_stdout(sys.stderr):
            return self._policy.allocate(snapshot, room)
