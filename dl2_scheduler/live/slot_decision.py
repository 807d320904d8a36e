"""This module decides a slot, in six steps over one draft.

    ask      the policy is asked what each job is to get
    check    what it answers can be done, or the fallback is asked instead
    spare    running jobs shrink before one of them is suspended (`shrink_before_suspend`), and none is that would be
             done before this had paid (`keep_what_ends_soon`)
    serve    a job that has waited for too long gets its minimum (`serve_the_waiting`)
    limit    only so much is changed in one slot (`slot_limits`)
    explore  a few jobs run otherwise for the slot, so that their speed becomes known (`exploration`), if that is wanted

Every live cluster is decided so, whatever its policy. The guard and replays, which ask what a policy would do, leave
the last two steps out.
"""

import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace

from dl2_scheduler.cluster.free_resources import FreeResources, NodeRule
from dl2_scheduler.cluster.interfaces import AllocationPolicy
from dl2_scheduler.cluster.placement import answer_checks
from dl2_scheduler.cluster.placement.answer_checks import UnfitAnswer
from dl2_scheduler.cluster.policy_words import words
from dl2_scheduler.cluster.snapshot import Allocation, Grant, JobId, Snapshot
from dl2_scheduler.live.exploration.explorer import Explorer
from dl2_scheduler.live.history import History
from dl2_scheduler.live.keep_what_ends_soon import keep
from dl2_scheduler.live.known_samples import KnownSamples
from dl2_scheduler.live.policies import SlotPolicies
from dl2_scheduler.live.reasons import explain
from dl2_scheduler.live.recorded_slots import RecordedSlot
from dl2_scheduler.live.serve_the_waiting import NOBODY, Waited, count_waiting, serve, waiting_in
from dl2_scheduler.live.shrink_before_suspend import spare
from dl2_scheduler.live.slot_draft import SlotDraft
from dl2_scheduler.live.slot_limits import SlotLimits, changed_jobs, last_scalings, limit

log = logging.getLogger(__name__)

_RECENT = 1000, 60_000
"""Slots with jobs of a history that are read after a restart, to know who has waited, and the samples of types of which
none is there; and how many states of jobs they may have, as the first slot waits: some seconds. With 1,000 jobs these
are sixty slots, more than a job may be granted nothing in."""


def answer(
    policy: AllocationPolicy,
    snapshot: Snapshot,
    rule: NodeRule,
    waited: Waited = NOBODY,
    start_seconds: float = 0.0,
    explained: bool = True,
) -> SlotDraft:
    """Return what a policy decides about a slot before it is limited.

    Args:
        policy: is asked.
        snapshot: the cluster at the slot's start.
        rule: the rule by which tasks find their node.
        waited: see `serve_the_waiting`; left out: nobody has waited.
        start_seconds: how long a job takes to start; 0: not known, or nothing.
        explained: each job has its reason; False: nobody reads them, as in a simulated future.

    Raises:
        UnfitAnswer: the answer is for a job that is not there, breaks a job's bounds, or does not fit.
        Exception: whatever the policy raises.
    """
    draft = ask(policy, snapshot, rule)
    draft = check(draft)
    draft = spare(draft)
    draft = keep(draft, start_seconds)
    draft = serve(draft, waited)
    return give_reasons(draft) if explained else draft


def ask(policy: AllocationPolicy, snapshot: Snapshot, rule: NodeRule) -> SlotDraft:
    """Ask a policy to fill the nodes of a snapshot.

    Args:
        policy: is asked.
        snapshot: the cluster at the slot's start.
        rule: the rule by which tasks find their node.
    """
    room = FreeResources(snapshot, rule)
    return SlotDraft(snapshot, rule, policy.allocate(snapshot, room), room)


def check(draft: SlotDraft) -> SlotDraft:
    """Refuse an answer that cannot be done. Raises UnfitAnswer."""
    return replace(draft, room=answer_checks.check(draft.snapshot, draft.allocation, draft.room))


def give_reasons(draft: SlotDraft) -> SlotDraft:
    """Give each grant its reason, and make its counts and its reason what can be written down."""
    grants = {state.job.id: draft.allocation.of(state.job.id) for state in draft.snapshot.jobs}
    reasons = explain(draft.snapshot, Allocation(grants), draft.room)
    told = {
        job: Grant(int(grant.workers), int(grant.servers), words(reasons[str(job)])) for job, grant in grants.items()
    }
    return draft.revised(told, draft.room)


@dataclass(frozen=True)
class CheckedAnswer:
    """A `CheckedAnswer` is the decision of a policy, or of the fallback where the policy failed.

    Attributes:
        draft: for every job of the snapshot, with reasons.
        fault: what was wrong with the policy, so that the fallback decided; "": the policy decided itself.
    """

    draft: SlotDraft
    fault: str = ""


