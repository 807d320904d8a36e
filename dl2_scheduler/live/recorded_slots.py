"""This module writes and reads whole slots as a history keeps them, as compressed JSON."""

import math
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import TypeAdapter

from dl2_scheduler.cluster.errors import BadInput
from dl2_scheduler.cluster.hardware.measured import MeasuredPlacement
from dl2_scheduler.cluster.interfaces import JobOutcome, SlotOutcome
from dl2_scheduler.cluster.jobs import MOST_TASKS
from dl2_scheduler.cluster.ranges import LATEST, MOST_AMOUNT, MOST_EPOCHS, MOST_SPEED, MOST_WHOLE, check_range
from dl2_scheduler.cluster.snapshot import Allocation, Grant, JobState, Snapshot, SpeedReport

_MOST_BYTES = 64 << 20  # of a slot: with 1000 jobs it has less than one


@dataclass(frozen=True)
class RecordedSlot:
    """A `RecordedSlot` is one slot of a live cluster: what was seen, decided, and came of it.

    Attributes:
        at: unix seconds of the decision.
        policy: the policy that decided, by its name.
        snapshot: the snapshot that it saw.
        allocation: the allocation that was applied.
        outcome: what the jobs did, which may be other than was decided; None: the slot has not ended, or the scheduler
            ended before it.
    """

    at: float
    policy: str
    snapshot: Snapshot
    allocation: Allocation
    outcome: SlotOutcome | None


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
    placed: MeasuredPlacement | None = None


_DECIDED = TypeAdapter(_Decided)
_HAPPENED = TypeAdapter(_Happened)


def of_decision(snapshot: Snapshot, allocation: Allocation) -> bytes:
    """Return what was decided, as the bytes of a row."""
    return zlib.compress(_DECIDED.dump_json(_Decided(snapshot, allocation)))


def of_outcome(outcome: SlotOutcome) -> bytes:
    """Return what came of a slot, as the bytes of a row."""
    jobs = tuple(outcome.jobs)
    happened = _Happened(outcome.slot, jobs, outcome.reports, outcome.began, outcome.ended, outcome.placed)
    return zlib.compress(_HAPPENED.dump_json(happened))


def read_slot(row: Sequence[Any]) -> RecordedSlot:
    """Read a row (at, policy, decision, outcome or None).

    Raises:
        ValueError: it is damaged, or of another version.
        zlib.error: likewise.
    """
    at, policy, decision, outcome = row
    if not (isinstance(at, float | int) and math.isfinite(at) and isinstance(policy, str)):
        raise ValueError("it has no time, or names no policy")
    decided = _DECIDED.validate_json(_unpacked(decision))
    happened = None
    if outcome is not None:
        found = _HAPPENED.validate_json(_unpacked(outcome))
        happened = SlotOutcome(found.slot, found.jobs, found.reports, found.began, found.ended, found.placed)
    try:
        _check(decided, happened)
    except BadInput as error:
        raise ValueError(str(error)) from error
    return RecordedSlot(at, policy, decided.snapshot, decided.allocation, happened)


def _unpacked(blob: Any) -> bytes:
    """Return what was compressed. Raises ValueError: it is no such bytes, or more than a slot can have."""
    if not isinstance(blob, bytes):
        raise ValueError(f"a {type(blob).__name__} instead of bytes")  # noqa: TRY004  # what is read, not what is called
    unpacking = zlib.decompressobj()
    found = unpacking.decompress(blob, _MOST_BYTES)
    if unpacking.unconsumed_tail or not unpacking.eof:
        raise ValueError(f"not whole, or more than {_MOST_BYTES:,} bytes")
    return found


def _check(decided: _Decided, outcome: SlotOutcome | None) -> None:
    """Refuse numbers that cannot be: arrays are made of them. Raises BadInput."""
    snapshot, jobs = decided.snapshot, {state.job.id for state in decided.snapshot.jobs}
    check_range("slot_seconds", snapshot.slot_seconds, LATEST, zero=False)
    for node in snapshot.nodes:
        for resource, amount in node.capacity.items():
            check_range(f"{node.name}: {resource}", amount, MOST_AMOUNT)
    for state in snapshot.jobs:
        state.job.check()
        check_range("epochs_done", state.epochs_done, MOST_EPOCHS)
        check_range("slots_run", state.slots_run, MOST_WHOLE)
        check_range("starting_seconds", state.starting_seconds, LATEST)
    done = outcome.jobs if outcome is not None else ()
    named = {each.id for each in done} | set(decided.allocation.grants)
    if len(jobs) < len(snapshot.jobs) or not named <= jobs:
        raise BadInput("a job comes twice, or is not in the slot")
    grants = decided.allocation.grants.values()
    instead = [Grant(*grant.decided) for grant in grants]
    counts: list[JobState | Grant | JobOutcome | SpeedReport]
    counts = [*snapshot.jobs, *grants, *instead, *done, *snapshot.reports]
    for each in counts:
        check_range("workers", each.workers, MOST_TASKS)
        check_range("servers", each.servers, MOST_TASKS)
    for trained in done:
        check_range("epochs", trained.epochs, MOST_EPOCHS)
    _check_placed(outcome.placed if outcome is not None else None, len(snapshot.nodes))
    for report in (*snapshot.reports, *(outcome.reports if outcome is not None else ())):
        check_range("samples_per_second", report.samples_per_second, MOST_SPEED)


def _check_placed(placed: MeasuredPlacement | None, nodes: int) -> None:
    """Refuse a placement on nodes that are not there, or with speeds that cannot be. Raises BadInput."""
    for job in placed.jobs if placed is not None else ():
        if not (job.workers and job.servers and job.speeds):
            raise BadInput(f"{job.model} was placed without a role, or measured no speed")
        for group in (*job.workers, *job.servers):
            check_range("node", group, nodes - 1)
        for speed in job.speeds:
            check_range("speed", speed, MOST_SPEED, zero=False)
