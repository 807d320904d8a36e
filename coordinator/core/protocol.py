"""The coordinator decides by `state, effects = step(state, event)`, which is pure: no I/O, no clock, no thread.

A handler notes what an event tells. Then the rules run until none applies; each looks at the facts and moves one thing
on. What nodes and launchers have to hear is a function of the state (`directives`), so a step sends what is new in it;
the journal's entry comes before anything else of the step is done.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from coordinator.core import declarations, operator_requests, optimizer_trials
from coordinator.core import events as ev
from coordinator.core import node_answers as na
from coordinator.core.batches import barriers, batch_requests
from coordinator.core.checkpoints import saving, search_requests
from coordinator.core.checkpoints.ending import on_broken, on_unreadable
from coordinator.core.consequences import consequences
from coordinator.core.effects import Effect
from coordinator.core.job import JobPhase, StopOrder
from coordinator.core.nodes import deaths, expulsions, membership, rebuilding
from coordinator.core.plans import lifecycle, protection
from coordinator.core.plans.cancelling import cancel
from coordinator.core.plans.plan import Phase, Plan, PlanKind
from coordinator.core.state import PlanAnswers, State
from coordinator.core.step_context import StepContext

_ROUNDS = 200
"""At most so many rules apply one after another to one event; more is a bug."""


def step(state: State, event: ev.JobEvent) -> tuple[State, list[Effect]]:
    """Return the next state, and what to do, in order.

    Raises:
        ImpossibleTransitionError: a bug, with the plan's history.
    """
    context = StepContext(state, event.now)
    _HANDLERS[type(event)](context, event)
    settle(context)
    _keep_version(state, context)
    search_requests.begin(context)
    effects = consequences(state, context, event)
    return context.state, effects


def _keep_version(before: State, context: StepContext) -> None:
    """Let the job's version not fall when those who told it are gone, but where it goes back to a checkpoint."""
    if context.job is not before.job and context.job.term == before.job.term and context.state.version < before.version:
        context.live(reached=before.version)


