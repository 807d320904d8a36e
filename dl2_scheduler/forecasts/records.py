"""This module keeps forecasts until they come true, and how far off they were, in SQLite.

The forecaster's program alone writes it: were it in the cluster's history, a decision could wait for a forecast.
"""

import math
import sqlite3
from collections.abc import Iterable
from dataclasses import astuple, dataclass
from enum import StrEnum
from pathlib import Path

from dl2_scheduler.cluster.errors import BadInput
from dl2_scheduler.cluster.snapshot import JobId
from dl2_scheduler.forecasts.calibration import MOST_SCORES, Calibration, RawForecast

FORECASTS_FILE = "forecasts.sqlite"
"""In the cluster's folder."""

_MOST_PENDING = 50_000  # of each kind, that may still come true

_TABLE = """
CREATE TABLE IF NOT EXISTS forecasts (
    number INTEGER PRIMARY KEY, kind TEXT NOT NULL, job TEXT NOT NULL, arrival REAL NOT NULL, made REAL NOT NULL,
    seconds REAL NOT NULL, deviation REAL NOT NULL, slot_seconds REAL NOT NULL, score REAL, came INTEGER
);
CREATE INDEX IF NOT EXISTS forecasts_by_job ON forecasts (job, arrival);
"""
_INDICES = """
DROP INDEX IF EXISTS forecasts_by_score;  -- of earlier releases
CREATE INDEX IF NOT EXISTS forecasts_that_came ON forecasts (kind, came) WHERE score IS NOT NULL;
CREATE INDEX IF NOT EXISTS forecasts_pending ON forecasts (kind, number) WHERE score IS NULL;
"""


class EventKind(StrEnum):
    """An `EventKind` says what is forecast of a job."""

    START = "start"
    END = "end"


@dataclass(frozen=True)
class MadeForecast:
    """A `MadeForecast` is one that may come true.

    Attributes:
        kind: of what.
        job: its id.
        arrival: seconds since the cluster began; a name may be used again.
        made: unix seconds.
        raw: what the ensemble said.
    """

    kind: EventKind
    job: JobId
    arrival: float
    made: float
    raw: RawForecast


class ForecastRecords:
    """`ForecastRecords` are those of one cluster.

    Args:
        path: the path of the database file, which is made where there is none.

    Raises:
        BadInput: the file is not such a database.
    """

    def __init__(self, path: Path):
        self._path = path
        try:
            self._database = sqlite3.connect(path)
            self._database.execute("PRAGMA journal_mode=WAL")
            self._database.execute("PRAGMA synchronous=NORMAL")  # the last ones may be lost with the machine
            self._database.executescript(_TABLE)
            self._count_what_came()
            self._database.executescript(_INDICES)
        except sqlite3.Error as error:
            raise self._unusable(error) from error

    def _unusable(self, error: Exception) -> BadInput:
        return BadInput(f"cannot use {self._path}: {error}: delete it; forecasts begin anew then")

    def _count_what_came(self) -> None:
        """Add the column that counts what has come true, of each kind, to the table of an earlier release.

        There nobody knows any more in which order: what was made first counts as having come true first.
        """
        with self._database:
            self._database.execute("BEGIN IMMEDIATE")  # another process may open it, too
            columns = [name for _, name, *_ in self._database.execute("PRAGMA table_info(forecasts)")]
            if "came" not in columns:
                self._database.execute("ALTER TABLE forecasts ADD COLUMN came INTEGER")
                self._database.execute("UPDATE forecasts SET came = number WHERE score IS NOT NULL")

    def calibration(self, kind: EventKind) -> Calibration:
        """Return what the forecasts of a kind that were the last to come true teach.

        Those that were made last would be others: of them only what came about soon is known.

        Raises:
            BadInput: it is damaged.
        """
        query = (
            "SELECT job, arrival, score, seconds, deviation, slot_seconds FROM forecasts "
            "WHERE kind = ? AND score IS NOT NULL ORDER BY came DESC LIMIT ?"
        )
        try:
            of_jobs: dict[tuple[str, float], list[tuple[RawForecast, float]]] = {}
            for job, arrival, score, *raw in reversed(self._database.execute(query, (kind, MOST_SCORES)).fetchall()):
                of_jobs.setdefault((job, arrival), []).append((RawForecast(*raw), score))
            return Calibration(of_jobs.values())
        except (sqlite3.Error, TypeError, ValueError, ArithmeticError) as error:
            raise self._unusable(error) from error

    def add(self, forecasts: Iterable[MadeForecast]) -> None:
        """Keep new forecasts; of each kind forget the oldest that have not come true, and scores that do not count."""
        rows = [(each.kind, str(each.job), each.arrival, each.made, *astuple(each.raw)) for each in forecasts]
        with self._database:
            self._database.executemany(
                "INSERT INTO forecasts (kind, job, arrival, made, seconds, deviation, slot_seconds) "
                "VALUES (?, ?, ?, ?, ?, ?, ?)",
                rows,
            )
            for kind in EventKind:
                self._forget_beyond(kind, "number", "score IS NULL", _MOST_PENDING)
                self._forget_beyond(kind, "came", "score IS NOT NULL", MOST_SCORES)

    def _forget_beyond(self, kind: EventKind, order: str, which: str, most: int) -> None:
        """Forget all but the last so many forecasts of a kind.

        Args:
            kind: of what.
            order: the column by which they follow each other.
            which: the condition of those that are meant.
            most: how many are kept.
        """
        before = f"SELECT {order} FROM forecasts WHERE kind = ?1 AND {which} ORDER BY {order} DESC LIMIT 1 OFFSET ?2"
        self._database.execute(
            f"DELETE FROM forecasts WHERE kind = ?1 AND {which} AND {order} <= ({before})", (kind, most)
        )

    def came_true(self, kind: EventKind, job: JobId, arrival: float, at: float) -> list[tuple[RawForecast, float]]:
        """Note when what was forecast of a job has come about, and return these forecasts with their scores.

        Args:
            kind: of what.
            job: its id.
            arrival: of the job.
            at: unix seconds.
        """
        query = (
            "SELECT number, made, seconds, deviation, slot_seconds FROM forecasts "
            "WHERE job = ? AND arrival = ? AND kind = ? AND score IS NULL ORDER BY number"
        )
        rows = self._database.execute(query, (str(job), arrival, kind)).fetchall()
        found = [(number, RawForecast(*raw), RawForecast(*raw).score(at - made)) for number, made, *raw in rows]
        with self._database:
            self._database.executemany(
                "UPDATE forecasts SET score = ?2, came = 1 + "
                "(SELECT coalesce(max(came), 0) FROM forecasts WHERE kind = ?3 AND score IS NOT NULL) "
                "WHERE number = ?1",
                [(number, score, kind) for number, _, score in found],
            )
        return [(raw, score) for _, raw, score in found]

    def forget(self, job: JobId, arrival: float, before: float = math.inf) -> None:
        """Forget what was forecast of a job and has not come true.

        Args:
            job: its id.
            arrival: of the job.
            before: unix seconds: what was forecast from then on is kept; left out: nothing is, as of a job that has
                ended.
        """
        with self._database:
            self._database.execute(
                "DELETE FROM forecasts WHERE job = ? AND arrival = ? AND made < ? AND score IS NULL",
                (str(job), arrival, before),
            )

    def forget_until(self, at: float) -> None:
        """Forget what was forecast up to then and has not come true; `at`: unix seconds, by the clock of then."""
        with self._database:
            self._database.execute("DELETE FROM forecasts WHERE made <= ? AND score IS NULL", (at,))

    def close(self) -> None:
        """Let go of the file."""
        self._database.close()
