"""The world's disk: what has not been synced is lost when its machine loses power, and it may fail for a while.

The journal's database lies in memory and outlives its coordinator; the ledger's files are real, and are cut back to
what was synced, or end in zeros. Checkpoints lie on a `Storage`, whose promise is that a closed file stays.
"""

import errno
import os
import sqlite3
from pathlib import Path
from random import Random
from typing import Any

from tests.world.faults.cells import COORDINATOR, FULL
from tests.world.kernel.scheduler import DEAD, Process
from tests.world.kernel.storage import Storage
from tests.world.kernel.threads import here


class Disk:
    """See the module.

    Args:
        folder: of the job, where real files lie.
        random: draws how much of what was not synced is there after a loss of power.

    Attributes:
        failing: what writing to the coordinator's folder fails with; 0: it works.
        storage: of checkpoints.
    """

    def __init__(self, folder: Path, random: Random):
        self._folder, self._random = folder, random
        self._synced: dict[str, int] = {}  # bytes of real files, by path
        self._databases: dict[str, _Database] = {}
        self.failing = 0
        self.storage = Storage()

    def fail(self, role: str, kind: str) -> None:
        """Let writing fail from now on.

        Args:
            role: of whose disk it is: the coordinator's, or that of checkpoints.
            kind: in what way.
        """
        self._of(role).failing = errno.ENOSPC if kind == FULL else errno.EIO

    def heal(self, role: str) -> None:
        """Let writing work again."""
        self._of(role).failing = 0

    def _of(self, role: str) -> "Disk | Storage":
        return self if role == COORDINATOR else self.storage

    def open_lines(self, file: Any) -> "_Lines":
        """Return a file that is appended to, which fails when the disk does."""
        return _Lines(self, file)

    def fsync(self, descriptor: int) -> None:
        """See `os.fsync`."""
        if self.failing:
            raise OSError(self.failing, os.strerror(self.failing))
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
        if self.failing:
            raise sqlite3.OperationalError("unable to open database file")
        database.holder = process
        return JournalConnection(database, self)

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
            if self._random.random() < 0.2:
                os.truncate(path, size)  # its length was on the disk, and its last pages were not
        return size - kept

    def lose_journal(self) -> None:
        """Remove the journal, for good."""
        for database in self._databases.values():
            database.wipe()


class _Lines:
    """A file of lines. Where the disk fails, half of what is written may be there."""

    def __init__(self, disk: Disk, file: Any):
        self._disk, self._file = disk, file

    def write(self, text: str) -> None:
        failing = self._disk.failing
        self._file.write(text[: len(text) // 2] if failing else text)
        if failing:
            self._file.flush()
            raise OSError(failing, os.strerror(failing))

    def flush(self) -> None:
        self._file.flush()

    def fileno(self) -> int:
        return int(self._file.fileno())

    def close(self) -> None:
        self._file.close()


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

    def __init__(self, database: _Database, disk: Disk):
        self._database, self._disk = database, disk

    def execute(self, text: str, values: Any = ()) -> Any:
        if text.startswith("PRAGMA"):
            if text.startswith("PRAGMA synchronous="):
                self._database.level = text.partition("=")[2]
            return None
        if text == "BEGIN":
            self._database.begin()
        elif text.startswith("INSERT"):
            self._check()
        return self._database.data.execute(text, values)

    def executemany(self, text: str, rows: Any) -> Any:
        return self._database.data.executemany(text, rows)

    def __enter__(self) -> "JournalConnection":
        self._database.data.__enter__()
        return self

    def _check(self) -> None:
        if self._disk.failing:
            full = self._disk.failing == errno.ENOSPC
            raise sqlite3.OperationalError("database or disk is full" if full else "disk I/O error")

    def __exit__(self, *error: Any) -> Any:
        if error[0] is None and self._disk.failing:
            self._database.data.rollback()
            self._check()
        return self._database.data.__exit__(*error)

    def close(self) -> None:
        self._database.holder = None
