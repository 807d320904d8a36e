"""Launchers' processes: written down before they begin, recognised, signalled, watched. Real ones, but small."""

import os
import signal
import subprocess
import sys
import threading
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from dl2_scheduler.backends.local.launchers import processes
from dl2_scheduler.backends.local.runtime import (
    LauncherProcess,
)
from tests.dl2_scheduler.backends.local.launches import elasticrun_runtime

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


def test_a_launcher_that_is_stopped_goes_on_to_see_the_end_of_its_job(frozen, tmp_path, monkeypatch):
    runtime = elasticrun_runtime(tmp_path)
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
