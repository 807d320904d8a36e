"""Figures 11 and 12: from what plans tell to pictures, and once from real jobs, as small as can be."""

import csv
import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from dl2_scheduler.backends.trial import Trial
from dl2_scheduler.cli import app
from dl2_scheduler.cluster.errors import TrialFailed
from dl2_scheduler.figures.draw import save
from dl2_scheduler.figures.live import (
    LIVE,
    PAUSE,
    RESTART,
    LiveJobs,
    LiveScale,
    ServerJoin,
    change_of,
    steps_picture,
    suspension_picture,
)
from dl2_scheduler.figures.registry import draw_live
from protos import elastic_pb2 as pb

SMALLEST = "mobilenet0.25"
TINY = LiveScale(network=SMALLEST, joining=(1,), plans=1, restarts=1, networks=(SMALLEST,))


def rows_of(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_the_start_of_processes_is_not_registration() -> None:
    plan = pb.Plan(joined=["s1", "s2"], steps_ms=[2100, 60, 800, 90], suspension_ms={"w0": 0.1, "w1": 0.3})
    change = change_of(plan, {"s1": 1.5, "s2": 2.0, "s9": 7.0})
    assert change == ServerJoin((100, 60, 800, 90), 2000, change.suspensions)
    assert sorted(change.suspensions) == [0.1, 0.3]


def test_a_start_seen_late_leaves_no_negative_registration() -> None:
    plan = pb.Plan(joined=["s1"], steps_ms=[2000, 60, 800, 90])
    assert change_of(plan, {"s1": 2.02}).steps[0] == 0


@pytest.mark.slow
def test_suspensions_by_how_and_servers(tmp_path: Path) -> None:
    found = {(LIVE, 1): [0.1, 0.3], (LIVE, 2): [0.2], (RESTART, 1): [9000.0], (RESTART, 2): [9500.0]}
    picture = suspension_picture(found)
    assert [row["mean_ms"] for row in picture.rows] == [0.2, 0.2, 9000, 9500]
    assert [(series.name, list(series.x)) for series in picture.panels[0].series] == [
        (LIVE, ["1", "2"]),
        (RESTART, ["1", "2"]),
    ]
    assert save(picture, "title", "figure11", tmp_path, {}).read_bytes().startswith(b"\x89PNG")


def test_steps_are_medians_by_size_of_the_network(tmp_path: Path) -> None:
    changes = [ServerJoin((1.0, 10.0, migration, 5.0), 900.0, (3.0, 4.0)) for migration in (100.0, 300.0, 200.0)]
    picture = steps_picture({("large", 5_000_000): changes, ("small", 1_000_000): changes[:1]})
    assert [(row["network"], row["megabytes"], row["migration_ms"]) for row in picture.rows] == [
        ("small", 1.0, 100.0),
        ("large", 5.0, 200.0),
    ]
    assert [series.name for series in picture.panels[0].series] == [
        "registration",
        "assignment",
        "migration",
        "worker update",
    ]
    assert save(picture, "title", "figure12", tmp_path, {}).read_bytes().startswith(b"\x89PNG")


def test_speeds_are_refused_where_jobs_are_live(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["figure", "11", "--out", str(tmp_path / "out"), "--speeds", "speeds.txt"])
    assert result.exit_code == 2
    assert "figure 11 is of live jobs" in result.output
    assert not (tmp_path / "out").exists()


@pytest.mark.mxnet
@pytest.mark.timeout(300)
def test_a_figure_of_real_jobs(tmp_path: Path) -> None:
    told: list[str] = []
    live = LiveJobs(tmp_path / "live", TINY, 0, told.append)
    rows = rows_of(draw_live("11", live, tmp_path).with_suffix(".csv"))
    assert [(row["how"], row["servers_added"], row["suspensions"]) for row in rows] == [
        (LIVE, "1", "2"),
        (PAUSE, "1", "2"),
        (RESTART, "1", "1"),
    ]
    means = [float(row["mean_ms"]) for row in rows]
    assert 0 <= means[0] < means[2]
    assert 0 <= means[1] < means[2]
    assert told[0] == f"{SMALLEST}: {LIVE}, round 1 of 1"


@pytest.mark.mxnet
def test_a_job_that_ends_before_is_told_with_its_log(tmp_path: Path) -> None:
    failure = pytest.raises(TrialFailed, match=r"version 1 was not reached: see .*broken\.log")
    with Trial(tmp_path, "broken", ["there.is.no.such.module"], 1, 1) as job, failure:
        job.until(1, 60)


def test_what_an_earlier_job_of_its_name_left_is_not_taken_for_the_job(tmp_path):
    folder = tmp_path / "elastic_ps" / "jobs" / "again"
    folder.mkdir(parents=True)
    (folder / "job.json").write_text(json.dumps({"pid": 1, "coordinator": "127.0.0.1:1"}))
    with Trial(tmp_path, "again", ["any"], 1, 1, ["--no-such-option"]) as job:  # so it writes none of its own
        with pytest.raises(TrialFailed, match="has not begun yet"):
            _ = job.client
        assert job.version() == 0
