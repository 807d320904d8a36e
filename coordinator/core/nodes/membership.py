"""This module keeps who is there: registration, leases, exits, deaths."""

from collections.abc import Iterable
from dataclasses import replace

from coordinator.core import replies
from coordinator.core.checkpoints.ending import collapse, end
from coordinator.core.directives import has_handed_over
from coordinator.core.effects import Why
from coordinator.core.events import Exited, Joined, LeaveAsked, Listening, Reported
from coordinator.core.job import OF_ITSELF, DurableJob, JobPhase, RegisteredNode, StopOrder
from coordinator.core.nodes.removals import is_member, owes_copies
from coordinator.core.operator_requests import drain
from coordinator.core.plans.cancelling import cancel
from coordinator.core.plans.next_configuration import static_reason, too_many_servers
from coordinator.core.plans.plan import Phase, PlanKind, chain
from coordinator.core.plans.promotion import survivable
from coordinator.core.records import changed
from coordinator.core.state import ReportedWait, Vitals
from coordinator.core.step_context import StepContext
from elastic_ps.core.configuration import MOST_NODES, Member, NodeId, Role
from elastic_ps.core.exit_status import signal_of
from elastic_ps.core.module_file import ModuleFile
from elastic_ps.core.script_hints import OPTIMIZER_ON_SERVERS


def on_joined(context: StepContext, event: Joined) -> None:
    """Register a process as a worker or a server. One that is known gets the same answer again."""
    job = context.job
    namesake = next((n for n in job.nodes.values() if n.nonce == event.nonce and n.role is event.role), None)
    known = namesake if namesake is not None and _is_process(namesake, event) else None
    if known is None:
        if job.ended or job.stopping:
            context.refuse(event.to, f"the job has ended: {job.stopping or job.reason}", Why.ENDING)
            return
        if namesake is not None:
            context.live(taken=context.state.taken | {event.nonce})
            context.refuse(event.to, _taken(namesake), Why.AGAIN)
            return
        if why := _unwelcome(context, event):
            context.refuse(event.to, why)
            return
        number = job.registered.get(event.role, 0)
        name = f"{event.role[0]}{number}"
        member = Member(name, event.role, event.host, event.port, event.machine)
        known = RegisteredNode(member, event.pid, event.nonce)
        context.durable(
            registered={**job.registered, event.role: number + 1},
            nodes={**job.nodes, name: known},
            modules={**digests(event.modules), **job.modules},
        )
        context.live(taken=context.state.taken - {event.nonce})  # its end is this process's from now on
        context.log(f"{name} registered ({event.host}, pid {event.pid})")
        _unexpected(context, known)
    heard(context, known.id)
    started = context.job.configuration is not None
    context.reply(
        event.to,
        replies.RegisterReply(
            node=known.id,
            lease_seconds=context.state.settings.lease,
            block_bytes=context.job.model.block_bytes,
            seed=context.job.seed,
            started=started,
        ),
    )


def _is_process(node: RegisteredNode, event: Joined) -> bool:
    """Return whether who registers is a known process that repeats itself, and no other one of the same nonce."""
    return (node.pid, node.member.host, node.member.port) == (event.pid, event.host, event.port)


def _taken(node: RegisteredNode) -> str:
    """Return why no process can join by the nonce of another one that may live."""
    return (
        f"{node.id} (pid {node.pid} on {node.member.host}) has joined this job as {node.nonce}: "
        "another process can when the job goes on without it, or by a --nonce-prefix of its own"
    )


def _unwelcome(context: StepContext, event: Joined) -> str:
    job = context.job
    if why := _of_another_mode(job, event):
        return why
    if sum(node.role is event.role for node in job.nodes.values()) >= MOST_NODES:
        return f"{MOST_NODES} {event.role}s are registered with this job, and it has no more of a role"
    if event.role is Role.WORKER and job.configuration is not None and not job.loading:  # else all begin together
        if why := static_reason(job):
            return f"workers cannot join this job: {why}"
        if job.local_update:
            return f"workers cannot join this job: its optimizers live in the workers; give it {OPTIMIZER_ON_SERVERS}"
    changed = [each for each in event.modules if each.digest and job.modules.get(each.name, each.digest) != each.digest]
    if changed:
        return (
            f"{changed[0].path} is not what this job's servers have loaded as module {changed[0].name}: "
            "put it back as it was, or start the job again"
        )
    return ""


def _of_another_mode(job: DurableJob, event: Joined) -> str:
    """Return why a node cannot be of this job as it is made for the other mode; "": it is not.

    A worker that its peers can reach all-reduces with them; one of a job with servers only connects.
    """
    if job.all_reduces and event.role is Role.SERVER:
        return "this job has no servers, and gets none: its workers all-reduce"
    if event.role is Role.WORKER and bool(event.port) is not job.all_reduces:
        mode = "--mode all-reduce" if job.all_reduces else "the mode that has servers, without --mode"
        return f"this worker is of another mode than the job: start it with {mode}"
    return ""


