"""A plan that cannot be, or is not wanted any more, is cancelled; this module does it, and says what is wanted then."""

from dataclasses import replace

from coordinator.core.checkpoints.ending import end
from coordinator.core.job import CancelOrder, JobPhase, StopOrder
from coordinator.core.plans.granting import come_to_nothing
from coordinator.core.plans.next_configuration import change
from coordinator.core.plans.plan import Plan, PlanKind
from coordinator.core.plans.transitions import Trigger, advance
from coordinator.core.state import PlanAnswers
from coordinator.core.step_context import StepContext
from elastic_ps.core.configuration import Role


def refuse(context: StepContext, why: str) -> None:
    """Give up the plan under way, which cannot be; without a configuration to go on with, the job too."""
    if context.plan.kind is PlanKind.START:
        end(context, JobPhase.FAILED, f"{why}: start with fewer servers")
    else:
        give_up(context, why)


def give_up(context: StepContext, reason: str) -> None:
    """Cancel a plan, and want what there is: nothing is tried again."""
    plan = context.plan
    cancel(context, reason, dismiss=True)
    keep_present_counts(context, plan, reason)


def keep_present_counts(context: StepContext, plan: Plan, why: str) -> None:
    """Want what there is, and end nodes that wait to join.

    Args:
        context: the step that does it.
        plan: the one that was given up: it tells of its own requests. Others were to be fulfilled by the next plan.
        why: it was.
    """
    configuration = context.job.configuration
    if configuration is None:
        return
    for request in context.job.goal.wishes:
        if request.number not in plan.requests:
            come_to_nothing(context, request, f"given up with plan {plan.id}: {why}")
    goal = replace(
        context.job.goal,
        workers=len(configuration.workers),
        servers=len(configuration.servers),
        drains=frozenset(),
        wishes=(),
    )
    context.durable(goal=goal)
    dismiss_waiting(context)


def dismiss_waiting(context: StepContext) -> None:
    """End nodes beyond those that the goal needs, the last to come first."""
    asked = change(context.job, context.job.goal)
    for role in Role:
        for name in context.job.waiting(role)[asked.joining(role) :]:
            context.node(name, stop=StopOrder("not wanted any more: the job needs no further node"))


def cancel(context: StepContext, reason: str, dismiss: bool = False) -> None:
    """End a plan that is not armed.

    Args:
        context: the step that does it.
        reason: for people.
        dismiss: its joiners leave; else they wait for the next plan.
    """
    plan = context.plan
    for name in plan.audience if plan.target else ():
        leave = dismiss and name in plan.joiners
        context.node(name, cancel=CancelOrder(plan.number, reason, leave))
    cancelled = advance(plan, Trigger.CANCEL, context.now)
    context.durable(plan=None)
    context.live(answers=PlanAnswers())
    context.close(replace(cancelled, reason=reason))
