"""Workers draw the batches of an `async` or `ssp` job out of its book (`async_batches`)."""

from dataclasses import replace

from coordinator.core import replies
from coordinator.core.batches import async_batches
from coordinator.core.callers import Draw
from coordinator.core.effects import Why
from coordinator.core.events import DrawAsked
from coordinator.core.plans.plan import Phase
from coordinator.core.state import State
from coordinator.core.step_context import StepContext
from elastic_ps.core.configuration import NodeId, Role


def on_draw_asked(context: StepContext, event: DrawAsked) -> None:
    """Note that a worker wants its next batch, or (number 0) tell it the job's epoch."""
    if context.job.ended or context.job.loading:
        context.refuse(event.to, context.job.reason, Why.ENDING)
    elif why := _not_drawn(context.state, event):
        context.refuse(event.to, why)
    elif why := _impossible(context.state, event):
        over = _leaving(context.state, event.node)  # its loop may be in an epoch that a restore has taken back
        context.refuse(event.to, over or why, Why.ENDING if over else Why.INVALID)
    elif not event.number:
        context.reply(event.to, replies.DrawReply(context.state.book.epoch))
    else:
        context.live(draws=(*context.state.draws, Draw(event.to, event.node, event.number, event.epoch, context.now)))


def _not_drawn(state: State, event: DrawAsked) -> str:
    """Return why the job has no batches to draw, with what to do; "" where it has."""
    data = state.job.data
    if data is None:
        return "no Sampler has been declared yet: declare the job's data, then draw" if event.number else ""
    if data.is_sync:
        return (
            "this job is sync: all workers share each step, and nobody draws batches. Batches are drawn where the "
            'script has elastic_ps.Sampler(..., consistency="async") or "ssp"'
        )
    if not data.elastic:
        return "this job's script draws its own batches (data: static): only an elastic_ps.Sampler's are drawn here"
    return ""


def _impossible(state: State, event: DrawAsked) -> str:
    """Return what is wrong with a request that no correct worker makes; "" where nothing is."""
    if state.job.nodes[event.node].role is not Role.WORKER:
        return f"{event.node} is no worker: only workers draw batches"
    if event.epoch is not None and event.epoch > state.book.epoch:
        return f"epoch {event.epoch} has not begun: the job is in epoch {state.book.epoch}"
    page = state.book.pages.get(event.node)
    last = page.answer.number if page is not None and page.answer is not None else 0
    if 0 < event.number < last:
        return f"draw {event.number} of {event.node} is over: its last one answered is {last}; count them from 1"
    return ""


def answer(context: StepContext) -> bool:
    """Enter in the book what draws say to be done; then answer those that need not wait."""
    job, state = context.job, context.state
    if job.data is None or job.data.is_sync or not job.data.elastic:
        return False
    members = job.configuration.ranks.keys() if job.configuration is not None else frozenset()
    book = async_batches.enrol(state.book, members - job.finished)
    for draw in state.draws:
        if draw.node in book.pages:
            book = async_batches.complete(book, draw.node, draw.number, job.data)
    waiting: list[Draw] = []
    given: list[tuple[int, async_batches.Batch]] = []
    for draw in state.draws:
        if why := _leaving(state, draw.node):
            context.refuse(draw.to, why, Why.ENDING)
            continue
        answer = None
        if draw.node in book.pages:
            book, answer = async_batches.draw(book, draw.node, draw.number, draw.epoch, job.data)
        if answer is None:
            waiting.append(draw)
        else:
            context.reply(draw.to, _reply(answer))
            given += [(answer.epoch, answer.batch)] if answer.batch is not None else []
    if book is state.book and len(waiting) == len(state.draws):
        return False
    context.keep(book)
    context.live(draws=tuple(waiting))
    if state.saving is not None and state.saving.book is not None:
        context.live(saving=replace(state.saving, drawn=(*state.saving.drawn, *given)))
    return True


def _leaving(state: State, name: NodeId) -> str:
    """Return why a worker gets no batch any more; "" where it does, now or once it is a member."""
    job, plan = state.job, state.job.plan
    node = job.nodes.get(name)
    if node is None or node.departing or name in job.finished:
        return f"{name} has no part in the job any more"
    if plan is not None and plan.phase is Phase.ARMED and name in plan.leavers:
        return f"{name} leaves the job"
    return ""


def _reply(answer: async_batches.DrawAnswer) -> replies.DrawReply:
    if answer.batch is None:
        return replies.DrawReply(answer.epoch, over=True)
    batch = answer.batch
    return replies.DrawReply(answer.epoch, step=batch.step, origin=batch.origin, batch=batch.number)
