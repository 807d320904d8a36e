"""The loop: snapshot, allocate, apply, finish, slot by slot; every decision is written down with its reason."""

import logging
import time
from collections.abc import Callable

from dl2_scheduler.cluster.policy import AllocationPolicy, Cluster, Outcome
from dl2_scheduler.cluster.room import NodeRule, Room
from dl2_scheduler.live.history import History
from dl2_scheduler.live.reasons import explain

log = logging.getLogger(__name__)


class Loop:
    """A policy drives a cluster, of whatever kind.

    Args:
        cluster: acted on.
        policy: decides.
        name: of the policy.
        rule: by which tasks find their node.
        history: takes decisions and outcomes.
        now: unix seconds.
    """

    def __init__(
        self,
        cluster: Cluster,
        policy: AllocationPolicy,
        name: str,
        rule: NodeRule,
        history: History,
        now: Callable[[], float] = time.time,
    ):
        self._cluster = cluster
        self._policy = policy
        self._name = name
        self._rule = rule
        self._history = history
        self._now = now

    def run(self) -> None:
        """Slot by slot, until the cluster is done."""
        while not self._cluster.done:
            self.slot()

    def slot(self) -> Outcome:
        """One slot, from its start to its end."""
        snapshot = self._cluster.snapshot()
        room = Room(snapshot, self._rule)
        allocation = self._policy.allocate(snapshot, room)
        self._history.decided(self._now(), self._name, snapshot, allocation, explain(snapshot, allocation, room))
        self._cluster.apply(allocation)
        outcome = self._cluster.finish_slot()
        self._history.happened(outcome)
        if snapshot.jobs:
            log.info("slot %d: %s", outcome.slot, ", ".join(f"{j.id} {j.workers}w{j.servers}s" for j in outcome.jobs))
        return outcome
