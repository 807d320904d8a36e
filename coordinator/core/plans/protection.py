"""Protection says which blocks survive the death of a server; a background plan protects those that would not.

That plan moves no block and changes no roster, and it needs no clock. It gives way to whatever else is wanted of the
job: a request, nodes that have come to join, a death, new tensors.
"""

from dataclasses import dataclass, replace

from coordinator.core.directives import unextended
from coordinator.core.job import DurableJob, JobPhase
from coordinator.core.plans.cancelling import cancel
from coordinator.core.plans.next_configuration import change, filled
from coordinator.core.plans.plan import Phase, Plan, PlanKind, chain
from coordinator.core.plans.transitions import Trigger, advance
from coordinator.core.state import PlanAnswers
from coordinator.core.step_context import StepContext
from elastic_ps.core.configuration import ConfigId, Configuration, Role

RETRY_SECONDS = 30.0
"""Seconds after which blocks are protected anew, when a plan that was to do it was given up, or cancelled by hand."""


@dataclass(frozen=True)
class Protection:
    """A protection counts the blocks that the death of one server would not take from the job, and their bytes.

    Attributes:
        blocks: protected ones.
        nbytes: of these.
        all_blocks: of the model.
        all_nbytes: of these.
    """

    blocks: int
    nbytes: int
    all_blocks: int
    all_nbytes: int


def protection(job: DurableJob) -> Protection:
    """Return how much of a job is protected: what the configuration that was committed last names a follower for.

    Both it and the owner must live. A configuration that is armed or in force counts when it is committed, not before.
    """
    sizes = [block.nbytes for block in job.model.blocks]
    configurations = chain(job.plan, job.configuration)
    first = (*job.plan.absorbed, job.plan)[0] if job.plan is not None else None
    starts = first is not None and first.phase is Phase.ARMED and first.base is None
    if not configurations or starts:
        return Protection(0, 0, len(sizes), sum(sizes))
    held = followed(job, configurations[0])
    return Protection(len(held), sum(sizes[block] for block in held), len(sizes), sum(sizes))


def followed(job: DurableJob, configuration: Configuration) -> list[int]:
    """Return the blocks for which a configuration names an owner and a follower that both live."""
    living = {place for place, server in enumerate(configuration.servers) if server.id in job.nodes}
    pairs = zip(configuration.assignment, configuration.followers, strict=False)
    return [block for block, (owner, follower) in enumerate(pairs) if {owner, follower} <= living]


def protect(context: StepContext) -> bool:
    """Begin a plan that makes followers for blocks which have none, or let one make room."""
    job, plan = context.job, context.job.plan
    if plan is not None:
        if not (plan.background and plan.open_ended and _is_called_for(job)):
            return False
        cancel(context, "it makes room for another plan")
        return True
    if not _may_begin(context):
        return False
    assert job.configuration is not None
    lacking = _lacking(job.configuration)
    followers = filled(job, job.configuration) if lacking else None
    if not followers:
        return False
    _begin(context, job.configuration, followers, lacking)
    return True


def give_up(context: StepContext, reason: str) -> None:
    """Cancel a background plan, and begin none for a while.

    Args:
        context: the step that does it.
        reason: for people.
    """
    cancel(context, reason)
    context.live(protect_after=context.now + RETRY_SECONDS)


def _is_called_for(job: DurableJob) -> bool:
    """Return whether another plan is wanted, and need not wait for processes that are yet to come."""
    asked = change(job, job.goal)
    return bool(job.queued) or (bool(asked) and all(len(job.waiting(role)) >= asked.joining(role) for role in Role))


def _may_begin(context: StepContext) -> bool:
    state, job = context.state, context.job
    if not state.settings.replicas or job.phase is not JobPhase.RUNNING or job.configuration is None:
        return False
    if job.finished or job.dead or state.declarations or unextended(state) or job.stopping:
        return False
    if context.now < max(state.grown_at + state.settings.settle, state.protect_after):
        return False
    return len(job.configuration.servers) > 1 and not _is_called_for(job)


def _lacking(configuration: Configuration) -> int:
    """Return how many blocks have no follower."""
    return len(configuration.assignment) - sum(follower >= 0 for follower in configuration.followers)


def _begin(context: StepContext, base: Configuration, followers: tuple[int, ...], lacking: int) -> None:
    job = context.job
    number = ConfigId(job.term, job.number + 1)
    plan = Plan(
        id=job.plans + 1,
        kind=PlanKind.SCALE,
        cause=f"{lacking} block{'s have' if lacking > 1 else ' has'} no follower",
        started=context.now,
        base=base,
        target=replace(base, id=number, followers=followers),
        number=number,
        audience=tuple(name for name in job.members if name in job.nodes),
        background=True,
    )
    plan = replace(advance(plan, Trigger.COMPLETE, context.now), times=replace(plan.times, assigned=context.now))
    context.durable(plan=plan, plans=plan.id, number=number.number)
    context.live(answers=PlanAnswers())
    context.log(f"plan {plan.id} ASSIGNED: configuration {number} ({plan.cause})")
