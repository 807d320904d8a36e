"""The life of a plan: formed, assigned, synced, armed, committed or cancelled (DL2 section 5).

Handlers of events only note facts; the rules here look at the facts and move the plan on. So the order in which
answers arrive does not matter, and a restart needs no rules of its own beyond `recover`.
"""

from dataclasses import replace

from coordinator.core.checkpoints.ending import end
from coordinator.core.directives import awaited_arrivals, awaited_to_sync, landed, unextended
from coordinator.core.nodes.suspicions import severed
from coordinator.core.plans.next_configuration import change, refusal, target
from coordinator.core.plans.plan import Kind, Migration, Phase, Plan, Times
from coordinator.core.plans.scale_requests import Wish
from coordinator.core.plans.scaling_clock import scaling_clock
from coordinator.core.plans.transitions import Trigger, advance
from coordinator.core.state import CancelOrder, JobPhase, Round, StopOrder
from coordinator.core.step_context import Turn
from elastic_ps.core.configuration import ConfigId, NodeId, Role
from elastic_ps.core.errors import ConfigurationError

_WITHDRAWN = 100
"""Requests that came to nothing, of which is remembered why."""


def form(turn: Turn) -> bool:
    """A plan begins where what is wanted differs from what is."""
    job = turn.job
    if job.plan is not None or job.finished or job.dead:
        return False
    if job.queued:
        turn.durable(queued=())
        grant(turn, job.queued)
        dismiss_waiting(turn)
        return True
    if not change(job, job.goal):
        if not job.goal.wishes:
            return False
        turn.durable(goal=replace(job.goal, wishes=()))  # there is nothing to do for them
        return True
    kind = Kind.START if job.configuration is None else Kind.SCALE
    pause = Migration.PAUSE in (job.goal.migration, turn.state.settings.migration)
    plan = Plan(
        id=job.plans + 1,
        kind=kind,
        cause=job.goal.cause,
        started=turn.now,
        migration=Migration.PAUSE if pause else Migration.LIVE,
        deadline=turn.now + turn.state.settings.join_timeout,
        requests=tuple(wish.number for wish in job.goal.wishes),
    )
    turn.durable(plan=plan, plans=plan.id)
    turn.log(f"plan {plan.id} REGISTERED ({plan.cause})")
    if why := refusal(job, job.goal):
        _refuse(turn, why)
    return True


def _refuse(turn: Turn, why: str) -> None:
    """The plan under way cannot be: without a configuration to go on with, neither can the job."""
    if turn.plan.kind is Kind.START:
        end(turn, JobPhase.FAILED, f"{why}: start with fewer servers")
    else:
        give_up(turn, why)


def grant(turn: Turn, wishes: tuple[Wish, ...]) -> None:
    """Requests are wanted now; what they contradict is not any more."""
    job = turn.job
    goal = job.goal.granting(wishes)
    turn.durable(goal=replace(goal, drains=frozenset(goal.drains & job.members.keys())))
    withdraw(turn, job.goal.wishes, goal.wishes, wishes[-1])


def withdraw(turn: Turn, before: tuple[Wish, ...], after: tuple[Wish, ...], by: Wish) -> None:
    """Requests that another has replaced come to nothing; who waits for them is told."""
    for wish in before:
        if wish not in after:
            turn.log(f"request {wish.number}, {wish}, is replaced by: {by}")
            told = {**turn.job.withdrawn, wish.number: f"replaced by: {by}"}
            turn.durable(withdrawn=dict(sorted(told.items())[-_WITHDRAWN:]))


def give_up(turn: Turn, reason: str) -> None:
    """Cancel, and want what is: nothing is tried again."""
    cancel(turn, reason, dismiss=True)
    content(turn)


def content(turn: Turn) -> None:
    """Want what is; who waits to join is sent home."""
    configuration = turn.job.configuration
    if configuration is None:
        return
    goal = replace(
        turn.job.goal,
        workers=len(configuration.workers),
        servers=len(configuration.servers),
        drains=frozenset(),
        wishes=(),
    )
    turn.durable(goal=goal)
    dismiss_waiting(turn)


def dismiss_waiting(turn: Turn) -> None:
    """Nodes beyond those that the goal needs end; the last to come first."""
    asked = change(turn.job, turn.job.goal)
    for role in Role:
        for name in turn.job.waiting(role)[asked.joining(role) :]:
            turn.node(name, stop=StopOrder("not wanted any more: the job needs no further node"))


def cancel(turn: Turn, reason: str, dismiss: bool = False) -> None:
    """End a plan that is not armed. `dismiss`: its joiners leave; else they wait for the next."""
    plan = turn.plan
    for name in plan.audience if plan.target else ():
        leave = dismiss and name in plan.joiners
        turn.node(name, cancel=CancelOrder(plan.number, reason, leave))
    cancelled = advance(plan, Trigger.CANCEL, turn.now)
    turn.durable(plan=None)
    turn.live(round=Round())
    turn.close(replace(cancelled, reason=reason))


