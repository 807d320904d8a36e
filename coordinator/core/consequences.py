"""This module derives effects from a changed state: a journal entry, directives to nodes, what launchers are to do."""

from coordinator.core import events as ev
from coordinator.core.directives import owed, plan_of, standing, wanted, welcome
from coordinator.core.effects import Announce, Effect, Send, WriteJournal
from coordinator.core.state import State
from coordinator.core.step_context import StepContext


def consequences(before: State, context: StepContext, event: ev.JobEvent) -> list[Effect]:
    """Return all effects of an event, in the order in which they have to happen: what is told has been journalled.

    Args:
        before: the state when the event came.
        context: what has become of it.
        event: the one that was handled.
    """
    return [*_journal(before, context), *context.effects, *_told(before, context, event), *_announced(before, context)]


def _journal(before: State, context: StepContext) -> list[Effect]:
    job = context.state.job if context.state.job is not before.job else None
    book = context.state.book if context.state.book is not before.book else None
    return [WriteJournal(job, tuple(context.closed), book)] if job or book or context.closed else []


def _told(before: State, context: StepContext, event: ev.JobEvent) -> list[Effect]:
    """Return the directives that stand now and did not before; for a node that has just opened its stream all."""
    after = context.state
    rebuilt = before.rebuilding is not None and after.rebuilding is None
    listener = event.node if isinstance(event, ev.Listening) else None
    resend = _due(context) if isinstance(event, ev.Tick) else frozenset()
    if listener is None and not resend and same_orders(before, after):
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


def same_orders(before: State, after: State) -> bool:
    """Return whether nothing has changed that `standing` looks at."""
    return (
        before.job is after.job
        and before.answers is after.answers
        and before.welcomed is after.welcomed
        and before.extended is after.extended
        and before.saving is after.saving
        and before.running is after.running
        and before.trials is after.trials
    )


def _due(context: StepContext) -> frozenset[str]:
    """Return the nodes that have owed an answer for `resend_after` seconds."""
    clock: dict[str, float] = {}
    due = set()
    for name in context.job.nodes:
        if not owed(context.state, name):
            continue
        since = context.state.resent.get(name, context.now)
        if context.now - since >= context.state.settings.resend_after:
            due.add(name)
            since = context.now
        clock[name] = since
    context.live(resent=clock)
    return frozenset(due)


def _announced(before: State, context: StepContext) -> list[Effect]:
    told, now = wanted(before.job), wanted(context.job)
    return [] if now is told or now == told else [Announce(now)]
