"""A coordinator without a journal in a later term puts its state together from what its nodes know.

It decides nothing until every node of every configuration that it has heard of has introduced itself, or a lease has
run out; training goes on meanwhile. Then the highest configuration that is in force anywhere is the job's. Whoever has
not come is dead. A plan that nobody can have been armed for is cancelled; else it is finished: everyone adopts. What
cannot be known so sends the job back to its checkpoint, by `ending.collapse`; a node whose absence leads to that is
waited for longer than a lease, as it is likelier that its way to the coordinator is not open yet than that all have
died together. Where nobody at all has come, not even a new process, only a very long wait shows that nobody lives.
"""

from collections.abc import Mapping
from dataclasses import replace

from coordinator.core.callers import Introduction, Rebuilding
from coordinator.core.checkpoints.ending import collapse
from coordinator.core.checkpoints.saving import long_ago
from coordinator.core.effects import Why
from coordinator.core.events import Exited, Introduced, Joined
from coordinator.core.job import CancelOrder, JobPhase, RegisteredNode, StopOrder
from coordinator.core.nodes import introductions
from coordinator.core.nodes.introductions import RebuiltConfiguration
from coordinator.core.nodes.membership import digests, heard
from coordinator.core.plans.plan import MigrationMode, Phase, PhaseEntered, Plan, PlanKind, Times
from coordinator.core.plans.scale_goal import ScaleGoal
from coordinator.core.state import PlanAnswers
from coordinator.core.step_context import StepContext
from elastic_ps.core.configuration import MOST_NODES, NodeId, Role

SETTLE_SECONDS = 3.0
"""Seconds: more than a node's longest pause between two tries, so that nodes which wait to join have come by then."""

PATIENCE_SECONDS = 30.0
"""Seconds beyond a lease for which nodes are waited for that the job cannot go on without; the others train on."""

ALONE_SECONDS = 3600.0
"""Seconds beyond a lease, where nobody has come at all: all may live and train while none of them gets through."""

NUMBERS = 1000
"""Numbers of nodes, plans, requests and growths go on from term times this: what nobody remembers is not used again."""


def begin(context: StepContext) -> None:
    """Ask everyone, which is to wait: nodes introduce themselves when they open their streams."""
    context.live(rebuilding=_waiting(context, Rebuilding(0.0, 0.0, 0.0, began=context.now)))
    if context.job.phase is not JobPhase.REBUILDING:
        context.log(
            f"term {context.job.term} without a journal: the job's state is put together from what its nodes know"
        )
    context.durable(phase=JobPhase.REBUILDING, reason="the coordinator lost its journal and asks its nodes")


def _waiting(context: StepContext, pending: Rebuilding) -> Rebuilding:
    """Give everybody as long from now on."""
    lease = context.state.settings.lease
    until = context.now + lease
    return replace(
        pending, settled=context.now + min(SETTLE_SECONDS, lease), until=until, latest=until + PATIENCE_SECONDS
    )


def on_introduced(context: StepContext, event: Introduced) -> None:
    """Note what a node says it knows."""
    pending = context.state.rebuilding
    assert pending is not None, "nodes of a coordinator that knows them listen"
    told = event.introduction
    if not pending.introduced:  # only now is it known that the way is open to those who train: others can be missed
        pending = _waiting(context, pending)
    context.live(rebuilding=replace(pending, introduced={**pending.introduced, event.node: told}))
    if told.term >= context.job.term:  # it was a restore that has raised it: what comes now must be above
        context.durable(term=told.term + 1)


def on_knock(context: StepContext, event: Joined) -> None:
    """Note that a new process wants to join; the job's seed and names are not known yet."""
    pending = context.state.rebuilding
    assert pending is not None
    if not pending.introduced and not pending.knocked:
        pending = _waiting(context, pending)
    if len(pending.knocked) < len(Role) * MOST_NODES:
        pending = replace(pending, knocked=pending.knocked | {(event.role, event.nonce)})
    context.live(rebuilding=pending)
    context.refuse(event.to, f"{context.job.reason}: ask again", Why.AGAIN)


def on_exited(context: StepContext, event: Exited) -> None:
    """Note that a process has ended. It was who had introduced itself, or whom its launcher names."""
    pending = context.state.rebuilding
    assert pending is not None
    name = next((name for name, told in pending.introduced.items() if told.nonce == event.nonce), event.node)
    known = {name: told for name, told in pending.introduced.items() if told.nonce != event.nonce}
    ended = {event.nonce: name, **pending.ended} if event.status == 0 else pending.ended  # it may be told again
    context.live(rebuilding=replace(pending, introduced=known, ended=ended))


