"""Launchers' processes: written down before they begin, recognised, signalled, watched. Real ones, but small."""

import errno
import json
import math
import os
import signal
import subprocess
import sys
import threading
from contextlib import closing, nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from dl2_scheduler.backends.clock import SystemClock
from dl2_scheduler.backends.local import storage_looks
from dl2_scheduler.backends.local.decide import reported
from dl2_scheduler.backends.local.job_records import JobRecords
from dl2_scheduler.backends.local.launchers import elasticrun, processes
from dl2_scheduler.backends.local.launchers.elasticrun import ElasticrunRuntime, report_of, since_of, why_back_of
from dl2_scheduler.backends.local.runtime import (
    Declined,
    LauncherEnding,
    LauncherProcess,
    LaunchOrder,
    Over,
    TaskShape,
    Unreachable,
)
from dl2_scheduler.backends.local.tasks.isolation import NoIsolation
from dl2_scheduler.backends.local.tasks.task_files import TaskFiles
from dl2_scheduler.backends.local.views import state_of
from dl2_scheduler.cluster.document.job_document import read_document
from elastic_ps.launch import decide
from elastic_ps.launch.restart_budget import RestartBudget
from protos import elastic_pb2 as pb
from tests.dl2_scheduler.played_cluster import document

SECONDS = 20.0
WAITS = "import signal, sys; print('up', flush=True); signal.pause()"


class Started:
    """A program under test, ended with the test."""

    def __init__(self, folder: Path, code: str):
        self.log, self.process, self.over = folder / "log", None, threading.Event()
        command = [sys.executable, "-c", code]
        processes.start(command, dict(os.environ), folder, self.log, self._started, self.over.set)

    def _started(self, process: LauncherProcess) -> None:
        self.process, self.log_then = process, self.log.read_text()


def test_known_before_it_begins_and_ended_by_its_own_number_alone(tmp_path):
    started = Started(tmp_path, WAITS)
    process = started.process
    try:
        assert started.log_then == ""
        assert processes.is_alive(process)
        assert os.getsid(process.pid) == process.pid
        stranger = replace(process, birth="another's")
        assert not processes.is_alive(stranger)
        processes.terminate(stranger)
        assert processes.is_alive(process)
    finally:
        ended = threading.Event()
        processes.watch(process, ended.set)
        processes.terminate(process)
    assert started.over.wait(SECONDS)
    assert ended.wait(SECONDS)
    assert not processes.is_alive(process)
    processes.terminate(process)
    again = threading.Event()
    processes.watch(process, again.set)
    assert again.wait(SECONDS)


@pytest.fixture
def frozen(tmp_path):
    """A program that somebody has stopped by SIGSTOP."""
    started = Started(tmp_path, WAITS)
    os.kill(started.process.pid, signal.SIGSTOP)
    os.waitid(os.P_PID, started.process.pid, os.WSTOPPED | os.WNOWAIT)
    yield started
    if not started.over.is_set():
        os.kill(started.process.pid, signal.SIGKILL)
        assert started.over.wait(SECONDS)


def test_a_launcher_that_is_stopped_ends_when_it_is_told_to(frozen):
    processes.terminate(frozen.process)
    assert frozen.over.wait(SECONDS)


def test_a_launcher_that_is_stopped_goes_on_to_see_the_end_of_its_job(frozen, runtime, monkeypatch):
    answers = nullcontext(SimpleNamespace(stop=lambda: None))
    monkeypatch.setattr(runtime, "_client", lambda name: answers)
    runtime.stop("digits", frozen.process)
    assert os.waitid(os.P_PID, frozen.process.pid, os.WCONTINUED | os.WNOHANG | os.WNOWAIT) is not None


def test_a_number_that_another_users_process_has_by_now_is_none_of_ours(monkeypatch):
    """/proc may be mounted so that others' processes are not shown (hidepid=1): dl2 serve has to start all the same."""

    def refused(path, **_):
        raise PermissionError(1, "Operation not permitted", str(path))

    monkeypatch.setattr(Path, "read_text", refused)
    assert not processes.is_alive(LauncherProcess(1, "boot:1"))
    assert processes.totals() == {}


def test_a_process_whose_name_is_half_a_character_counts_as_others_do():
    """Linux cuts names after 15 bytes, and `dl2 top` looks at the processes of all users."""
    name = Path("/proc/self/comm")
    before = name.read_bytes().strip()
    name.write_bytes("job 1: 训练模型".encode()[:15])
    try:
        assert processes.totals()[os.getpgrp()].cpu_seconds > 0
    finally:
        name.write_bytes(before)


