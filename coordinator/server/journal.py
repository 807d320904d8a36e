"""The journal keeps in SQLite what survives the coordinator: the job, its plans and its book of batches."""

import json
import sqlite3
from collections.abc import Iterable
from pathlib import Path

from coordinator.core.batches.async_batches import Book
from coordinator.core.job import DurableJob
from coordinator.core.plans.plan import Plan
from coordinator.dataclass_json import Texts, decode
from elastic_ps.core.errors import ElasticError, NotNow

FORMAT = 2


class JournalError(ElasticError):
    """The journal cannot be used; the message says why."""


class Unopened(JournalError, NotNow):
    """The journal cannot be opened now: the disk is full or does not answer, or another coordinator has it."""


class Unread(JournalError, NotNow):
    """The journal cannot be read now: the disk does not answer. What it holds may be whole."""


class JobFolderUnwritable(NotNow):
    """The coordinator cannot write down what has happened in a job: it ends, as it would not know of it later.

    Args:
        path: of the file.
        why: not.
    """

    def __init__(self, path: Path, why: object):
        mend = "free some space, or mend the disk: a coordinator that is started again goes on"
        super().__init__(f"cannot write {path}: {why}; {mend}")


class Journal:
    """A journal belongs to one job. A write that has returned survives a power cut (WAL, `synchronous=FULL`).

    Args:
        path: of the database file.

    Raises:
        JournalError: it cannot be opened, is another coordinator's, or of another format.
    """

    def __init__(self, path: Path):
        self._path = path
        self._jobs, self._books = Texts(), Texts()
        try:
            self._database = sqlite3.connect(path, isolation_level=None, timeout=0.5)
            self._database.execute("PRAGMA locking_mode=EXCLUSIVE")  # two coordinators cannot write one journal
            self._database.execute("PRAGMA journal_mode=WAL")
            self._database.execute("PRAGMA synchronous=FULL")
            self._database.execute("CREATE TABLE IF NOT EXISTS job (id INTEGER PRIMARY KEY, format INTEGER, text TEXT)")
            self._database.execute("CREATE TABLE IF NOT EXISTS plans (id INTEGER PRIMARY KEY, text TEXT)")
            self._database.execute("CREATE TABLE IF NOT EXISTS batches (id INTEGER PRIMARY KEY, text TEXT)")
        except sqlite3.Error as error:
            hint = "; does another coordinator use it?" if "locked" in str(error) else ""
            kind = Unopened if isinstance(error, sqlite3.OperationalError) else JournalError
            raise kind(f"cannot open the journal {path}: {error}{hint}") from error

    def load(self) -> tuple[DurableJob, tuple[Plan, ...], Book] | None:
        """Return what was written last; None: nothing yet.

        Raises:
            JournalError: it is damaged, or cannot be read now (`Unread`).
        """
        try:
            row = self._database.execute("SELECT format, text FROM job").fetchone()
            plans = self._database.execute("SELECT text FROM plans ORDER BY id").fetchall()
            book = self._database.execute("SELECT text FROM batches").fetchone()
            if row is None:
                return None
            if row[0] != FORMAT:
                raise JournalError(f"the journal has format {row[0]}, this program reads {FORMAT}")
            kept = tuple(decode(Plan, json.loads(text)) for (text,) in plans)
            return decode(DurableJob, json.loads(row[1])), kept, decode(Book, json.loads(book[0])) if book else Book()
        except (KeyError, TypeError, ValueError, sqlite3.Error) as error:
            if isinstance(error, sqlite3.OperationalError) and not _is_of_text(error):
                raise Unread(f"cannot read the journal {self._path}: {error}") from error
            raise JournalError(f"the journal {self._path} is damaged: {error!r}") from error

    def write(self, job: DurableJob | None, plans: Iterable[Plan] = (), book: Book | None = None) -> None:
        """Write the job as it is, plans that have ended, and the book, in one transaction.

        Args:
            job: None: it stays as written.
            plans: that have ended or changed since.
            book: of batches; None: it stays as written.

        Raises:
            JobFolderUnwritable: nothing of it is.
        """
        rows = [(plan.id, Texts().text(plan)) for plan in plans]
        try:
            with self._database:  # commits, or takes back
                self._database.execute("BEGIN")
                if job is not None:
                    self._database.execute(
                        "INSERT OR REPLACE INTO job VALUES (0, ?, ?)", (FORMAT, self._jobs.text(job))
                    )
                if rows:
                    self._database.executemany("INSERT OR REPLACE INTO plans VALUES (?, ?)", rows)
                if book is not None:
                    self._database.execute("INSERT OR REPLACE INTO batches VALUES (0, ?)", (self._books.text(book),))
        except sqlite3.Error as error:
            raise JobFolderUnwritable(self._path, error) from error

    def close(self) -> None:
        """Let go of the file."""
        self._database.close()


def _is_of_text(error: sqlite3.OperationalError) -> bool:
    """Return whether a statement does not fit the database, such as for a table that is not there."""
    return getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_ERROR