def assign(turn: Turn) -> bool:
    """REGISTERED: all expected have come, or the time is up."""
    plan, job, settings = turn.job.plan, turn.job, turn.state.settings
    if plan is None or plan.phase is not Phase.REGISTERED or job.dead:
        return False
    if turn.state.declarations or unextended(turn.state) or turn.now < turn.state.grown_at + settings.settle:
        return False
    asked = change(job, job.goal)
    if not asked:
        give_up(turn, "nothing is left to do")
        return True
    joiners = [name for role in Role for name in job.waiting(role)[: asked.joining(role)]]
    missing = _missing(turn, joiners)
    if missing and turn.now < plan.deadline:
        return False
    if missing and not _settle_for_less(turn, joiners, missing):
        return False
    if turn.job.plan is None:
        return True
    _enter_assigned(turn, joiners, missing)
    return True


def _missing(turn: Turn, joiners: list[NodeId]) -> tuple[str, ...]:
    asked = change(turn.job, turn.job.goal)
    short = {role: asked.joining(role) - sum(turn.job.nodes[n].role is role for n in joiners) for role in Role}
    return tuple(f"{count} {role}{'s' if count > 1 else ''}" for role, count in short.items() if count)


def _settle_for_less(turn: Turn, joiners: list[NodeId], missing: tuple[str, ...]) -> bool:
    """join_timeout has passed: go on with those present, and want no more than them. False: keep waiting."""
    job, settings = turn.job, turn.state.settings
    present = {role: sum(job.nodes[name].role is role for name in joiners) for role in Role}
    timeout = f"not registered within {settings.join_timeout:g} s: {', '.join(missing)}"
    if turn.plan.kind is Kind.START and not all(present.values()):
        turn.replan(deadline=turn.now + settings.join_timeout)
        turn.durable(reason=timeout)
        turn.log(f"the job cannot start: {timeout}", warning=True)
        return False
    asked = change(job, job.goal)
    goal = replace(
        job.goal,
        workers=job.goal.workers - asked.workers + present[Role.WORKER],
        servers=job.goal.servers - asked.servers + present[Role.SERVER],
    )
    if why := refusal(job, goal):
        give_up(turn, f"{timeout}; without them: {why}")
        return True
    turn.durable(goal=goal)
    if not change(turn.job, goal):
        give_up(turn, timeout)
    return True


def _enter_assigned(turn: Turn, joiners: list[NodeId], missing: tuple[str, ...]) -> None:
    job, plan = turn.job, turn.plan
    leavers = change(job, job.goal).leavers
    number = ConfigId(job.term, job.number + 1)
    try:
        table = target(job, [job.nodes[name].member for name in joiners], leavers, number)
    except ConfigurationError as error:
        _refuse(turn, str(error))
        return
    old = tuple(name for name in job.members if name in job.nodes)
    plan = replace(
        advance(plan, Trigger.COMPLETE, turn.now),
        base=job.configuration,
        target=table,
        number=number,
        audience=(*old, *joiners),
        joiners=tuple(joiners),
        leavers=leavers,
        missing=missing,
        restore=job.restore if plan.kind is Kind.START else "",
        times=replace(plan.times, assigned=turn.now),
    )
    turn.durable(plan=plan, number=number.number)
    known = turn.state.welcomed | (set(joiners) if job.configuration is not None else set())
    turn.live(round=Round(), welcomed=known)
    turn.log(f"plan {plan.id} ASSIGNED: configuration {number}")


def answering(turn: Turn) -> frozenset[NodeId]:
    """Whose answers the plan needs: its audience, without those whose script has ended."""
    return frozenset(name for name in turn.plan.audience if name in turn.job.nodes) - turn.job.finished


def prepared(turn: Turn) -> bool:
    """ASSIGNED: everyone holds the table."""
    plan = turn.job.plan
    if plan is None or plan.phase is not Phase.ASSIGNED or not answering(turn) <= turn.round.prepared:
        return False
    times = replace(plan.times, prepared=turn.now)
    if plan.kind is Kind.SCALE:
        turn.durable(plan=replace(advance(plan, Trigger.PREPARED, turn.now), times=times))
    else:  # nothing has to catch up, and training stands still: no clock
        times = replace(times, synced=turn.now)
        turn.durable(plan=replace(advance(plan, Trigger.AGREED, turn.now), times=times, decided=True))
    turn.log(f"plan {plan.id} {turn.plan.phase}")
    return True