def test_output_is_in_the_log_and_input_is_empty(tmp_path):
    started = Started(tmp_path, "import sys; print('in', repr(sys.stdin.read())); print('err', file=sys.stderr)")
    assert started.over.wait(SECONDS)
    assert sorted(started.log.read_text().split("\n")) == ["", "err", "in ''"]


def test_nothing_begins_whose_parent_dies_before_it_is_written_down(tmp_path):
    code = f"""
import os, pathlib
from dl2_scheduler.backends.local.launchers import elasticrun, processes
def dies(process):
    pathlib.Path('pid').write_text(f'{{process.pid}} {{process.birth}}')
    os._exit(0)
here = pathlib.Path('.')
processes.start([{sys.executable!r}, '-c', 'open("begun", "w")'], dict(os.environ), here, here / 'log', dies, print)
"""
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=True, timeout=60)
    pid, birth = (tmp_path / "pid").read_text().split()
    over = threading.Event()
    processes.watch(LauncherProcess(int(pid), birth), over.set)
    assert over.wait(SECONDS)
    assert not (tmp_path / "begun").exists()


@pytest.fixture
def runtime(tmp_path):
    return ElasticrunRuntime(tmp_path, lambda: None, TaskFiles(tmp_path / "tasks", NoIsolation(), 2.0, 16.0))


def order(tmp_path, **changes):
    shape = TaskShape("digits", 3, {"worker": 1.0, "server": 1.0}, {"worker": {}, "server": {}})
    return replace(LaunchOrder(shape, 1700000000.5, 1, ("python", "x.py"), tmp_path, 2, 1, "", None, 3), **changes)


def test_commands_that_cannot_be_run_here(runtime, tmp_path):
    with pytest.raises(Declined, match=r"cannot be started in .*none: No such file"):
        runtime.start(order(tmp_path, folder=tmp_path / "none"), lambda process: None)
    for text in ("\0", "\ud800"):
        with pytest.raises(Declined, match="its command cannot be given to a program"):
            runtime.start(order(tmp_path, command=("python", text)), lambda process: None)


@pytest.mark.parametrize("lacks", ["process", "thread", "space"])
def test_what_the_machine_lacks_now_is_waited_for(runtime, tmp_path, lacks, monkeypatch):
    def fail(*_given, **_more):
        if lacks == "thread":
            raise RuntimeError("can't start new thread")
        raise OSError(errno.EAGAIN if lacks == "process" else errno.ENOSPC, "it has none")

    where = {"process": "subprocess.Popen", "thread": "threading.Thread.start", "space": "pathlib.Path.open"}[lacks]
    begun = []
    with monkeypatch.context() as patched:
        patched.setattr(where, fail)
        with pytest.raises(Unreachable, match=r"cannot be started in .*: it waits, and is tried again"):
            runtime.start(order(tmp_path), begun.append)
    assert not begun


def test_a_launcher_that_is_killed_before_it_is_written_down_is_tried_again(runtime, tmp_path, monkeypatch):
    """By the kernel, say, which is out of memory: nobody would see its end, and the job would start for ever."""
    sound, begun = processes.birth_of, []

    def killed(pid):
        os.kill(pid, signal.SIGKILL)
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
        return sound(pid)

    monkeypatch.setattr(processes, "birth_of", killed)
    with pytest.raises(Unreachable, match=r"its process was killed before it began: it waits, and is tried again"):
        runtime.start(order(tmp_path), begun.append)
    assert not begun


@pytest.mark.slow
def test_a_script_that_is_not_there_is_told_by_the_log(tmp_path):
    over = threading.Event()
    runtime = ElasticrunRuntime(tmp_path, over.set, TaskFiles(tmp_path / "tasks", NoIsolation(), 2.0, 16.0))
    found = []
    runtime.start(order(tmp_path), found.append)
    assert over.wait(60)
    ending = runtime.ending("digits", found[0], runtime.log("digits", 3, 1))
    assert (ending.status, "x.py" in ending.reason) == (1, True)


@pytest.fixture
def options(runtime, monkeypatch):
    """Of the launcher that an order would start."""
    started = []
    monkeypatch.setattr(processes, "start", lambda command, *further: started.append(command) or SimpleNamespace(pid=7))

    def of(order):
        runtime.start(order, lambda process: None)
        words = started[-1][3:]
        return dict(zip(words[::2], words[1::2], strict=False))

    return of


def test_a_job_starts_though_somebody_has_deleted_the_folder_of_logs(options, runtime, tmp_path):
    options(order(tmp_path))
    runtime.log("digits", 3, 1).parent.rmdir()
    options(order(tmp_path))
    assert runtime.log("digits", 3, 1).parent.is_dir()


