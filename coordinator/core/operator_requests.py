"""Operators ask to scale, drain, cancel and stop. A refusal says what is wrong and how to mend it."""

from dataclasses import replace

from coordinator.core import replies
from coordinator.core.checkpoints.ending import end
from coordinator.core.directives import wanted
from coordinator.core.effects import Why
from coordinator.core.events import CancelAsked, DrainAsked, ScaleAsked, StopAsked
from coordinator.core.job import DurableJob, JobPhase, StopOrder
from coordinator.core.plans import protection
from coordinator.core.plans.best_fit import moves
from coordinator.core.plans.cancelling import cancel, dismiss_waiting, keep_present_counts
from coordinator.core.plans.granting import grant, withdraw
from coordinator.core.plans.lifecycle import form
from coordinator.core.plans.next_configuration import change, granting, refusal, sizes, target
from coordinator.core.plans.plan import Phase, Plan, PlanKind
from coordinator.core.plans.scale_goal import ScaleGoal, ScaleRequest, uncontradicted
from coordinator.core.step_context import StepContext
from elastic_ps.core.configuration import ConfigId, Member, NodeId, Role
from elastic_ps.core.job_mode import JobMode

BYTES_PER_SECOND = 200e6
"""The speed that is assumed of a migration before the job has seen one."""

_BY_OPERATOR = "cancelled by the operator"

OPERATOR_CAUSE = "operator-controller"
"""How the causes of a Kubernetes operator's requests begin. It guards against mistakes; the token is the authority."""


def on_scale_asked(context: StepContext, event: ScaleAsked) -> None:
    """Scale: wanted counts."""
    job = context.job
    request = ScaleRequest(
        job.requests + 1, event.cause or "operator", event.workers, event.servers, None, event.migration
    )
    why = "" if event.dry_run else not_operators(context, event.cause, "scale")
    why = why or _not_running(context) or refusal(job, _wanted_with(job, request))
    if why:
        context.refuse(event.to, why)
    elif event.dry_run:
        context.reply(event.to, _dry_run(context, _wanted_with(job, request)))
    elif event.queue and (waiting := _asked_already(job, request)):
        context.reply(event.to, _accepted(context, waiting))
    elif why := take_up(context, request, event.queue):
        context.refuse(event.to, why)
    else:
        context.reply(event.to, _accepted(context, request.number))


def _asked_already(job: DurableJob, request: ScaleRequest) -> int:
    """Return the number of the last request that waits, where it asks for the same; 0: it does not.

    Who looks at what is wanted, as an operator on Kubernetes does, asks again and again until the plan under way ends.
    """
    last = job.queued[-1] if job.queued else None
    same = last is not None and replace(request, number=last.number, cause=last.cause) == last
    return last.number if last is not None and same else 0


def _wanted_with(job: DurableJob, request: ScaleRequest) -> ScaleGoal:
    """Return what will be wanted if nothing else comes between."""
    return granting(job, uncontradicted(job.queued, request))


def not_operators(context: StepContext, cause: str, what: str) -> str:
    """Return why a request is for the operator on Kubernetes that runs this job, as its document says; "" where not.

    Args:
        context: the step that asks.
        cause: of the request.
        what: is asked for: "scale", "drain" or "stop".
    """
    settings = context.state.settings
    if not settings.operator or cause.startswith(OPERATOR_CAUSE):
        return ""
    instead = {
        "scale": f"`elasticctl --kube scale {settings.name} --workers N --servers M`, or `kubectl scale`",
        "drain": f"`kubectl delete pod` of the node, or `elasticctl --kube scale {settings.name} ...`",
        "stop": f"`kubectl delete elasticjob {settings.name}`, or set its spec.suspend",
    }
    return f"this job is run by an operator on Kubernetes, which would undo it: {instead[what]}"


def _not_running(context: StepContext) -> str:
    if context.job.ended or context.job.stopping:
        return f"the job has ended: {context.job.reason or 'it is being stopped'}"
    if context.job.finished:
        return "the job is finishing: some of its workers have ended their script"
    return ""


def take_up(context: StepContext, request: ScaleRequest, queue: bool) -> str:
    """Take a request up, or queue it behind the plan under way; return why not, "" if so.

    Args:
        context: the step that does it.
        request: that comes.
        queue: it may wait behind a plan.
    """
    plan = context.job.plan
    if plan is not None and plan.background and plan.open_ended:
        cancel(context, f"it makes room for: {request}")
    elif plan is not None:
        if not queue and not plan.background:
            return f"plan {plan.id} is under way ({plan.phase}); without --no-wait the request is queued behind it"
        before = context.job.queued
        context.durable(queued=uncontradicted(before, request), requests=request.number)
        withdraw(context, before, context.job.queued, request)
        return ""
    told = wanted(context.job)
    context.durable(requests=request.number)
    grant(context, (request,))
    if context.job.configuration is not None:
        dismiss_waiting(context)
    unstart(context, told.starting_workers, told.starting_servers)
    form(context)
    return ""


