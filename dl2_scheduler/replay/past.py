"""This module finds the jobs and the decisions of a live cluster in its history."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from dl2_scheduler.cluster.free_resources import NodeRule
from dl2_scheduler.cluster.interfaces import AllocationPolicy, JobOutcome
from dl2_scheduler.cluster.jobs import Job
from dl2_scheduler.cluster.snapshot import JobId, JobState
from dl2_scheduler.live.recorded_slots import RecordedSlot
from dl2_scheduler.live.serve_the_waiting import Waited, count_waiting
from dl2_scheduler.live.slot_decision import answer


@dataclass(frozen=True)
class PastJob:
    """A `PastJob` is a job of a history, and how long it took.

    Attributes:
        job: as the simulator takes it, with an id of its own and its arrival since the first one's.
        seconds: from its arrival to its end; None: the history does not have it, or it failed or was stopped.
    """

    job: Job
    seconds: float | None


def past_jobs(slots: Sequence[RecordedSlot]) -> list[PastJob]:
    """Return the jobs, by arrival, whose samples are known.

    Of those that never told them nobody knows the work.
    """
    found: dict[tuple[JobId, float], Job] = {}
    ends: dict[tuple[JobId, float], float] = {}
    for slot in slots:
        states = {state.job.id: state for state in slot.snapshot.jobs}
        for state in slot.snapshot.jobs:
            key = state.job.id, state.job.arrival
            if state.job.samples_known or key not in found:
                found[key] = state.job
        for done in slot.outcome.jobs if slot.outcome else ():
            arrival = states[done.id].job.arrival
            if done.finished is not None and trained_all(states[done.id], done):
                ends[done.id, arrival] = done.finished - arrival
    known = sorted((job.arrival, str(job.id), key) for key, job in found.items() if job.samples_known)
    first = known[0][0] if known else 0.0
    names: dict[str, int] = {}
    jobs = []
    for arrival, name, key in known:
        names[name] = names.get(name, 0) + 1
        unique = name if names[name] == 1 else f"{name}.{names[name]}"  # a name may be used again
        jobs.append(PastJob(replace(found[key], id=unique, arrival=arrival - first), ends.get(key)))
    return jobs


def trained_all(state: JobState, done: JobOutcome) -> bool:
    """Return whether a job ended as it had trained all its epochs, not because it failed or was stopped."""
    trained = state.epochs_done + done.epochs
    return done.finished is not None and math.isclose(trained, state.job.epochs, rel_tol=1e-6)


@dataclass(frozen=True)
class Asked:
    """An `Asked` slot shows a recorded decision beside what a policy decides of the same state.

    Attributes:
        slot: number.
        policy: the policy that decided, by its name.
        recorded: workers and servers of each job, as they were decided; where a job ran with others for the slot, to
            learn its speed, those that it would have had.
        again: as the policy that was asked decides.
    """

    slot: int
    policy: str
    recorded: dict[JobId, tuple[int, int]]
    again: dict[JobId, tuple[int, int]]

    @property
    def other(self) -> list[JobId]:
        """Jobs that are given other counts."""
        return [job for job, counts in self.recorded.items() if self.again[job] != counts]


def ask_again(
    slots: Sequence[RecordedSlot], name: str | None, make: Callable[[str], AllocationPolicy], rule: NodeRule
) -> Iterator[Asked]:
    """Yield every recorded decision, and what a policy decides of the same state.

    Args:
        slots: the slots of the history.
        name: the name of the policy that is asked; None: the one that decided.
        make: a policy of a name, which is then asked slot by slot, as it was.
        rule: the rule by which tasks find their node.

    Raises:
        BadInput: a name is unknown.
    """
    policies: dict[str, AllocationPolicy] = {}
    waited: Waited = {}
    for slot in slots:
        own = name or slot.policy
        if own not in policies:
            policies[own] = make(own)
        found = answer(policies[own], slot.snapshot, rule, waited).allocation
        waited = count_waiting(waited, slot.snapshot, slot.allocation)
        ids = [state.job.id for state in slot.snapshot.jobs]
        recorded, again = ({job: each.of(job).decided for job in ids} for each in (slot.allocation, found))
        yield Asked(slot.snapshot.slot, slot.policy, recorded, again)
