"""A policy's answer, checked before anything is done; what cannot be done is decided by a fallback."""

import logging
import reprlib
from dataclasses import dataclass

import numpy as np

from dl2_scheduler.cluster.policy import AllocationPolicy
from dl2_scheduler.cluster.room import NodeRule, Room
from dl2_scheduler.cluster.snapshot import Allocation, Grant, JobState, Snapshot
from dl2_scheduler.live.reasons import explain
from dl2_scheduler.live.sparing import spared
from dl2_scheduler.live.waiting import NOBODY, Waited, served

log = logging.getLogger(__name__)


class UnfitAnswer(Exception):
    """What a policy answered cannot be done; the message says why."""


@dataclass(frozen=True)
class Decided:
    """A slot's decision.

    Attributes:
        allocation: for every job of the snapshot, with reasons.
        fault: what was wrong with the policy, so that the fallback decided; "": it decided itself.
    """

    allocation: Allocation
    fault: str = ""


def decide(
    policy: AllocationPolicy,
    fallback: AllocationPolicy,
    snapshot: Snapshot,
    rule: NodeRule,
    waited: Waited = NOBODY,
) -> Decided:
    """Ask a policy, whatever it may do.

    Args:
        policy: is asked.
        fallback: is asked where the policy raises, or answers what cannot be done. It is trusted.
        snapshot: the cluster.
        rule: by which tasks find their node.
        waited: see `live/waiting`; left out: nobody has.
    """
    try:
        return Decided(answer(policy, snapshot, rule, waited))
    except UnfitAnswer as error:
        fault = str(error)
    except (Exception, SystemExit) as error:
        log.exception("slot %d: the policy has failed", snapshot.slot)
        fault = f"it raised {type(error).__name__}: {error}"
    return Decided(answer(fallback, snapshot, rule, waited), fault)


def answer(policy: AllocationPolicy, snapshot: Snapshot, rule: NodeRule, waited: Waited = NOBODY) -> Allocation:
    """What a policy decides, with a reason for every job.

    No running job is suspended where others may shrink, and none waits forever: see `sparing` and `waiting`.

    Raises:
        UnfitAnswer: it is for a job that is not there, breaks a job's bounds, or does not fit.
        Exception: whatever the policy raises.
    """
    room = Room(snapshot, rule)
    allocation = policy.allocate(snapshot, room)
    allocation, room = spared(snapshot, allocation, check(snapshot, allocation, room))
    allocation, again = served(snapshot, allocation, rule, waited)
    room = again or room
    grants = {state.job.id: allocation.of(state.job.id) for state in snapshot.jobs}
    reasons = explain(snapshot, Allocation(grants), room)
    return Allocation(
        {job: Grant(int(grant.workers), int(grant.servers), _text(reasons[str(job)])) for job, grant in grants.items()}
    )


def check(snapshot: Snapshot, allocation: Allocation, room: Room) -> Room:
    """Refuse what cannot be done; returns a room that is filled with it.

    Args:
        snapshot: the cluster.
        allocation: of a policy.
        room: that it was asked to fill; not all policies do.

    Raises:
        UnfitAnswer: see `answer`.
    """
    if not (isinstance(allocation, Allocation) and all(isinstance(each, Grant) for each in allocation.grants.values())):
        raise UnfitAnswer(f"it answered {_shown.repr(allocation)}, which is no Allocation of Grants")
    unknown = set(allocation.grants) - {state.job.id for state in snapshot.jobs}
    if unknown:
        raise UnfitAnswer(f"it gave to {min(map(str, unknown))}, which is no job of this slot")
    for state in snapshot.jobs:
        _check_counts(state, allocation.of(state.job.id))
    grants = [allocation.of(state.job.id) for state in snapshot.jobs]
    counts = [(grant.workers, grant.servers) for grant in grants]
    if counts == [(room.workers(number), room.servers(number)) for number in range(len(counts))]:
        return room
    for rule in (room.rule, NodeRule.PACK):
        again = Room(snapshot, rule)
        if _fill(again, counts):
            return again
    raise UnfitAnswer("its grants do not fit on the nodes")


_shown = reprlib.Repr()
_shown.maxother = 100


def _text(reason: object) -> str:
    """What can be written down of what a policy says."""
    return str(reason).encode(errors="replace").decode()


def _check_counts(state: JobState, grant: Grant) -> None:
    job, counts = state.job, (grant.workers, grant.servers)
    if not all(isinstance(count, int | np.integer) for count in counts):
        raise UnfitAnswer(f"it gave {job.id} {counts[0]!r} workers and {counts[1]!r} servers: not numbers of tasks")
    if counts == (0, 0):
        return
    for role, count, least, most in (
        ("workers", grant.workers, job.min_workers, job.max_workers),
        ("servers", grant.servers, job.min_servers, job.max_servers),
    ):
        if not least <= count <= most:
            raise UnfitAnswer(f"it gave {job.id} {count} {role}, which may have {least} to {most}, or nothing at all")


def _fill(room: Room, counts: list[tuple[int, int]]) -> bool:
    """Whether it all fits. Largest tasks first: what fits at all nearly always fits so."""
    tasks = [
        (float(demands[number].max()), -number, -role)
        for role, demands in enumerate(room.demands)
        for number in range(len(counts))
    ]
    return all(
        room.give(-number, *((0, 1) if role else (1, 0)))
        for _, number, role in sorted(tasks, reverse=True)
        for _ in range(counts[-number][-role])
    )