def answer_or_fall_back(
    policy: AllocationPolicy,
    fallback: AllocationPolicy,
    snapshot: Snapshot,
    rule: NodeRule,
    waited: Waited = NOBODY,
    start_seconds: float = 0.0,
) -> CheckedAnswer:
    """Ask a policy, whatever it may do, and the fallback where it raises or answers what cannot be done.

    Args:
        policy: is asked.
        fallback: is trusted.
        snapshot: the cluster at the slot's start.
        rule: the rule by which tasks find their node.
        waited: see `serve_the_waiting`; left out: nobody has waited.
        start_seconds: see `answer`.
    """
    try:
        return CheckedAnswer(answer(policy, snapshot, rule, waited, start_seconds))
    except UnfitAnswer as error:
        fault = words(error)
    except (Exception, SystemExit) as error:
        log.exception("slot %d: the policy has failed", snapshot.slot)
        fault = f"it raised {type(error).__name__}: {words(error)}"
    return CheckedAnswer(answer(fallback, snapshot, rule, waited, start_seconds), fault)


@dataclass(frozen=True)
class SlotDecision:
    """A `SlotDecision` says what is to be done in a slot.

    Attributes:
        policy: the name of the policy that decided.
        allocation: what is done now, with reasons.
        wanted: what the policy wanted, before it was limited, and before jobs explored.
        seen: the slot as the policy saw it, see `KnownSamples`.
        fault: what was wrong with the policy that was asked; "": nothing.
    """

    policy: str
    allocation: Allocation
    wanted: Allocation
    seen: Snapshot
    fault: str


class SlotDecider:
    """A `SlotDecider` decides slot after slot, and remembers who has waited and who was scaled of late.

    Args:
        rule: the rule by which tasks find their node.
        limits: the limits of what may change in a slot.
        history: tells, after a restart, who has waited and who was scaled.
        explorer: lets jobs explore; None: none does.
    """

    def __init__(self, rule: NodeRule, limits: SlotLimits, history: History, explorer: Explorer | None = None):
        self._rule = rule
        self._limits = limits
        self._history = history
        self._explorer = explorer
        self._samples = KnownSamples()
        self._waited: Waited | None = None
        self._scaled: Mapping[JobId, int] | None = None

    def decide(self, policies: SlotPolicies, snapshot: Snapshot, start_seconds: float = 0.0) -> SlotDecision:
        """Decide a slot by the policies that have it.

        Args:
            policies: the policies of the slot.
            snapshot: the cluster at the slot's start.
            start_seconds: see `answer`.
        """
        slot = snapshot.slot
        if self._waited is None:
            recent = self._history.slots(after=self._history.recent(*_RECENT))
            self._waited = waiting_in(map(self._noted, recent))
        if self._scaled is None:
            self._scaled = last_scalings(self._history.slots(after=slot - self._limits.least_slots - 1))
        seen = self._samples.seen(snapshot)
        found = answer_or_fall_back(policies.policy, policies.fallback, seen, self._rule, self._waited, start_seconds)
        draft = limit(_with_fault(found, policies), self._limits, self._scaled)
        if self._explorer is not None and not found.fault:
            draft = self._explorer.explored(draft, self._keeps_to_limits)
        name = policies.fallback_name if found.fault else policies.name
        return SlotDecision(name, draft.allocation, found.draft.allocation, seen, found.fault)

    def _noted(self, slot: RecordedSlot) -> RecordedSlot:
        self._samples.seen(slot.snapshot)
        return slot

    def done(self, snapshot: Snapshot, allocation: Allocation) -> None:
        """Remember what is done in a slot that has been decided: not all of it may have found a place.

        Args:
            snapshot: the cluster at the slot's start.
            allocation: what is done.
        """
        present = {state.job.id for state in snapshot.jobs}
        self._waited = count_waiting(self._waited or NOBODY, snapshot, allocation)
        self._scaled = {job: last for job, last in (self._scaled or {}).items() if job in present}
        self._scaled |= dict.fromkeys(changed_jobs(snapshot, allocation), snapshot.slot)
        if self._explorer is not None:
            self._explorer.done(snapshot, allocation)

    def _keeps_to_limits(self, draft: SlotDraft) -> bool:
        return limit(draft, self._limits, self._scaled or {}) is draft


def _with_fault(found: CheckedAnswer, policies: SlotPolicies) -> SlotDraft:
    """Return the draft, which says what was wrong with the policy where the fallback decided."""
    if not found.fault:
        return found.draft
    why = f"{policies.fallback_name} decided, as {policies.name} failed: {found.fault}"
    grants = {
        job: Grant(grant.workers, grant.servers, f"{grant.reason}; {why}")
        for job, grant in found.draft.allocation.grants.items()
    }
    return found.draft.revised(grants, found.draft.room)
