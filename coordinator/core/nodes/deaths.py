"""When members die, or their scripts end, the others agree on a configuration without them. See
docs/reference/protocol.md, "A plan".
"""

from collections.abc import Collection
from dataclasses import replace

from coordinator.core.checkpoints.ending import collapse
from coordinator.core.job import DurableJob
from coordinator.core.plans import lifecycle
from coordinator.core.plans.cancelling import cancel
from coordinator.core.plans.lifecycle import answering
from coordinator.core.plans.next_configuration import change, static_reason
from coordinator.core.plans.plan import Phase, Plan, PlanKind, chain
from coordinator.core.plans.promotion import decide
from coordinator.core.plans.transitions import Trigger, advance
from coordinator.core.state import PlanAnswers
from coordinator.core.step_context import StepContext
from elastic_ps.core.configuration import ConfigId, Configuration, Member, NodeId

GRACE_SECONDS = 5.0
"""How long others may still be at work when a script has ended, until it is taken to have ended early."""


def retire(context: StepContext) -> bool:
    """Take those off the configuration whose scripts have ended while others, which may wait for them, go on.

    As these train on, one that has died since the first of them ended had not made its last step: it is replaced.
    """
    job = context.job
    ranks = job.configuration.ranks.keys() if job.configuration is not None else frozenset()
    over = (job.finished & ranks) - job.dead
    if not over or context.now < context.state.finished_at + GRACE_SECONDS or ranks <= job.finished | job.dead:
        return False
    for name in over:
        context.node(name, left=True)
    ended = over - job.crashed.keys()
    context.durable(
        dead=job.dead | over,
        finished=job.finished - (over - ended),
        crashed={name: why for name, why in job.crashed.items() if name not in over},
        goal=replace(job.goal, workers=max(1, job.goal.workers - _beyond_leavers(job, ranks, ended))),
    )
    if ended:
        context.log(f"{', '.join(sorted(ended))} ended while others train: the others go on alone")
    return True


def _beyond_leavers(job: DurableJob, ranks: Collection[NodeId], ended: frozenset[NodeId]) -> int:
    """Return how many of the `ended` go beside those who were to go anyhow, as they are drained or fewer are wanted."""
    alive = frozenset(ranks) - job.dead - job.crashed.keys() - job.goal.drains
    return max(0, len(ended - job.goal.drains) - max(0, len(alive) - job.goal.workers))


def mourn(context: StepContext) -> bool:
    """Begin a plan by which the survivors agree on a configuration without the dead."""
    job, plan = context.job, context.job.plan
    new = job.dead - (plan.dead if plan is not None else frozenset())
    if not new:
        return False
    base = job.configuration
    configurations = chain(plan, base)
    lost = _lost_servers(job, configurations)
    if plan is not None and plan.phase is Phase.ARMED and not job.is_sync and not new & lost:
        return False  # decided, and nobody's switch waits for the dead: it is committed first
    absorbed: tuple[Plan, ...] = ()
    clock = None
    if (
        plan is not None and plan.phase is Phase.ARMED
    ):  # its outcome stands: the dead are taken off the new configuration
        absorbed, clock = (*plan.absorbed, replace(plan, absorbed=())), plan.clock
    elif plan is not None:
        absorbed, clock = plan.absorbed, plan.clock
        context.replan(absorbed=())
        cancel(context, _cause(job))
    assert configurations, "only members of a configuration can be mourned"
    floor = configurations[-1]
    workers = tuple(worker for worker in floor.workers if worker.id not in job.dead)
    if not workers:
        collapse(context, f"the last worker died ({', '.join(sorted(job.dead))})")
        return True
    _enter_death(context, floor, workers, absorbed, clock, lost)
    return True


def _lost_servers(job: DurableJob, configurations: tuple[Configuration, ...]) -> frozenset[NodeId]:
    """Return the servers that a death's chain of configurations names and that are gone, where blocks have followers.

    Those of an earlier death are among them until its plan is committed: not all may have heard who was promoted.
    """
    if not any(configuration.followers for configuration in configurations):
        return frozenset()
    return frozenset(s.id for configuration in configurations for s in configuration.servers) - job.nodes.keys()


def _enter_death(
    context: StepContext,
    floor: Configuration,
    workers: tuple[Member, ...],
    absorbed: tuple[Plan, ...],
    clock: int | None,
    lost: frozenset[NodeId],
) -> None:
    job = context.job
    configuration = replace(floor, id=ConfigId(job.term, job.number + 1), workers=workers)
    plan = _death_plan(context, configuration, floor, absorbed, clock, lost)
    context.durable(plan=plan, plans=plan.id, number=configuration.id.number)
    context.live(answers=PlanAnswers())
    if context.state.saving is not None and not context.state.saving.writing:
        context.live(saving=replace(context.state.saving, clock=None, saved={}))
    died = [name for name in _died(job) if name not in lost]
    if died and _irreplaceable(job):
        context.durable(
            goal=replace(context.job.goal, workers=len(workers)), unshared=tuple(sorted({*job.unshared, *died}))
        )
        context.log(lost_shares(context.job), warning=True)
    without = ", ".join(sorted(job.dead))
    context.log(f"plan {plan.id} ASSIGNED: configuration {configuration.id} without {without}", bool(_died(job)))


