"""Who is there: registration, leases, exits, deaths."""

from dataclasses import replace

from coordinator.core import replies
from coordinator.core.checkpoints.ending import collapse, end
from coordinator.core.effects import Why
from coordinator.core.events import Exited, Joined, LeaveAsked, Listening, Reported
from coordinator.core.nodes.suspicions import is_member
from coordinator.core.operator_requests import drain
from coordinator.core.plans.lifecycle import cancel
from coordinator.core.plans.next_configuration import static_reason
from coordinator.core.plans.plan import Kind, Phase
from coordinator.core.state import JobPhase, Node, StopOrder, Vitals
from coordinator.core.step_context import Turn
from elastic_ps.core.configuration import Member, NodeId, Role


def on_joined(turn: Turn, event: Joined) -> None:
    """INC_WORKER or INC_SERVER. A nonce that is known gets the same answer again."""
    job = turn.job
    known = next((node for node in job.nodes.values() if node.nonce == event.nonce and node.role is event.role), None)
    if known is None:
        if job.ended or turn.state.stopping:
            turn.refuse(event.to, f"the job has ended: {job.reason or turn.state.stopping}", Why.ENDING)
            return
        if why := _unwelcome(turn, event):
            turn.refuse(event.to, why)
            return
        number = job.registered.get(event.role, 0)
        name = f"{event.role[0]}{number}"
        known = Node(Member(name, event.role, event.host, event.port), event.pid, event.nonce)
        turn.durable(registered={**job.registered, event.role: number + 1}, nodes={**job.nodes, name: known})
        turn.log(f"{name} registered ({event.host}, pid {event.pid})")
        _unexpected(turn, known)
    heard(turn, known.id)
    started = turn.job.configuration is not None
    turn.reply(
        event.to,
        replies.RegisterReply(
            node=known.id,
            lease_seconds=turn.state.settings.lease,
            block_bytes=turn.job.model.block_bytes,
            seed=turn.job.seed,
            started=started,
        ),
    )


def _unwelcome(turn: Turn, event: Joined) -> str:
    job = turn.job
    if event.role is Role.WORKER and job.configuration is not None:
        if why := static_reason(job):
            return f"workers cannot join this job: {why}"
        if job.local_update:
            return "workers cannot join this job: its optimizers live in the workers (update_on_kvstore=False)"
    return ""


def _unexpected(turn: Turn, node: Node) -> None:
    """A node beyond the wanted number is a wish of its own, unless a launcher started it for a wish since withdrawn."""
    job, role = turn.job, node.role
    present = sum(n.role is role and not n.departing and n.id not in job.goal.drains for n in job.nodes.values())
    if present <= job.goal.count(role):
        return
    count, until = turn.state.surplus.get(role, (0, 0.0))
    if count and turn.now < until and job.configuration is not None:
        turn.live(surplus={**turn.state.surplus, role: (count - 1, until)})
        turn.node(node.id, stop=StopOrder("not wanted any more: the wish that started this node was withdrawn"))
        return
    goal = replace(job.goal, cause=f"{node.id} registered")
    turn.durable(goal=replace(goal, **{f"{role}s": present}))  # type: ignore[arg-type]


def on_leave_asked(turn: Turn, event: LeaveAsked) -> None:
    """DEC_WORKER or DEC_SERVER: the node asks to be drained."""
    node = turn.job.nodes.get(event.node)
    if node is None:
        turn.refuse(event.to, f"no node named {event.node!r} is registered", Why.NOT_FOUND)
    elif node.role is not event.role:
        turn.refuse(event.to, f"{event.node} is a {node.role}, not a {event.role}", Why.INVALID)
    elif why := drain(turn, event.node, f"{event.node} asked to leave", queue=True):
        turn.refuse(event.to, why)
    else:
        turn.reply(event.to, replies.RegisterReply(event.node, turn.state.settings.lease, started=True))


def heard(turn: Turn, name: NodeId, version: int | None = None) -> None:
    """A sign of life."""
    vitals = turn.state.vitals.get(name, Vitals(turn.now, back=turn.now))
    lease = turn.state.settings.lease
    if turn.now - vitals.heard > lease / 2 and turn.now - vitals.back > 2 * lease:  # else there are gaps all the time
        vitals = replace(vitals, back=turn.now)
    vitals = replace(vitals, heard=turn.now, version=max(vitals.version, version or 0))
    turn.live(vitals={**turn.state.vitals, name: vitals})


def on_listening(turn: Turn, event: Listening) -> None:
    """A node has opened its control stream, and says where it is."""
    heard(turn, event.node, event.version)
    answers = turn.round
    turn.answers(unheard=answers.unheard - {event.node})
    turn.live(extended=turn.state.extended - {event.node})  # what its old stream held may be lost
    plan = turn.job.plan
    if plan is not None and plan.phase is Phase.ARMED and event.highest >= plan.number and event.node in plan.audience:
        turn.answers(switched=answers.switched | {event.node})
        turn.replan(decided=True)


