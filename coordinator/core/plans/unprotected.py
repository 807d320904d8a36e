"""This module says why blocks of a job that asks for replicas are not protected, and what protects them next. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from coordinator.core.job import DurableJob, JobPhase
from coordinator.core.plans.plan import Phase, chain
from coordinator.core.plans.protection import Protection, followed
from coordinator.core.state import State
from elastic_ps.core.configuration import Configuration, NodeId

_NAMED = 3


class UnprotectedCause(StrEnum):
    """A cause is one word for why blocks are not protected, as a condition on Kubernetes has it."""

    REBUILDING = "Rebuilding"
    STARTING = "Starting"
    RESTORING = "Restoring"
    MAKING_FOLLOWERS = "MakingFollowers"
    SERVER_GONE = "ServerGone"
    ONE_SERVER = "OneServer"
    FINISHING = "Finishing"
    GIVEN_UP = "GivenUp"
    WAITING = "Waiting"


_PHASES = {
    JobPhase.REBUILDING: UnprotectedCause.REBUILDING,
    JobPhase.RESTORING: UnprotectedCause.RESTORING,
}


@dataclass(frozen=True)
class Unprotected:
    """An `Unprotected` says why not all blocks of a job are protected.

    Attributes:
        cause: in one word.
        why: for people, with what protects them next.
        retry_seconds: until followers are made again, where the last plan that did was given up; 0: it was not.
    """

    cause: UnprotectedCause
    why: str
    retry_seconds: float = 0.0


def unprotected(state: State, found: Protection, now: float) -> Unprotected | None:
    """Return why not all blocks are protected; None: they are.

    Args:
        state: of a job that asks for replicas and has not ended.
        found: how much of it is protected.
        now: unix seconds.
    """
    job, plan = state.job, state.job.plan
    if job.phase is not JobPhase.RUNNING or job.configuration is None:
        return Unprotected(_PHASES.get(job.phase, UnprotectedCause.STARTING), f"the job is {job.phase}")
    if not found.all_blocks:
        return Unprotected(UnprotectedCause.STARTING, "no script has declared parameters yet")
    if found.blocks == found.all_blocks:
        return None
    committed = chain(plan, job.configuration)[0]
    bare = _bare(job, committed)
    if plan is not None and plan.target is not None and len(followed(job, plan.target)) > found.blocks:
        return Unprotected(UnprotectedCause.MAKING_FOLLOWERS, f"{bare}; plan {plan.id} makes them")
    if gone := [server.id for server in committed.servers if server.id not in job.nodes]:
        what = f"; plan {plan.id} settles who owns and follows what" if plan is not None else ""
        return Unprotected(UnprotectedCause.SERVER_GONE, f"{', '.join(gone)} {_is(gone)} gone{what}")
    if len(job.configuration.servers) == 1:
        awaited = ": another one is awaited" if job.goal.servers > 1 else ""
        return Unprotected(UnprotectedCause.ONE_SERVER, f"nobody can follow the only server{awaited}")
    if job.finished:
        return Unprotected(UnprotectedCause.FINISHING, f"{bare}; scripts have ended, so nobody makes them any more")
    if now < state.protect_after:
        why = f"{bare}; {_given_up(state)}"
        return Unprotected(UnprotectedCause.GIVEN_UP, why, state.protect_after - now)
    when = f"when plan {plan.id} is over" if plan is not None else "shortly"
    return Unprotected(UnprotectedCause.WAITING, f"{bare}; they are made {when}")


def _bare(job: DurableJob, configuration: Configuration) -> str:
    """Return whose blocks have no follower, for people."""
    covered = set(followed(job, configuration))
    owners = {owner for block, owner in enumerate(configuration.assignment) if block not in covered}
    if len(owners) == len(configuration.servers) and not covered:
        return "no block has a follower"
    names = [configuration.servers[owner].id for owner in sorted(owners)]
    listed = ", ".join(names) if len(names) <= _NAMED else f"{len(names)} servers"
    return f"blocks of {listed} have no follower"


def _given_up(state: State) -> str:
    """Return which plan that made followers was given up, and why."""
    ended = (plan for plan in reversed(state.history) if plan.background and plan.phase is Phase.CANCELLED)
    last = next(ended, None)
    return f"plan {last.id} was given up ({last.reason})" if last is not None else "the last plan was given up"


def _is(names: Sequence[NodeId]) -> str:
    return "is" if len(names) == 1 else "are"
