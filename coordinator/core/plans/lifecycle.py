"""A plan is formed, assigned, synced, armed and committed (DL2 section 5); this module does each of it.

Handlers of events only note facts; the rules here look at the facts and move the plan on. So the order in which
answers arrive does not matter, and a restart needs no rules of its own.
"""

from dataclasses import replace

from coordinator.core.checkpoints.saves_in_the_way import make_way
from coordinator.core.directives import awaited_copies, awaited_steps, awaited_to_sync, landed, unextended
from coordinator.core.job import DurableJob, JobPhase
from coordinator.core.nodes.failure_detection import severed
from coordinator.core.plans.cancelling import cancel, dismiss_waiting, give_up, refuse
from coordinator.core.plans.granting import grant
from coordinator.core.plans.next_configuration import RosterChange, change, refusal, target
from coordinator.core.plans.plan import MigrationMode, Phase, Plan, PlanKind, Times
from coordinator.core.plans.scale_goal import ScaleGoal, ScaleRequest
from coordinator.core.plans.scaling_clock import scaling_clock
from coordinator.core.plans.transitions import Trigger, advance
from coordinator.core.state import PlanAnswers
from coordinator.core.step_context import StepContext
from elastic_ps.core.configuration import ConfigId, NodeId, Role
from elastic_ps.core.errors import ConfigurationError


def form(context: StepContext) -> bool:
    """Begin a plan where what is wanted differs from what is."""
    job = context.job
    if job.plan is not None or job.finished or job.dead:
        return False
    if job.queued:
        context.durable(queued=())
        grant(context, job.queued)
        dismiss_waiting(context)
        return True
    asked = change(job, job.goal)
    if not asked:
        return _has_tidied(context)
    kind = PlanKind.START if job.configuration is None else PlanKind.SCALE
    pause = job.goal.pauses or context.state.settings.migration is MigrationMode.PAUSE
    plan = Plan(
        id=job.plans + 1,
        kind=kind,
        cause=job.goal.cause,
        started=context.now,
        migration=MigrationMode.PAUSE if pause else MigrationMode.LIVE,
        deadline=context.now + context.state.settings.join_timeout,
        requests=tuple(request.number for request in job.goal.wishes if _fulfils(job, asked, request)),
    )
    context.durable(plan=plan, plans=plan.id)
    context.log(f"plan {plan.id} REGISTERED ({plan.cause})")
    if why := refusal(job, job.goal):
        refuse(context, why)
    return True


def _fulfils(job: DurableJob, asked: RosterChange, request: ScaleRequest) -> bool:
    """Return whether the plan for a change brings about what a request asks for.

    Not where the node that is to go is the last one of a job without servers: it goes by the plan behind.
    """
    drained = request.drain.id if request.drain is not None else ""
    return drained not in job.members or drained in asked.leavers


def _has_tidied(context: StepContext) -> bool:
    """Forget requests, or end nodes, for which there is nothing to do as the job is as wanted; return if any were.

    A node may wait to join that is not needed any more: the goal falls, too, where a script ends before the others.
    """
    if context.job.goal.wishes:
        context.durable(goal=replace(context.job.goal, wishes=()))
    elif any(context.job.waiting(role) for role in Role):
        dismiss_waiting(context)
    else:
        return False
    return True


def assign(context: StepContext) -> bool:
    """Assign blocks for a REGISTERED plan, once all expected have come or the time is up."""
    plan, job, settings = context.job.plan, context.job, context.state.settings
    if plan is None or plan.phase is not Phase.REGISTERED or job.dead:
        return False
    if (
        context.state.declarations
        or unextended(context.state)
        or context.now < context.state.grown_at + settings.settle
    ):
        return False
    asked = change(job, job.goal)
    if not asked:
        give_up(context, "nothing is left to do")
        return True
    joiners = [name for role in Role for name in job.waiting(role)[: asked.joining(role)]]
    missing = _missing(context, joiners)
    if missing and context.now < plan.deadline:
        return False
    if missing and not _settle_for_less(context, joiners, missing):
        return False
    if context.job.plan is None:
        return True
    _enter_assigned(context, joiners, missing)
    return True


def _missing(context: StepContext, joiners: list[NodeId]) -> tuple[str, ...]:
    asked = change(context.job, context.job.goal)
    short = {role: asked.joining(role) - sum(context.job.nodes[n].role is role for n in joiners) for role in Role}
    return tuple(f"{count} {role}{'s' if count > 1 else ''}" for role, count in short.items() if count)