def digests(modules: Iterable[ModuleFile]) -> dict[str, str]:
    """Return the digests of modules that have one, by name."""
    return {module.name: module.digest for module in modules if module.digest}


def _unexpected(context: StepContext, node: RegisteredNode) -> None:
    """Want a node that is beyond the wanted number.

    Not so where a launcher started it for a request since withdrawn, or where it would be a server without blocks.
    """
    job, role = context.job, node.role
    present = sum(n.role is role and not n.departing and n.id not in job.goal.drains for n in job.nodes.values())
    if present <= job.goal.count(role):
        return
    count, until = context.state.surplus.get(role, (0, 0.0))
    if count and context.now < until and job.configuration is not None:
        context.live(surplus={**context.state.surplus, role: (count - 1, until)})
        context.node(node.id, stop=StopOrder("not wanted any more: the request that started this node was withdrawn"))
        return
    if role is Role.SERVER and (why := too_many_servers(job, present)):
        context.node(node.id, stop=StopOrder(why))
        return
    goal = replace(job.goal, cause=f"{node.id} registered")
    context.durable(goal=replace(goal, **{f"{role}s": present}))  # type: ignore[arg-type]


def on_leave_asked(context: StepContext, event: LeaveAsked) -> None:
    """Drain a node that asks to leave."""
    node = context.job.nodes.get(event.node)
    if node is None:
        context.refuse(event.to, f"no node named {event.node!r} is registered", Why.NOT_FOUND)
    elif node.role is not event.role:
        context.refuse(event.to, f"{event.node} is a {node.role}, not a {event.role}", Why.INVALID)
    elif why := drain(context, event.node, f"{event.node} asked to leave", queue=True):
        context.refuse(event.to, why)
    else:
        context.reply(event.to, replies.RegisterReply(event.node, context.state.settings.lease, started=True))


def heard(context: StepContext, name: NodeId, version: int | None = None) -> None:
    """Note a sign of life.

    Args:
        context: the step that does it.
        name: of the node.
        version: that it has told; None: none.
    """
    vitals = context.state.vitals.get(name, Vitals(context.now, back=context.now))
    lease = context.state.settings.lease
    if (
        context.now - vitals.heard > lease / 2 and context.now - vitals.back > 2 * lease
    ):  # else there are gaps all the time
        vitals = changed(vitals, back=context.now)
    if version is not None and version > vitals.version:
        vitals = changed(vitals, version=version, exchanging=False)  # until it says that it waits for another exchange
    vitals = changed(vitals, heard=context.now)
    context.live(vitals={**context.state.vitals, name: vitals})


def on_listening(context: StepContext, event: Listening) -> None:
    """Note that a node has opened its control stream, and which configuration it is in.

    One that is in an armed plan's has decided it. It has not answered SWITCHED by that: what a server answers it for,
    its ledger entries and hand-overs, may be with it alone yet. It says so on the Adopt that it gets.
    """
    heard(context, event.node, event.version)
    vitals = changed(context.state.vitals[event.node], listening=context.now)
    context.live(vitals={**context.state.vitals, event.node: vitals})
    context.note_answers(unheard=context.answers.unheard - {event.node})
    context.live(extended=context.state.extended - {event.node})  # what its old stream held may be lost
    plan = context.job.plan
    if plan is not None and plan.phase is Phase.ARMED and event.highest >= plan.number and event.node in plan.audience:
        context.replan(decided=True)


def on_reported(context: StepContext, event: Reported) -> None:
    """Note a node's version and speed, and renew its lease."""
    heard(context, event.node, event.version)
    before = context.state.vitals[event.node]
    vitals = changed(
        before,
        grew=context.now if (event.bytes, event.copied) != (before.bytes, before.copied) else before.grew,
        step_seconds=event.step_seconds,
        rtt_seconds=event.rtt_seconds,
        rate=event.rate,
        bytes=event.bytes,
        copied=event.copied,
        metrics=event.metrics,
        exchanging=event.exchanging and event.version == before.version,  # one may have been under way for long
        transports=event.transports,
        waits=_noted(event.waits, before.waits, context.now),
        place=max(before.place, event.place),  # a report may come late
        group=event.group,
    )
    context.live(vitals={**context.state.vitals, event.node: vitals})
    if event.finished and event.node not in context.job.finished and is_member(context.job, event.node):
        _finished(context, event.node)


def _noted(waits: tuple[ReportedWait, ...], before: tuple[ReportedWait, ...], now: float) -> tuple[ReportedWait, ...]:
    """Return waits with since when they have been told of; `before`: those of the last report."""
    told = {wait.peer: wait.told for wait in before if wait.unreachable}
    return tuple(changed(wait, told=told.get(wait.peer, now)) for wait in waits)


def _finished(context: StepContext, name: NodeId) -> None:
    context.durable(finished=context.job.finished | {name})
    context.live(finished_at=context.now)
    context.log(f"{name} has finished")
    plan = context.job.plan
    if plan is not None and plan.kind is PlanKind.SCALE and plan.phase is not Phase.ARMED:
        cancel(context, "the job is finishing")