def unstart(context: StepContext, workers: int, servers: int) -> None:
    """Note how many processes may still come though launchers need not start them any more.

    Args:
        context: the step that does it.
        workers: that launchers had been told to start.
        servers: likewise.
    """
    after = wanted(context.job)
    if not context.state.launchers:
        return
    until = context.now + context.state.settings.join_timeout
    gone = {Role.WORKER: workers - after.starting_workers, Role.SERVER: servers - after.starting_servers}
    context.live(surplus={role: (max(0, count), until) for role, count in gone.items()})


def _accepted(context: StepContext, number: int) -> replies.ScaleReply:
    """Return what has become of request `number`; 0: it was not needed."""
    job = context.job
    lines: tuple[str, ...] = ()
    if not context.state.launchers:
        asked = wanted(job)
        needed = {Role.SERVER: asked.starting_servers, Role.WORKER: asked.starting_workers}
        lines = tuple(_line(context, role) for role in needed for _ in range(needed[role]))
    plan = job.plan.id if job.plan is not None and number in job.plan.requests else 0
    if not plan and any(request.number == number for request in (*job.queued, *job.goal.wishes)):
        return replies.ScaleReply(queued=True, lines=lines, request=number)
    return replace(_effect(context, job.goal), plan=plan, lines=lines, request=number)


def _line(context: StepContext, role: Role) -> str:
    """Return what starts one node by hand."""
    words = [f"elasticrun --role {role}", context.state.settings.join_options]
    if context.job.all_reduces:
        words.append(f"--mode {JobMode.ALL_REDUCE.value}")
    if role is Role.WORKER:
        words.append("SCRIPT [ARGUMENTS]")
    return " ".join(words)


def _effect(context: StepContext, goal: ScaleGoal) -> replies.ScaleReply:
    """Return who comes and who goes, and whether that leaves nobody to follow the last server."""
    job = context.job
    asked = change(job, goal)
    servers = len(job.configuration.servers) if job.configuration is not None else 0
    return replies.ScaleReply(
        joining_workers=asked.workers,
        joining_servers=asked.servers,
        leaving=asked.leavers,
        unprotects=bool(context.state.settings.replicas) and goal.servers == 1 < servers,
    )


def _dry_run(context: StepContext, goal: ScaleGoal) -> replies.ScaleReply:
    job = context.job
    asked = change(job, goal)
    if job.configuration is None or not asked:
        return replies.ScaleReply()
    joiners = [
        Member(f"new {role} {number + 1}", role, "")
        for role in (Role.WORKER, Role.SERVER)
        for number in range(asked.joining(role))
    ]
    configuration = target(job, joiners, asked.leavers, ConfigId(), context.state.settings.replicas)
    blocks = range(len(configuration.assignment))
    old = [job.configuration.primary(block) for block in blocks]
    owned = sizes(job)[: len(blocks)]  # without servers nobody owns any
    listed = tuple(moves(owned, old, [configuration.primary(block) for block in blocks]))
    total = sum(move.bytes for move in listed)
    return replace(_effect(context, goal), moves=listed, bytes_to_move=total, seconds_estimated=total / _speed(context))


def _speed(context: StepContext) -> float:
    """Return the bytes per second of the last migration."""
    for plan in reversed(context.state.history):
        seconds = plan.times.synced - plan.times.prepared
        if plan.phase is Phase.COMMITTED and plan.moved and seconds > 0:
            return sum(plan.moved.values()) / seconds
    return BYTES_PER_SECOND


def on_drain_asked(context: StepContext, event: DrainAsked) -> None:
    """Drain: a plan without one node."""
    if why := not_operators(context, event.cause, "drain") or _not_running(context):
        context.refuse(event.to, why)
    elif event.node not in context.job.nodes:
        known = ", ".join(context.job.nodes) or "none"
        context.refuse(event.to, f"no node named {event.node!r} in this job; its nodes: {known}", Why.NOT_FOUND)
    elif why := drain(context, event.node, event.cause or "operator", event.queue):
        context.refuse(event.to, why)
    elif number := _drain_of(context.job, event.node):
        context.reply(event.to, _accepted(context, number))
    else:  # it holds nothing, and ends by itself
        context.reply(event.to, replies.ScaleReply(leaving=(event.node,)))


def _drain_of(job: DurableJob, name: NodeId) -> int:
    """Return the number of the request that drains a node; 0 where there is none."""
    wishes = (*job.goal.wishes, *job.queued)
    return next((request.number for request in wishes if request.drain is not None and request.drain.id == name), 0)


