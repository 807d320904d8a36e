"""This module keeps in SQLite what the scheduler remembers over a restart and the API server does not know."""

import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from dl2_scheduler.cluster.errors import BadInput, StateNotWritten


class SchedulerMemory:
    """A `SchedulerMemory` remembers the slots of one cluster. It is for one thread.

    Args:
        path: of the database file.
        now: unix seconds: when the cluster begins, if it is new.

    Attributes:
        began: unix seconds: when the cluster began.
        slot: number of the next slot.
        slots_run: of each job that has not ended, by its uid.
        most_epochs: the highest that each job had told of, likewise; those of a scheduler of before are not there.

    Raises:
        BadInput: the file is not such a database.

    A method that changes something raises StateNotWritten where that cannot be written.
    """

    def __init__(self, path: Path, now: float):
        self._path = path
        try:
            self._database = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
            self._database.execute("PRAGMA journal_mode=WAL")
            self._database.execute("CREATE TABLE IF NOT EXISTS cluster (name TEXT PRIMARY KEY, value REAL NOT NULL)")
            self._database.execute("CREATE TABLE IF NOT EXISTS jobs (uid TEXT PRIMARY KEY, slots_run INTEGER NOT NULL)")
            self._database.execute("CREATE TABLE IF NOT EXISTS epochs (uid TEXT PRIMARY KEY, most REAL NOT NULL)")
            self._database.execute("INSERT OR IGNORE INTO cluster VALUES ('began', ?), ('slot', 0)", (now,))
            values = dict(self._database.execute("SELECT name, value FROM cluster").fetchall())
            self.slots_run = dict(self._database.execute("SELECT uid, slots_run FROM jobs").fetchall())
            self.most_epochs = dict(self._database.execute("SELECT uid, most FROM epochs").fetchall())
        except sqlite3.Error as error:
            raise BadInput(f"cannot use {path}: {error}; give another --folder") from error
        self.began: float = values["began"]
        self.slot = int(values["slot"])

    def begin_from(self, slot: int) -> None:
        """Give no slot a lower number: the history, which may be older than this memory, has such a one already."""
        self.slot = max(self.slot, slot)

    def next_slot(self, after: int) -> None:
        """Note that a slot has begun.

        Args:
            after: its number: the next one's is higher.
        """
        self.slot = max(self.slot, after + 1)
        with self._writing():
            self._database.execute("REPLACE INTO cluster VALUES ('slot', ?)", (self.slot,))

    def ran(self, slots_run: Mapping[str, int], most_epochs: Mapping[str, float]) -> None:
        """Note that a slot has ended.

        Args:
            slots_run: of each job that has not ended; others are forgotten.
            most_epochs: likewise.
        """
        if (slots_run, most_epochs) == (self.slots_run, self.most_epochs):
            return
        with self._writing():
            self._database.execute("BEGIN")
            self._database.execute("DELETE FROM jobs")
            self._database.executemany("INSERT INTO jobs VALUES (?, ?)", slots_run.items())
            self._database.execute("DELETE FROM epochs")
            self._database.executemany("INSERT INTO epochs VALUES (?, ?)", most_epochs.items())
        self.slots_run, self.most_epochs = dict(slots_run), dict(most_epochs)

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """Write all that is written meanwhile, or nothing and raise StateNotWritten."""
        try:
            with self._database:
                yield
        except sqlite3.Error as error:
            raise StateNotWritten(self._path, error) from error

    def close(self) -> None:
        """Let go of the file."""
        self._database.close()
