"""Which forecasts are kept, and which of those that came true teach after a restart."""

import sqlite3
from contextlib import closing

import pytest

from dl2_scheduler.forecasts import calibration, records
from dl2_scheduler.forecasts.calibration import RawForecast
from dl2_scheduler.forecasts.records import FORECASTS_FILE, EventKind, ForecastRecords, MadeForecast

RAW = RawForecast(600.0, 0.3, 60.0)
END, START = EventKind.END, EventKind.START


@pytest.fixture(autouse=True)
def few(monkeypatch):
    for module in (calibration, records):
        monkeypatch.setattr(module, "MOST_SCORES", 2)
    monkeypatch.setattr(records, "_MOST_PENDING", 3)


@pytest.fixture
def path(tmp_path):
    return tmp_path / FORECASTS_FILE


def made(job, kind=END):
    return MadeForecast(kind, job, 0.0, 1e9, RAW)


def came(kept, job, minutes, kind=END):
    ((_, score),) = kept.came_true(kind, job, 0.0, 1e9 + 60.0 * minutes)
    return score


def known(path, kind=END):
    with closing(ForecastRecords(path)) as kept:
        return set(kept.calibration(kind).scores)


def count(path, kind=END):
    with closing(sqlite3.connect(path)) as database:
        return database.execute("SELECT count(*) FROM forecasts WHERE kind = ?", (kind,)).fetchone()[0]


def test_the_last_to_come_true_teach_whenever_they_were_made(path):
    with closing(ForecastRecords(path)) as kept:
        kept.add(map(made, "ABC"))
        _, last, first = came(kept, "B", 1), came(kept, "C", 2), came(kept, "A", 30)
        assert set(kept.calibration(END).scores) == {first, last}
    assert known(path) == {first, last}


def test_the_scores_of_a_job_stay_together(path):
    with closing(ForecastRecords(path)) as kept:
        kept.add([made("A"), made("B"), made("A")])
        assert len(kept.came_true(END, "A", 0.0, 1e9 + 60.0)) == 2
        assert len(set(kept.calibration(END)._ring[:, 3])) == 1
        came(kept, "B", 2)
        assert len(set(kept.calibration(END)._ring[:, 3])) == 2


def test_rare_scores_are_kept_however_many_forecasts_of_another_kind_are_made(path):
    with closing(ForecastRecords(path)) as kept:
        kept.add([made("A", START)])
        score = came(kept, "A", 5, START)
        for number in range(9):
            kept.add([made(f"B{number}")])
            came(kept, f"B{number}", number)
        for number in range(9):
            kept.add([made(f"C{number}")])
        assert kept.came_true(END, "C5", 0.0, 1e9) == []
        assert len(kept.came_true(END, "C6", 0.0, 1e9)) == 1
    assert known(path, START) == {score}
    assert (count(path, START), count(path)) == (1, 3 + 2)


def test_what_an_earlier_release_has_left_counts_in_the_order_in_which_it_was_made(path):
    with closing(sqlite3.connect(path)) as database, database:
        database.executescript(
            "CREATE TABLE forecasts (number INTEGER PRIMARY KEY, kind TEXT NOT NULL, job TEXT NOT NULL, "
            "arrival REAL NOT NULL, made REAL NOT NULL, seconds REAL NOT NULL, deviation REAL NOT NULL, "
            "slot_seconds REAL NOT NULL, score REAL);"
            "CREATE INDEX forecasts_by_score ON forecasts (kind, number) WHERE score IS NOT NULL;"
        )
        rows = [("end", job, 0.0, 1e9, 600.0, 0.3, 60.0, score) for job, score in zip("ABC", (1, 2, None), strict=True)]
        database.executemany(
            "INSERT INTO forecasts (kind, job, arrival, made, seconds, deviation, slot_seconds, score) "
            "VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            rows,
        )
    assert known(path) == {1.0, 2.0}
    with closing(ForecastRecords(path)) as kept:
        score = came(kept, "C", 3)
    assert known(path) == {2.0, score}
