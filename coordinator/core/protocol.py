"""The coordinator's decisions: `state, effects = step(state, event)`. Pure: no I/O, no clock, no thread.

A handler notes what an event tells. Then the rules run until none applies; each looks at the facts and moves one thing
on. What nodes and launchers have to hear is a function of the state (`directives`), so a step sends what is new in it;
the journal's entry comes before anything else of the step is done.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from coordinator.core import declarations, operator_requests, optimizer_trials
from coordinator.core import events as ev
from coordinator.core.batches import barriers, batch_requests
from coordinator.core.checkpoints import saving, search
from coordinator.core.checkpoints.ending import on_broken, on_unreadable
from coordinator.core.consequences import consequences
from coordinator.core.effects import Effect
from coordinator.core.nodes import deaths, failure_detection, membership, rebuilding
from coordinator.core.plans import lifecycle
from coordinator.core.plans.plan import Kind, Phase, Plan
from coordinator.core.state import JobPhase, Round, State, StopOrder
from coordinator.core.step_context import Turn

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
    _keep_version(state, turn)
    search.begin(turn)
    effects = consequences(state, turn, event)
    return turn.state, effects


def _keep_version(before: State, turn: Turn) -> None:
    """Let the job's version not fall when those who told it are gone, but where it goes back to a checkpoint."""
    if turn.job is not before.job and turn.job.term == before.job.term and turn.state.version < before.version:
        turn.live(reached=before.version)


_RULES: tuple[Callable[[Turn], bool], ...] = (
    rebuilding.rebuild,
    membership.finish,
    operator_requests.stop,
    deaths.retire,
    deaths.mourn,
    lifecycle.form,
    lifecycle.assign,
    lifecycle.prepared,
    optimizer_trials.hold,
    declarations.declare,
    declarations.confirm,
    saving.set_clock,
    saving.write,
    saving.commands,
    lifecycle.arm,
    lifecycle.rearm,
    lifecycle.land,
    lifecycle.commit,
    batch_requests.answer,
    barriers.release,
)


def settle(turn: Turn) -> None:
    """Apply the rules, first ones first, until none changes anything."""
    for _ in range(_ROUNDS):
        rules = _RULES[:1] if turn.state.rebuilding else _RULES
        if turn.job.ended or turn.job.loading or not any(rule(turn) for rule in rules):
            return
    raise RuntimeError(f"the rules do not come to rest: {turn.job.plan}")


# ---- events that concern no room of their own ------------------------------------------------------------------------


def _on_started(turn: Turn, event: ev.Started) -> None:
    """A new term. What had not been armed is cancelled; what had been is finished, once everyone has been asked."""
    begins = turn.job.term == 0
    lost = begins and event.term > 1
    turn.durable(term=max(turn.job.term + 1, event.term))
    if lost or turn.job.phase is JobPhase.REBUILDING:
        rebuilding.begin(turn)
        return
    job = turn.job
    for name in job.nodes:
        membership.heard(turn, name)
    turn.live(saved_at=turn.now if begins else saving.long_ago(turn), finished_at=turn.now)
    plan = job.plan
    if plan is None:
        return
    if plan.phase is Phase.REGISTERED:
        turn.replan(deadline=turn.now + turn.state.settings.join_timeout)
    elif plan.kind is Kind.SCALE and plan.open_ended:
        lifecycle.cancel(turn, "the coordinator restarted")
    elif plan.phase is Phase.ARMED and job.configuration == plan.target:
        turn.live(round=Round(switched=frozenset(plan.audience)))
    elif plan.phase is Phase.ARMED and plan.kind is Kind.SCALE:
        asked = frozenset(name for name, node in job.nodes.items() if node.stop is None)
        turn.live(round=Round(unheard=asked, until=turn.now + turn.state.settings.lease))


def _on_tick(turn: Turn, _event: ev.Tick) -> None:
    failure_detection.on_tick(turn)
    if turn.state.rebuilding is None:
        saving.by_time(turn)
        search.check(turn)


def _on_joined(turn: Turn, event: ev.Joined) -> None:
    if turn.state.rebuilding is not None:
        rebuilding.on_knock(turn, event)
    else:
        membership.on_joined(turn, event)


def _on_exited(turn: Turn, event: ev.Exited) -> None:
    if turn.state.rebuilding is not None:
        rebuilding.on_exited(turn, event)
    else:
        membership.on_exited(turn, event)


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
    membership.heard(turn, event.node, getattr(event, "version", 0))
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
    membership.heard(turn, event.node)
    node = turn.job.nodes[event.node]
    if node.cancel is None or node.cancel.number != event.number:
        return
    stop = StopOrder(f"not wanted any more: {node.cancel.reason}") if node.cancel.leave else node.stop
    turn.node(event.node, cancel=None, stop=stop)


def _noting(handler: Callable[[Turn, Any], None]) -> Callable[[Turn, Any], None]:
    """Any answer is a sign of life."""

    def handle(turn: Turn, event: Any) -> None:
        membership.heard(turn, event.node)
        handler(turn, event)

    return handle


_HANDLERS: dict[type[ev.Event], Callable[[Turn, Any], None]] = {
    ev.Started: _on_started,
    ev.Tick: _on_tick,
    ev.Joined: _on_joined,
    ev.Introduced: rebuilding.on_introduced,
    ev.LeaveAsked: membership.on_leave_asked,
    ev.Listening: membership.on_listening,
    ev.Reported: membership.on_reported,
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
    ev.Extended: _noting(declarations.on_extended),
    ev.Saved: _noting(saving.on_saved),
    ev.Unreadable: _noting(on_unreadable),
    ev.Commanded: _noting(saving.on_commanded),
    ev.Tried: _noting(optimizer_trials.on_tried),
    ev.Broken: _noting(on_broken),
    ev.Declared: _noting(declarations.on_declared),
    ev.DrawAsked: _noting(batch_requests.on_draw_asked),
    ev.BarrierAsked: _noting(barriers.on_barrier_asked),
    ev.CommandAsked: saving.on_command_asked,
    ev.ScaleAsked: operator_requests.on_scale_asked,
    ev.EvictAsked: failure_detection.on_evict_asked,
    ev.DrainAsked: operator_requests.on_drain_asked,
    ev.CancelAsked: operator_requests.on_cancel_asked,
    ev.CheckpointAsked: saving.on_checkpoint_asked,
    ev.StopAsked: operator_requests.on_stop_asked,
    ev.ManifestWritten: saving.on_written,
    ev.CheckpointFound: search.on_found,
}
"""Events from a node are given only for nodes that are in `job.nodes`: the shell answers others with NOT_FOUND."""