def rebuild(context: StepContext) -> bool:
    """Put the state together once all have come who can."""
    pending = context.state.rebuilding
    if pending is None:
        return False
    if not _over(context, pending):
        return _complain(context, pending)
    known = pending.introduced
    context.live(rebuilding=None, rebuilt=True)
    first = next(iter(known.values()), None)
    job = context.job
    context.durable(
        phase=JobPhase.STARTING,
        reason="",
        rebuilt=bool(known),
        identity=next((told.identity for told in known.values() if told.identity), job.identity),
        begun=next((told.begun for told in known.values() if told.begun), job.begun),
        since=max([job.since, *(told.since for told in known.values())]),
        seed=first.seed if first else job.seed,
        modules=digests(module for told in known.values() for module in told.modules),
        model=introductions.model(known.values(), first.block_bytes if first else job.model.block_bytes),
        registered={role: max([NUMBERS * job.term, *introductions.beyond(known.values(), role)]) for role in Role},
        number=max([job.number, *(number.number for told in known.values() for number in introductions.numbers(told))]),
        plans=max([NUMBERS * job.term, *(told.plan for told in known.values())]),
        requests=NUMBERS * job.term,
        forgotten=NUMBERS * job.term,
        growth=NUMBERS * job.term,
        nodes={name: RegisteredNode(told.member, told.pid, told.nonce) for name, told in known.items()},
        saves=max([job.saves, *(told.saves for told in known.values())]),
        passed=max([job.passed, *(told.passed for told in known.values())]),
    )
    for name, told in known.items():
        heard(context, name, told.version)
    context.live(saved_at=long_ago(context) if known else context.now, finished_at=context.now)
    _put_together(context, known, tuple(pending.ended.values()))
    return True


def _over(context: StepContext, pending: Rebuilding) -> bool:
    """Return whether nobody need be waited for any more."""
    known, goal, lease = pending.introduced, context.job.goal, context.state.settings.lease
    if not known:
        if not pending.knocked:
            return context.now >= pending.began + lease + ALONE_SECONDS
        fresh = {role: sum(knocked is role for knocked, _ in pending.knocked) for role in Role}
        enough = fresh[Role.WORKER] >= goal.workers and fresh[Role.SERVER] >= goal.servers
        # All are new ones, of a job that begins or comes back from its checkpoint. One of a job that has been scaled up
        # since may be as many, and others of it live: they have had the time to come first.
        return context.now >= (pending.began + min(SETTLE_SECONDS, lease) if enough else pending.latest)
    if context.now >= pending.latest:
        return True
    if context.now >= pending.until:
        found = introductions.find(known, tuple(pending.ended.values()))
        return found is None or not (found.missed or found.supposed_over)
    expected = {
        name for told in known.values() for configuration in told.configurations for name in configuration.members
    }
    dead = {name for told in known.values() for name in told.dead}
    return bool(expected) and context.now >= pending.settled and expected - dead <= known.keys()


def _complain(context: StepContext, pending: Rebuilding) -> bool:
    """Say once, where nobody has come for long, for whom the job waits; return whether there was anything to say."""
    goal = context.job.goal
    reason = (
        "the coordinator lost its journal and no node has come to it: "
        "it waits for the job's nodes, which may train on, or for "
        f"{goal.workers} new workers and {goal.servers} new servers, {ALONE_SECONDS / 60:.0f} minutes at most"
    )
    if pending.introduced or pending.knocked or context.now < pending.latest or context.job.reason == reason:
        return False
    context.durable(reason=reason)
    context.log(reason, warning=True)
    return True


