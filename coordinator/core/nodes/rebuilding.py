"""A coordinator without a journal in a later term: its state is put together from what its nodes know.

It decides nothing until every node of every table that it has heard of has introduced itself, or a lease has run out;
training goes on meanwhile. Then the highest configuration that is in force anywhere is the job's. Whoever has not come
is dead. A plan that nobody can have been armed for is cancelled; else it is finished: everyone adopts. What cannot be
known so sends the job back to its checkpoint, by `ending.collapse`; who is missed for that has longer than a lease, as
it is likelier that the way to the coordinator is not open yet than that they have all died with it. Where nobody at all
has come, not even a new process, nothing shows that nobody lives but a very long time.
"""

from collections.abc import Mapping
from dataclasses import replace

from coordinator.core.callers import Introduction, Rebuilding
from coordinator.core.checkpoints.ending import collapse
from coordinator.core.checkpoints.saving import long_ago
from coordinator.core.effects import Why
from coordinator.core.events import Exited, Introduced, Joined
from coordinator.core.nodes import introductions
from coordinator.core.nodes.introductions import Found
from coordinator.core.nodes.membership import heard
from coordinator.core.plans.plan import Kind, Migration, Passed, Phase, Plan, Times
from coordinator.core.plans.scale_requests import Goal
from coordinator.core.state import CancelOrder, JobPhase, Node, Round, StopOrder
from coordinator.core.step_context import Turn
from elastic_ps.core.configuration import NodeId, Role

SETTLE_SECONDS = 3.0
"""More than a node's longest pause between two tries: who waits to join, and is in no table, has come by then."""

PATIENCE_SECONDS = 30.0
"""Beyond a lease, for those without whom the job goes back. Those who live train meanwhile."""

ALONE_SECONDS = 3600.0
"""Beyond a lease, where nobody has come at all: all may live and train behind a way that is not open."""

NUMBERS = 1000
"""Numbers of nodes, plans and requests go on from term times this: those that nobody remembers are not used again."""


def begin(turn: Turn) -> None:
    """Ask everyone, which is to wait: nodes introduce themselves when they open their streams."""
    lease = turn.state.settings.lease
    turn.live(rebuilding=_waiting(turn, Rebuilding(0.0, 0.0, 0.0, turn.now + lease + ALONE_SECONDS)))
    if turn.job.phase is not JobPhase.REBUILDING:
        turn.log(f"term {turn.job.term} without a journal: the state is put together from the nodes'")
    turn.durable(phase=JobPhase.REBUILDING, reason="the coordinator lost its journal and asks its nodes")


def _waiting(turn: Turn, pending: Rebuilding) -> Rebuilding:
    """Give everybody as long from now on."""
    lease = turn.state.settings.lease
    until = turn.now + lease
    return replace(pending, settled=turn.now + min(SETTLE_SECONDS, lease), until=until, latest=until + PATIENCE_SECONDS)


def on_introduced(turn: Turn, event: Introduced) -> None:
    """A node says what it knows."""
    pending = turn.state.rebuilding
    assert pending is not None, "nodes of a coordinator that knows them listen"
    told = event.introduction
    if not pending.introduced:  # only now is it known that the way is open to those who train: others can be missed
        pending = _waiting(turn, pending)
    turn.live(rebuilding=replace(pending, introduced={**pending.introduced, event.node: told}))
    if told.term >= turn.job.term:  # it was a restore that has raised it: what comes now must be above
        turn.durable(term=told.term + 1)


def on_knock(turn: Turn, event: Joined) -> None:
    """A new process wants to join a job whose seed and names are not known yet."""
    pending = turn.state.rebuilding
    assert pending is not None
    if not pending.introduced and not pending.knocked:
        pending = _waiting(turn, pending)
    turn.live(rebuilding=replace(pending, knocked=pending.knocked | {(event.role, event.nonce)}))
    turn.refuse(event.to, f"{turn.job.reason}: ask again", Why.AGAIN)


