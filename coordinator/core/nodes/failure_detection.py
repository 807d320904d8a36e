"""Failure detection: carries out what `suspicions` says when its time is up, and tells people of what is new in it.

A node dies for the job by silence, by separation from a peer, by an answer that does not come, or because an operator
evicts it. All of them end in `members.bury`, as if its process had ended.
"""

from dataclasses import replace

from coordinator.core import replies
from coordinator.core.effects import Why
from coordinator.core.events import EvictAsked
from coordinator.core.nodes.membership import bury, left
from coordinator.core.nodes.suspicions import (
    SUSPICION,
    Suspicion,
    Verdict,
    has_left,
    is_member,
    most_are_silent,
    removal_cost,
    silent,
    suspicions,
    waited_for,
)
from coordinator.core.plans.lifecycle import give_up
from coordinator.core.state import Job
from coordinator.core.step_context import Turn
from elastic_ps.core.configuration import NodeId, Role

_EXPELLED = 100
"""Expelled nodes that are remembered, so that their launchers hear of them."""


def on_tick(turn: Turn) -> None:
    """Time has passed: renew leases after a silence of our own, act on what is due, tell of what is new."""
    _excuse_own_silence(turn)
    if turn.state.rebuilding is not None or turn.job.ended:
        return
    _doubt_ourselves(turn)
    _tell(turn)
    while due := _due(turn):
        _carry_out(turn, due)


def _due(turn: Turn) -> Suspicion | None:
    """Return a suspicion whose time is up; one at a time, as what is done about it may end others."""
    found = suspicions(turn.state, turn.now)
    return next((suspicion for suspicion in found if suspicion.until and suspicion.until < turn.now), None)


def _excuse_own_silence(turn: Turn) -> None:
    """Give everybody a new lease, and new time for answers, where the coordinator itself did not run: it could not hear
    anybody meanwhile."""
    last, lease = turn.state.ticked_at, turn.state.settings.lease
    turn.live(ticked_at=turn.now)
    gap = turn.now - last
    if last and 0 <= gap <= lease / 2:
        return
    turn.live(awake_since=turn.now)
    if not last:
        return
    if gap > 0:
        turn.log(f"the coordinator did not run for {gap:.0f} s: every node gets a new lease", warning=True)
    renewed = {
        name: replace(vitals, heard=turn.now, back=turn.now, waits=()) for name, vitals in turn.state.vitals.items()
    }
    turn.live(vitals=renewed, doubted_since=0.0)


def _doubt_ourselves(turn: Turn) -> None:
    """Note since when most nodes are silent: the fault may be here, for a bounded time."""
    if not most_are_silent(turn.state, turn.now):
        turn.live(doubted_since=0.0)
    elif not turn.state.doubted_since:
        turn.live(doubted_since=turn.now)
        expected = waited_for(turn.job)
        count = len(silent(turn.state, turn.now) & expected)
        turn.log(f"{count} of {len(expected)} leases ran out together: the fault may be here, waiting", True)


def _tell(turn: Turn) -> None:
    """Log each suspicion once and once more when it is over; a wait that ends nobody only when it has become long."""
    lease = turn.state.settings.lease
    stood = {s: (turn.now - s.since) / lease for s in suspicions(turn.state, turn.now)}
    now = {s.node: s for s, leases in stood.items() if leases >= (0.5 if s.until else SUSPICION)}
    for name in now.keys() - turn.state.suspected:
        turn.log(now[name].text(turn.now), warning=True)
    for name in sorted((turn.state.suspected - now.keys()) & turn.job.nodes.keys()):
        turn.log(f"{name} is not waited for any more")
    turn.live(suspected=frozenset(now))


def _carry_out(turn: Turn, due: Suspicion) -> None:
    evidence = due.evidence(turn.now)
    if due.verdict is Verdict.PLAN_GIVEN_UP and due.node not in turn.plan.joiners:
        give_up(turn, f"{due.node} {evidence}")
    else:
        _expel(turn, due.node, f"it {evidence}")


def _expel(turn: Turn, name: NodeId, why: str) -> None:
    """Go on without a node whose process may still be there; its launcher is told to kill it."""
    nonce = turn.job.nodes[name].nonce
    turn.durable(expelled=(*turn.job.expelled, nonce)[-_EXPELLED:])
    if has_left(turn.state, name):
        left(turn, name)
    else:
        bury(turn, name, why)


def on_evict_asked(turn: Turn, event: EvictAsked) -> None:
    """Evict: expel a node by hand, as its expiry would."""
    job, name = turn.job, event.node
    if job.ended:
        turn.refuse(event.to, f"the job has ended: {job.reason}")
    elif name not in job.nodes:
        known = ", ".join(job.nodes) or "none"
        turn.refuse(event.to, f"no node named {name!r} in this job; its nodes: {known}", Why.NOT_FOUND)
    elif fatal := _fatal(turn, name):
        turn.refuse(event.to, fatal)
    else:
        outcome = _outcome(job, name)
        turn.durable(evicted=(*job.evicted, job.nodes[name].nonce)[-_EXPELLED:])
        _expel(turn, name, f"evicted {event.cause}")
        turn.reply(event.to, replies.EvictReply(outcome))


def _goes_back(job: Job, name: NodeId) -> bool:
    return removal_cost(job, frozenset({name})).restores


def _fatal(turn: Turn, name: NodeId) -> str:
    """Return why the job would not survive an eviction, with what to do; "" if it would."""
    job, settings = turn.job, turn.state.settings
    safe = job.checkpoints or job.begun or settings.restore or not job.model.blocks
    if not _goes_back(job, name) or safe:
        return ""
    what = "the last worker" if job.nodes[name].role is Role.WORKER else "a server"
    return (
        f"{name} is {what}, and the job has no checkpoint to go back to without it: save one first "
        f"(`elasticctl checkpoint {settings.name}`), or end the job (`elasticctl stop {settings.name}`)"
    )


def _outcome(job: Job, name: NodeId) -> str:
    """Return what follows the eviction of a node, for people."""
    if _goes_back(job, name):
        return f"{name} is expelled; the job goes back to its last checkpoint"
    if not is_member(job, name):
        return f"{name} is expelled; it was not training"
    return f"{name} is expelled; the others go on without it"
