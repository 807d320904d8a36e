"""This module says what the job loses with some of its nodes: nothing, a step, a checkpoint's work, or all."""

from dataclasses import dataclass

from coordinator.core.directives import awaited_arrivals, has_handed_over
from coordinator.core.job import DurableJob
from coordinator.core.plans.plan import Phase, chain
from coordinator.core.plans.promotion import survivable
from coordinator.core.state import State
from elastic_ps.core.configuration import NodeId, Role


@dataclass(frozen=True, order=True)
class RemovalCost:
    """A cost says what the removal of some nodes takes from the job; the lower the better, compared field by field.

    Attributes:
        restores: the job has to go back to its checkpoint, as after the loss of the last worker, or of a server that
            has blocks which nobody follows.
        count: of the nodes.
        members: those of them that are in a configuration that is, or may be, in force.
        nbytes: bytes that they own.
        names: highest first, so that no two sets cost the same.
    """

    restores: bool
    count: int
    members: int
    nbytes: int
    names: tuple[NodeId, ...]


def removal_cost(job: DurableJob, names: frozenset[NodeId]) -> RemovalCost:
    """Return what the removal of nodes would cost the job: a plan that is armed counts as if it were committed."""
    members = frozenset(name for name in names if is_member(job, name))
    server = any(name in job.nodes and job.nodes[name].role is Role.SERVER for name in members)
    configurations = chain(job.plan, job.configuration)
    left = job.nodes.keys() - names
    configuration = configurations[-1] if configurations else None
    workers = configuration.ranks.keys() - job.dead if configuration is not None else frozenset[NodeId]()
    held = configuration.blocks_of if configuration is not None else {}
    fatal = server and not all(survivable([each], left) for each in configurations)
    restores = fatal or (bool(workers) and workers <= names)
    nbytes = sum(job.model.blocks[block].nbytes for name in members for block in held.get(name, ()))
    return RemovalCost(restores, len(names), len(members), nbytes, tuple(sorted(names, reverse=True)))


def fails_without(state: State, names: frozenset[NodeId]) -> bool:
    """Return whether the job would not survive the loss of some nodes: it has no checkpoint to go back to."""
    job, settings = state.job, state.settings
    may_have_saved = job.rebuilt and settings.checkpoint
    is_safe = job.checkpoints or job.begun or settings.restore or may_have_saved or not job.model.blocks
    return not is_safe and removal_cost(job, names).restores


def is_member(job: DurableJob, name: NodeId) -> bool:
    """Return whether a node is in the configuration in force, or in one that may be in force somewhere."""
    plan = job.plan
    armed = plan is not None and plan.phase is Phase.ARMED and name in plan.audience
    assumed = plan is not None and any(name in absorbed.audience for absorbed in plan.absorbed)
    return name in job.members or armed or assumed


def has_left(state: State, name: NodeId) -> bool:
    """Return whether a silent leaver of an armed plan holds nothing: nobody waits for it in the new configuration."""
    plan = state.job.plan
    if plan is None or plan.phase is not Phase.ARMED or name not in plan.leavers:
        return False
    return state.job.nodes[name].role is Role.WORKER or (has_handed_over(state, name) and not owes_copies(state))


def owes_copies(state: State) -> bool:
    """Return whether what leavers hand over by an armed plan may be under way: with followers nobody's copy is lost."""
    plan = state.job.plan
    return plan is not None and plan.replicated and bool(awaited_arrivals(state, plan))
