"""Expulsions carry out what `failure_detection` says when its time is up, and tell people of what is new in it.

A node dies for the job by silence, by separation from a peer, by an answer that does not come, or because an operator
evicts it. All of them end in `membership.bury`, as if its process had ended.
"""

from collections.abc import Collection, Sequence
from dataclasses import replace

from coordinator.core import replies
from coordinator.core.effects import Why
from coordinator.core.events import EvictAsked
from coordinator.core.job import DurableJob
from coordinator.core.nodes.failure_detection import SUSPICION, Suspicion, SuspicionVerdict, suspicions
from coordinator.core.nodes.membership import bury, left
from coordinator.core.nodes.removals import fails_without, has_left, is_member, removal_cost
from coordinator.core.nodes.silence import most_are_silent, silent, waited_for
from coordinator.core.plans import protection
from coordinator.core.plans.cancelling import give_up
from coordinator.core.plans.plan import Phase
from coordinator.core.step_context import StepContext
from elastic_ps.core.configuration import NodeId, Role

_EXPELLED = 100
"""How many expelled nodes are remembered, so that their launchers hear of them."""


def on_tick(context: StepContext) -> None:
    """Time has passed: renew leases after a silence of our own, act on what is due, tell of what is new."""
    _excuse_own_silence(context)
    if context.state.rebuilding is not None or context.job.ended:
        return
    _doubt_ourselves(context)
    found = suspicions(context.state, context.now)
    _note_spared(context, found)
    _tell(context, found)
    while due := _due(context, found):
        _carry_out(context, due)
        found = suspicions(context.state, context.now)


def _due(context: StepContext, found: Sequence[Suspicion]) -> Suspicion | None:
    """Return a suspicion whose time is up; one at a time, as what is done about it may end others."""
    return next((suspicion for suspicion in found if suspicion.until and suspicion.until < context.now), None)


def begin(context: StepContext) -> None:
    """Time begins to pass: the process has started, and could hear nobody before."""
    context.live(ticked_at=context.now, awake_since=context.now)


def _excuse_own_silence(context: StepContext) -> None:
    """Give everybody a new lease, and new time for answers, to join and to save, where the coordinator did not run.

    It could not hear anybody meanwhile, nor a storage.
    """
    gap = context.now - context.state.ticked_at
    context.live(ticked_at=context.now)
    if 0 <= gap <= context.state.settings.lease / 2:
        return
    context.live(awake_since=context.now)
    if gap > 0:
        context.log(f"the coordinator did not run for {gap:.0f} s: every node gets a new lease", warning=True)
    _renew(context, context.state.vitals)
    context.live(doubted_since=0.0)
    plan, looking, saving = context.job.plan, context.state.looking, context.state.saving
    if plan is not None and plan.phase is Phase.REGISTERED:
        context.replan(deadline=plan.deadline + gap)
    if looking is not None:
        context.live(looking=replace(looking, since=looking.since + gap, due=looking.due + gap))
    if saving is not None:
        context.live(saving=replace(saving, begun=saving.begun + gap))


def _renew(context: StepContext, names: Collection[NodeId]) -> None:
    """Give some nodes new leases: it is not their fault that they were not heard."""
    vitals = context.state.vitals
    renewed = {name: replace(vitals[name], heard=context.now, back=context.now, waits=()) for name in names}
    context.live(vitals={**vitals, **renewed})


def _doubt_ourselves(context: StepContext) -> None:
    """Note since when most nodes are silent: the fault may be here, for a bounded time.

    It was here if most are heard again by then. The others may come a moment later, so they get a new lease.
    """
    state, bound = context.state, SUSPICION * context.state.settings.lease
    quiet = silent(state, context.now)
    if not most_are_silent(state, context.now):
        if state.doubted_since and context.now - state.doubted_since <= bound:
            _renew(context, quiet)
        if state.doubted_since:
            context.live(doubted_since=0.0)
    elif not state.doubted_since:
        context.live(doubted_since=context.now)
        expected = waited_for(context.job)
        together = f"{len(quiet & expected)} of {len(expected)} leases ran out together"
        context.log(f"{together}: the fault may be the coordinator's, so nobody is expelled for {bound:g} s", True)


