"""What a launcher and its coordinator tell of their job, while it trains and when it has ended."""

import json
import math
import sys
import threading
from contextlib import closing, nullcontext
from dataclasses import replace
from types import SimpleNamespace

import pytest

from dl2_scheduler.backends.clock import SystemClock
from dl2_scheduler.backends.local.decide import reported
from dl2_scheduler.backends.local.job_records import JobRecord, JobRecords
from dl2_scheduler.backends.local.launchers import processes
from dl2_scheduler.backends.local.launchers.elasticrun import report_of, since_of, why_back_of
from dl2_scheduler.backends.local.runtime import (
    LauncherEnding,
    LauncherProcess,
    Over,
    Unreachable,
)
from dl2_scheduler.backends.local.views import state_of, status_of
from dl2_scheduler.cluster.desk import LiveJobPhase
from dl2_scheduler.cluster.document.job_document import read_document
from protos import elastic_pb2 as pb
from tests.dl2_scheduler.backends.local.launches import elasticrun_runtime, order, write_job_json
from tests.dl2_scheduler.played_cluster import document

SECONDS = 20.0


@pytest.fixture
def runtime(tmp_path):
    """A real one, in the place of that which other tests of the cluster play."""
    return elasticrun_runtime(tmp_path)


def test_what_a_launcher_left_behind(runtime, tmp_path):
    process, log = LauncherProcess(7, "b"), runtime.log("digits", 3, 1)
    log.parent.mkdir()
    assert runtime.ending("digits", process, log) == LauncherEnding(
        None, "it was killed, or the machine went down", 0.0
    )
    write_job_json(
        tmp_path, '{"name": "digits", "coordinator": "h:1", "pid": 7, "ended": 9.5, "status": 1, "reason": "no data"}'
    )
    assert runtime.ending("digits", process, log) == LauncherEnding(1, "no data", 9.5)
    with pytest.raises(Over) as over:
        runtime.report("digits", process)
    assert over.value.ending == LauncherEnding(1, "no data", 9.5)
    write_job_json(tmp_path, '{"name": "digits", "coordinator": "h:1", "pid": 7, "status": 0, "reason": "finished"}')
    with pytest.raises(Over) as over:
        runtime.report("digits", process)  # its coordinator ends, and its launcher then
    assert over.value.ending == LauncherEnding(0, "finished", 0.0)
    write_job_json(
        tmp_path, '{"name": "digits", "coordinator": "h:1", "pid": 7, "status": 0, "reason": "stopped by me"}'
    )
    assert runtime.ending("digits", process, log) == LauncherEnding(0, "stopped by me", 0.0, is_stopped=True)
    write_job_json(tmp_path, '{"name": "digits", "coordinator": "h:1", "pid": 7, "ended": 9.5, "status": 0}')
    with pytest.raises(Unreachable, match="no coordinator"):
        runtime.report("digits", replace(process, pid=8))  # which has not yet put its own there
    other = {"name": "digits", "coordinator": "h:1", "pid": 7, "birth": "a", "ended": 9.5, "status": 0}
    write_job_json(tmp_path, json.dumps(other))
    assert runtime.ending("digits", process, log).status is None, "it was an earlier process of this number"
    with pytest.raises(Unreachable, match="no coordinator"):
        runtime.report("digits", process)
    write_job_json(tmp_path, json.dumps({**other, "birth": "b"}))
    assert runtime.ending("digits", process, log).status == 0
    write_job_json(tmp_path, '{"name": "digits", "coordinator": "h:1", "pid": 7}')
    assert runtime.ending("digits", process, log).status is None


@pytest.fixture
def plays(monkeypatch):
    """Lets a launcher be another program."""
    sound = processes.start

    def instead(code):
        monkeypatch.setattr(
            processes, "start", lambda _, *further: sound([sys.executable, "-I", "-S", "-c", code], *further)
        )

    return instead


def launched(tmp_path):
    """A runtime, and a launcher of it that has ended."""
    over, found = threading.Event(), []
    runtime = elasticrun_runtime(tmp_path, over.set)
    runtime.start(order(tmp_path), found.append)
    assert over.wait(SECONDS)
    return runtime, found[0]


def test_what_a_launcher_said_before_it_was_killed_is_not_why_it_ended(plays, tmp_path):
    """Its coordinator does not listen yet, so that it has written down nothing: it is started again."""
    plays("import os; print('a warning of some library', flush=True); os.kill(os.getpid(), 9)")
    runtime, process = launched(tmp_path)
    ending = runtime.ending("digits", process, runtime.log("digits", 3, 1))
    assert (ending.status, ending.reason) == (
        None,
        "it was killed, or the machine went down; its last line: a warning of some library",
    )


def test_what_a_launcher_said_is_why_it_ended_if_this_scheduler_knows_that_it_ended_by_itself(plays, tmp_path):
    plays("import sys; sys.exit('elasticrun: no')")
    runtime, process = launched(tmp_path)
    log = runtime.log("digits", 3, 1)
    ending = runtime.ending("digits", process, log)
    assert (ending.status, ending.reason) == (1, "elasticrun: no")
    later = elasticrun_runtime(tmp_path)
    assert later.ending("digits", process, log).status is None, "the next start tells"


def test_a_launcher_that_cannot_begin_now_says_so_by_its_status(plays, tmp_path):
    """On a disk that is full its log has nothing either."""
    plays("import sys; sys.exit(69)")
    runtime, process = launched(tmp_path)
    ending = runtime.ending("digits", process, runtime.log("digits", 3, 1))
    assert (ending.status, ending.is_by_signal) == (69, False)
    assert ending.reason == "something of this machine that its launcher needs is lacking: a disk may be full"