def _put_together(context: StepContext, known: Mapping[NodeId, Introduction], ended: tuple[NodeId, ...]) -> None:
    """Put the job together, of which the model and the nodes are known by now."""
    found = introductions.find(known, ended)
    if found is None:
        why = "no node holds a configuration" if known else "all its processes are new"
        collapse(context, f"term {context.job.term} of the job began without a journal, and {why}")
        return
    told = max(known.values(), key=introductions.extent)
    context.durable(optimizers=told.optimizers, data=told.data if told.tensors else None)
    context.durable(local_update=any(one.local_update for one in known.values()))
    if why := _unknowable(context, found):
        collapse(context, f"the coordinator lost its journal, and {why}")
        return
    context.durable(configuration=found.base if found.unfinished else found.target)
    context.durable(settled=len(context.job.model.blocks))
    context.durable(finished=found.finished)
    if found.unfinished or found.replicated:
        _finish(context, found)
    _bury_missing(context, found)
    for name, one in known.items():
        _place(context, found, name, one)
    waiting = [one.member.role for name, one in known.items() if name not in found.target.members and one.waits]
    goal = ScaleGoal(
        len(found.target.workers) + waiting.count(Role.WORKER),
        len(found.target.servers) + waiting.count(Role.SERVER),
        cause="the coordinator lost its journal",
    )
    context.durable(goal=goal, phase=JobPhase.RUNNING if context.job.configuration is not None else JobPhase.STARTING)
    context.log(
        f"the job's state is put together from {len(known)} nodes: configuration {found.target.id}, "
        f"term {context.job.term}",
        warning=True,
    )


def _unknowable(context: StepContext, found: RebuiltConfiguration) -> str:
    """Return what no node remembers and no plan can mend; "" where all is known."""
    job, known, target = context.job, found.known, found.target
    if job.data is not None and job.elastic and not job.is_sync:
        return "with it the book of this job's batches: which of them are done is not known"
    if found.missed:
        return found.missed
    if len(target.assignment) != len(job.model.blocks) and not job.all_reduces:
        return f"its nodes know {len(target.assignment)} blocks of {len(job.model.blocks)}: its model was growing"
    astray = [name for name in found.lagging if (one := known[name].prepared) is None or one.id != target.id]
    if astray and not found.dead:  # a death's own plan would bring them there
        return f"{', '.join(astray)} cannot go over to configuration {target.id}"
    return ""


def _finish(context: StepContext, found: RebuiltConfiguration) -> None:
    """Finish a plan that was armed, or has switched somewhere: everyone adopts its configuration.

    Where blocks have followers there is always one: only what servers say shows that copies are where they should be.
    """
    job, known, target = context.job, found.known, found.target
    old = found.base.members if found.base is not None else {}
    names = [*old, *target.members, *(name for name, one in known.items() if one.has_left)]
    audience = tuple(name for name in dict.fromkeys(names) if name in known)
    versions = [version for one in known.values() for version in (one.version, one.clock or 0)]
    scales = PlanKind.SCALE if found.base is not None or target.assignment else PlanKind.START
    plan = Plan(
        id=job.plans + 1,
        kind=PlanKind.DEATH if found.promotes else scales,
        cause="begun before the coordinator lost its journal",
        started=context.now,
        migration=MigrationMode.PAUSE if any(one.paused for one in known.values()) else MigrationMode.LIVE,
        phase=Phase.ARMED,
        base=found.base,
        target=target,
        number=target.id,
        audience=audience,
        joiners=tuple(name for name in found.lagging if name in target.members and name not in old),
        leavers=tuple(name for name in audience if name not in target.members),
        clock=max(versions) if found.unfinished and job.model.blocks and job.is_sync else None,
        decided=True,
        asks=found.promotes,
        promoted=found.promoted,
        times=Times(context.now, context.now, context.now),
        trail=(PhaseEntered(context.now, "rebuilt", Phase.ARMED),),
    )
    context.durable(plan=plan, plans=plan.id)
    switched = frozenset(name for name in audience if name not in found.lagging)
    context.live(answers=PlanAnswers(switched=switched), welcomed=frozenset(plan.joiners))


def _bury_missing(context: StepContext, found: RebuiltConfiguration) -> None:
    """Enter those as dead who have not come: a death plan takes them off the configuration."""
    if not found.dead:
        return
    nodes = {name: node for name, node in context.job.nodes.items() if name not in found.dead}
    context.durable(dead=found.dead, nodes=nodes, deaths=context.job.deaths + len(found.dead))
    context.log(f"{', '.join(sorted(found.dead))} did not answer a coordinator that lost its journal", warning=True)


def _place(context: StepContext, found: RebuiltConfiguration, name: NodeId, told: Introduction) -> None:
    """Tell a node what concerns it alone: to forget a configuration that nobody is armed for, or to go."""
    if told.prepared is not None and told.prepared.id != found.target.id:
        reason = "the coordinator lost its journal before the plan was armed"
        context.node(name, cancel=CancelOrder(told.prepared.id, reason))
    plan = context.job.plan
    if name not in found.target.members and not told.waits and (plan is None or name not in plan.audience):
        context.node(name, stop=StopOrder("the job has gone on without this node"))