def _death_plan(
    context: StepContext,
    configuration: Configuration,
    floor: Configuration,
    absorbed: tuple[Plan, ...],
    clock: int | None,
    lost: frozenset[NodeId],
) -> Plan:
    """Return the plan by which all that live adopt `configuration`; it is assigned from the beginning."""
    job = context.job
    known = dict.fromkeys([*job.members, *floor.members, *(name for plan in absorbed for name in plan.audience)])
    audience = tuple(name for name in known if name in job.nodes and not job.nodes[name].departing)
    plan = Plan(
        id=job.plans + 1,
        kind=PlanKind.DEATH,
        cause=_cause(job),
        started=context.now,
        base=job.configuration,
        target=configuration,
        number=configuration.id,
        audience=audience,
        joiners=tuple(name for name in audience if name in configuration.members and name not in job.members),
        leavers=tuple(name for name in audience if name not in configuration.members),
        dead=job.dead | lost,
        clock=clock,
        restore=job.restore if job.configuration is None else "",
        absorbed=absorbed,
        asks=bool(lost),
        requests=_fulfilled(job, configuration, lost),
    )
    return replace(advance(plan, Trigger.COMPLETE, context.now), times=replace(plan.times, assigned=context.now))


def _fulfilled(job: DurableJob, configuration: Configuration, lost: frozenset[NodeId]) -> tuple[int, ...]:
    """Return the requests that a death brings about: who was to go has died, or the job is as wanted without the dead.

    The plan that was to fulfil them is cancelled, and none comes behind.
    """
    gone = job.dead | lost
    is_as_wanted = not lost and not change(replace(job, configuration=configuration), job.goal)
    return tuple(
        request.number
        for request in job.goal.wishes
        if is_as_wanted or (request.drain is not None and request.drain.id in gone)
    )


def promote(context: StepContext) -> bool:
    """Decide who owns what after a server's death, once all survivors have said what they have."""
    plan, job = context.job.plan, context.job
    if plan is None or not plan.undecided or not answering(context) <= context.answers.prepared:
        return False
    assert plan.target is not None
    configurations, known = chain(plan, job.configuration), len(plan.target.assignment)
    earlier = plan.absorbed[-1] if plan.absorbed else None
    promoted = earlier.promoted if earlier is not None and earlier.asks else None
    young = range(job.settled if job.configuration is not None else known, known)  # before: they may be restored
    holdings = context.answers.holdings
    decision = decide(configurations, plan.target, job.nodes, holdings, promoted=promoted, young=young)
    if decision.lost:
        count = len(decision.lost)
        blocks = f"block {decision.lost[0]}" if count == 1 else f"{count} blocks"
        newest = f"as new as a worker has seen {'it' if count == 1 else 'them'}"
        collapse(context, f"{_cause(job)}: nobody has {blocks} {newest}")
        return True
    decided = decision.configuration
    context.replan(
        target=decided,
        promoted=decision.promoted,
        joiners=tuple(name for name in plan.audience if name in decided.members and name not in job.members),
        leavers=tuple(name for name in plan.audience if name not in decided.members),
    )
    lifecycle.agree(context)
    return True


def _irreplaceable(job: DurableJob) -> bool:
    """Return whether no worker could take the place of the dead."""
    return bool(static_reason(job)) or job.local_update


def lost_shares(job: DurableJob) -> str:
    """Return what dead workers have left undone that nobody takes over, for people; "" where that is nothing."""
    if not job.unshared:
        return ""
    verb, whose = ("is", "its") if len(job.unshared) == 1 else ("are", "their")
    return (
        f"{', '.join(job.unshared)} died and {verb} not replaced: nobody trains on {whose} share of the data (static)"
    )


def _died(job: DurableJob) -> list[NodeId]:
    return sorted(job.dead - (job.finished - job.crashed.keys()))


def _cause(job: DurableJob) -> str:
    """Return why there is a plan without the dead, for people."""
    died = _died(job)
    over = sorted(job.dead.difference(died))
    causes = []
    if died:
        worked = any(job.configuration is not None and name in job.configuration.ranks for name in died)
        left = "; nobody trains on its share of the data" if worked and _irreplaceable(job) else ""
        causes.append(f"death of {', '.join(died)}{left}")
    if over:
        causes.append(f"{', '.join(over)} {'have' if len(over) > 1 else 'has'} finished")
    return "; ".join(causes)
