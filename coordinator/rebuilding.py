"""A coordinator without a journal in a later term: its state is put together from what its nodes know.

It decides nothing until every node of every table that it has heard of has introduced itself, or a lease has run out;
training goes on meanwhile. Then the highest configuration that is in force anywhere is the job's. Whoever has not come
is dead. A plan that nobody has been armed for is cancelled; else it is finished: everyone adopts. What cannot be known
so sends the job back to its checkpoint, by `ending.collapse`; who is missed for that has longer than a lease, as it is
likelier that the way to the coordinator is not open yet than that they have all died with it.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from coordinator.effects import Why
from coordinator.ending import collapse
from coordinator.events import Exited, Introduced, Joined
from coordinator.members import heard
from coordinator.pending import Introduction, Rebuilding
from coordinator.plan import Kind, Migration, Passed, Phase, Plan, Times
from coordinator.state import CancelOrder, JobPhase, Node, Round, StopOrder
from coordinator.turn import Turn
from coordinator.wishes import Goal
from elastic_ps.core.configuration import ConfigId, Configuration, NodeId, Role
from elastic_ps.core.model import Model

SETTLE_SECONDS = 3.0
"""More than a node's longest pause between two tries: who waits to join, and is in no table, has come by then."""

PATIENCE_SECONDS = 30.0
"""Beyond a lease, for those without whom the job goes back. Those who live train meanwhile."""

NUMBERS = 1000
"""Numbers of nodes, plans and requests go on from term times this: those that nobody remembers are not used again."""


def begin(turn: Turn) -> None:
    """Ask everyone, which is to wait: nodes introduce themselves when they open their streams."""
    lease = turn.state.settings.lease
    until = turn.now + lease
    turn.live(rebuilding=Rebuilding(turn.now + min(SETTLE_SECONDS, lease), until, until + PATIENCE_SECONDS))
    if turn.job.phase is not JobPhase.REBUILDING:
        turn.log(f"term {turn.job.term} without a journal: the state is put together from the nodes'")
    turn.durable(phase=JobPhase.REBUILDING, reason="the coordinator lost its journal and asks its nodes")


def on_introduced(turn: Turn, event: Introduced) -> None:
    """A node says what it knows."""
    pending = turn.state.rebuilding
    assert pending is not None, "nodes of a coordinator that knows them listen"
    told = event.introduction
    turn.live(rebuilding=replace(pending, introduced={**pending.introduced, event.node: told}))
    if told.term >= turn.job.term:  # it was a restore that has raised it: what comes now must be above
        turn.durable(term=told.term + 1)


def on_knock(turn: Turn, event: Joined) -> None:
    """A new process wants to join a job whose seed and names are not known yet."""
    pending = turn.state.rebuilding
    assert pending is not None
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
    if pending is None or not _over(turn, pending):
        return False
    known = pending.introduced
    turn.live(rebuilding=None, rebuilt=True)
    first = next(iter(known.values()), None)
    job = turn.job
    turn.durable(
        phase=JobPhase.STARTING,
        reason="",
        seed=first.seed if first else job.seed,
        model=_model(known.values(), first.block_bytes if first else job.model.block_bytes),
        registered={role: max([NUMBERS * job.term, *_beyond(known.values(), role)]) for role in Role},
        number=max([job.number, *(number.number for told in known.values() for number in _numbers(told))]),
        plans=max([NUMBERS * job.term, *(told.plan for told in known.values())]),
        requests=NUMBERS * job.term,
        nodes={name: Node(told.member, told.pid, told.nonce) for name, told in known.items()},
        passed=max([job.passed, *(told.passed for told in known.values())]),
    )
    for name, told in known.items():
        heard(turn, name, told.version)
    turn.live(saved_at=turn.now, finished_at=turn.now)
    _put_together(turn, known, len(pending.ended))
    return True


def _over(turn: Turn, pending: Rebuilding) -> bool:
    """Nobody need be waited for any more."""
    if turn.now >= pending.latest:
        return True
    known, goal = pending.introduced, turn.job.goal
    if not known:  # all processes are new ones: a job that begins, or comes back from its checkpoint
        fresh = {role: sum(knocked is role for knocked, _ in pending.knocked) for role in Role}
        return fresh[Role.WORKER] >= goal.workers and fresh[Role.SERVER] >= goal.servers
    if turn.now >= pending.until:
        found = _find(known, len(pending.ended))
        return found is None or not _missed(found)
    expected = {name for told in known.values() for table in told.tables for name in table.members}
    dead = {name for told in known.values() for name in told.dead}
    return bool(expected) and turn.now >= pending.settled and expected - dead <= known.keys()


def _numbers(told: Introduction) -> list[ConfigId]:
    return [*(table.id for table in told.tables), told.cancelled]


def _beyond(told: Iterable[Introduction], role: Role) -> list[int]:
    """After every name of a role that somebody remembers."""
    names = {
        name for one in told for name in (one.member.id, *one.dead, *(n for table in one.tables for n in table.members))
    }
    return [int(name[1:]) + 1 for name in names if name.startswith(role[0])]