def _settle_for_less(context: StepContext, joiners: list[NodeId], missing: tuple[str, ...]) -> bool:
    """join_timeout has passed: go on with those present, and want no more than them. False: keep waiting.

    Nobody can follow the blocks of a job's only server. So a job with replicas goes on to want the others, until they
    come or somebody cancels the plan.
    """
    job, settings = context.job, context.state.settings
    present = {role: sum(job.nodes[name].role is role for name in joiners) for role in Role}
    timeout = f"not registered within {settings.join_timeout:g} s: {', '.join(missing)}"
    if context.plan.kind is PlanKind.START and not all(
        count or not job.goal.count(role) for role, count in present.items()
    ):
        context.replan(deadline=context.now + settings.join_timeout)
        context.durable(reason=timeout)
        context.log(f"the job cannot start: {timeout}", warning=True)
        return False
    asked = change(job, job.goal)
    goal = replace(
        job.goal,
        workers=job.goal.workers - asked.workers + present[Role.WORKER],
        servers=job.goal.servers - asked.servers + present[Role.SERVER],
    )
    if why := refusal(job, goal):
        give_up(context, f"{timeout}; without them: {why}")
        return True
    if goal.servers <= settings.replicas < job.goal.servers:
        _want(context, replace(goal, servers=job.goal.servers), timeout)
        return _await_followers(context, joiners, timeout)
    _want(context, goal, timeout)
    if not change(context.job, goal):
        give_up(context, timeout)
    return True


def _want(context: StepContext, goal: ScaleGoal, timeout: str) -> None:
    """Want fewer than before, and say so: nobody has asked for it, and nothing tries again."""
    counts = ((role, goal.count(role)) for role in Role)
    wanted = ", ".join(f"{count} {role}{'s' if count > 1 else ''}" for role, count in counts if count)
    if goal != context.job.goal:
        context.log(f"plan {context.plan.id}: {timeout}: the job goes on without, and wants {wanted} now", warning=True)
    context.durable(goal=goal)


def _await_followers(context: StepContext, joiners: list[NodeId], timeout: str) -> bool:
    """Go on with those present, if any; the servers that lack are wanted as before. False: keep waiting."""
    if joiners or change(context.job, context.job.goal).leavers:
        return True  # the next plan waits for the others
    if context.job.queued:
        cancel(context, timeout)
        return True
    context.replan(deadline=context.now + context.state.settings.join_timeout)
    context.log(f"no other server can follow the blocks of this job's last one yet: {timeout}", warning=True)
    return False


def _enter_assigned(context: StepContext, joiners: list[NodeId], missing: tuple[str, ...]) -> None:
    job, plan = context.job, context.plan
    leavers = change(job, job.goal).leavers
    number = ConfigId(job.term, job.number + 1)
    try:
        members = [job.nodes[name].member for name in joiners]
        configuration = target(job, members, leavers, number, context.state.settings.replicas)
    except ConfigurationError as error:
        refuse(context, str(error))
        return
    old = tuple(name for name in job.members if name in job.nodes)
    plan = replace(
        advance(plan, Trigger.COMPLETE, context.now),
        base=job.configuration,
        target=configuration,
        number=number,
        audience=(*old, *joiners),
        joiners=tuple(joiners),
        leavers=leavers,
        missing=missing,
        restore=job.restore if plan.kind is PlanKind.START else "",
        times=replace(plan.times, assigned=context.now),
    )
    context.durable(plan=plan, number=number.number)
    known = context.state.welcomed | (set(joiners) if job.configuration is not None else set())
    context.live(answers=PlanAnswers(), welcomed=known)
    context.log(f"plan {plan.id} ASSIGNED: configuration {number}")


def answering(context: StepContext) -> frozenset[NodeId]:
    """Return whose answers the plan needs: its audience, without those whose script has ended."""
    return frozenset(name for name in context.plan.audience if name in context.job.nodes) - context.job.finished


def prepared(context: StepContext) -> bool:
    """Move an ASSIGNED plan on once everyone holds its configuration ready."""
    plan = context.job.plan
    if plan is None or plan.phase is not Phase.ASSIGNED or not answering(context) <= context.answers.prepared:
        return False
    if plan.kind is not PlanKind.SCALE:
        agree(context)
        return True
    times = replace(plan.times, prepared=context.now)
    context.durable(plan=replace(advance(plan, Trigger.PREPARED, context.now), times=times))
    context.log(f"plan {plan.id} {context.plan.phase}")
    return True


def agree(context: StepContext) -> None:
    """Arm a start or a death, whose configuration everyone holds ready: nothing has to catch up."""
    plan = context.plan
    times = replace(plan.times, prepared=context.now, synced=context.now)
    context.durable(plan=replace(advance(plan, Trigger.AGREED, context.now), times=times, decided=True))
    context.log(f"plan {plan.id} {context.plan.phase}")