def drain(context: StepContext, name: NodeId, cause: str, queue: bool) -> str:
    """Let a node go, so that its role's wanted count falls by one; return why not, "" if so.

    The last of its role is replaced: the same plan waits for another one, which gets what it has before it goes. The
    count stays where the node leaves by it already.

    Args:
        context: the step that does it.
        name: of the node.
        cause: for people.
        queue: the request may wait behind a plan.
    """
    job = context.job
    node, plan = job.nodes[name], job.plan
    if node.departing or name in job.goal.drains or _drain_of(job, name):
        return ""
    if plan is not None and _leaves_by(job, plan, name):
        _bind_to_leave(context, node.member, cause)
        return ""
    role = node.role
    if name not in job.members and (plan is None or name not in plan.audience):
        context.durable(goal=job.goal.changed(role, max(1, job.goal.count(role) - 1)))
        context.node(name, stop=StopOrder(f"drained: {cause}"))
        return ""
    request = ScaleRequest(job.requests + 1, cause, drain=node.member)
    return refusal(job, _wanted_with(job, request)) or take_up(context, request, queue)


def _leaves_by(job: DurableJob, plan: Plan, name: NodeId) -> bool:
    """Return whether a node leaves by the plan under way, be it that the plan has not been assigned yet."""
    return name in (plan.leavers if plan.target is not None else change(job, job.goal).leavers)


def _bind_to_leave(context: StepContext, member: Member, cause: str) -> None:
    """Make a request of its own of it that a node leaves: whoever dies meanwhile, this node is not kept instead."""
    job, plan = context.job, context.plan
    request = ScaleRequest(job.requests + 1, cause, drain=member)
    drains = job.goal.drains | ({member.id} & job.members.keys())  # out of force, it only has to hear of its commit
    goal = replace(job.goal, drains=drains, wishes=(*job.goal.wishes, request))
    context.durable(requests=request.number, goal=goal)
    context.replan(requests=(*plan.requests, request.number))


def on_cancel_asked(context: StepContext, event: CancelAsked) -> None:
    """Cancel: the plan under way. What waits behind it is not touched: it is next."""
    plan = context.job.plan
    if event.plan and (plan is None or plan.id != event.plan):
        _answer_for_another(context, event)
    elif plan is None:
        context.refuse(event.to, "no plan is under way")
    elif plan.kind is not PlanKind.SCALE:
        context.refuse(event.to, f"plan {plan.id} ({plan.cause}) cannot be cancelled: the job cannot go on without it")
    elif plan.phase is Phase.ARMED:
        context.refuse(event.to, f"plan {plan.id} is armed: nodes may have switched. Scale back when it is committed")
    elif plan.background:
        protection.give_up(context, _BY_OPERATOR)
        context.reply(event.to, _cancelled(context, plan))
    else:
        told = wanted(context.job)
        cancel(context, _BY_OPERATOR, dismiss=True)
        keep_present_counts(context, plan, _BY_OPERATOR)
        unstart(context, told.starting_workers, told.starting_servers)
        context.reply(event.to, _cancelled(context, plan))


def _answer_for_another(context: StepContext, event: CancelAsked) -> None:
    """Answer for a plan that is not under way: that it is cancelled already, as was asked before, or why not."""
    plan = context.job.plan
    meant = next((ended for ended in context.state.history if ended.id == event.plan), None)
    if meant is not None and meant.reason == _BY_OPERATOR:
        context.reply(event.to, _cancelled(context, meant))
        return
    why = f": {meant.reason}" if meant is not None and meant.reason else ""
    over = f"plan {event.plan} is over ({meant.phase}{why})" if meant is not None else f"there is no plan {event.plan}"
    now = f"plan {plan.id} ({plan.cause}) is under way" if plan is not None else "none is under way"
    context.refuse(event.to, f"{over}; {now}")


def _cancelled(context: StepContext, plan: Plan) -> replies.CancelReply:
    goal, queued = context.job.goal, "; ".join(map(str, context.job.queued))
    return replies.CancelReply(plan.id, queued, goal.workers, goal.servers)


def on_stop_asked(context: StepContext, event: StopAsked) -> None:
    """Stop: the job ends; a checkpoint that is being written is finished first, unless at once."""
    if why := not_operators(context, event.reason, "stop"):
        context.refuse(event.to, why)
        return
    context.reply(event.to, replies.StopReply())
    if context.job.ended:
        return
    if event.failed:
        end(context, JobPhase.FAILED, event.reason)
    elif event.at_once or context.job.loading:  # nothing is being written where the job goes back to a checkpoint
        end(context, JobPhase.FINISHED, event.reason)
    else:
        saving = context.state.saving
        context.durable(stopping=event.reason, stops_behind=saving.root if saving is not None else "")


def stop(context: StepContext) -> bool:
    """End the job, as an operator has asked, once no checkpoint is being written."""
    if not context.job.stopping or context.job.ended or context.state.saving is not None:
        return False
    end(context, JobPhase.FINISHED, context.job.stopping)
    return True
