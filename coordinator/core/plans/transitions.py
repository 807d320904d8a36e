"""Transitions lead from one phase of a plan to the next. The picture in docs/ is drawn from it."""

from dataclasses import dataclass, replace
from enum import StrEnum

from coordinator.core.plans.plan import Phase, PhaseEntered, Plan


class Trigger(StrEnum):
    """A trigger moves a plan on."""

    COMPLETE = "complete"
    PREPARED = "prepared"
    AGREED = "agreed"
    SYNCED = "synced"
    LATE = "late"
    SWITCHED = "switched"
    CANCEL = "cancel"
    DROP = "drop"


@dataclass(frozen=True)
class Transition:
    """A transition is one arrow of the picture."""

    source: Phase
    trigger: Trigger
    target: Phase
    when: str


TRANSITIONS = (
    Transition(Phase.REGISTERED, Trigger.COMPLETE, Phase.ASSIGNED, "all expected have registered, or join_timeout"),
    Transition(Phase.ASSIGNED, Trigger.PREPARED, Phase.SYNCING, "all have answered PREPARED"),
    Transition(Phase.ASSIGNED, Trigger.AGREED, Phase.ARMED, "all have answered PREPARED; start or death: no clock"),
    Transition(Phase.SYNCING, Trigger.SYNCED, Phase.ARMED, "all joining workers and new owners have answered SYNCED"),
    Transition(Phase.ARMED, Trigger.LATE, Phase.ARMED, "a node is past the clock and nobody has switched: a later one"),
    Transition(
        Phase.ARMED,
        Trigger.SWITCHED,
        Phase.COMMITTED,
        "all have switched, new owners have all blocks, and the workers made a step since (sync)",
    ),
    *(
        Transition(phase, Trigger.CANCEL, Phase.CANCELLED, "an operator, a death, new tensors, a restart")
        for phase in (Phase.REGISTERED, Phase.ASSIGNED, Phase.SYNCING)
    ),
    Transition(Phase.ARMED, Trigger.DROP, Phase.DROPPED, "the job ends, or goes back to its checkpoint"),
)

_TABLE = {(row.source, row.trigger): row.target for row in TRANSITIONS}


class ImpossibleTransitionError(Exception):
    """A transition that is not in `TRANSITIONS` is a bug: the plan's history is in the message."""


def advance(plan: Plan, trigger: Trigger, now: float) -> Plan:
    """Return the plan in its next phase.

    Args:
        plan: as it is.
        trigger: what moves it on.
        now: unix seconds.

    Raises:
        ImpossibleTransitionError: `TRANSITIONS` has no such row.
    """
    target = _TABLE.get((plan.phase, trigger))
    if target is None:
        trail = ", ".join(f"{passed.trigger} -> {passed.phase} at {passed.at:.3f}" for passed in plan.trail)
        raise ImpossibleTransitionError(
            f"plan {plan.id} ({plan.kind}) cannot {trigger} in {plan.phase}; history: {trail}"
        )
    return replace(plan, phase=target, trail=(*plan.trail, PhaseEntered(now, trigger, target)))