def on_exited(turn: Turn, event: Exited) -> None:
    """A process has ended. Which node it was is known only if it had introduced itself."""
    pending = turn.state.rebuilding
    assert pending is not None
    known = {name: told for name, told in pending.introduced.items() if told.nonce != event.nonce}
    ended = pending.ended | {event.nonce} if event.status == 0 else pending.ended
    turn.live(rebuilding=replace(pending, introduced=known, ended=ended))


def rebuild(turn: Turn) -> bool:
    """All who can have come."""
    pending = turn.state.rebuilding
    if pending is None:
        return False
    if not _over(turn, pending):
        return _complain(turn, pending)
    known = pending.introduced
    turn.live(rebuilding=None, rebuilt=True)
    first = next(iter(known.values()), None)
    job = turn.job
    turn.durable(
        phase=JobPhase.STARTING,
        reason="",
        identity=next((told.identity for told in known.values() if told.identity), job.identity),
        begun=next((told.begun for told in known.values() if told.begun), job.begun),
        seed=first.seed if first else job.seed,
        model=introductions.model(known.values(), first.block_bytes if first else job.model.block_bytes),
        registered={role: max([NUMBERS * job.term, *introductions.beyond(known.values(), role)]) for role in Role},
        number=max([job.number, *(number.number for told in known.values() for number in introductions.numbers(told))]),
        plans=max([NUMBERS * job.term, *(told.plan for told in known.values())]),
        requests=NUMBERS * job.term,
        nodes={name: Node(told.member, told.pid, told.nonce) for name, told in known.items()},
        passed=max([job.passed, *(told.passed for told in known.values())]),
    )
    for name, told in known.items():
        heard(turn, name, told.version)
    turn.live(saved_at=long_ago(turn) if known else turn.now, finished_at=turn.now)
    _put_together(turn, known, len(pending.ended))
    return True


def _over(turn: Turn, pending: Rebuilding) -> bool:
    """Nobody need be waited for any more."""
    known, goal = pending.introduced, turn.job.goal
    if not known:  # all processes are new ones: a job that begins, or comes back from its checkpoint
        fresh = {role: sum(knocked is role for knocked, _ in pending.knocked) for role in Role}
        all_new = fresh[Role.WORKER] >= goal.workers and fresh[Role.SERVER] >= goal.servers
        return all_new or turn.now >= (pending.latest if pending.knocked else pending.alone)
    if turn.now >= pending.latest:
        return True
    if turn.now >= pending.until:
        found = introductions.find(known, len(pending.ended))
        return found is None or not found.missed
    expected = {name for told in known.values() for table in told.tables for name in table.members}
    dead = {name for told in known.values() for name in told.dead}
    return bool(expected) and turn.now >= pending.settled and expected - dead <= known.keys()


def _complain(turn: Turn, pending: Rebuilding) -> bool:
    """Nobody has come for long: say once for whom the job waits. Return whether there was anything to say."""
    goal = turn.job.goal
    reason = (
        "the coordinator lost its journal and no node has come to it: "
        "it waits for the job's nodes, which may train on, or for "
        f"{goal.workers} new workers and {goal.servers} new servers, {ALONE_SECONDS / 60:.0f} minutes at most"
    )
    if pending.introduced or pending.knocked or turn.now < pending.latest or turn.job.reason == reason:
        return False
    turn.durable(reason=reason)
    turn.log(reason, warning=True)
    return True