def test_a_job_whose_folder_somebody_has_deleted_has_finished_all_the_same(plays, tmp_path):
    plays("print('job digits finished after 3.0 s')")
    runtime, process = launched(tmp_path)
    ending = runtime.ending("digits", process, runtime.log("digits", 3, 1))
    assert (ending.status, ending.reason) == (0, "job digits finished after 3.0 s")


def test_a_log_that_cannot_be_read_or_is_huge_ends_no_scheduler(runtime, tmp_path):
    process, log = LauncherProcess(7, "b"), runtime.log("digits", 3, 1)
    log.mkdir(parents=True)  # for want of a disk that fails
    assert runtime.ending("digits", process, log) == LauncherEnding(
        None, "it was killed, or the machine went down", 0.0
    )
    log.rmdir()
    with log.open("wb") as file:
        file.seek(1 << 40)  # a terabyte that takes no room
        file.write(b"\nthe last line\n")
    ending = runtime.ending("digits", process, log)
    assert (ending.status, ending.reason.endswith("its last line: the last line")) == (None, True)


def test_a_coordinators_words():
    data = pb.DataSpec(elastic=True, samples=100, global_batch=10, last="short", loss="sum", exchanges=1)
    roles = [(pb.WORKER, "member"), (pb.WORKER, "shadow"), (pb.SERVER, "member"), (pb.WORKER, "member")]
    nodes = [pb.NodeStatus(member=pb.Member(role=role), state=state) for role, state in roles]
    status = pb.StatusReply(
        phase="running",
        nodes=nodes,
        wanted_workers=3,
        wanted_servers=1,
        version=25,
        epoch=2,
        step=5,
        rate=50.0,
        data=data,
    )
    report = report_of(status)
    assert (report.trains, report.workers, report.servers, report.wanted_workers) == (True, 2, 1, 3)
    assert (report.epochs, report.samples_per_epoch, report.samples_per_second) == (2.5, 100, 50)
    assert report_of(pb.StatusReply(phase="starting")).epochs == 0.0


def test_a_job_that_is_being_started_says_which_of_its_tasks_have_not_joined(tmp_path):
    server = pb.NodeStatus(member=pb.Member(role=pb.SERVER, id="s0"), state="joining", pid=7)
    status = pb.StatusReply(phase="starting", nodes=[server], wanted_workers=3, wanted_servers=1)
    record = JobRecord(1, read_document(document()), tmp_path, 0.0, LiveJobPhase.STARTING)
    shown = status_of(record, report_of(status), tmp_path / "log", "")
    assert shown.reason == "waits for 3 of 3 workers to join: dl2 logs digits"
    status.wanted_workers = 0
    assert status_of(record, report_of(status), tmp_path / "log", "").reason == ""


@pytest.mark.parametrize("rate", [math.nan, math.inf, 1e308, 1e-308, -1.0])
def test_a_job_that_tells_what_cannot_be_takes_nothing_else_with_it(tmp_path, rate):
    lie = 1 << 63
    data = pb.DataSpec(elastic=True, samples=lie, global_batch=10, last="short", loss="sum", exchanges=1)
    report = report_of(pb.StatusReply(phase="running", epoch=lie, rate=rate, data=data))
    assert (report.epochs, report.samples_per_epoch, report.samples_per_second) == (1e9, 0.0, 0.0)
    with closing(JobRecords(tmp_path / "jobs.sqlite", 0.0)) as records:
        record = records.add(read_document(document()), tmp_path, 0.0)
        records.change(record.number, **reported(record, report))
    with closing(JobRecords(tmp_path / "jobs.sqlite", 0.0)) as again:
        state_of(again.get(record.number), 0.0).job.check()


@pytest.mark.parametrize(
    ("phase", "reason", "ending"),
    [
        ("finished", "finished", LauncherEnding(0, "finished", 0.0)),
        ("finished", "", LauncherEnding(0, "", 0.0)),  # says of nobody that he has stopped it
        ("finished", "stopped by me", LauncherEnding(0, "stopped by me", 0.0, is_stopped=True)),
        (
            "failed",
            "w0 died; --max-restarts 3 has been used up",
            LauncherEnding(1, "w0 died; retryLimit 3 has been used up", 0.0),
        ),
    ],
)
def test_a_job_that_is_over_is_not_one_that_trains(runtime, tmp_path, monkeypatch, phase, reason, ending):
    said = pb.StatusReply(phase=phase, reason=reason)
    monkeypatch.setattr(runtime, "_client", lambda name: nullcontext(SimpleNamespace(status=lambda: said)))
    with pytest.raises(Over) as over:
        runtime.report("digits", LauncherProcess(7, "b"))
    assert over.value.ending == ending


def test_the_machines_clock_is_woken_also_before_it_waits():
    clock = SystemClock()
    clock.wake()
    clock.wait(SECONDS)
    before = clock.now()
    clock.wait(0.01)
    assert 0.005 < clock.now() - before < SECONDS


def test_why_a_job_went_back_is_what_its_last_restore_was_for():
    causes = ("restore: w0 died", "restore: s0 died", "scale to 2 workers")
    assert why_back_of([pb.Plan(cause=cause) for cause in causes]) == "s0 died"
    assert why_back_of([pb.Plan(cause="start")]) == ""


def test_since_when_a_job_trains_as_it_does_is_not_known_while_a_plan_is_about_to_be_committed():
    plans = [pb.Plan(phase="COMMITTED", ended=ended) for ended in (7.0, 9.0)]
    cancelled, joining, armed = (pb.Plan(phase=phase) for phase in ("CANCELLED", "SYNCING", "ARMED"))
    assert since_of([]) is None
    assert since_of([*plans, cancelled, joining]) == 9.0
    assert since_of([*plans, armed]) is None
