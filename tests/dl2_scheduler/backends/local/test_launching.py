"""What a launcher is started with, and what keeps it from starting."""

import errno
import json
import os
import signal
import threading
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from dl2_scheduler.backends.local import storage_looks
from dl2_scheduler.backends.local.coordinators import Coordinators
from dl2_scheduler.backends.local.launchers import elasticrun, processes
from dl2_scheduler.backends.local.runtime import Declined, LauncherProcess, Unreachable
from elastic_ps.launch import decide
from elastic_ps.launch.restart_budget import RestartBudget
from tests.dl2_scheduler.backends.local.launches import elasticrun_runtime, order, write_job_json

SECONDS = 20.0


@pytest.fixture
def runtime(tmp_path):
    """A real one, in the place of that which other tests of the cluster play."""
    return elasticrun_runtime(tmp_path)


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


def test_where_no_thread_can_be_started_the_cluster_goes_on(runtime, monkeypatch, caplog):
    """A limit of processes (pids.max) ended `dl2 serve` as it suspended a job, or was started again."""

    def fail(thread):
        raise RuntimeError("can't start new thread")

    def silent(name, process):
        raise Unreachable(name)

    said, ended = [], []
    monkeypatch.setattr(threading.Thread, "start", fail)
    runtime.save("digits", said.append)
    assert said == ["no thread can be started"]
    processes.watch(LauncherProcess(os.getpid(), "b"), lambda: ended.append(1))
    assert "is seen late: can't start new thread" in caplog.text
    coordinators = Coordinators(SimpleNamespace(report=silent))
    assert coordinators.hear_all([SimpleNamespace(number=1, name="a", process=1)] * 2) == [None, None]
    assert not ended


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
    runtime = elasticrun_runtime(tmp_path, over.set)
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
        words = started[-1][started[-1].index("elastic_ps.launch") + 1 :]
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
        write_job_json(tmp_path, json.dumps(told))
        assert runtime.ending("digits", LauncherProcess(7, "b"), tmp_path / "log").reason == words


def _left(jobs: Path, name: str, identity: str, pid: int = 0) -> None:
    (jobs / name / "logs").mkdir(parents=True)
    told = {"name": name, "identity": identity, "coordinator": "h:1", "pid": pid}
    (jobs / name / "job.json").write_text(json.dumps(told))


def test_a_start_deletes_what_all_but_the_last_starts_of_its_submission_have_left(options, tmp_path):
    """Each suspension left a ledger for ever, until the disk of the cluster's folder was full."""
    jobs, own = tmp_path / "elastic_ps" / "jobs", order(tmp_path).identity
    for number in (2, 3, 9, 10):
        _left(jobs, f"digits~{number}", own)
    _left(jobs, "digits~4", own, pid=os.getpid())
    for name, identity in (("digits", own), ("digits~5", "digits-2-1600000000"), ("digits2~1", own), ("digits~6", "")):
        _left(jobs, name, identity)
    options(order(tmp_path, run=12))
    kept = {"digits", "digits~4", "digits~5", "digits~6", "digits~10", "digits2~1"}
    assert {path.name for path in jobs.iterdir()} == kept
