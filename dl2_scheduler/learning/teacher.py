"""This module gives a policy's decisions as actions of the learnt policy, to be imitated (DL2, section 4.2)."""

from collections.abc import Iterable, Sequence

import numpy as np

from dl2_scheduler.cluster.free_resources import FreeResources, NodeRule
from dl2_scheduler.cluster.interfaces import AllocationPolicy
from dl2_scheduler.cluster.snapshot import Grant, Snapshot
from dl2_scheduler.policies.learnt.actions import ACTIONS, BOTH, SERVER, WORKER, Ints

Least = Sequence[tuple[int, int]]
"""Workers and servers of each job's first grant: its minimum, which is one action."""


def of_grants(grants: Iterable[tuple[int, int, int]], least: Least) -> list[int]:
    """Return the actions of grants (job, workers, servers), in their order.

    A grant becomes both while both roles lack tasks, then the role that lacks them.

    Args:
        grants: that were made.
        least: of each job.
    """
    actions, begun = [], set()
    for job, workers, servers in grants:
        if least[job] != (1, 1) and job not in begun:
            begun.add(job)
            actions.append(job * ACTIONS + BOTH)
            workers, servers = workers - least[job][0], servers - least[job][1]  # the rest of it
        both = min(workers, servers)
        kinds = [BOTH] * both + [WORKER] * (workers - both) + [SERVER] * (servers - both)
        actions += [job * ACTIONS + kind for kind in kinds]
    return actions


def of_counts(grants: Sequence[Grant], least: Least) -> list[int]:
    """Return the actions of final counts, in no order known: job by job in turn, one of each or of the role that lacks.

    Args:
        grants: of each job.
        least: likewise.
    """
    left = [[grant.workers, grant.servers] for grant in grants]
    actions: list[int] = []
    for job, (workers, servers) in enumerate(least):
        if (workers, servers) != (1, 1) and left[job][0]:
            left[job] = [left[job][0] - workers, left[job][1] - servers]
            actions.append(job * ACTIONS + BOTH)
    while any(workers or servers for workers, servers in left):
        for job, (workers, servers) in enumerate(left):
            if not workers and not servers:
                continue
            kind = BOTH if workers and servers else WORKER if workers else SERVER
            left[job] = [workers - (kind != SERVER), servers - (kind != WORKER)]
            actions.append(job * ACTIONS + kind)
    return actions


class PolicyTeacher:
    """See `rollout.Teacher`: a policy that gives through the room, in its own order.

    Args:
        policy: decides.
        rule: by which tasks find their node.
    """

    def __init__(self, policy: AllocationPolicy, rule: NodeRule = NodeRule.SPREAD):
        self._policy = policy
        self._rule = rule

    def __call__(self, snapshot: Snapshot) -> Ints:
        """Return the actions of a slot."""
        room = FreeResources(snapshot, self._rule)
        self._policy.allocate(snapshot, room)
        return np.array(of_grants(room.grants, room.least), dtype=np.int64)