def on_exited(context: StepContext, event: Exited) -> None:
    """Take it that a node has died or ended, as a launcher saw its process end.

    The nonce names the process. Where a journal was deleted, ids are given anew: one of them may be another's by now.
    Where another process was refused for the nonce it may be that one's end: if it is not, the node's lease tells.
    """
    if event.nonce in context.state.taken:
        context.live(taken=context.state.taken - {event.nonce})
        return
    nodes = context.job.nodes.values()
    node = next((n for n in nodes if (event.nonce == n.nonce if event.nonce else event.node == n.id)), None)
    if node is None:
        return
    plan, name = context.job.plan, node.id
    leaving = plan is not None and name in plan.leavers
    if event.status == 0 and node.role is Role.WORKER and is_member(context.job, name) and not node.stop:
        if plan is not None and leaving and plan.phase is Phase.ARMED:  # a leaver's exit is a switch
            left(context, name)
            return
        if plan is not None and any(name in armed.leavers for armed in plan.absorbed):  # it switched before the death
            _remove(context, name)
            return
        if not leaving and name not in context.job.goal.drains and name not in context.job.finished:
            _finished(context, name)
    if event.status != 0 and name in context.job.finished:
        _belie(context, name, event.status)
    bury(context, name, describe_status(event.status))


def _belie(context: StepContext, name: NodeId, status: int) -> None:
    """Note that a process whose script had ended in order, as it seemed, has failed."""
    if not context.job.ended:
        context.durable(finished=context.job.finished - {name})
    elif context.job.phase is JobPhase.FINISHED and not signal_of(status):  # who ends a job may send one
        reason = f"its workers had finished, but {name} ended with {describe_status(status)}"
        context.durable(phase=JobPhase.FAILED, reason=reason)
        context.log(f"job {JobPhase.FAILED}: {reason}", warning=True)


def left(context: StepContext, name: NodeId) -> None:
    """Note that a node which leaves by an armed plan has ended: its exit is a switch."""
    context.note_answers(switched=context.answers.switched | {name})
    context.replan(decided=True)
    _remove(context, name)


def describe_status(status: int) -> str:
    """Return an exit status in words, for people."""
    return f"killed by signal {number}" if (number := signal_of(status)) else f"exit status {status}"


def _remove(context: StepContext, name: NodeId) -> None:
    context.durable(nodes={key: node for key, node in context.job.nodes.items() if key != name})
    context.live(
        # an ended job's status goes on to say how far it came
        vitals={key: value for key, value in context.state.vitals.items() if key != name or context.job.ended},
        welcomed=context.state.welcomed - {name},
        extended=context.state.extended - {name},
    )


def bury(context: StepContext, name: NodeId, why: str) -> None:
    """Go on without a process that is gone; what follows depends on what it was.

    Args:
        context: the step that does it.
        name: of the node.
        why: it is gone, for people.
    """
    job, plan = context.job, context.job.plan
    node, member = job.nodes[name], is_member(context.job, name)
    _remove(context, name)
    if name in job.finished or node.stop is not None or node.left or job.ended:
        return
    context.log(f"{name} is gone: {why}", warning=True)
    if not member:
        if plan is not None and name in plan.joiners:
            cancel(context, f"{name} died while it joined: {why}")
        elif name in job.goal.drains:
            context.durable(goal=replace(job.goal, drains=job.goal.drains - {name}))
        return
    if has_handed_over(context.state, name) and (node.role is Role.WORKER or not owes_copies(context.state)):
        return  # it had done its part
    context.durable(deaths=job.deaths + 1)
    if node.role is Role.SERVER and not survivable(chain(plan, job.configuration), context.job.nodes):
        collapse(context, f"server {name} died ({why})")
    elif node.role is Role.SERVER:
        context.durable(dead=context.job.dead | {name})
    elif job.finished:  # the others have made their last step: there is nothing to do again
        context.durable(finished=context.job.finished | {name}, crashed={**job.crashed, name: why})
        context.live(finished_at=context.now)
    else:
        context.durable(dead=context.job.dead | {name})


def finish(context: StepContext) -> bool:
    """End the job when every worker's script has ended.

    Where workers have left by an armed plan, when those of the plan's target have: it may wait for a server's word for
    as long as it likes.
    """
    job = context.job
    if job.configuration is None:
        return False
    workers = job.configuration.ranks.keys()
    left = workers - job.nodes.keys() - job.dead - job.finished
    target = chain(job.plan, job.configuration)[-1].ranks.keys() if left else workers
    if not workers - left <= job.finished or not target <= job.finished:
        return False
    if job.crashed:
        end(
            context,
            JobPhase.FAILED,
            f"after the last step: {'; '.join(f'{name}: {why}' for name, why in job.crashed.items())}",
        )
    else:
        end(context, JobPhase.FINISHED, OF_ITSELF)
    return True