def arm(context: StepContext) -> bool:
    """Arm a SYNCING plan once everyone has caught up; those who write a checkpoint must stay."""
    plan = context.job.plan
    if plan is None or plan.phase is not Phase.SYNCING:
        return False
    if unextended(context.state):  # somebody reconnects: its Extend is about the configuration that this plan replaces
        return False
    if not awaited_to_sync(context.job, plan) <= context.answers.synced:
        return False
    assert plan.target is not None
    if severed(context.state, plan.target.members):  # armed, the plan could not be cancelled any more
        return False
    if not make_way(context, plan):
        return False
    armed = replace(advance(plan, Trigger.SYNCED, context.now), times=replace(plan.times, synced=context.now))
    context.durable(plan=armed)
    if context.job.model.blocks and context.job.is_sync and not plan.background:
        context.replan(clock=_clock(context))
        context.log(f"plan {plan.id} ARMED at {context.plan.clock}")
    else:  # there is no common version, or it stands still until there is a model, or nobody need wait: no clock
        context.replan(decided=True)
        context.log(f"plan {plan.id} ARMED, decided at once")
    return True


def _clock(context: StepContext, version: int = 0) -> int:
    told = [context.state.vitals[name] for name in context.plan.audience if name in context.state.vitals]
    data = context.job.data
    margin = context.state.settings.margin << min(context.plan.rearms, 9)
    return scaling_clock(told, data.exchanges if data else 1, margin, max(version, context.state.version))


def rearm(context: StepContext) -> bool:
    """Set a later clock for an undecided plan, after a LATE, or after a restart once everyone has been heard."""
    plan, answers = context.job.plan, context.answers
    if plan is None or plan.phase is not Phase.ARMED or plan.decided:
        return False
    unheard = answers.unheard & context.job.nodes.keys()
    asked = answers.until > 0
    if unheard and context.now < answers.until:
        return False
    if answers.switched or unheard:  # somebody may have switched: adopting is right in any case, arming is not
        context.replan(decided=True)
        context.note_answers(unheard=frozenset(), until=0.0)
        return True
    if answers.late is None and not asked:
        return False
    later = replace(advance(plan, Trigger.LATE, context.now), rearms=plan.rearms + 1)
    context.durable(plan=later)
    context.replan(clock=max(_clock(context, answers.late or 0), (plan.clock or 0) + 1))
    context.note_answers(late=None, unheard=frozenset(), until=0.0, armed=frozenset())
    context.log(f"plan {plan.id} ARMED again, at {context.plan.clock}")
    return True


def land(context: StepContext) -> bool:
    """Put an ARMED plan's target in force once everyone who is alive has switched."""
    plan = context.job.plan
    if plan is None or plan.phase is not Phase.ARMED or landed(context.state):
        return False
    if not plan.decided or not answering(context) <= context.answers.switched:
        return False
    assert plan.target is not None
    first = plan.times.first_switched or context.now
    clock = plan.clock if plan.clock is None else max(plan.clock, context.answers.reached)
    context.replan(clock=clock, times=replace(plan.times, first_switched=first, last_switched=context.now))
    goal = context.job.goal
    context.durable(
        configuration=plan.target,
        settled=len(plan.target.assignment),
        dead=context.job.dead.intersection(plan.target.members),
        finished=context.job.finished.intersection(plan.target.members),
        crashed={name: why for name, why in context.job.crashed.items() if name in plan.target.members},
        goal=replace(goal, drains=goal.drains - set(plan.leavers) - plan.dead),
        phase=JobPhase.RUNNING,
        reason="",
    )
    rates_are_over = {name: replace(vitals, rate=0.0) for name, vitals in context.state.vitals.items()}
    context.live(extended=context.state.extended | set(plan.joiners), vitals=rates_are_over)
    _say_if_alone(context, plan)
    return True


def _say_if_alone(context: StepContext, plan: Plan) -> None:
    """Log that nothing is protected where the job has come to one server, though it was asked for."""
    assert plan.target is not None
    before = len(plan.base.servers) if plan.base is not None else 0
    if context.state.settings.replicas and len(plan.target.servers) == 1 != before:
        context.log("the job has one server: no block is protected until a second one joins", warning=True)


def commit(context: StepContext) -> bool:
    """Commit a plan once all have made the first step of its configuration, so that frozen copies may go."""
    plan, state = context.job.plan, context.state
    if plan is None or not landed(state) or awaited_copies(state, plan) or awaited_steps(state, plan):
        return False
    assert plan.target is not None
    for name in plan.audience:
        if name not in plan.target.members:
            context.node(name, left=True)
    records = (*plan.absorbed, plan)
    fulfilled = {number for record in records for number in record.requests}
    wishes = tuple(request for request in context.job.goal.wishes if request.number not in fulfilled)
    context.durable(restore="", unread={}, goal=replace(context.job.goal, wishes=wishes))
    for record in records:
        context.close(replace(advance(record, Trigger.SWITCHED, context.now), times=_times(record, plan)))
    context.durable(plan=None)
    context.live(answers=PlanAnswers())
    return True


def _times(record: Plan, final: Plan) -> Times:
    """Return the times of an absorbed plan: its switch is that of the plan that carried it."""
    first = record.times.first_switched or final.times.first_switched
    return replace(record.times, first_switched=first, last_switched=final.times.last_switched)
