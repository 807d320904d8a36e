"""What people are told of the future: `dl2 jobs`, `status`, `submit --dry-run` and `what-if`."""

import json
import time
from contextlib import closing
from datetime import datetime
from pathlib import Path

import pytest
from typer.testing import CliRunner

from dl2_scheduler.cli import app
from dl2_scheduler.cluster.desk import JobStatus, LiveJobPhase
from dl2_scheduler.cluster.forecast import ExpectedTime, Forecast
from dl2_scheduler.cluster.free_resources import NodeRule
from dl2_scheduler.cluster.jobs import Node
from dl2_scheduler.cluster.shown_job import shown_forecast
from dl2_scheduler.commands.cluster import what_if
from dl2_scheduler.commands.cluster.forecast_text import clock_interval, clock_sentence
from dl2_scheduler.commands.cluster.serving.driving import Driving, driven
from dl2_scheduler.commands.cluster.what_if import in_time, summary
from dl2_scheduler.forecasts.forecaster import Forecaster
from dl2_scheduler.forecasts.outlook import IdleCluster
from dl2_scheduler.forecasts.records import FORECASTS_FILE, ForecastRecords
from dl2_scheduler.live.client import ClusterClient
from dl2_scheduler.live.history import HISTORY_FILE, History
from dl2_scheduler.live.policies import Policies
from dl2_scheduler.live.service import ClusterService, Notes, serving
from dl2_scheduler.live.slot_loop import SlotLoop
from dl2_scheduler.policies.registry import make_live_policy
from tests.dl2_scheduler.played_cluster import document

NOON = datetime(2026, 3, 4, 12, 0).astimezone().timestamp()  # of this machine
DAY = 86_400.0


@pytest.mark.parametrize(
    ("low", "high", "words"),
    [
        (600.0, 4200.0, "12:10–13:10"),
        (5.0, 65.0, "12:00:05–12:01:05"),
        (610.0, 4201.0, "12:10–13:11"),
        (DAY, DAY + 3600.0, "5 Mar 12:00–13:00"),
        (600.0, DAY + 3600.0, "12:10–5 Mar 13:00"),
        (365 * DAY, 365 * DAY + 3600.0, "4 Mar 2027 12:00–13:00"),
    ],
)
def test_times_are_told_by_the_clock(low, high, words):
    assert clock_interval(ExpectedTime(NOON, NOON + low, NOON + high), NOON) == words


def test_what_nobody_knows():
    assert clock_interval(None, NOON) == clock_sentence(None, NOON, NOON) == "-"


def test_spans_of_time():
    assert [in_time(seconds) for seconds in (4.4, -59.0, 600.0, -7200.0)] == ["4s", "-59s", "10m", "-2.0h"]


def test_a_change_where_nothing_is_left_to_do():
    now = Forecast(NOON, None, ExpectedTime(NOON, NOON, NOON))
    assert summary({"a": 5.0}, {"a": now}, NOON) == "jobs would end 5s later on average"


@pytest.mark.parametrize(
    ("made", "now", "shown"),
    [
        (NOON + 1.0, NOON + 2.0, True),
        (NOON - 1.0, NOON + 2.0, False),  # of an earlier job of this name
        (NOON - DAY, NOON - DAY + 2.0, True),  # the clock has been set back by a day
    ],
)
def test_a_forecast_is_of_the_job_that_was_submitted_last(made, now, shown):
    counts = dict.fromkeys(("min_workers", "min_servers", "max_workers", "max_servers"), 1)
    rest = {"held": False, "epochs_done": 0.0, "epochs": 5.0, "samples_per_second": 1.0, "ended": None, "log": None}
    job = JobStatus("a", "m", LiveJobPhase.RUNNING, "", 1, 1, submitted=NOON, **counts, **rest)
    forecast = Forecast(made, None, ExpectedTime(made + 60.0, made + 50.0, made + 70.0))
    assert (shown_forecast(job, forecast, now) is not None) == shown


