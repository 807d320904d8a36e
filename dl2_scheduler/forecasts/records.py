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

_MOST_ROWS = 100_000

_SCHEMA = """
CREATE TABLE IF NOT EXISTS forecasts (
    number INTEGER PRIMARY KEY, kind TEXT NOT NULL, job TEXT NOT NULL, arrival REAL NOT NULL, made REAL NOT NULL,
    seconds REAL NOT NULL, deviation REAL NOT NULL, slot_seconds REAL NOT NULL, score REAL
);
CREATE INDEX IF NOT EXISTS forecasts_by_job ON forecasts (job, arrival);
CREATE INDEX IF NOT EXISTS forecasts_by_score ON forecasts (kind, number) WHERE score IS NOT NULL;
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
            self._database.executescript(_SCHEMA)
        except sqlite3.Error as error:
            raise self._unusable(error) from error

    def _unusable(self, error: Exception) -> BadInput:
        return BadInput(f"cannot use {self._path}: {error}: delete it; forecasts begin anew then")

    def calibration(self, kind: EventKind) -> Calibration:
        """Return what the latest forecasts of a kind that have come true teach. Raises BadInput: it is damaged."""
        query = (
            "SELECT score, seconds, deviation, slot_seconds FROM forecasts "
            "WHERE kind = ? AND score IS NOT NULL ORDER BY number DESC LIMIT ?"
        )
        try:
            rows = self._database.execute(query, (kind, MOST_SCORES)).fetchall()
            return Calibration((RawForecast(*raw), score) for score, *raw in reversed(rows))
        except (sqlite3.Error, TypeError, ValueError, ArithmeticError) as error:
            raise self._unusable(error) from error

    def add(self, forecasts: Iterable[MadeForecast]) -> None:
        """Keep new forecasts, and forget the oldest."""
        rows = [(each.kind, str(each.job), each.arrival, each.made, *astuple(each.raw)) for each in forecasts]
        with self._database:
            self._database.executemany(
                "INSERT INTO forecasts (kind, job, arrival, made, seconds, deviation, slot_seconds) "
                "VALUES (?, ?, ?, ?, ?, ?, ?)",
                rows,
            )
            oldest = "(SELECT max(number) FROM forecasts) - ?"
            self._database.execute(f"DELETE FROM forecasts WHERE number <= {oldest}", (_MOST_ROWS,))

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
            scores = [(score, number) for number, _, score in found]
            self._database.executemany("UPDATE forecasts SET score = ? WHERE number = ?", scores)
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