def _note_spared(context: StepContext, found: Sequence[Suspicion]) -> None:
    """Remember for a lease who was waited for because the job would have failed."""
    state, now = context.state, context.now
    spared = {suspicion.node: now for suspicion in found if suspicion.verdict is SuspicionVerdict.JOB_FAILED}
    if spared or state.spared:
        recent = {name: last for name, last in state.spared.items() if now - last <= state.settings.lease}
        context.live(spared={**recent, **spared})


def _tell(context: StepContext, found: Sequence[Suspicion]) -> None:
    """Log each suspicion once and once more when it is over; a wait that ends nobody only when it has become long."""
    lease = context.state.settings.lease
    stood = {s: (context.now - s.since) / lease for s in found}
    now = {s.node: s for s, leases in stood.items() if leases >= (0.5 if s.until else SUSPICION)}
    for name in now.keys() - context.state.suspected:
        context.log(now[name].text(context.now), warning=True)
    for name in sorted((context.state.suspected - now.keys()) & context.job.nodes.keys()):
        context.log(f"{name} is not waited for any more")
    context.live(suspected=frozenset(now))


def _carry_out(context: StepContext, due: Suspicion) -> None:
    evidence = due.evidence(context.now)
    if due.verdict is SuspicionVerdict.PLAN_GIVEN_UP and context.plan.background:
        protection.give_up(context, f"{due.node} {evidence}")
    elif due.verdict is SuspicionVerdict.PLAN_GIVEN_UP and due.node not in context.plan.joiners:
        give_up(context, f"{due.node} {evidence}")
    else:
        _expel(context, due.node, f"it {evidence}")


def _expel(context: StepContext, name: NodeId, why: str) -> None:
    """Go on without a node whose process may still be there; its launcher is told to kill it."""
    nonce = context.job.nodes[name].nonce
    context.durable(expelled=(*context.job.expelled, nonce)[-_EXPELLED:])
    if has_left(context.state, name):
        left(context, name)
    else:
        bury(context, name, why)


def on_evict_asked(context: StepContext, event: EvictAsked) -> None:
    """Evict: expel a node by hand, as its expiry would."""
    job, name = context.job, event.node
    if job.ended:
        context.refuse(event.to, f"the job has ended: {job.reason}")
    elif name not in job.nodes:
        known = ", ".join(job.nodes) or "none"
        context.refuse(event.to, f"no node named {name!r} in this job; its nodes: {known}", Why.NOT_FOUND)
    elif fatal := _fatal(context, name):
        context.refuse(event.to, fatal)
    else:
        outcome = _outcome(job, name)
        context.durable(evicted=(*job.evicted, job.nodes[name].nonce)[-_EXPELLED:])
        _expel(context, name, f"evicted {event.cause}")
        context.reply(event.to, replies.EvictReply(outcome))


def _goes_back(job: DurableJob, name: NodeId) -> bool:
    return removal_cost(job, frozenset({name})).restores


def _fatal(context: StepContext, name: NodeId) -> str:
    """Return why the job would not survive an eviction, with what to do; "" if it would."""
    job, settings = context.job, context.state.settings
    if not fails_without(context.state, frozenset({name})):
        return ""
    server = "a server" + (" with blocks that nobody follows" if settings.replicas else "")
    what = "the last worker" if job.nodes[name].role is Role.WORKER else server
    return (
        f"{name} is {what}, and the job has no checkpoint to go back to without it: save one first "
        f"(`elasticctl checkpoint {settings.name}`), or end the job (`elasticctl stop {settings.name}`)"
    )


def _outcome(job: DurableJob, name: NodeId) -> str:
    """Return what follows the eviction of a node, for people."""
    if _goes_back(job, name):
        return f"{name} is expelled; the job goes back to its last checkpoint"
    if not is_member(job, name):
        return f"{name} is expelled; it was not training"
    if job.nodes[name].role is Role.SERVER:
        return f"{name} is expelled; the followers of its blocks own them, and the others go on without it"
    return f"{name} is expelled; the others go on without it"
