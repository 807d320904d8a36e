"""The world's disk: what has not been synced is lost when its machine loses power.

The journal's database lies in memory and outlives its coordinator; the ledger's files are real, and are cut back to
what was synced. Checkpoints lie on `memory://`, whose promise is that a closed file stays.
"""

import os
import sqlite3
from pathlib import Path
from random import Random
from typing import Any

from fsspec.implementations.memory import MemoryFileSystem

from tests.world.scheduler import DEAD, Process
from tests.world.threads import here


class Disk:
    """See the module.

    Args:
        folder: of the job, where real files lie.
        random: draws how much of what was not synced is there after a loss of power.
    """

    def __init__(self, folder: Path, random: Random):
        self._folder, self._random = folder, random
        self._synced: dict[str, int] = {}  # bytes of real files, by path
        self._databases: dict[str, _Database] = {}
        MemoryFileSystem.store.clear()
        MemoryFileSystem.pseudo_dirs[:] = [""]

    def fsync(self, descriptor: int) -> None:
        """See `os.fsync`."""
        self._synced[os.readlink(f"/proc/self/fd/{descriptor}")] = os.fstat(descriptor).st_size

    def connect(self, path: Path, **options: Any) -> "JournalConnection":
        """See `sqlite3.connect`.

        Raises:
            sqlite3.OperationalError: another process that lives has it.
        """
        database = self._databases.setdefault(str(path), _Database())
        process = here.scheduler.current.process
        if database.holder is not None and database.holder is not process and database.holder.state != DEAD:
            raise sqlite3.OperationalError("database is locked")
        database.holder = process
        return JournalConnection(database)

    def lose_power(self) -> str:
        """Take back what had not been synced; return what that was, for people."""
        lost = [
            f"{path.name} {gone} bytes" for path in sorted(self._folder.glob("*.jsonl")) if (gone := self._cut(path))
        ]
        lost += [Path(path).name for path, database in self._databases.items() if database.lose_power()]
        return ", ".join(lost) or "nothing"

    def _cut(self, path: Path) -> int:
        size, kept = path.stat().st_size, self._synced.get(str(path), 0)
        kept += int(self._random.random() * (size - kept + 1)) if self._random.random() < 0.5 else 0
        if kept < size:
            os.truncate(path, kept)
        return size - kept

    def lose_journal(self) -> None:
        """Remove the journal, for good."""
        for database in self._databases.values():
            database.wipe()


class _Database:
    """A `_Database` is one file of SQLite, with what of it is durable."""

    def __init__(self) -> None:
        self.data = sqlite3.connect(":memory:", isolation_level=None)
        self.holder: Process | None = None
        self.level = ""  # PRAGMA synchronous
        self.durable: bytes | None = None  # None: all of it is

    def wipe(self) -> None:
        self.data = sqlite3.connect(":memory:", isolation_level=None)
        self.durable = None

    def begin(self) -> None:
        if self.level != "FULL" and self.durable is None:
            self.durable = self.data.serialize()

    def lose_power(self) -> bool:
        if self.durable is None:
            return False
        self.data.deserialize(self.durable)
        self.durable = None
        return True


class JournalConnection:
    """See `sqlite3.Connection`: as much of it as the journal needs."""

    def __init__(self, database: _Database):
        self._database = database

    def execute(self, text: str, values: Any = ()) -> Any:
        if text.startswith("PRAGMA"):
            if text.startswith("PRAGMA synchronous="):
                self._database.level = text.partition("=")[2]
            return None
        if text == "BEGIN":
            self._database.begin()
        return self._database.data.execute(text, values)

    def executemany(self, text: str, rows: Any) -> Any:
        return self._database.data.executemany(text, rows)

    def __enter__(self) -> "JournalConnection":
        self._database.data.__enter__()
        return self

    def __exit__(self, *error: Any) -> Any:
        return self._database.data.__exit__(*error)

    def close(self) -> None:
        self._database.holder = None
