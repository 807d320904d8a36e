"""This module asks a policy once more about the slots of a live cluster's history."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from dl2_scheduler.cluster.free_resources import NodeRule
from dl2_scheduler.cluster.interfaces import AllocationPolicy
from dl2_scheduler.cluster.snapshot import JobId
from dl2_scheduler.live.known_samples import KnownSamples
from dl2_scheduler.live.recorded_slots import RecordedSlot
from dl2_scheduler.live.serve_the_waiting import Waited, count_waiting
from dl2_scheduler.live.slot_decision import answer
from dl2_scheduler.replay.costs import RecentCosts


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
    slots: Iterable[RecordedSlot], name: str | None, make: Callable[[str], AllocationPolicy], rule: NodeRule
) -> Iterator[Asked]:
    """Yield every recorded decision, and what a policy decides of the same state, as the live loop asks it.

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
    costs, samples = RecentCosts(), KnownSamples()  # by which the loop kept jobs that end soon
    for slot in slots:
        own = name or slot.policy
        if own not in policies:
            policies[own] = make(own)
        seen = samples.seen(slot.snapshot)
        found = answer(policies[own], seen, rule, waited, costs.scaling.start).allocation
        costs.observe(slot)
        waited = count_waiting(waited, slot.snapshot, slot.allocation)
        ids = [state.job.id for state in slot.snapshot.jobs]
        recorded, again = ({job: each.of(job).decided for job in ids} for each in (slot.allocation, found))
        yield Asked(slot.snapshot.slot, slot.policy, recorded, again)