_RULES: tuple[Callable[[StepContext], bool], ...] = (
    rebuilding.rebuild,
    membership.finish,
    operator_requests.stop,
    deaths.retire,
    deaths.mourn,
    deaths.promote,
    protection.protect,
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


def settle(context: StepContext) -> None:
    """Apply the rules, first ones first, until none changes anything."""
    for _ in range(_ROUNDS):
        rules = _RULES[:1] if context.state.rebuilding else _RULES
        if context.job.ended or context.job.loading or not any(rule(context) for rule in rules):
            return
    raise RuntimeError(f"the rules do not come to rest: {context.job.plan}")


# ---- events that concern no module of their own ----------------------------------------------------------------------


def _on_started(context: StepContext, event: ev.Started) -> None:
    """Begin a new term: cancel what had not been armed, and finish what had been, once everyone has been asked."""
    begins = context.job.term == 0
    lost = begins and event.term > 1
    context.durable(term=max(context.job.term + 1, event.term))
    expulsions.begin(context)
    if lost or context.job.phase is JobPhase.REBUILDING:
        rebuilding.begin(context)
        return
    job = context.job
    for name in job.nodes:
        membership.heard(context, name)
    context.live(saved_at=context.now if begins else saving.long_ago(context), finished_at=context.now)
    saving.on_started(context)
    plan = job.plan
    if plan is None:
        return
    if plan.phase is Phase.REGISTERED:
        context.replan(deadline=context.now + context.state.settings.join_timeout)
    elif plan.kind is PlanKind.SCALE and plan.open_ended:
        cancel(context, "the coordinator restarted")
    elif plan.phase is Phase.ARMED and job.configuration == plan.target:
        context.live(answers=PlanAnswers(switched=frozenset(plan.audience)))
    elif plan.phase is Phase.ARMED and plan.kind is PlanKind.SCALE:
        asked = frozenset(name for name, node in job.nodes.items() if node.stop is None)
        context.live(answers=PlanAnswers(unheard=asked, until=context.now + context.state.settings.lease))


def _on_tick(context: StepContext, _event: ev.Tick) -> None:
    expulsions.on_tick(context)
    if context.state.rebuilding is None:
        saving.by_time(context)
        search_requests.check(context)


def _on_joined(context: StepContext, event: ev.Joined) -> None:
    if context.state.rebuilding is not None:
        rebuilding.on_knock(context, event)
    else:
        membership.on_joined(context, event)


def _on_exited(context: StepContext, event: ev.Exited) -> None:
    if context.state.rebuilding is not None:
        rebuilding.on_exited(context, event)
    else:
        membership.on_exited(context, event)


def _on_attached(context: StepContext, event: ev.Attached) -> None:
    context.live(launchers=context.state.launchers + event.change)


def _on_withdrawn(context: StepContext, event: ev.Withdrawn) -> None:
    """Forget a caller that has hung up; what it asked for goes on where it has begun."""
    state = context.state
    pending = state.saving
    context.live(
        declarations=tuple(item for item in state.declarations if item.to != event.to),
        draws=tuple(item for item in state.draws if item.to != event.to),
        barriers=tuple(item for item in state.barriers if item.to != event.to),
        running=tuple(item for item in state.running if item.to != event.to),
    )
    if pending is not None and event.to in pending.to:
        context.live(saving=replace(pending, to=tuple(to for to in pending.to if to != event.to)))


# ---- answers to directives -------------------------------------------------------------------------------------------


def _answering(context: StepContext, event: Any) -> Plan | None:
    """Return the plan that an answer concerns; an answer about another configuration is an old one."""
    membership.heard(context, event.node, getattr(event, "version", 0))
    plan = context.job.plan
    return plan if plan is not None and plan.target is not None and plan.number == event.number else None


def _on_prepared(context: StepContext, event: na.Prepared) -> None:
    if plan := _answering(context, event):
        context.note_answers(prepared=context.answers.prepared | {event.node})
        if plan.asks:
            context.note_answers(holdings={**context.answers.holdings, event.node: event.holdings})


def _on_synced(context: StepContext, event: na.Synced) -> None:
    if plan := _answering(context, event):
        context.note_answers(synced=context.answers.synced | {event.node})
        if event.detail == "pause" and event.node not in plan.fell_back:
            context.replan(fell_back=(*plan.fell_back, event.node))


def _on_armed(context: StepContext, event: na.Armed) -> None:
    if _answering(context, event):
        context.note_answers(armed=context.answers.armed | {event.node})


def _on_late(context: StepContext, event: na.Late) -> None:
    plan = _answering(context, event)
    if plan is None or plan.phase is not Phase.ARMED or plan.decided:
        saving.on_late(context, event)
    elif event.version > (plan.clock or 0):  # else it answers an order that has been replaced since
        context.note_answers(late=max(context.answers.late or 0, event.version))


def _on_switched(context: StepContext, event: na.Switched) -> None:
    """Take the first switch as the decision: nobody is armed any more, and the rest adopts the configuration."""
    plan = _answering(context, event)
    if plan is None or plan.phase is not Phase.ARMED:
        _amend(context, event)
        return
    context.note_answers(
        switched=context.answers.switched | {event.node},
        reached=max(context.answers.reached, event.version),
        unheard=context.answers.unheard - {event.node},
    )
    if not plan.times.first_switched:
        context.replan(times=replace(plan.times, first_switched=context.now))
    if not plan.decided:
        context.replan(decided=True)
    context.replan(**_figures(context.plan, event))


def _figures(plan: Plan, event: na.Switched) -> dict[str, object]:
    """Return a plan's figures with a node's. In pause mode a worker knows its suspension only after Resume."""
    figures: dict[str, object] = {}
    if event.bytes_moved > plan.moved.get(event.node, 0):
        figures["moved"] = {**plan.moved, event.node: event.bytes_moved}
    if (plan.target is not None and event.node in plan.target.ranks) or event.suspension_ms:
        longest = max(event.suspension_ms, plan.suspension.get(event.node, 0.0))
        figures["suspension"] = {**plan.suspension, event.node: longest}
    return figures


def _amend(context: StepContext, event: na.Switched) -> None:
    """Add figures to a plan that has ended before they came."""
    for plan in context.state.history:
        if plan.number == event.number and event.suspension_ms > plan.suspension.get(event.node, 0.0):
            amended = replace(plan, suspension={**plan.suspension, event.node: event.suspension_ms})
            context.live(history=tuple(amended if old is plan else old for old in context.state.history))
            context.closed.append(amended)


def _on_arrived(context: StepContext, event: na.Arrived) -> None:
    if _answering(context, event):
        context.note_answers(arrived=context.answers.arrived | {event.node})


def _on_followed(context: StepContext, event: na.Followed) -> None:
    if _answering(context, event):
        context.note_answers(followed=context.answers.followed | {event.node})


def _on_forgotten(context: StepContext, event: na.Forgotten) -> None:
    membership.heard(context, event.node)
    node = context.job.nodes[event.node]
    if node.cancel is None or node.cancel.number != event.number:
        return
    stop = StopOrder(f"not wanted any more: {node.cancel.reason}") if node.cancel.leave else node.stop
    context.node(event.node, cancel=None, stop=stop)


def _noting(handler: Callable[[StepContext, Any], None]) -> Callable[[StepContext, Any], None]:
    """Wrap a handler so that the answer counts as a sign of life."""

    def handle(context: StepContext, event: Any) -> None:
        membership.heard(context, event.node)
        handler(context, event)

    return handle


_HANDLERS: dict[type[ev.JobEvent], Callable[[StepContext, Any], None]] = {
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
    na.Prepared: _on_prepared,
    na.Synced: _on_synced,
    na.Armed: _on_armed,
    na.Late: _on_late,
    na.Switched: _on_switched,
    na.Arrived: _on_arrived,
    na.Followed: _on_followed,
    na.Forgotten: _on_forgotten,
    na.Extended: _noting(declarations.on_extended),
    na.Saved: _noting(saving.on_saved),
    na.CheckpointUnreadable: _noting(on_unreadable),
    na.Commanded: _noting(saving.on_commanded),
    na.Tried: _noting(optimizer_trials.on_tried),
    na.Broken: _noting(on_broken),
    ev.Declared: _noting(declarations.on_declared),
    ev.DrawAsked: _noting(batch_requests.on_draw_asked),
    ev.BarrierAsked: _noting(barriers.on_barrier_asked),
    ev.CommandAsked: saving.on_command_asked,
    ev.ScaleAsked: operator_requests.on_scale_asked,
    ev.EvictAsked: expulsions.on_evict_asked,
    ev.DrainAsked: operator_requests.on_drain_asked,
    ev.CancelAsked: operator_requests.on_cancel_asked,
    ev.CheckpointAsked: saving.on_checkpoint_asked,
    ev.StopAsked: operator_requests.on_stop_asked,
    ev.ManifestWritten: saving.on_written,
    ev.CheckpointFound: search_requests.on_found,
}
"""Events from a node are given only for nodes that are in `job.nodes`: the shell answers others with NOT_FOUND."""
