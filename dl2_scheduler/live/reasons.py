"""This module says why a job was granted what it was, for people, where the policy does not say it."""

from dl2_scheduler.cluster.free_resources import FreeResources
from dl2_scheduler.cluster.snapshot import Allocation, JobState, Snapshot


def explain(snapshot: Snapshot, allocation: Allocation, room: FreeResources) -> dict[str, str]:
    """Return a sentence for each job, by its id as text.

    Args:
        snapshot: the snapshot that the policy saw.
        allocation: the allocation that it decided.
        room: the room that it filled, with what is free after its grants.
    """
    return {
        str(state.job.id): allocation.grants[state.job.id].reason or _sentence(number, state, allocation, room)
        for number, state in enumerate(snapshot.jobs)
        if state.job.id in allocation.grants
    }


def _sentence(number: int, state: JobState, allocation: Allocation, room: FreeResources) -> str:
    grant = allocation.grants[state.job.id]
    if not grant.runs:
        beside = len([given for given in allocation.grants.values() if given.workers])
        return f"waits: {beside} of {len(allocation.grants)} jobs were given the nodes"
    if (grant.workers, grant.servers) == (state.job.max_workers, state.job.max_servers):
        return "all that it can use"
    roles = (("worker", grant.workers, state.job.max_workers), ("server", grant.servers, state.job.max_servers))
    full = [role for role, count, most in roles if most and count == most]
    others = [
        role
        for (role, count, most), demands in zip(roles, room.demands, strict=True)
        if count < most and bool((demands[number] <= room.free).all(axis=1).any())
    ]
    limits = [f"all the {role}s that it can use" for role in full]
    limits += [f"room was left for another {role}" for role in others] or ["no node has room for more of it"]
    return "; ".join(limits)