@pytest.fixture
def notes():
    return Notes()


@pytest.fixture
def loop(tmp_path, serve, clock, notes, monkeypatch):
    """Of a cluster of 4 slots behind its socket, under FIFO; the job a has them all, b waits."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    clock.time = time.time()
    folder = tmp_path / "dl2"
    folder.mkdir()
    cluster = serve("1x4")
    with closing(History(folder / HISTORY_FILE)) as history:
        policies = Policies(make_live_policy, "drf", folder, "fifo")
        with serving(ClusterService(cluster.desk, history, policies, notes), folder):
            for name in ("a", "b"):
                cluster.desk.submit(document(name, workers=2, servers=2), Path())
            loop = SlotLoop(cluster, policies, NodeRule.SPREAD, history, now=clock.now)
            yield loop


def dl2(*words):
    result = CliRunner().invoke(app, [str(word) for word in words])
    return result.exit_code, result.output


def forecast(folder):
    """As the program beside the loop does."""
    with closing(History(folder / HISTORY_FILE)) as history, closing(ForecastRecords(folder / FORECASTS_FILE)) as kept:
        return Forecaster(history, NodeRule.SPREAD, kept, make_live_policy, 4).forecast().by_job


def test_jobs_and_status_tell_start_and_end(loop, notes, tmp_path, monkeypatch):
    assert dl2("jobs")[1].count("–") == 0
    loop.slot()
    loop.slot()
    found = forecast(tmp_path / "dl2")
    notes.forecasts = lambda: found
    running, waiting = (json.loads(dl2("status", job, "--json")[1]) for job in "ab")
    assert running["forecast"]["end"]["low"] < running["forecast"]["end"]["at"] < running["forecast"]["end"]["high"]
    assert "start" not in running["forecast"]
    assert waiting["forecast"]["start"]["at"] == pytest.approx(running["forecast"]["end"]["at"], abs=60.0)
    assert waiting["forecast"]["end"]["at"] > waiting["forecast"]["start"]["at"]
    shown = dl2("status", "b")[1]
    assert "starts   " in shown
    assert "with a chance of 80%" in shown
    assert dl2("jobs")[1].count("–") == 3
    assert [line.count("–") for line in dl2("top")[1].split("\n") if "node-0" in line] == [0, 1, 1, 1, 1]


def test_what_is_not_the_policys_to_decide_has_no_forecast(loop, notes, clock):
    expected = ExpectedTime(clock.now(), clock.now(), clock.now())
    notes.forecasts = lambda: {"a": Forecast(clock.now(), None, expected), "b": Forecast(0.0, expected, expected)}
    loop.slot()
    assert "forecast" in json.loads(dl2("status", "a", "--json")[1])
    assert "forecast" not in json.loads(dl2("status", "b", "--json")[1]), "it was made for an earlier job of that name"
    dl2("hold", "a")
    assert "forecast" not in json.loads(dl2("status", "a", "--json")[1])


class PlayedObserver:
    """Stands in for the program beside the loop: its forecasts are those of the slot that it was told of last."""

    def __init__(self, folder, rule, tell):
        self.folder, self.tell, self.forecasts = folder, tell, {}

    def before(self, slot):
        self.tell(self.forecasts)

    def after(self, slot):
        self.forecasts = forecast(self.folder)

    def close(self):
        self.tell("closed")


def test_who_serves_forecasts(serve, clock, tmp_path, monkeypatch):
    monkeypatch.setattr("dl2_scheduler.commands.cluster.serving.driving.ForecastObserver", PlayedObserver)
    cluster, told = serve("1x4"), []
    cluster.desk.submit(document("a"), Path())
    with (
        closing(History(tmp_path / HISTORY_FILE)) as history,
        driven(
            cluster, cluster.desk, history, tmp_path, Driving("drf", guard=None), tell_forecasts=told.append
        ) as loop,
    ):
        loop.slot()
        with ClusterClient(tmp_path) as client:
            made = client.status("a").forecast.made
        loop.slot()
    assert made > 0.0
    assert [set(each) for each in told[:2]] == [set(), {"a"}]
    assert told[2] == "closed"


def test_a_dry_run_says_when_and_submits_nothing(loop, tmp_path):
    file = tmp_path / "c.yaml"
    file.write_text(document("c", epochs=20))
    status, said = dl2("submit", file, "--dry-run")
    assert (status, "no slot with jobs has been decided there yet" in said) == (2, True)
    loop.slot()
    loop.slot()
    status, said = dl2("submit", file, "--dry-run")
    assert status == 0, said
    assert said.startswith("c: not submitted; if it were:\nstarts   ")
    assert "\nends     " in said
    assert said.endswith("no other job would end later\n"), "under FIFO it waits for the others"
    assert [job["name"] for job in json.loads(dl2("jobs", "--json")[1])["jobs"]] == ["a", "b"]


def test_a_dry_run_asks_a_cluster_that_stands_still_how_it_is(loop, tmp_path, monkeypatch):
    """It answered from the nodes and the policy of the last slot with jobs, days after a restart with others."""
    file, found = tmp_path / "c.yaml", []
    file.write_text(document("c", epochs=20))
    loop.slot()
    monkeypatch.setattr(what_if, "_idle", lambda client, of=what_if._idle: found.append(of(client)))
    assert dl2("submit", file, "--dry-run")[0] == 0
    assert not found
    for job in "ab":
        assert dl2("stop", job)[0] == 0
    loop.slot()
    assert dl2("submit", file, "--dry-run")[0] == 0
    assert found == [IdleCluster("fifo", (Node("node-0", {"slots": 4.0}),), 20.0)]


def test_a_dry_run_refuses_what_submit_would(loop, tmp_path):
    loop.slot()
    file = tmp_path / "c.yaml"
    file.write_text(document("a"))
    assert dl2("submit", file, "--dry-run") == dl2("submit", file)
    file.write_text(document("c").replace("python, digits.py", "sh, digits.sh"))
    assert dl2("submit", file, "--dry-run") == dl2("submit", file)
    file.write_text(document("c") + "  suspend: true\n")
    assert "nothing is forecast of jobs that begin when their owner says so" in dl2("submit", file, "--dry-run")[1]
    assert dl2("submit", file, "--dry-run", "--kube")[0] == 2


def test_what_if(loop):
    loop.slot()
    loop.slot()
    status, said = dl2("what-if", "--nodes", "+1x4")
    assert status == 0, said
    assert "sooner on average" in said
    found = {each["job"]: each for each in json.loads(dl2("what-if", "--nodes", "+1x4", "--json")[1])["jobs"]}
    assert found["b"]["supposed"]["start"]["at"] < found["b"]["present"]["start"]["at"]
    assert "jobs would end as they will now" in dl2("what-if", "--policy", "fifo")[1]
    same = {each["job"]: each for each in json.loads(dl2("what-if", "--policy", "fifo", "--json")[1])["jobs"]}
    assert all(each["present"] == each["supposed"] for each in same.values())
    assert set(same) == {"a", "b"}


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ((), "give --policy NAME, or --nodes +4x8, or both"),
        (("--nodes", "4x8"), "give +NODESxSLOTS or -NODESxSLOTS"),
        (("--nodes", "+9999x8"), "--nodes 9999x8: give up to 1024 nodes"),
        (("--nodes", "-1x8"), "there are not that many nodes"),
        (("--nodes", "-1x4"), "no node would be left"),
        (("--policy", "nonsense"), "unknown policy nonsense"),
    ],
)
def test_what_cannot_be_asked(loop, words, why):
    loop.slot()
    status, said = dl2("what-if", *words)
    assert (status, why in said) == (2, True), said