def test_checkpoints_go_where_the_document_says_and_a_first_start_begins_anew(options, tmp_path):
    for url, root in (("", tmp_path / "checkpoints"), (f"file://{tmp_path}/mine", f"file://{tmp_path}/mine")):
        checkpoint = Path(str(root).removeprefix("file://")) / "digits-3" / "version-000007"
        checkpoint.mkdir(parents=True)
        assert options(order(tmp_path, checkpoint_url=url))["--checkpoint"] == f"{root}/digits-3"
        assert "--restore" not in options(order(tmp_path, checkpoint_url=url, run=2))
        (checkpoint / "manifest.json").touch()
        assert "--restore" not in options(order(tmp_path, checkpoint_url=url))  # left by somebody else
        given = options(order(tmp_path, checkpoint_url=url, run=2))
        assert (given["--restore"], given["--identity"]) == (f"{root}/digits-3", "digits-3-1700000000")
        checkpoint.rename(checkpoint.with_name("version-000007-digits-3-1600000000"))
        assert "--restore" not in options(order(tmp_path, checkpoint_url=url, run=2)), "another cluster's"
    with pytest.raises(Unreachable, match=r"its checkpoints in nowhere://x/digits-3 cannot be read now"):
        options(order(tmp_path, checkpoint_url="nowhere://x", run=2))


def test_a_job_does_not_begin_anew_where_the_checkpoint_that_it_was_saved_in_is_gone(options, tmp_path):
    with pytest.raises(Unreachable, match=r"is not in .*/checkpoints/digits-3: it waits until that is there again"):
        options(replace(order(tmp_path, run=2), was_saved=True))
    checkpoint = tmp_path / "checkpoints" / "digits-3" / "version-000007"
    checkpoint.mkdir(parents=True)
    (checkpoint / "manifest.json").touch()
    assert "--restore" in options(replace(order(tmp_path, run=2), was_saved=True))


def test_storage_that_hangs_is_waited_for_once_and_not_for_long(options, tmp_path, monkeypatch):
    answers, looks = threading.Event(), []

    def hang(root):
        looks.append(root)
        assert answers.wait(SECONDS)
        return ()

    monkeypatch.setattr(elasticrun.storage, "candidates", hang)
    monkeypatch.setattr(storage_looks, "_SECONDS", 0.2)
    for _ in range(2):
        with pytest.raises(Unreachable, match="are looked for still"):
            options(order(tmp_path, run=2))
    monkeypatch.setattr(storage_looks, "_SECONDS", SECONDS)
    monkeypatch.setattr(storage_looks, "_HANGING_SECONDS", 0.2)
    with pytest.raises(Unreachable, match="are looked for still"):
        options(order(tmp_path, run=2, checkpoint_url=str(tmp_path / "other")))  # another job's, that is granted, too
    answers.set()
    for thread in threading.enumerate():
        if thread.name.startswith("looks for"):
            thread.join(SECONDS)
    assert "--restore" not in options(order(tmp_path, run=2))
    assert len(looks) == 2, "the look that took so long is the answer"


def test_a_folder_that_hangs_keeps_its_own_job_alone_from_starting(runtime, tmp_path, monkeypatch):
    """To start a program there would hang as well, and with it every decision about every job."""
    answers, sound, begun = threading.Event(), os.path.isdir, []
    monkeypatch.setattr(os.path, "isdir", lambda path: answers.wait(SECONDS) and sound(path))
    monkeypatch.setattr(storage_looks, "_SECONDS", 0.05)
    monkeypatch.setattr(processes, "start", lambda *given: begun.append(given) or SimpleNamespace(pid=7))
    with pytest.raises(Unreachable, match=r"its folder .* does not answer: it waits, and is tried again"):
        runtime.start(order(tmp_path), lambda process: None)
    assert not begun
    answers.set()
    for thread in threading.enumerate():
        if thread.name.startswith("looks for"):
            thread.join(SECONDS)
    runtime.start(order(tmp_path), lambda process: None)
    assert begun


def test_a_job_that_has_run_waits_for_what_it_needs_to_start_again(runtime, tmp_path, monkeypatch):
    """It has trained, and once it has failed nothing brings that back."""
    gone = order(tmp_path, folder=tmp_path / "not mounted", run=2)
    with pytest.raises(Unreachable, match=r"its folder .*/not mounted is not there: it waits until it is there again"):
        runtime.start(gone, lambda process: None)

    def stale(*_given):
        raise OSError(errno.ESTALE, "Stale file handle")

    monkeypatch.setattr(processes, "start", stale)
    with pytest.raises(Unreachable, match=r"cannot be started in .*: Stale file handle: it waits, and is tried again"):
        runtime.start(order(tmp_path, run=2), lambda process: None)
    with pytest.raises(Declined, match="Stale file handle"):
        runtime.start(order(tmp_path), lambda process: None)


