"""This module keeps every decision of a cluster, and what came of it, in SQLite.

It keeps them by job for people, and as whole slots for programs.
"""

import logging
import sqlite3
import threading
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dl2_scheduler.cluster.errors import BadInput, StateNotWritten
from dl2_scheduler.cluster.interfaces import SlotOutcome
from dl2_scheduler.cluster.snapshot import Allocation, Snapshot, SpeedReport
from dl2_scheduler.live.recorded_slots import RecordedSlot, of_decision, of_outcome, read_slot

log = logging.getLogger(__name__)

HISTORY_FILE = "decisions.sqlite"
"""In the cluster's folder."""

MOST_SLOTS = 100_000
"""With jobs, that are kept: of 20 minutes nearly four years, of 30 seconds 34 days; about 10 kB each with 40 jobs."""

_SCHEMA = """
CREATE TABLE IF NOT EXISTS decisions (
    slot INTEGER NOT NULL, job TEXT NOT NULL, at REAL NOT NULL, policy TEXT NOT NULL,
    workers_before INTEGER NOT NULL, servers_before INTEGER NOT NULL, epochs_done REAL NOT NULL,
    workers INTEGER NOT NULL, servers INTEGER NOT NULL, reason TEXT NOT NULL,
    workers_had INTEGER, servers_had INTEGER, epochs REAL, note TEXT, arrival REAL,
    PRIMARY KEY (job, slot)
);
CREATE INDEX IF NOT EXISTS decisions_by_slot ON decisions (slot);
CREATE TABLE IF NOT EXISTS shadows (
    slot INTEGER NOT NULL, job TEXT NOT NULL, policy TEXT NOT NULL, workers INTEGER NOT NULL, servers INTEGER NOT NULL,
    PRIMARY KEY (slot, job)
);
CREATE TABLE IF NOT EXISTS slots (
    slot INTEGER PRIMARY KEY, at REAL NOT NULL, policy TEXT NOT NULL, decision BLOB NOT NULL, outcome BLOB
);
CREATE INDEX IF NOT EXISTS slots_by_number ON slots (slot)  -- without the rest, which is read to count slots else
"""
_SLOT_OF_STATE = "SELECT slot FROM decisions ORDER BY slot DESC LIMIT 1 OFFSET ?"
_PAGE = 100  # slots that are read at a time: others may write meanwhile
_DECIDED = ("slot", "at", "policy", "workers_before", "servers_before", "workers", "servers", "reason")
_HAPPENED = ("workers_had", "servers_had", "epochs", "note")
_OF_JOB = f"""
SELECT {", ".join(f"decisions.{column}" for column in (*_DECIDED, *_HAPPENED))},
    shadows.policy, shadows.workers, shadows.servers
FROM decisions LEFT JOIN shadows USING (slot, job)
WHERE job = ?1 AND CASE WHEN arrival IS NULL OR ?4 IS NULL
    THEN slot >= (SELECT min(slot) FROM decisions WHERE job = ?1 AND at >= ?2) ELSE arrival = ?4 END
ORDER BY slot DESC LIMIT ?3
"""


@dataclass(frozen=True)
class Happened:
    """`Happened` says what became of a decision.

    Attributes:
        workers: the workers that the job had at the slot's end.
        servers: the servers that it had then.
        epochs: the epochs that it trained in the slot.
        note: why it was other than decided; "": it was not.
    """

    workers: int
    servers: int
    epochs: float
    note: str


@dataclass(frozen=True)
class Shadowed:
    """`Shadowed` says what a policy that decides beside, without acting, would have granted.

    Attributes:
        policy: the policy's name.
        workers: granted.
        servers: granted.
    """

    policy: str
    workers: int
    servers: int


@dataclass(frozen=True)
class JobDecision:
    """A `JobDecision` says what was decided about one job in one slot.

    Attributes:
        slot: number.
        at: unix seconds.
        policy: the policy's name.
        workers_before: the workers that the job had before.
        servers_before: the servers that it had before.
        workers: granted.
        servers: granted.
        reason: why.
        happened: None: the slot has not ended, or the scheduler ended before it.
        shadow: None: no policy decided beside it.
        under_way: whether the slot has not ended.
    """

    slot: int
    at: float
    policy: str
    workers_before: int
    servers_before: int
    workers: int
    servers: int
    reason: str
    happened: Happened | None
    shadow: Shadowed | None = None
    under_way: bool = False


