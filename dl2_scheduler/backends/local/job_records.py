"""This module keeps what the local cluster knows of its jobs, in SQLite.

A write that has returned survives a power cut.
"""

import sqlite3
import threading
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from coordinator.ctl.job_folders import all_jobs
from dl2_scheduler.backends.local.runtime import LauncherProcess
from dl2_scheduler.cluster.desk import LiveJobPhase
from dl2_scheduler.cluster.document.job_document import ElasticJob
from dl2_scheduler.cluster.errors import BadInput, StateNotWritten
from elastic_ps.system.state_folder import jobs_folder

FORMAT = 1

NodePlaces = tuple[tuple[str, ...], tuple[str, ...]]
"""Names of the nodes of a job's workers, and of its servers."""

Seats = tuple[tuple[str, str], ...]
"""Ids of a job's tasks, each with the name of its node."""

Changes = Mapping[str, Any]
"""Fields of a `JobRecord` and their new values."""


@dataclass(frozen=True)
class JobRecord:
    """A `JobRecord` is what the cluster knows of one submission.

    Attributes:
        number: the submission's number, from 1 on.
        document: as submitted.
        folder: the folder that it was submitted from.
        submitted: unix seconds.
        phase: where it is.
        reason: why, for people.
        stop_asked: whether somebody wants its end.
        suspended: whether it waits until somebody lets it begin.
        held: whether its counts are its owner's, and the policy does not decide about it.
        wanted_workers: the workers that it was last told to have; of a held job: that it is to have.
        wanted_servers: likewise.
        saved: whether its state is in a checkpoint that the end of its processes waited for; or there was none to save.
        process: its launcher; None where it has none.
        runs: the number of its starts so far.
        losses: the number of its launchers that ended without a word, in a row: see `RestartBudget`.
        last_loss: unix seconds of the last of them; 0: none did.
        epochs_at_loss: `most_epochs` then.
        workers: the workers that it has, as last measured.
        servers: likewise.
        since: unix seconds: when it began to train with these counts; None: it does not, or it is not known.
        epochs_done: see `JobState`.
        most_epochs: the highest that it has told of.
        back: why it went back to its last checkpoint, for people; "": it did not, or has done again what that cost.
        cut_off: why its processes ended, where it goes on later; "" from when it trains again.
        samples_per_epoch: 0: not known yet.
        samples_per_second: as last measured; 0: not known.
        slots_run: slots at whose end it had workers, and servers if it is a job with servers.
        places: where its tasks are, in the order of their ids, if a placement policy has placed them.
        seats: the node of each task that has joined, likewise.
        ended: unix seconds; None: it has not.
    """

    number: int
    document: ElasticJob
    folder: Path
    submitted: float
    phase: LiveJobPhase = LiveJobPhase.WAITING
    reason: str = ""
    stop_asked: bool = False
    suspended: bool = False
    held: bool = False
    wanted_workers: int = 0
    wanted_servers: int = 0
    saved: bool = False
    process: LauncherProcess | None = None
    runs: int = 0
    losses: int = 0
    last_loss: float = 0.0
    epochs_at_loss: float = 0.0
    workers: int = 0
    servers: int = 0
    since: float | None = None
    epochs_done: float = 0.0
    most_epochs: float = 0.0
    back: str = ""
    cut_off: str = ""
    samples_per_epoch: float = 0.0
    samples_per_second: float = 0.0
    slots_run: int = 0
    places: NodePlaces = ((), ())
    seats: Seats = ()
    ended: float | None = None

    @property
    def name(self) -> str:
        """The job's name."""
        return self.document.metadata.name

    @property
    def has_all_roles(self) -> bool:
        """Return whether it had workers when it was measured, and servers if it is a job with servers."""
        return self.workers > 0 and (self.servers > 0 or self.document.spec.all_reduces)

    @property
    def left_alone(self) -> bool:
        """Return whether the policy does not decide about it."""
        return self.held or self.suspended


_RECORD = TypeAdapter(JobRecord)

MOST_ENDED = 10_000
"""Submissions that have ended, and are kept: 7 kB of memory each, and every slot looks through them."""


