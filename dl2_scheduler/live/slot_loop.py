"""The loop: snapshot, allocate, apply, finish, slot by slot; every decision is written down with its reason."""

import logging
import time
from collections.abc import Callable, Sequence
from typing import Literal, Protocol

from dl2_scheduler.cluster.free_resources import NodeRule
from dl2_scheduler.cluster.interfaces import Cluster, SlotOutcome
from dl2_scheduler.cluster.snapshot import Allocation, Grant, JobId, Snapshot
from dl2_scheduler.live.deciding import Decided, answer, decide
from dl2_scheduler.live.history import History
from dl2_scheduler.live.policies import Policies, SlotPolicies
from dl2_scheduler.live.serve_the_waiting import REMEMBERED_SLOTS, Waited, counted, waited_in
from dl2_scheduler.live.slot_limits import SlotLimits, changed, limited, scaled_in

log = logging.getLogger(__name__)


class SlotObserver(Protocol):
    """What goes on beside the loop, off the path of its decisions: a guard, a learner."""

    def before(self, slot: int) -> None:
        """A slot begins: act on what was found out. It must not take long."""

    def after(self, slot: int) -> None:
        """A slot has been decided, written down and applied: there is something new to look at. Returns at once."""


class SlotLoop:
    """A policy drives a cluster, of whatever kind.

    Args:
        cluster: acted on.
        policies: which of them decides.
        rule: by which tasks find their node.
        history: takes decisions and outcomes.
        limits: of what may change.
        beside: see `SlotObserver`.
        now: unix seconds.
    """

    def __init__(
        self,
        cluster: Cluster,
        policies: Policies,
        rule: NodeRule,
        history: History,
        limits: SlotLimits = SlotLimits(),  # noqa: B008  # frozen
        beside: Sequence[SlotObserver] = (),
        now: Callable[[], float] = time.time,
    ):
        self._cluster = cluster
        self._policies = policies
        self._rule = rule
        self._history = history
        self._limits = limits
        self._beside = tuple(beside)
        self._now = now
        self._scaled: dict[JobId, int] | None = None
        self._waited: Waited | None = None

    @property
    def policy(self) -> str:
        """Name of the one that decides."""
        return self._policies.deciding

    def run(self) -> None:
        """Slot by slot, until the cluster is done."""
        while not self._cluster.done:
            self.slot()

    def slot(self) -> SlotOutcome:
        """One slot, from its start to its end."""
        snapshot = self._cluster.snapshot()
        self._look_beside("before", snapshot.slot)
        turn = self._policies.turn()
        decided = decide(turn.policy, self._policies.fallback, snapshot, self._rule, self._waited_until(snapshot.slot))
        self._policies.decided(snapshot.slot, decided.fault)
        allocation = self._limited(snapshot, self._explained(turn, decided))
        self._waited = counted(self._waited_until(snapshot.slot), snapshot, allocation)
        name = self._policies.fallback_name if decided.fault else turn.name
        self._history.decided(self._now(), name, snapshot, allocation)
        self._cluster.apply(allocation)
        self._ask_shadow(turn, snapshot, decided.allocation)
        self._look_beside("after", snapshot.slot)
        outcome = self._cluster.finish_slot()
        self._history.happened(outcome)
        if snapshot.jobs:
            log.info("slot %d: %s", outcome.slot, ", ".join(f"{j.id} {j.workers}w{j.servers}s" for j in outcome.jobs))
        return outcome

    def _waited_until(self, slot: int) -> Waited:
        """After a restart as far as the history tells."""
        if self._waited is None:
            self._waited = waited_in(self._history.slots(after=slot - REMEMBERED_SLOTS - 1))
        return self._waited

    def _look_beside(self, when: Literal["before", "after"], slot: int) -> None:
        """Whatever goes wrong there, the slot goes on."""
        for each in self._beside:
            try:
                each.before(slot) if when == "before" else each.after(slot)
            except Exception:
                log.exception("slot %d: %s has failed", slot, type(each).__name__)

    def _explained(self, turn: SlotPolicies, decided: Decided) -> Allocation:
        """With what was wrong, where the fallback decided."""
        if not decided.fault:
            return decided.allocation
        why = f"{self._policies.fallback_name} decided, as {turn.name} failed: {decided.fault}"
        grants = decided.allocation.grants
        return Allocation(
            {job: Grant(grant.workers, grant.servers, f"{grant.reason}; {why}") for job, grant in grants.items()}
        )

    def _limited(self, snapshot: Snapshot, allocation: Allocation) -> Allocation:
        """What of it is done now."""
        if self._scaled is None:
            recent = self._history.slots(after=snapshot.slot - self._limits.least_slots - 1)
            self._scaled = scaled_in(recent)
        found = limited(snapshot, allocation, self._limits, self._scaled, self._rule)
        present = {state.job.id for state in snapshot.jobs}
        self._scaled = {job: slot for job, slot in self._scaled.items() if job in present}
        self._scaled |= dict.fromkeys(changed(snapshot, found), snapshot.slot)
        return found

    def _ask_shadow(self, turn: SlotPolicies, snapshot: Snapshot, decided: Allocation) -> None:
        """When all is applied: nothing waits for it, and whatever it does changes nothing."""
        if turn.shadow is None:
            return
        try:
            wanted = answer(turn.shadow, snapshot, self._rule)
        except (Exception, SystemExit):
            log.exception("slot %d: the shadow %s has failed", snapshot.slot, turn.shadow_name)
            return
        self._history.shadowed(snapshot.slot, turn.shadow_name, wanted)
        self._policies.compared(turn.shadow_name, decided, wanted)