def _model(told: Iterable[Introduction], block_bytes: int) -> Model:
    """Tables only grow: the longest are the latest."""
    return Model(max((one.tensors for one in told), key=len, default=()), block_bytes)


@dataclass(frozen=True)
class _Found:
    """What introductions come to.

    Attributes:
        known: who told what.
        base: in force where `target` is not yet; None: it is everywhere, or nothing was before.
        target: in force somewhere, or armed.
        lagging: who has to go over to it yet.
        unfinished: a plan has to bring that about, or to let go who left.
        ended: how many processes have ended well meanwhile.
    """

    known: Mapping[NodeId, Introduction]
    base: Configuration | None
    target: Configuration
    lagging: tuple[NodeId, ...]
    unfinished: bool
    ended: int

    @property
    def dead(self) -> frozenset[NodeId]:
        """Workers of the target who have not come, or of whom others have been told that they are dead."""
        told = {name for one in self.known.values() for name in one.dead}
        return frozenset(name for name in self.target.ranks if name not in self.known or name in told) - self.finished

    @property
    def finished(self) -> frozenset[NodeId]:
        """Workers of the target who have not come because their scripts have ended: as many as have ended well."""
        missing = frozenset(self.target.ranks.keys() - self.known.keys())
        return missing if len(missing) <= self.ended else frozenset()


def _find(known: Mapping[NodeId, Introduction], ended: int) -> _Found | None:
    """The highest configuration that is in force or armed anywhere; None: there is none."""
    force = _latest(one.current for one in known.values())
    if force is None:
        return None
    armed = _latest(one.prepared for one in known.values() if one.clock is not None)
    target = armed if armed is not None and armed.id > force.id else force
    lagging = tuple(
        name
        for name, one in known.items()
        if one.number < target.id and (name in target.members or (one.prepared and one.prepared.id == target.id))
    )
    base = _latest(known[name].current for name in lagging)
    left = any(one.has_left for one in known.values() if one.number == target.id)
    paused = any(one.paused for one in known.values() if one.number == target.id)
    return _Found(known, base, target, lagging, bool(lagging) or left or paused, ended)


def _latest(tables: Iterable[Configuration | None]) -> Configuration | None:
    """The highest; of several states of it, as the model grew, the last."""
    found = [table for table in tables if table is not None]
    return max(found, key=lambda table: (table.id, len(table.assignment)), default=None)


def _put_together(turn: Turn, known: Mapping[NodeId, Introduction], ended: int) -> None:
    """The job, of which the model and the nodes are known."""
    found = _find(known, ended)
    if found is None:
        why = "no node holds a configuration" if known else "all its processes are new"
        collapse(turn, f"term {turn.job.term} of the job began without a journal, and {why}")
        return
    told = max(known.values(), key=_tables)
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


def _tables(told: Introduction) -> tuple[int, int, bool]:
    """Orders what nodes know of the job's tables, which only grow."""
    return len(told.tensors), sum(map(bool, told.optimizers)), told.data is not None and told.data.elastic


def _unknowable(turn: Turn, found: _Found) -> str:
    """What no node remembers and no plan can mend; "": all is known."""
    job, known, target = turn.job, found.known, found.target
    if job.data is not None and job.elastic and not job.is_sync:
        return "with it the book of this job's batches: which of them are done is not known"
    if missed := _missed(found):
        return missed
    if len(target.assignment) != len(job.model.blocks):
        return f"its nodes know {len(target.assignment)} blocks of {len(job.model.blocks)}: the tables were growing"
    astray = [name for name in found.lagging if (one := known[name].prepared) is None or one.id != target.id]
    if astray and not found.dead:  # a death's own plan would bring them there
        return f"{', '.join(astray)} cannot go over to configuration {target.id}"
    return ""


def _missed(found: _Found) -> str:
    """Who has not come and cannot be done without; "": nobody."""
    servers = {server.id for table in (found.base, found.target) if table is not None for server in table.servers}
    if gone := sorted(servers - found.known.keys()):
        return f"{', '.join(gone)} did not answer"
    return "no worker answered" if found.target.ranks.keys() <= found.dead else ""


def _finish(turn: Turn, found: _Found) -> None:
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


def _bury_missing(turn: Turn, found: _Found) -> None:
    """A death plan takes them off the table."""
    if not found.dead:
        return
    nodes = {name: node for name, node in turn.job.nodes.items() if name not in found.dead}
    turn.durable(dead=found.dead, nodes=nodes)
    turn.log(f"{', '.join(sorted(found.dead))} did not answer a coordinator that lost its journal", warning=True)


def _place(turn: Turn, found: _Found, name: NodeId, told: Introduction) -> None:
    """What a node has to be told of its own: a table that nobody is armed for is forgotten; who has no part goes."""
    if told.prepared is not None and told.prepared.id != found.target.id:
        reason = "the coordinator lost its journal before the plan was armed"
        turn.node(name, cancel=CancelOrder(told.prepared.id, reason))
    plan = turn.job.plan
    if name not in found.target.members and not told.waits and (plan is None or name not in plan.audience):
        turn.node(name, stop=StopOrder("the job has gone on without this node"))