class JobRecords:
    """`JobRecords` keep the records of all submissions that have not ended, and of the last `MOST_ENDED` that have.

    They are safe from several threads: a change applies to the record as it is then.

    Args:
        path: the path of the database file, which one `JobRecords` has open at a time.
        now: unix seconds: when the cluster begins, if it is new.

    Attributes:
        began: unix seconds: when the cluster began.

    Raises:
        BadInput: the file is not such a database.

    A method that changes something raises StateNotWritten where that cannot be written, and changes nothing.
    """

    def __init__(self, path: Path, now: float):
        self._lock = threading.Lock()
        self._path = path
        _check_not_emptied(path)
        try:
            self._database = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
            self._database.execute("PRAGMA journal_mode=WAL")
            self._database.execute("PRAGMA synchronous=FULL")
            self._database.execute("CREATE TABLE IF NOT EXISTS jobs (number INTEGER PRIMARY KEY, text TEXT NOT NULL)")
            self._database.execute("CREATE TABLE IF NOT EXISTS cluster (name TEXT PRIMARY KEY, value REAL NOT NULL)")
            if self._value("format", FORMAT) != FORMAT:
                raise BadInput(f"{path} is of another version of dl2: give another --folder")
            self.began = self._value("began", now)
            self._slot = int(self._value("slot", 0))
            rows = self._database.execute("SELECT text FROM jobs ORDER BY number").fetchall()
            self._records = {record.number: record for (text,) in rows if (record := _RECORD.validate_json(text))}
        except (sqlite3.Error, ValidationError, ValueError, TypeError, OverflowError) as error:
            raise BadInput(f"cannot use {path}: {error}; give another --folder") from error

    @property
    def slot(self) -> int:
        """Number of the next slot to begin."""
        return self._slot

    def next_slot(self) -> None:
        """Note that a slot has begun."""
        with self._lock:
            self._execute("REPLACE INTO cluster VALUES ('slot', ?)", (self._slot + 1,))
            self._slot += 1

    def begin_from(self, slot: int) -> None:
        """Give no slot a lower number: the history, which may be older than these records, has such a one already."""
        with self._lock:
            self._slot = max(self._slot, slot)

    def all(self) -> list[JobRecord]:
        """Return all records, in order of submission."""
        with self._lock:
            return list(self._records.values())

    def active(self) -> list[JobRecord]:
        """Return the records of jobs that have not ended."""
        return [record for record in self.all() if not record.phase.ended]

    def get(self, number: int) -> JobRecord:
        """Return the record of a submission, as it is now."""
        with self._lock:
            return self._records[number]

    def last(self, name: str) -> JobRecord | None:
        """Return the last submission of a name; None: there is none."""
        return next((record for record in reversed(self.all()) if record.name == name), None)

    def add(self, document: ElasticJob, folder: Path, now: float, **changes: Any) -> JobRecord:
        """Add a submission, and return its record.

        Args:
            document: as submitted.
            folder: the folder that it was submitted from.
            now: unix seconds.
            **changes: fields that are other than they are by default.
        """
        with self._lock:
            added = self._write(JobRecord(max(self._records, default=0) + 1, document, folder, now, **changes))
            with suppress(StateNotWritten):  # the job is submitted: what cannot be forgotten now will be with the next
                self._forget_old()
            return added

    def change(self, number: int, **changes: Any) -> JobRecord:
        """Change some fields of a record, and return it."""
        with self._lock:
            return self._changed(self._records[number], changes)

    def tell(self, number: int, workers: int, servers: int) -> bool:
        """Note what the policy lets a job have; return False, and note nothing, where its owner decides by now.

        Args:
            number: of the job.
            workers: that it may have.
            servers: likewise.
        """
        with self._lock:
            record = self._records[number]
            if not record.left_alone:
                self._changed(record, {"wanted_workers": workers, "wanted_servers": servers})
            return not record.left_alone

    def close(self) -> None:
        """Let go of the file."""
        self._database.close()

    def _forget_old(self) -> None:
        """Forget those that ended first: of who has just ended, a slot's outcome is still to be told."""
        ended = sorted((record.ended or 0.0, number) for number, record in self._records.items() if record.phase.ended)
        for _, number in ended[: max(0, len(ended) - MOST_ENDED)]:
            self._execute("DELETE FROM jobs WHERE number = ?", (number,))
            del self._records[number]

    def _changed(self, record: JobRecord, changes: Changes) -> JobRecord:
        changed = replace(record, **changes)
        return changed if changed == record else self._write(changed)

    def _write(self, record: JobRecord) -> JobRecord:
        text = _RECORD.dump_json(record, by_alias=True, exclude_none=True).decode()
        self._execute("REPLACE INTO jobs VALUES (?, ?)", (record.number, text))
        self._records[record.number] = record
        return record

    def _execute(self, statement: str, values: tuple[object, ...]) -> None:
        try:
            self._database.execute(statement, values)
        except sqlite3.Error as error:
            raise StateNotWritten(self._path, error) from error

    def _value(self, name: str, default: float) -> float:
        self._database.execute("INSERT OR IGNORE INTO cluster VALUES (?, ?)", (name, default))
        value: float = self._database.execute("SELECT value FROM cluster WHERE name = ?", (name,)).fetchone()[0]
        return value


def _check_not_emptied(path: Path) -> None:
    """Refuse a file of no bytes beside jobs that have not ended: a disk that was full, or a slip, has emptied it.

    Raises:
        BadInput: with the jobs, which nobody would know any more.
    """
    if not path.exists() or path.stat().st_size:
        return
    folder = path.parent
    lost = [job.name for job in all_jobs(jobs_folder({"XDG_STATE_HOME": str(folder)})) if job.ended is None]
    if lost:
        raise BadInput(
            f"{path} is empty, and no longer knows the jobs {', '.join(lost)}, which have not ended: bring it back, or "
            f"end them (XDG_STATE_HOME={folder} elasticctl stop {lost[0]}) and delete {path.name}"
        )