def _put_together(turn: Turn, known: Mapping[NodeId, Introduction], ended: int) -> None:
    """The job, of which the model and the nodes are known."""
    found = introductions.find(known, ended)
    if found is None:
        why = "no node holds a configuration" if known else "all its processes are new"
        collapse(turn, f"term {turn.job.term} of the job began without a journal, and {why}")
        return
    told = max(known.values(), key=introductions.extent)
    turn.durable(optimizers=told.optimizers, data=told.data if told.tensors else None)
    turn.durable(local_update=any(one.local_update for one in known.values()))
    if why := _unknowable(turn, found):
        collapse(turn, f"the coordinator lost its journal, and {why}")
        return
    turn.durable(configuration=found.base if found.unfinished else found.target)
    turn.durable(finished=found.finished)
    if found.unfinished:
        _finish(turn, found)
    _bury_missing(turn, found)
    for name, one in known.items():
        _place(turn, found, name, one)
    waiting = [one.member.role for name, one in known.items() if name not in found.target.members and one.waits]
    goal = Goal(
        len(found.target.workers) + waiting.count(Role.WORKER),
        len(found.target.servers) + waiting.count(Role.SERVER),
        cause="the coordinator lost its journal",
    )
    turn.durable(goal=goal, phase=JobPhase.RUNNING if turn.job.configuration is not None else JobPhase.STARTING)
    turn.log(
        f"put together from {len(known)} nodes: configuration {found.target.id}, term {turn.job.term}", warning=True
    )


def _unknowable(turn: Turn, found: Found) -> str:
    """What no node remembers and no plan can mend; "": all is known."""
    job, known, target = turn.job, found.known, found.target
    if job.data is not None and job.elastic and not job.is_sync:
        return "with it the book of this job's batches: which of them are done is not known"
    if found.missed:
        return found.missed
    if len(target.assignment) != len(job.model.blocks):
        return f"its nodes know {len(target.assignment)} blocks of {len(job.model.blocks)}: the tables were growing"
    astray = [name for name in found.lagging if (one := known[name].prepared) is None or one.id != target.id]
    if astray and not found.dead:  # a death's own plan would bring them there
        return f"{', '.join(astray)} cannot go over to configuration {target.id}"
    return ""


def _finish(turn: Turn, found: Found) -> None:
    """A plan was armed, or has switched somewhere: everyone adopts its table."""
    job, known, target = turn.job, found.known, found.target
    old = found.base.members if found.base is not None else {}
    names = [*old, *target.members, *(name for name, one in known.items() if one.has_left)]
    audience = tuple(name for name in dict.fromkeys(names) if name in known)
    versions = [version for one in known.values() for version in (one.version, one.clock or 0)]
    plan = Plan(
        id=job.plans + 1,
        kind=Kind.SCALE if found.base is not None or target.assignment else Kind.START,
        cause="begun before the coordinator lost its journal",
        started=turn.now,
        migration=Migration.PAUSE if any(one.paused for one in known.values()) else Migration.LIVE,
        phase=Phase.ARMED,
        base=found.base,
        target=target,
        number=target.id,
        audience=audience,
        joiners=tuple(name for name in found.lagging if name in target.members and name not in old),
        leavers=tuple(name for name in audience if name not in target.members),
        clock=max(versions) if job.model.blocks and job.is_sync else None,
        decided=True,
        times=Times(turn.now, turn.now, turn.now),
        trail=(Passed(turn.now, "rebuilt", Phase.ARMED),),
    )
    turn.durable(plan=plan, plans=plan.id)
    switched = frozenset(name for name in audience if name not in found.lagging)
    turn.live(round=Round(switched=switched), welcomed=frozenset(plan.joiners))


def _bury_missing(turn: Turn, found: Found) -> None:
    """A death plan takes them off the table."""
    if not found.dead:
        return
    nodes = {name: node for name, node in turn.job.nodes.items() if name not in found.dead}
    turn.durable(dead=found.dead, nodes=nodes)
    turn.log(f"{', '.join(sorted(found.dead))} did not answer a coordinator that lost its journal", warning=True)


def _place(turn: Turn, found: Found, name: NodeId, told: Introduction) -> None:
    """What a node has to be told of its own: a table that nobody is armed for is forgotten; who has no part goes."""
    if told.prepared is not None and told.prepared.id != found.target.id:
        reason = "the coordinator lost its journal before the plan was armed"
        turn.node(name, cancel=CancelOrder(told.prepared.id, reason))
    plan = turn.job.plan
    if name not in found.target.members and not told.waits and (plan is None or name not in plan.audience):
        turn.node(name, stop=StopOrder("the job has gone on without this node"))