def test_tasks_begin_through_a_file_that_says_what_they_have(options, tmp_path):
    found = options(order(tmp_path))
    assert found["--join-timeout"] == "480"  # of an eighth of a core
    for role in ("worker", "server"):
        assert found[f"--wrap-{role}"].endswith(f"task_entry.py {tmp_path}/tasks/digits-3.json {role}")
    assert (tmp_path / "tasks" / "digits-3.json").exists()


def test_a_record_of_tasks_that_take_next_to_nothing_does_not_end_the_cluster(options, tmp_path):
    given = order(tmp_path)
    shape = replace(given.shape, slots={"worker": 5e-324, "server": 1.0})
    assert options(replace(given, shape=shape))["--join-timeout"] == "60000000000"


def test_blocks_have_as_many_replicas_as_the_document_says(options, tmp_path):
    assert options(order(tmp_path))["--replicas"] == "0"
    assert options(order(tmp_path, block_replicas=1))["--replicas"] == "1"


def test_as_many_deaths_are_mended_as_the_document_says_and_by_its_word(options, runtime, tmp_path):
    assert options(order(tmp_path, retry_limit=7))["--max-restarts"] == "7"
    said = (
        decide.plan(None, [], RestartBudget(0, ("w0 exited with status 1",))),
        decide.plan(None, [], RestartBudget(1, ("a", "b"))),
    )
    for (action,), words in zip(said, ("w0 exited with status 1", "b; retryLimit 1 has been used up"), strict=True):
        told = {"name": "digits", "coordinator": "h:1", "pid": 7, "ended": 9.5, "status": 1, "reason": action.reason}
        job_json(tmp_path, json.dumps(told))
        assert runtime.ending("digits", LauncherProcess(7, "b"), tmp_path / "log").reason == words


def job_json(tmp_path, text):
    folder = tmp_path / "elastic_ps" / "jobs" / "digits"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "job.json").write_text(text)


def test_what_a_launcher_left_behind(runtime, tmp_path):
    process, log = LauncherProcess(7, "b"), runtime.log("digits", 3, 1)
    log.parent.mkdir()
    assert runtime.ending("digits", process, log) == LauncherEnding(
        None, "it was killed, or the machine went down", 0.0
    )
    job_json(
        tmp_path, '{"name": "digits", "coordinator": "h:1", "pid": 7, "ended": 9.5, "status": 1, "reason": "no data"}'
    )
    assert runtime.ending("digits", process, log) == LauncherEnding(1, "no data", 9.5)
    with pytest.raises(Over) as over:
        runtime.report("digits", process)
    assert over.value.ending == LauncherEnding(1, "no data", 9.5)
    job_json(tmp_path, '{"name": "digits", "coordinator": "h:1", "pid": 7, "status": 0, "reason": "finished"}')
    with pytest.raises(Over) as over:
        runtime.report("digits", process)  # its coordinator ends, and its launcher then
    assert over.value.ending == LauncherEnding(0, "finished", 0.0)
    job_json(tmp_path, '{"name": "digits", "coordinator": "h:1", "pid": 7, "status": 0, "reason": "stopped by me"}')
    assert runtime.ending("digits", process, log) == LauncherEnding(0, "stopped by me", 0.0, is_stopped=True)
    job_json(tmp_path, '{"name": "digits", "coordinator": "h:1", "pid": 7, "ended": 9.5, "status": 0}')
    with pytest.raises(Unreachable, match="no coordinator"):
        runtime.report("digits", replace(process, pid=8))  # which has not yet put its own there
    other = {"name": "digits", "coordinator": "h:1", "pid": 7, "birth": "a", "ended": 9.5, "status": 0}
    job_json(tmp_path, json.dumps(other))
    assert runtime.ending("digits", process, log).status is None, "it was an earlier process of this number"
    with pytest.raises(Unreachable, match="no coordinator"):
        runtime.report("digits", process)
    job_json(tmp_path, json.dumps({**other, "birth": "b"}))
    assert runtime.ending("digits", process, log).status == 0
    job_json(tmp_path, '{"name": "digits", "coordinator": "h:1", "pid": 7}')
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
    runtime = ElasticrunRuntime(tmp_path, over.set, TaskFiles(tmp_path / "tasks", NoIsolation(), 2.0, 16.0))
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
    later = ElasticrunRuntime(tmp_path, lambda: None, TaskFiles(tmp_path / "tasks", NoIsolation(), 2.0, 16.0))
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