def on_reported(turn: Turn, event: Reported) -> None:
    """Version and speed; renews the lease."""
    heard(turn, event.node, event.version)
    before = turn.state.vitals[event.node]
    vitals = replace(
        before,
        grew=turn.now if (event.bytes, event.copied) != (before.bytes, before.copied) else before.grew,
        step_seconds=event.step_seconds,
        rtt_seconds=event.rtt_seconds,
        rate=event.rate,
        bytes=event.bytes,
        copied=event.copied,
        metrics=event.metrics,
        exchanging=event.exchanging,
        transports=event.transports,
        waits=event.waits,
    )
    turn.live(vitals={**turn.state.vitals, event.node: vitals})
    if event.finished and event.node not in turn.job.finished and event.node in turn.job.members:
        _finished(turn, event.node)


def _finished(turn: Turn, name: NodeId) -> None:
    turn.durable(finished=turn.job.finished | {name})
    turn.live(finished_at=turn.now)
    turn.log(f"{name} has finished")
    plan = turn.job.plan
    if plan is not None and plan.kind is Kind.SCALE and plan.phase is not Phase.ARMED:
        cancel(turn, "the job is finishing")


def on_exited(turn: Turn, event: Exited) -> None:
    """A launcher saw the process end: as good as an expired lease and a failed exchange."""
    node = next(
        (n for n in turn.job.nodes.values() if event.node == n.id or (event.nonce and event.nonce == n.nonce)), None
    )
    if node is None:
        return
    plan, name = turn.job.plan, node.id
    leaving = plan is not None and name in plan.leavers
    if event.status == 0 and node.role is Role.WORKER and name in turn.job.members and not node.stop:
        if plan is not None and leaving and plan.phase is Phase.ARMED:  # a leaver's exit is a switch
            left(turn, name)
            return
        if not leaving and name not in turn.job.goal.drains and name not in turn.job.finished:
            _finished(turn, name)
    if event.status != 0 and name in turn.job.finished:
        _belie(turn, name, event.status)
    bury(turn, name, describe_status(event.status))


def _belie(turn: Turn, name: NodeId, status: int) -> None:
    """Its script had ended in order, as it seemed; its process has not."""
    if not turn.job.ended:
        turn.durable(finished=turn.job.finished - {name})
    elif turn.job.phase is JobPhase.FINISHED and status < 128:  # by a signal: who ends a job may send it
        reason = f"its workers had finished, but {name} ended with {describe_status(status)}"
        turn.durable(phase=JobPhase.FAILED, reason=reason)
        turn.log(f"job {JobPhase.FAILED}: {reason}", warning=True)


def left(turn: Turn, name: NodeId) -> None:
    """A leaver's exit is a switch."""
    turn.answers(switched=turn.round.switched | {name})
    turn.replan(decided=True)
    _remove(turn, name)


def describe_status(status: int) -> str:
    """An exit status for people; negative or above 128: a signal."""
    if status < 0 or status > 128:
        return f"killed by signal {-status if status < 0 else status - 128}"
    return f"exit status {status}"


def _remove(turn: Turn, name: NodeId) -> None:
    turn.durable(nodes={key: node for key, node in turn.job.nodes.items() if key != name})
    turn.live(
        # an ended job's status goes on to say how far it came
        vitals={key: value for key, value in turn.state.vitals.items() if key != name or turn.job.ended},
        welcomed=turn.state.welcomed - {name},
    )


def bury(turn: Turn, name: NodeId, why: str) -> None:
    """A process is gone: what follows depends on what it was."""
    job, plan = turn.job, turn.job.plan
    node, member, answers = job.nodes[name], is_member(turn.job, name), turn.round
    _remove(turn, name)
    if name in job.finished or node.stop is not None or node.left or job.ended:
        return
    turn.log(f"{name} is gone: {why}", warning=True)
    if not member:
        if plan is not None and name in plan.joiners:
            cancel(turn, f"{name} died while it joined: {why}")
        elif name in job.goal.drains:
            turn.durable(goal=replace(job.goal, drains=job.goal.drains - {name}))
        return
    if plan is not None and plan.phase is Phase.ARMED and name in plan.leavers and name in answers.switched:
        return  # it had done its part
    if node.role is Role.SERVER:
        collapse(turn, f"server {name} died ({why})")
    elif job.finished:  # the others have made their last step: there is nothing to do again
        turn.durable(finished=turn.job.finished | {name}, crashed={**job.crashed, name: why})
        turn.live(finished_at=turn.now)
    else:
        turn.durable(dead=turn.job.dead | {name})


def finish(turn: Turn) -> bool:
    """The job ends when every worker's script has ended."""
    job = turn.job
    if job.configuration is None or not job.configuration.ranks.keys() <= job.finished:
        return False
    if job.crashed:
        end(
            turn,
            JobPhase.FAILED,
            f"after the last step: {'; '.join(f'{name}: {why}' for name, why in job.crashed.items())}",
        )
    else:
        end(turn, JobPhase.FINISHED, "finished")
    return True
