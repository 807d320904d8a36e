"""This module holds the three interfaces: what decides how many, what decides where, and what both act on."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from dl2_scheduler.cluster.free_resources import FreeResources
from dl2_scheduler.cluster.hardware.measured import MeasuredPlacement
from dl2_scheduler.cluster.hardware.view import PlacementView, Places
from dl2_scheduler.cluster.snapshot import Allocation, JobId, Snapshot, SpeedReport


class PolicyTrigger(Enum):
    """A `PolicyTrigger` says when a policy wants to be asked.

    A policy has it as its attribute `trigger`; one without is asked at slots.
    """

    SLOT = "slot"  # at the start of every slot
    EVENT = "event"  # when a job arrives, and when one ends


class AllocationPolicy(Protocol):
    """An `AllocationPolicy` gives each job its workers and servers.

    Contract: never over what the room has, nor over a job's maxima; a job gets its minimum of both roles, or more, or
    nothing (a job without servers has minimum and maximum 0 of them); the same calls in the same order give the same
    answers.
    """

    def allocate(self, snapshot: Snapshot, room: FreeResources) -> Allocation:
        """Fill `room`, which is empty, at the start of a slot."""


def trigger_of(policy: AllocationPolicy) -> PolicyTrigger:
    """Return when a policy wants to be asked."""
    found = getattr(policy, "trigger", PolicyTrigger.SLOT)
    return found if isinstance(found, PolicyTrigger) else PolicyTrigger(found)


@dataclass(frozen=True)
class JobOutcome:
    """A `JobOutcome` says what a job did in a slot.

    Attributes:
        id: the id of the job.
        workers: how many it had, which may be other than it was given.
        servers: how many it had.
        epochs: the epochs that it trained, as far as the slot's ends tell: what `JobState.epochs_done` grew by; 0 where
            it fell.
        finished: when it ended, in seconds since the cluster began; None: it goes on.
        note: why it was other than decided, for people.
        since: when it began to train with these counts, in seconds since the cluster began; None: not known.
        again: those of `epochs` that it had trained before and a restore took back: they tell a speed, but are no
            progress. `epochs - again`, summed over a job's slots, is what it has trained, each epoch once.
        lost: how many `epochs_done` fell by, as a restore took back more than the slot trained; else 0. Where it is
            not 0, the slot tells no speed.
    """

    id: JobId
    workers: int
    servers: int
    epochs: float
    finished: float | None
    note: str = ""
    since: float | None = None
    again: float = 0.0
    lost: float = 0.0


@dataclass(frozen=True)
class Trained:
    """`Trained` says what a slot, from its ends, has made of a job's epochs.

    Its fields are those of the same names in `JobOutcome`.
    """

    epochs: float
    again: float
    lost: float

    @classmethod
    def between(cls, before: float, now: float, most: float) -> "Trained":
        """Return what a slot made of a job's epochs, from where they stood at its two ends.

        Args:
            before: at the slot's start.
            now: at its end.
            most: the highest that it had told of until its start; less than `before` where nobody knows.
        """
        epochs = max(0.0, now - before)
        return cls(epochs, min(epochs, max(0.0, most - before)), max(0.0, before - now))

    @property
    def words(self) -> str:
        """For people; "": nothing was lost, or done again."""
        if self.lost:
            return f"back at its last checkpoint: {self.lost:.3g} epochs were lost"
        return f"{self.again:.3g} epochs were done again" if self.again else ""


@dataclass(frozen=True)
class SlotOutcome:
    """A `SlotOutcome` says what became of a slot.

    Attributes:
        slot: number.
        jobs: the jobs of the snapshot, in its order.
        reports: speeds that jobs measured.
        began: when what jobs had done was looked at before it was decided, in seconds since the cluster began; None:
            not known.
        ended: when it was looked at again, likewise.
        placed: where all tasks lay and how fast their jobs trained, if nothing was moved since the slot before; a group
            is a node, in the order of the snapshot.
    """

    slot: int
    jobs: Sequence[JobOutcome]
    reports: tuple[SpeedReport, ...]
    began: float | None = None
    ended: float | None = None
    placed: MeasuredPlacement | None = None


class Cluster(Protocol):
    """A `Cluster` is where jobs run: a simulation, processes of one machine, or Kubernetes."""

    def snapshot(self) -> Snapshot:
        """Return the cluster as it is now, at the start of a slot."""

    def apply(self, allocation: Allocation) -> None:
        """Give jobs what was decided, by the differences to what they have."""

    def finish_slot(self) -> SlotOutcome:
        """Wait for the end of the slot, and return what became of it."""

    @property
    def done(self) -> bool:
        """Return whether no job is left and none will come."""


class PlacementPolicy(Protocol):
    """A `PlacementPolicy` says on which socket of which node each new task runs.

    Contract: never over what a group has; a job gets places for all tasks that it misses, or for none; the same calls
    in the same order give the same answers.
    """

    def place(self, view: PlacementView) -> Places:
        """Give places to missing tasks."""
