"""Whole slots as a history keeps them: what was seen, decided and came of it, as compressed JSON."""

import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import TypeAdapter

from dl2_scheduler.cluster.policy import JobOutcome, Outcome
from dl2_scheduler.cluster.snapshot import Allocation, Snapshot, SpeedReport


@dataclass(frozen=True)
class RecordedSlot:
    """One slot of a live cluster.

    Attributes:
        at: unix seconds of the decision.
        policy: that decided, by its name.
        snapshot: that it saw.
        allocation: that was applied.
        outcome: what the jobs did, which may be other than was decided; None: the slot has not ended, or the scheduler
            ended before it.
    """

    at: float
    policy: str
    snapshot: Snapshot
    allocation: Allocation
    outcome: Outcome | None


@dataclass(frozen=True)
class _Decided:
    snapshot: Snapshot
    allocation: Allocation


@dataclass(frozen=True)
class _Happened:
    slot: int
    jobs: tuple[JobOutcome, ...]
    reports: tuple[SpeedReport, ...]
    began: float | None = None  # before format had it
    ended: float | None = None


_DECIDED = TypeAdapter(_Decided)
_HAPPENED = TypeAdapter(_Happened)


def of_decision(snapshot: Snapshot, allocation: Allocation) -> bytes:
    """What was decided, for a row."""
    return zlib.compress(_DECIDED.dump_json(_Decided(snapshot, allocation)))


def of_outcome(outcome: Outcome) -> bytes:
    """What came of it, for a row."""
    jobs = tuple(outcome.jobs)
    return zlib.compress(
        _HAPPENED.dump_json(_Happened(outcome.slot, jobs, outcome.reports, outcome.began, outcome.ended))
    )


def read_slot(row: Sequence[Any]) -> RecordedSlot:
    """Of a row (at, policy, decision, outcome or None).

    Raises:
        ValueError: it is damaged, or of another version.
        zlib.error: likewise.
    """
    at, policy, decision, outcome = row
    decided = _DECIDED.validate_json(zlib.decompress(decision))
    happened = None
    if outcome is not None:
        found = _HAPPENED.validate_json(zlib.decompress(outcome))
        happened = Outcome(found.slot, found.jobs, found.reports, found.began, found.ended)
    return RecordedSlot(at, policy, decided.snapshot, decided.allocation, happened)