class History:
    """A `History` keeps the decisions of one cluster.

    It is safe from several threads, and another process may read it meanwhile.

    Args:
        path: the path of the database file, which is made where there is none.
        most_slots: the number of slots that are kept; see `MOST_SLOTS`.

    Raises:
        BadInput: the file is not such a database.

    A method that writes raises StateNotWritten where it cannot.
    """

    def __init__(self, path: Path, most_slots: int = MOST_SLOTS):
        self._lock = threading.Lock()
        self._path, self._most_slots = path, most_slots
        self._under_way: int | None = None  # the slot that was decided here, and has not ended
        self._left_out = -1  # the last slot that could not be read
        try:
            self._database = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
            self._database.execute("PRAGMA journal_mode=WAL")
            self._database.executescript(_SCHEMA)
            if not self._has_arrivals():  # releases of before had none
                try:
                    self._database.execute("ALTER TABLE decisions ADD COLUMN arrival REAL")
                except sqlite3.OperationalError:
                    if not self._has_arrivals():  # else another process was sooner
                        raise
        except sqlite3.Error as error:
            raise BadInput(f"cannot use {path}: {error}; give another --folder") from error

    def _has_arrivals(self) -> bool:
        return "arrival" in [row[1] for row in self._database.execute("PRAGMA table_info(decisions)")]

    @classmethod
    def of_folder(cls, folder: Path) -> "History":
        """Open the history of the cluster whose folder this is, to read it.

        Raises:
            BadInput: no cluster has been served there.
        """
        path = folder / HISTORY_FILE
        if not path.exists():
            raise BadInput(f"no history in {folder}: name the --folder of a dl2 serve that has decided something")
        return cls(path)

    def decided(self, now: float, policy: str, snapshot: Snapshot, allocation: Allocation) -> None:
        """Write a slot's decisions, before they are acted on.

        Args:
            now: unix seconds.
            policy: the policy's name.
            snapshot: the snapshot that it saw.
            allocation: the allocation that it decided, with reasons.
        """
        rows = []
        for state in snapshot.jobs:
            grant = allocation.grants[state.job.id]
            before = (state.workers, state.servers, state.epochs_done)
            given = (grant.workers, grant.servers, grant.reason)
            rows.append((snapshot.slot, str(state.job.id), now, policy, *before, *given, state.job.arrival))
        self._write(
            "REPLACE INTO decisions (slot, job, at, policy, workers_before, servers_before, epochs_done, workers, "
            "servers, reason, arrival) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            rows,
        )
        self._under_way = snapshot.slot
        if snapshot.jobs:
            whole = (snapshot.slot, now, policy, of_decision(snapshot, allocation))
            self._write("REPLACE INTO slots (slot, at, policy, decision) VALUES (?, ?, ?, ?)", [whole])
            self._forget_old()

    def shadowed(self, slot: int, policy: str, allocation: Allocation) -> None:
        """Write what a policy that does not act would have granted in a slot.

        Args:
            slot: its number.
            policy: the name of the policy.
            allocation: what it would have granted.
        """
        self._write(
            "REPLACE INTO shadows (slot, job, policy, workers, servers) VALUES (?, ?, ?, ?, ?)",
            [(slot, str(job), policy, grant.workers, grant.servers) for job, grant in allocation.grants.items()],
        )

    def happened(self, outcome: SlotOutcome) -> None:
        """Write what became of a slot."""
        self._under_way = None
        self._write(
            "UPDATE decisions SET workers_had = ?, servers_had = ?, epochs = ?, note = ? WHERE slot = ? AND job = ?",
            [(job.workers, job.servers, job.epochs, job.note, outcome.slot, str(job.id)) for job in outcome.jobs],
        )
        self._write("UPDATE slots SET outcome = ? WHERE slot = ?", [(of_outcome(outcome), outcome.slot)])

    def slots(self, after: int = -1) -> Iterator[RecordedSlot]:
        """Yield the slots in which there were jobs, by number, as they were seen, decided and lived through.

        One that is damaged, or of another version, is left out with a warning: no cluster stands still for its past.

        Args:
            after: the number of a slot; those up to it are left out.
        """
        query = "SELECT slot, at, policy, decision, outcome FROM slots WHERE slot > ? ORDER BY slot LIMIT ?"
        while True:
            rows = self._read(query, (after, _PAGE))
            for after, *row in rows:
                try:
                    found = read_slot(row)
                except (ValueError, zlib.error, RecursionError) as error:
                    if after > self._left_out:  # who looks slot by slot sees the last ones again and again
                        log.warning("%s: slot %d is left out, it cannot be read: %s", self._path, after, error)
                        self._left_out = after
                    continue
                yield found
            if len(rows) < _PAGE:
                return

    def of(self, job: str, since: float, most: int, arrival: float | None = None) -> list[JobDecision]:
        """Return the latest decisions about a job, oldest first.

        Args:
            job: its name; an earlier job of that name is another.
            since: unix seconds: when it was submitted. It counts where the arrival is not known: the slots from the
                first one on that was decided later.
            most: how many of them.
            arrival: as snapshots have it; None: not known.
        """
        rows = self._read(_OF_JOB, (job, since, most, arrival))
        return [_decision(row, self._under_way) for row in reversed(rows)]

    def reports(self, most_slots: int, most_states: int) -> Iterator[SpeedReport]:
        """Yield what jobs reported in the last slots, oldest first; see `recent`."""
        for slot in self.slots(after=self.recent(most_slots, most_states)):
            yield from slot.snapshot.reports

    def recent(self, most_slots: int, most_states: int) -> int:
        """Return the number of the slot before the last ones; -1: all are among these.

        Args:
            most_slots: with jobs, that the last ones are.
            most_states: the states of jobs that they have together: a slot takes as long to read as it has jobs.
        """
        before = self._read(_SLOT_OF_STATE, (most_states,))
        return max(self.slot_before(most_slots), int(before[0][0]) if before else -1)

    def slot_before(self, most_slots: int) -> int:
        """Return the number of the slot before the last so many, with jobs; -1: there are no more than these."""
        before = self._read("SELECT slot FROM slots ORDER BY slot DESC LIMIT 1 OFFSET ?", (most_slots,))
        return int(before[0][0]) if before else -1

    @property
    def next_slot(self) -> int:
        """The number of the slot that comes after all that are known here; of one that was cut short, its own."""
        last = self._read("SELECT slot + (outcome IS NOT NULL) FROM slots ORDER BY slot DESC LIMIT 1", ())
        return int(last[0][0]) if last else 0

    def close(self) -> None:
        """Let go of the file."""
        self._database.close()

    def _forget_old(self) -> None:
        """Delete all but the last slots, and what was decided about single jobs in the others."""
        oldest = self.slot_before(self._most_slots)
        if oldest >= 0:
            for table in ("decisions", "shadows", "slots"):
                self._write(f"DELETE FROM {table} WHERE slot <= ?", [(oldest,)])

    def _read(self, query: str, values: tuple[object, ...]) -> list[Any]:
        """Return all rows. Raises BadInput: the file is damaged."""
        try:
            with self._lock:
                return self._database.execute(query, values).fetchall()
        except (sqlite3.Error, ValueError) as error:  # ValueError: a text that is not UTF-8
            raise BadInput(f"cannot read {self._path}: {error}: bring a copy of it back, or delete it") from error

    def _write(self, statement: str, rows: Sequence[tuple[object, ...]]) -> None:
        try:
            with self._lock, self._database:  # commits, or takes back
                self._database.execute("BEGIN")
                self._database.executemany(statement, rows)
        except sqlite3.Error as error:
            raise StateNotWritten(self._path, error) from error


def _decision(row: Sequence[Any], slot_under_way: int | None) -> JobDecision:
    """Make a decision of the columns of `_OF_JOB`; what happened is empty until the slot has ended."""
    known, happened, shadow = row[: len(_DECIDED)], row[len(_DECIDED) : -3], row[-3:]
    return JobDecision(
        **dict(zip(_DECIDED, known, strict=True)),
        happened=None if happened[0] is None else Happened(*happened),
        shadow=None if shadow[0] is None else Shadowed(*shadow),
        under_way=happened[0] is None and known[0] == slot_under_way,
    )
