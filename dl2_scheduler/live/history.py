"""Every decision of a cluster and what came of it, in SQLite."""

import sqlite3
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dl2_scheduler.cluster.errors import BadInput
from dl2_scheduler.cluster.policy import Outcome
from dl2_scheduler.cluster.snapshot import Allocation, Snapshot

_SCHEMA = """
CREATE TABLE IF NOT EXISTS decisions (
    slot INTEGER NOT NULL, job TEXT NOT NULL, at REAL NOT NULL, policy TEXT NOT NULL,
    workers_before INTEGER NOT NULL, servers_before INTEGER NOT NULL, epochs_done REAL NOT NULL,
    workers INTEGER NOT NULL, servers INTEGER NOT NULL, reason TEXT NOT NULL,
    workers_had INTEGER, servers_had INTEGER, epochs REAL, note TEXT,
    PRIMARY KEY (job, slot)
)
"""
_DECIDED = ("slot", "at", "policy", "workers_before", "servers_before", "workers", "servers", "reason")
_HAPPENED = ("workers_had", "servers_had", "epochs", "note")


@dataclass(frozen=True)
class Happened:
    """What became of a decision.

    Attributes:
        workers: that the job had at the slot's end.
        servers: likewise.
        epochs: that it trained in the slot.
        note: why it was other than decided; "": it was not.
    """

    workers: int
    servers: int
    epochs: float
    note: str


@dataclass(frozen=True)
class Decision:
    """About one job in one slot.

    Attributes:
        slot: number.
        at: unix seconds.
        policy: by its name.
        workers_before: that the job had.
        servers_before: likewise.
        workers: granted.
        servers: granted.
        reason: why.
        happened: None: the slot has not ended, or the scheduler ended before it.
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


class History:
    """Of one cluster. Safe from several threads.

    Args:
        path: of the database file.

    Raises:
        BadInput: the file is not such a database.
    """

    def __init__(self, path: Path):
        self._lock = threading.Lock()
        try:
            self._database = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
            self._database.execute("PRAGMA journal_mode=WAL")
            self._database.execute(_SCHEMA)
        except sqlite3.Error as error:
            raise BadInput(f"cannot use {path}: {error}; give another --folder") from error

    def decided(
        self, now: float, policy: str, snapshot: Snapshot, allocation: Allocation, reasons: Mapping[str, str]
    ) -> None:
        """Write a slot's decisions, before they are acted on.

        Args:
            now: unix seconds.
            policy: by its name.
            snapshot: that it saw.
            allocation: that it decided.
            reasons: by the job's id as text.
        """
        rows = []
        for state in snapshot.jobs:
            grant, name = allocation.grants.get(state.job.id), str(state.job.id)
            before = (state.workers, state.servers, state.epochs_done)
            given = (grant.workers, grant.servers) if grant else (0, 0)
            rows.append((snapshot.slot, name, now, policy, *before, *given, reasons.get(name, "")))
        self._write(
            "REPLACE INTO decisions (slot, job, at, policy, workers_before, servers_before, epochs_done, workers, "
            "servers, reason) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            rows,
        )

    def happened(self, outcome: Outcome) -> None:
        """Write what became of a slot."""
        self._write(
            "UPDATE decisions SET workers_had = ?, servers_had = ?, epochs = ?, note = ? WHERE slot = ? AND job = ?",
            [(job.workers, job.servers, job.epochs, job.note, outcome.slot, str(job.id)) for job in outcome.jobs],
        )

    def of(self, job: str, since: float, most: int) -> list[Decision]:
        """The latest decisions about a job, oldest first.

        Args:
            job: its name.
            since: unix seconds: when it was submitted; an earlier job of that name is another.
            most: of them.
        """
        columns = ", ".join((*_DECIDED, *_HAPPENED))
        query = f"SELECT {columns} FROM decisions WHERE job = ? AND at >= ? ORDER BY slot DESC LIMIT ?"
        with self._lock:
            rows = self._database.execute(query, (job, since, most)).fetchall()
        return [_decision(row[: len(_DECIDED)], row[len(_DECIDED) :]) for row in reversed(rows)]

    def close(self) -> None:
        """Let go of the file."""
        self._database.close()

    def _write(self, statement: str, rows: Sequence[tuple[object, ...]]) -> None:
        with self._lock:
            self._database.execute("BEGIN")
            self._database.executemany(statement, rows)
            self._database.execute("COMMIT")


def _decision(decided: Sequence[Any], happened: Sequence[Any]) -> Decision:
    """Of a row's two parts; the second is empty until the slot has ended."""
    fields = dict(zip(_DECIDED, decided, strict=True))
    return Decision(**fields, happened=None if happened[0] is None else Happened(*happened))
