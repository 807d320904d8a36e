"""A checkpoint that is being written keeps waiting a plan that changes who holds the parameters, and a stop.

Holders save the blocks that they have, so they must stay until all of them have said that theirs are written. From then
on only the manifest is missing, which needs none of them.
"""

from dataclasses import replace

from coordinator.core.job import DurableJob
from coordinator.core.plans.plan import Phase, Plan
from coordinator.core.state import State
from coordinator.core.step_context import StepContext
from elastic_ps.core.configuration import NodeId


def is_in_the_way(state: State, plan: Plan) -> bool:
    """Return whether the plan would change who holds the parameters while they are to save their blocks."""
    saving = state.saving
    if saving is None or saving.clock is None or saving.writing or plan.target is None:
        return False
    return state.job.holders != state.job.holders_in(plan.target)


def make_way(context: StepContext, plan: Plan) -> bool:
    """Return whether no checkpoint is in a plan's way, now that one may have been put off.

    Whoever leaves may have to be gone soon; a checkpoint that nobody waits for is begun anew behind the plan, with the
    holders that there are then. They give up the old one's blocks when they hear of it, and what comes of these counts
    for nothing, as they have another URL. That is done once, or plan after plan could keep a job from ever saving; and
    not where the job ends when it is written.
    """
    saving = context.state.saving
    if saving is None or not is_in_the_way(context.state, plan):
        return True
    if saving.to or saving.put_off or not plan.leavers or context.job.stopping:
        return False
    context.live(saving=replace(saving, clock=None, saved={}, begun=context.now, put_off=True))
    context.log(f"checkpoint {saving.url} is put off: plan {plan.id} goes first, as {', '.join(plan.leavers)} leaves")
    return True


def awaited(state: State) -> frozenset[NodeId]:
    """Return the nodes that have not saved their blocks yet, where they are to."""
    saving = state.saving
    if saving is None or saving.clock is None or saving.writing:
        return frozenset()
    return state.job.holders - saving.saved.keys()


def keeps_waiting(state: State) -> bool:
    """Return whether a plan that could be armed, or a stop, waits for the checkpoint."""
    plan = state.job.plan
    return bool(state.job.stopping) or (plan is not None and plan.phase is Phase.SYNCING and is_in_the_way(state, plan))


def stops_later(state: State) -> str:
    """Return what a job waits for that has been stopped, for people; "": it has not, or waits for nothing."""
    job: DurableJob = state.job
    if not job.stopping or job.ended or state.saving is None:
        return ""
    where = state.saving.url if state.saving.clock is not None else state.saving.root
    return f"{job.stopping}: it ends when its checkpoint is written ({where}); `elasticctl stop --now` does not wait"
