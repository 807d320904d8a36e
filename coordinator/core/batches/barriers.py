"""A worker's barrier is answered when all that share it are in it (docs/reference/protocol.md, "A barrier")."""

from collections.abc import Sequence, Set

from coordinator.core import replies
from coordinator.core.callers import Barrier
from coordinator.core.directives import switching
from coordinator.core.effects import Why
from coordinator.core.events import BarrierAsked
from coordinator.core.plans.plan import PlanKind, chain
from coordinator.core.state import State
from coordinator.core.step_context import StepContext
from elastic_ps.core.configuration import NodeId, Role


def on_barrier_asked(context: StepContext, event: BarrierAsked) -> None:
    """Note that a worker's script is in a barrier. One that has been passed is answered again."""
    job = context.job
    here = Barrier(event.to, event.node, event.place, event.sharing, event.version, _since(context, event))
    if job.ended or job.loading:
        context.refuse(event.to, job.reason, Why.ENDING)
    elif job.nodes[event.node].role is not Role.WORKER:
        context.refuse(event.to, f"{event.node} is no worker: only workers have barriers", Why.INVALID)
    elif here.place <= job.passed:
        context.reply(event.to, replies.BarrierReply())
    else:
        others = tuple(barrier for barrier in context.state.barriers if barrier.node != event.node)
        context.live(barriers=(*others, here))


def _since(context: StepContext, event: BarrierAsked) -> float:
    """Return since when a worker is in a barrier, also where it asks again."""
    before = (one.since for one in context.state.barriers if (one.node, one.place) == (event.node, event.place))
    return next(before, context.now)


def release(context: StepContext) -> bool:
    """Answer those in a barrier that nobody is missing from, and those that have no part in the job any more."""
    state = context.state
    if not state.barriers or state.job.configuration is None:
        return False
    members = _members(state)
    refused = [(barrier, why) for barrier in state.barriers if (why := _refusal(state, barrier, members))]
    for barrier, why in refused:
        context.refuse(barrier.to, *why)
    if refused:
        over = [barrier for barrier, _ in refused]
        context.live(barriers=tuple(barrier for barrier in state.barriers if barrier not in over))
        return True
    for place in sorted({barrier.place for barrier in state.barriers}):
        if not missing(state, place):
            here = [barrier for barrier in state.barriers if barrier.place == place]
            context.durable(passed=max(state.job.passed, place))
            context.live(barriers=tuple(barrier for barrier in state.barriers if barrier not in here))
            for barrier in here:
                context.reply(barrier.to, replies.BarrierReply())
            return True
    return False


def _refusal(state: State, barrier: Barrier, members: Set[NodeId]) -> tuple[str, Why] | None:
    """Return why a worker need not wait any more: it has no part in the job, or somebody waits for it elsewhere.

    Nobody's step is made again before a switch; nor does a plan come to it while the two wait for each other.
    """
    job, name = state.job, barrier.node
    if name not in members or job.nodes[name].departing:
        return f"{name} has no part in the job any more", Why.ENDING
    if not job.is_sync or (job.plan is not None and (job.plan.kind is not PlanKind.SCALE or switching(job.plan))):
        return None
    for other in sorted(missing(state, barrier.place)):
        vitals = state.vitals.get(other)
        if vitals is not None and vitals.exchanging and vitals.version == barrier.version:
            text = (
                f"{name} is in a barrier that {other} cannot come to: {other} has pushed after version "
                f"{vitals.version} and waits until {name} has too. All workers must push equally often before a barrier"
            )
            return text, Why.PRECONDITION
    return None


def missing(state: State, place: tuple[int, int]) -> Set[NodeId]:
    """Return who shares a barrier and is not in it yet; the job has a configuration, or none has come to it."""
    job = state.job
    if job.configuration is None:
        return frozenset()
    here = [barrier for barrier in state.barriers if barrier.place == place]
    sharing = {name for barrier in here for name in barrier.sharing or job.configuration.ranks}
    coming = sharing - {barrier.node for barrier in here} - _beyond(state, here)
    return (coming & _members(state)) - job.finished - job.dead


def _beyond(state: State, here: Sequence[Barrier]) -> Set[NodeId]:
    """Return who does not come to a barrier any more, as it is in a later step by now.

    Who hears of a switch before the last values of its step makes that step again, and shares it with joiners. These
    have no part in it where the servers had made it with the others, and begin with the next one.
    """
    if not here:
        return frozenset()
    place = here[0].place
    beyond = {barrier.node for barrier in state.barriers if barrier.place > place}
    beyond |= {name for name, told in state.vitals.items() if told.place > place[0]}
    return beyond if state.job.is_sync else beyond | _in_epochs_after(state, place[0])


def _in_epochs_after(state: State, place: int) -> Set[NodeId]:
    """Return who draws batches of an epoch after that of a barrier, whose place is the epoch and 1.

    Who joins when the last batch of an epoch is done begins with the next one, while the others come to its end.
    """
    answers = ((name, page.answer) for name, page in state.book.pages.items())
    given = {name for name, answer in answers if answer is not None and answer.batch and answer.epoch >= place}
    return given | {draw.node for draw in state.draws if draw.epoch is not None and draw.epoch >= place}


def _members(state: State) -> Set[NodeId]:
    """Return the workers in force, and those of a configuration that may be in force somewhere.

    Where a death came into an armed plan, that plan's is.
    """
    job = state.job
    assert job.configuration is not None
    last = chain(job.plan, job.configuration)[-1]
    return (job.configuration.ranks.keys() | last.ranks.keys()) & job.nodes.keys()
