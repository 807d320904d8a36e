"""Requests are granted: the job wants what they ask for, and no more what they contradict."""

from dataclasses import replace

from coordinator.core.plans.next_configuration import granting, too_many_servers
from coordinator.core.plans.scale_goal import ScaleRequest
from coordinator.core.step_context import StepContext
from elastic_ps.core.configuration import Role

_WITHDRAWN = 100
"""How many requests that came to nothing are remembered, with the reason."""


def grant(context: StepContext, wishes: tuple[ScaleRequest, ...]) -> None:
    """Want what requests ask for now, and no more what they contradict.

    One that waited while the job came to be restored may have been about the servers of before, more than blocks.
    """
    job = context.job
    goal = granting(job, wishes)
    if job.configuration is None and (why := too_many_servers(job, goal.servers)):
        context.log(f"{why}: as many are started")
        goal = goal.changed(Role.SERVER, len(job.model.blocks))
    context.durable(goal=replace(goal, drains=frozenset(goal.drains & job.members.keys())))
    withdraw(context, job.goal.wishes, goal.wishes, wishes[-1])


def withdraw(
    context: StepContext, before: tuple[ScaleRequest, ...], after: tuple[ScaleRequest, ...], by: ScaleRequest
) -> None:
    """Note that another request has replaced some; who waits for these is told.

    Args:
        context: the step that does it.
        before: requests that were wanted or queued.
        after: those of them that still are.
        by: the request that replaces the others.
    """
    for request in before:
        if request not in after:
            come_to_nothing(context, request, f"replaced by: {by}")


def come_to_nothing(context: StepContext, request: ScaleRequest, why: str) -> None:
    """Remember why a request that no plan tells of came to nothing, for who waits for it.

    Args:
        context: the step that does it.
        request: that is wanted no more.
        why: in words that go on from "the request was".
    """
    context.log(f"request {request.number}, {request}, is {why}")
    told = {**context.job.withdrawn, request.number: why}
    context.durable(withdrawn=dict(sorted(told.items())[-_WITHDRAWN:]))
