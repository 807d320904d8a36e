"""The coordinator's decisions: `state, effects = step(state, event)`. Pure: no I/O, no clock, no thread.

A handler notes what an event tells. Then the rules run until none applies; each looks at the facts and moves one thing
on. What nodes and launchers have to hear is a function of the state (`directives`), so a step sends what is new in it;
the journal's entry comes before anything else of the step is done.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from coordinator import barriers, deaths, draws, members, plans, rebuilding, requests, saving, tables
from coordinator import events as ev
from coordinator.directives import owed, plan_of, standing, wanted, welcome
from coordinator.effects import Announce, Effect, Journal, Send
from coordinator.ending import find, on_found, on_unreadable
from coordinator.plan import Kind, Phase, Plan
from coordinator.state import JobPhase, Round, State, StopOrder
from coordinator.turn import Turn

_ROUNDS = 200
"""Rules that apply one after another to one event; more is a bug."""


def step(state: State, event: ev.Event) -> tuple[State, list[Effect]]:
    """The next state, and what to do, in order.

    Raises:
        ImpossibleTransitionError: a bug, with the plan's history.
    """
    turn = Turn(state, event.now)
    _HANDLERS[type(event)](turn, event)
    settle(turn)
    directives = _told(state, turn, event)
    return turn.state, [*_journal(state, turn), *turn.effects, *directives, *_announced(state, turn)]


_RULES: tuple[Callable[[Turn], bool], ...] = (
    rebuilding.rebuild,
    members.finish,
    requests.stop,
    deaths.retire,
    deaths.mourn,
    plans.form,
    plans.assign,
    plans.prepared,
    tables.declare,
    tables.confirm,
    saving.set_clock,
    saving.write,
    saving.commands,
    plans.arm,
    plans.rearm,
    plans.land,
    plans.commit,
    draws.answer,
    barriers.release,
)


def settle(turn: Turn) -> None:
    """Apply the rules, first ones first, until none changes anything."""
    for _ in range(_ROUNDS):
        rules = _RULES[:1] if turn.state.rebuilding else _RULES
        if turn.job.ended or turn.job.loading or not any(rule(turn) for rule in rules):
            return
    raise RuntimeError(f"the rules do not come to rest: {turn.job.plan}")


def _journal(before: State, turn: Turn) -> list[Effect]:
    job = turn.state.job if turn.state.job is not before.job else None
    book = turn.state.book if turn.state.book is not before.book else None
    return [Journal(job, tuple(turn.closed), book)] if job or book or turn.closed else []


def _told(before: State, turn: Turn, event: ev.Event) -> list[Effect]:
    """Directives that stand now and did not before; all of them for a node that has just opened its stream."""
    after = turn.state
    rebuilt = before.rebuilding is not None and after.rebuilding is None
    listener = event.node if isinstance(event, ev.Listening) else None
    resend = _due(turn) if isinstance(event, ev.Tick) else frozenset()
    if listener is None and not resend and _same_orders(before, after):
        return []
    effects: list[Effect] = []
    for name in after.job.nodes:
        now = standing(after, name)
        if name == listener or (rebuilt and after.job.configuration is not None):
            now = (welcome(after), *now)
        elif name in resend:
            unanswered = owed(after, name)
            told = standing(before, name)
            now = tuple(d for d in now if d in unanswered or d not in told)
        else:
            told = standing(before, name)
            now = tuple(directive for directive in now if directive not in told)
        effects += [Send(name, directive, plan_of(after, directive)) for directive in now]
    return effects


def _same_orders(before: State, after: State) -> bool:
    return (
        before.job is after.job
        and before.round is after.round
        and before.told is after.told
        and before.extended is after.extended
        and before.saving is after.saving
        and before.running is after.running
    )


def _due(turn: Turn) -> frozenset[str]:
    """Nodes that have owed an answer for `resend_after` seconds."""
    clock: dict[str, float] = {}
    due = set()
    for name in turn.job.nodes:
        if not owed(turn.state, name):
            continue
        since = turn.state.resent.get(name, turn.now)
        if turn.now - since >= turn.state.settings.resend_after:
            due.add(name)
            since = turn.now
        clock[name] = since
    turn.live(resent=clock)
    return frozenset(due)


def _announced(before: State, turn: Turn) -> list[Effect]:
    if turn.state.job is before.job:
        return []
    now = wanted(turn.state.job)
    return [] if now == wanted(before.job) else [Announce(now)]


# ---- events that concern no room of their own ------------------------------------------------------------------------


def _on_started(turn: Turn, event: ev.Started) -> None:
    """A new term. What had not been armed is cancelled; what had been is finished, once everyone has been asked."""
    lost = turn.job.term == 0 and event.term > 1
    turn.durable(term=max(turn.job.term + 1, event.term))
    if lost or turn.job.phase is JobPhase.REBUILDING:
        rebuilding.begin(turn)
        return
    job = turn.job
    for name in job.nodes:
        members.heard(turn, name)
    turn.live(saved_at=turn.now, finished_at=turn.now)
    if job.loading:
        find(turn)
    plan = job.plan
    if plan is None:
        return
    if plan.phase is Phase.REGISTERED:
        turn.replan(deadline=turn.now + turn.state.settings.join_timeout)
    elif plan.kind is Kind.SCALE and plan.open_ended:
        plans.cancel(turn, "the coordinator restarted")
    elif plan.phase is Phase.ARMED and job.configuration == plan.target:
        turn.live(round=Round(switched=frozenset(plan.audience)))
    elif plan.phase is Phase.ARMED and plan.kind is Kind.SCALE:
        asked = frozenset(name for name, node in job.nodes.items() if node.stop is None)
        turn.live(round=Round(unheard=asked, until=turn.now + turn.state.settings.lease))


def _on_tick(turn: Turn, _event: ev.Tick) -> None:
    if turn.state.rebuilding is None:
        members.check_leases(turn)
        saving.by_interval(turn)


def _on_joined(turn: Turn, event: ev.Joined) -> None:
    if turn.state.rebuilding is not None:
        rebuilding.on_knock(turn, event)
    else:
        members.on_joined(turn, event)


def _on_exited(turn: Turn, event: ev.Exited) -> None:
    if turn.state.rebuilding is not None:
        rebuilding.on_exited(turn, event)
    else:
        members.on_exited(turn, event)


def _on_attached(turn: Turn, event: ev.Attached) -> None:
    turn.live(launchers=turn.state.launchers + event.change)


def _on_withdrawn(turn: Turn, event: ev.Withdrawn) -> None:
    """Nobody waits for this answer any more; what was asked for goes on where it has begun."""
    state = turn.state
    pending = state.saving
    turn.live(
        declarations=tuple(item for item in state.declarations if item.to != event.to),
        draws=tuple(item for item in state.draws if item.to != event.to),
        barriers=tuple(item for item in state.barriers if item.to != event.to),
        running=tuple(item for item in state.running if item.to != event.to),
    )
    if pending is not None and event.to in pending.to:
        turn.live(saving=replace(pending, to=tuple(to for to in pending.to if to != event.to)))


# ---- answers to directives -------------------------------------------------------------------------------------------


def _answering(turn: Turn, event: Any) -> Plan | None:
    """The plan that an answer concerns; an answer about another configuration is an old one."""
    members.heard(turn, event.node, getattr(event, "version", 0))
    plan = turn.job.plan
    return plan if plan is not None and plan.target is not None and plan.number == event.number else None


def _on_prepared(turn: Turn, event: ev.Prepared) -> None:
    if _answering(turn, event):
        turn.answers(prepared=turn.round.prepared | {event.node})


def _on_synced(turn: Turn, event: ev.Synced) -> None:
    if plan := _answering(turn, event):
        turn.answers(synced=turn.round.synced | {event.node})
        if event.detail == "pause" and event.node not in plan.fell_back:
            turn.replan(fell_back=(*plan.fell_back, event.node))


def _on_armed(turn: Turn, event: ev.Armed) -> None:
    if _answering(turn, event):
        turn.answers(armed=turn.round.armed | {event.node})


def _on_late(turn: Turn, event: ev.Late) -> None:
    plan = _answering(turn, event)
    if plan is None or plan.phase is not Phase.ARMED:
        saving.on_late(turn, event)
    elif event.version > (plan.clock or 0):  # else it answers an order that has been replaced since
        turn.answers(late=max(turn.round.late or 0, event.version))


def _on_switched(turn: Turn, event: ev.Switched) -> None:
    """From the first one on the configuration is decided: nobody is armed any more, the rest adopts it."""
    plan = _answering(turn, event)
    if plan is None or plan.phase is not Phase.ARMED:
        _amend(turn, event)
        return
    turn.answers(switched=turn.round.switched | {event.node}, unheard=turn.round.unheard - {event.node})
    if not plan.times.first_switched:
        turn.replan(times=replace(plan.times, first_switched=turn.now))
    if not plan.decided:
        turn.replan(decided=True)
    turn.replan(**_figures(turn.plan, event))


def _figures(plan: Plan, event: ev.Switched) -> dict[str, object]:
    """A node may answer twice: in pause mode a worker knows its suspension only after Resume."""
    figures: dict[str, object] = {}
    if event.bytes_moved > plan.moved.get(event.node, 0):
        figures["moved"] = {**plan.moved, event.node: event.bytes_moved}
    if (plan.target is not None and event.node in plan.target.ranks) or event.suspension_ms:
        longest = max(event.suspension_ms, plan.suspension.get(event.node, 0.0))
        figures["suspension"] = {**plan.suspension, event.node: longest}
    return figures


def _amend(turn: Turn, event: ev.Switched) -> None:
    """Figures that come after their plan has ended."""
    for plan in turn.state.history:
        if plan.number == event.number and event.suspension_ms > plan.suspension.get(event.node, 0.0):
            amended = replace(plan, suspension={**plan.suspension, event.node: event.suspension_ms})
            turn.live(history=tuple(amended if old is plan else old for old in turn.state.history))
            turn.closed.append(amended)


def _on_arrived(turn: Turn, event: ev.Arrived) -> None:
    if _answering(turn, event):
        turn.answers(arrived=turn.round.arrived | {event.node})


def _on_forgotten(turn: Turn, event: ev.Forgotten) -> None:
    members.heard(turn, event.node)
    node = turn.job.nodes[event.node]
    if node.cancel is None or node.cancel.number != event.number:
        return
    stop = StopOrder(f"not wanted any more: {node.cancel.reason}") if node.cancel.leave else node.stop
    turn.node(event.node, cancel=None, stop=stop)


def _noting(handler: Callable[[Turn, Any], None]) -> Callable[[Turn, Any], None]:
    """Any answer is a sign of life."""

    def handle(turn: Turn, event: Any) -> None:
        members.heard(turn, event.node)
        handler(turn, event)

    return handle


_HANDLERS: dict[type[ev.Event], Callable[[Turn, Any], None]] = {
    ev.Started: _on_started,
    ev.Tick: _on_tick,
    ev.Joined: _on_joined,
    ev.Introduced: rebuilding.on_introduced,
    ev.LeaveAsked: members.on_leave_asked,
    ev.Listening: members.on_listening,
    ev.Reported: members.on_reported,
    ev.PeerFailed: members.on_peer_failed,
    ev.Exited: _on_exited,
    ev.Attached: _on_attached,
    ev.Withdrawn: _on_withdrawn,
    ev.Prepared: _on_prepared,
    ev.Synced: _on_synced,
    ev.Armed: _on_armed,
    ev.Late: _on_late,
    ev.Switched: _on_switched,
    ev.Arrived: _on_arrived,
    ev.Forgotten: _on_forgotten,
    ev.Extended: _noting(tables.on_extended),
    ev.Saved: _noting(saving.on_saved),
    ev.Unreadable: _noting(on_unreadable),
    ev.Commanded: _noting(saving.on_commanded),
    ev.Declared: _noting(tables.on_declared),
    ev.DrawAsked: _noting(draws.on_draw_asked),
    ev.BarrierAsked: _noting(barriers.on_barrier_asked),
    ev.CommandAsked: saving.on_command_asked,
    ev.ScaleAsked: requests.on_scale_asked,
    ev.DrainAsked: requests.on_drain_asked,
    ev.CancelAsked: requests.on_cancel_asked,
    ev.CheckpointAsked: saving.on_checkpoint_asked,
    ev.StopAsked: requests.on_stop_asked,
    ev.ManifestWritten: saving.on_written,
    ev.CheckpointFound: on_found,
}
"""Events from a node are given only for nodes that are in `job.nodes`: the shell answers others with NOT_FOUND."""
