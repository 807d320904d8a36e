"""This module runs a cluster slot by slot: it looks, decides, writes the decision down, acts, and measures."""

import logging
import time
from collections.abc import Callable, Sequence
from typing import Literal, Protocol

from dl2_scheduler.cluster.free_resources import NodeRule
from dl2_scheduler.cluster.interfaces import Cluster, SlotOutcome
from dl2_scheduler.cluster.snapshot import Allocation, Snapshot
from dl2_scheduler.live.exploration.explorer import Explorer
from dl2_scheduler.live.history import History
from dl2_scheduler.live.policies import Policies, SlotPolicies
from dl2_scheduler.live.slot_decision import SlotDecider, answer
from dl2_scheduler.live.slot_limits import SlotLimits

log = logging.getLogger(__name__)


class SlotObserver(Protocol):
    """A `SlotObserver` works beside the loop, off the path of its decisions: a guard, or a learner."""

    def before(self, slot: int) -> None:
        """Act on what was found out, at a slot's start. It must not take long."""

    def after(self, slot: int) -> None:
        """Look at a slot that has been decided, written down and applied. It must not take long."""


class SlotLoop:
    """A `SlotLoop` lets policies drive a cluster of any kind.

    Args:
        cluster: acted on.
        policies: say which policy decides.
        rule: the rule by which tasks find their node.
        history: takes decisions and outcomes.
        limits: the limits of what may change in a slot.
        observers: are told of each slot.
        now: returns unix seconds.
        settle: returns what can be done of a decision where tasks keep their places; left out: all of it.
        start_seconds: returns how long a job takes to start; left out: not known.
        explorer: lets jobs explore; None: none does.
    """

    def __init__(
        self,
        cluster: Cluster,
        policies: Policies,
        rule: NodeRule,
        history: History,
        limits: SlotLimits = SlotLimits(),  # noqa: B008  # frozen
        observers: Sequence[SlotObserver] = (),
        now: Callable[[], float] = time.time,
        settle: Callable[[Allocation], Allocation] = lambda allocation: allocation,
        start_seconds: Callable[[], float] = lambda: 0.0,
        explorer: Explorer | None = None,
    ):
        self._cluster = cluster
        self._policies = policies
        self._rule = rule
        self._history = history
        self._decider = SlotDecider(rule, limits, history, explorer)
        self._observers = tuple(observers)
        self._now = now
        self._settle = settle
        self._start_seconds = start_seconds

    @property
    def policy(self) -> str:
        """The name of the policy that decides."""
        return self._policies.deciding

    def run(self) -> None:
        """Run slot after slot, until the cluster is done."""
        while not self._cluster.done:
            self.slot()

    def slot(self) -> SlotOutcome:
        """Run one slot, from its start to its end, and return what became of it."""
        snapshot = self._cluster.snapshot()
        self._tell_observers("before", snapshot.slot)
        policies = self._policies.for_slot()
        start_seconds = self._start_seconds()
        decision = self._decider.decide(policies, snapshot, start_seconds)
        self._policies.decided(snapshot.slot, decision.fault)
        allocation = self._settle(decision.allocation)
        self._decider.done(snapshot, allocation)
        self._history.decided(self._now(), decision.policy, snapshot, allocation)
        self._cluster.apply(allocation)
        self._ask_shadow(policies, decision.seen, decision.wanted, start_seconds)
        self._tell_observers("after", snapshot.slot)
        outcome = self._cluster.finish_slot()
        self._history.happened(outcome)
        if snapshot.jobs:
            counts = ", ".join(f"{job.id} {job.workers}w{job.servers}s" for job in outcome.jobs)
            log.info("slot %d: %s", outcome.slot, counts)
        return outcome

    def _tell_observers(self, when: Literal["before", "after"], slot: int) -> None:
        """Tell the observers of a slot; whatever goes wrong there, the slot goes on."""
        for observer in self._observers:
            try:
                observer.before(slot) if when == "before" else observer.after(slot)
            except Exception:
                log.exception("slot %d: %s has failed", slot, type(observer).__name__)

    def _ask_shadow(
        self, policies: SlotPolicies, snapshot: Snapshot, decided: Allocation, start_seconds: float
    ) -> None:
        """Ask the shadow, when all is applied: nothing waits for it, and whatever it does changes nothing."""
        if policies.shadow is None:
            return
        try:
            wanted = answer(policies.shadow, snapshot, self._rule, start_seconds=start_seconds).allocation
        except (Exception, SystemExit):
            log.exception("slot %d: the shadow %s has failed", snapshot.slot, policies.shadow_name)
            return
        self._history.shadowed(snapshot.slot, policies.shadow_name, wanted)
        self._policies.compared(policies.shadow_name, decided, wanted)