def arm(turn: Turn) -> bool:
    """SYNCING: everyone has caught up; no checkpoint is being written, whose owners must stay."""
    plan, saving = turn.job.plan, turn.state.saving
    if plan is None or plan.phase is not Phase.SYNCING or (saving is not None and saving.clock is not None):
        return False
    if unextended(turn.state):  # somebody reconnects: its Extend is about the table that this plan replaces
        return False
    if not awaited_to_sync(turn.job, plan) <= turn.round.synced:
        return False
    assert plan.target is not None
    if severed(turn.state, plan.target.members):  # armed, the plan could not be cancelled any more
        return False
    armed = replace(advance(plan, Trigger.SYNCED, turn.now), times=replace(plan.times, synced=turn.now))
    turn.durable(plan=armed)
    if turn.job.model.blocks and turn.job.is_sync:
        turn.replan(clock=_clock(turn))
        turn.log(f"plan {plan.id} ARMED at {turn.plan.clock}")
    else:  # there is no common version, or it stands still until there is a model: no clock would come
        turn.replan(decided=True)
        turn.log(f"plan {plan.id} ARMED, decided at once")
    return True


def _clock(turn: Turn, version: int = 0) -> int:
    told = [turn.state.vitals[name] for name in turn.plan.audience if name in turn.state.vitals]
    data = turn.job.data
    margin = turn.state.settings.margin << min(turn.plan.rearms, 9)
    return scaling_clock(told, data.exchanges if data else 1, margin, max(version, turn.state.version))


def rearm(turn: Turn) -> bool:
    """ARMED and undecided: a LATE, or a restart after which everyone has been heard, sets a later clock."""
    plan, answers = turn.job.plan, turn.round
    if plan is None or plan.phase is not Phase.ARMED or plan.decided:
        return False
    unheard = answers.unheard & turn.job.nodes.keys()
    asked = answers.until > 0
    if unheard and turn.now < answers.until:
        return False
    if answers.switched or unheard:  # somebody may have switched: adopting is right in any case, arming is not
        turn.replan(decided=True)
        turn.answers(unheard=frozenset(), until=0.0)
        return True
    if answers.late is None and not asked:
        return False
    later = replace(advance(plan, Trigger.LATE, turn.now), rearms=plan.rearms + 1)
    turn.durable(plan=later)
    turn.replan(clock=max(_clock(turn, answers.late or 0), (plan.clock or 0) + 1))
    turn.answers(late=None, unheard=frozenset(), until=0.0, armed=frozenset())
    turn.log(f"plan {plan.id} ARMED again, at {turn.plan.clock}")
    return True


def land(turn: Turn) -> bool:
    """ARMED: everyone who is alive has switched, so the target is in force."""
    plan = turn.job.plan
    if plan is None or plan.phase is not Phase.ARMED or landed(turn.state):
        return False
    if not plan.decided or not answering(turn) <= turn.round.switched:
        return False
    assert plan.target is not None
    first = plan.times.first_switched or turn.now
    turn.replan(times=replace(plan.times, first_switched=first, last_switched=turn.now))
    goal = turn.job.goal
    turn.durable(
        configuration=plan.target,
        dead=turn.job.dead.intersection(plan.target.members),
        finished=turn.job.finished.intersection(plan.target.members),
        goal=replace(goal, drains=goal.drains - set(plan.leavers) - plan.dead),
        phase=JobPhase.RUNNING,
        reason="",
    )
    turn.live(extended=turn.state.extended | set(plan.joiners))
    return True


def commit(turn: Turn) -> bool:
    """ARMED and switched: the first step of the new configuration is done, so frozen copies may go."""
    plan = turn.job.plan
    if plan is None or not landed(turn.state) or awaited_arrivals(turn.state, plan):
        return False
    assert plan.target is not None
    done = max((turn.state.vitals[w].version for w in plan.target.ranks if w in turn.state.vitals), default=0)
    if plan.clock is not None and done <= plan.clock:
        return False
    for name in plan.audience:
        if name not in plan.target.members:
            turn.node(name, left=True)
    records = (*plan.absorbed, plan)
    fulfilled = {number for record in records for number in record.requests}
    wishes = tuple(wish for wish in turn.job.goal.wishes if wish.number not in fulfilled)
    turn.durable(restore="", unread={}, goal=replace(turn.job.goal, wishes=wishes))
    for record in records:
        turn.close(replace(advance(record, Trigger.SWITCHED, turn.now), times=_times(record, plan)))
    turn.durable(plan=None)
    turn.live(round=Round())
    return True


def _times(record: Plan, final: Plan) -> Times:
    """An absorbed plan's switch is that of the plan that carried it."""
    first = record.times.first_switched or final.times.first_switched
    return replace(record.times, first_switched=first, last_switched=final.times.last_switched)
