"""Programs beside the loop: told of the latest only, started again, ended with it."""

import json
import math
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from dl2_scheduler.live import side_program
from dl2_scheduler.live.side_program import FROZEN_SECONDS, SideProgram, session_niceness, told
from tests.dl2_scheduler.hearing import listen

SECONDS = 60.0
ECHO = """
import sys
for line in sys.stdin:
    if line == "die\\n":
        sys.exit("as told")
    print(line.strip().upper(), flush=True)
"""


def test_the_last_of_what_was_told_meanwhile():
    reading, writing = os.pipe()
    lines = told(reading)
    os.write(writing, b"1\n2\n3\n4")
    assert next(lines) == "3"
    os.write(writing, b"2\n")
    assert next(lines) == "42"
    os.close(writing)
    assert list(lines) == []
    os.close(reading)


def test_a_program_is_started_again_after_it_died(tmp_path):
    side = SideProgram("echo", [sys.executable, "-c", ECHO], tmp_path / "logs" / "echo.log")
    heard = listen(side)
    side.tell("one")
    heard.wait()
    assert (side.heard(), side.heard()) == (["ONE"], [])
    process = side._process
    side.tell("die")
    process.wait(SECONDS)
    side.tell("two")
    heard.wait()
    assert side.heard() == ["TWO"]
    assert side.trouble == f"it ended with status 1; {tmp_path}/logs/echo.log says why"
    assert (tmp_path / "logs" / "echo.log").read_text() == "as told\n"
    last = side._process
    side.close()
    assert last.returncode == 0
    side.close()


def test_an_end_is_not_told_of_for_ever(tmp_path):
    side, found = SideProgram("echo", [sys.executable, "-c", ECHO], tmp_path / "log"), []
    heard = listen(side)
    side.tell("die")
    side._process.wait(SECONDS)
    for line in range(12):
        side.tell(str(line))
        heard.wait()
        found.append(bool(side.trouble))
    assert found == [True] * 9 + [False] * 3
    side.close()


def test_a_program_that_was_killed_is_not_said_to_have_said_why(tmp_path):
    side = SideProgram("echo", [sys.executable, "-c", ECHO], tmp_path / "logs" / "echo.log")
    side.tell("one")
    process = side._process
    process.kill()
    process.wait(SECONDS)
    side.tell("two")
    assert side.trouble == "it was killed by signal 9 (Killed)"
    side.close()


def test_a_program_that_always_dies_is_started_ever_less_often(tmp_path):
    side = SideProgram("dies", [sys.executable, "-c", "print('up', flush=True)"], tmp_path / "log")
    starts = []
    for line in range(12):
        side.tell(str(line))
        if side._process is not None:
            starts.append(line)
            side._process.wait(SECONDS)
    assert starts == [0, 1, 3, 7]
    side.close()


def test_a_program_that_dies_before_it_says_anything_has_not_run_long(tmp_path):
    """As one whose work takes more than it may: it is told much while it works."""
    silent = "import sys\nfor line in sys.stdin:\n    if 'end' in line: sys.exit(1)"
    side, starts = SideProgram("silent", [sys.executable, "-c", silent], tmp_path / "log"), []
    for line in range(12):
        before = side._process
        side.tell(str(line))
        if side._process is None or side._process is before:
            continue
        starts.append(line)
        for _ in range(20):
            side.tell("on")
        side.tell("end")
        side._process.wait(SECONDS)
    assert starts == [0, 1, 3, 7]
    side.close()


def test_a_program_that_is_not_gone_at_once_when_it_was_killed_is_waited_for_beside_the_loop(tmp_path, monkeypatch):
    """It hangs in a system call, or no core has time for it: whoever closes it does not wait, and somebody reaps it."""
    monkeypatch.setattr(side_program, "_PATIENCE", 0.01)
    monkeypatch.setattr(side_program, "_REAPED", 0.0)
    side = SideProgram("deaf", [sys.executable, "-c", "import signal; signal.pause()"], tmp_path / "log")
    side.tell("1")
    process = side._process
    monkeypatch.setattr(process, "kill", lambda: None)  # not yet
    side.close()
    (reaper,) = [each for each in threading.enumerate() if each.name == "reaps deaf"]
    os.kill(process.pid, signal.SIGKILL)
    reaper.join(SECONDS)
    assert process.returncode == -signal.SIGKILL


def test_a_program_that_cannot_be_started(tmp_path):
    side = SideProgram("none", [str(tmp_path / "none")], tmp_path / "log")
    side.tell("one")
    assert side.trouble.startswith("it cannot be started: ")
    side.close()


def test_a_program_for_which_no_thread_can_be_started(tmp_path, monkeypatch):
    def fail(thread):
        raise RuntimeError("can't start new thread")

    side = SideProgram("echo", [sys.executable, "-c", ECHO], tmp_path / "log")
    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", fail)
        side.tell("one")
    assert side.trouble == "it cannot be started: no thread can be started"
    heard = listen(side)
    side.tell("two")
    heard.wait()
    assert side.heard() == ["TWO"]
    side.close()


class FrozenAt:
    """A program that answers, and is stopped then."""

    def __init__(self, folder):
        self.time = 0.0
        self.side = SideProgram("echo", [sys.executable, "-c", ECHO], folder / "log", now=lambda: self.time)
        self.heard = listen(self.side)
        self.side.tell("one")
        self.heard.wait()
        self.process = self.side._process
        os.kill(self.process.pid, signal.SIGSTOP)
        os.waitid(os.P_PID, self.process.pid, os.WSTOPPED | os.WNOWAIT)

    def tell(self, at):
        self.time = at
        self.side.tell(f"at {at}")


@pytest.fixture
def frozen(tmp_path):
    made = FrozenAt(tmp_path)
    yield made
    os.kill(made.process.pid, signal.SIGCONT) if made.process.poll() is None else None
    made.side.close()


def test_a_frozen_program_is_ended_after_a_while_said_once_and_started_again(frozen, caplog):
    for at in (1.0, 2.0, FROZEN_SECONDS):
        frozen.tell(at)
        assert frozen.process.poll() is None
    frozen.tell(1.0 + FROZEN_SECONDS)
    assert frozen.process.poll() == -signal.SIGKILL
    assert frozen.side._process is not frozen.process
    frozen.heard.wait()
    assert frozen.side.heard()[-1] == f"AT {1.0 + FROZEN_SECONDS}"
    assert "it did nothing for 12" in frozen.side.trouble
    frozen.tell(3.0 + FROZEN_SECONDS)
    assert sum("it did nothing" in record.message for record in caplog.records) == 1


def test_one_that_does_not_even_die_is_not_waited_for(frozen, monkeypatch):
    """As in a system call on a disk that hangs: the kernel kills it when that returns."""
    for patience in ("_REAPED", "_PATIENCE"):
        monkeypatch.setattr(side_program, patience, 0.0)
    monkeypatch.setattr(frozen.process, "kill", lambda: None)
    for at in (1.0, 2.0 + FROZEN_SECONDS, 3.0 + FROZEN_SECONDS):
        frozen.tell(at)
    assert frozen.process.poll() is None
    assert frozen.side._process is frozen.process, "nothing is started beside it"
    assert "it did nothing for 12" in frozen.side.trouble
    monkeypatch.undo()
    frozen.process.kill()
    frozen.process.wait(SECONDS)
    frozen.tell(4.0 + FROZEN_SECONDS)
    frozen.heard.wait()
    assert frozen.side.heard()[-1] == f"AT {4.0 + FROZEN_SECONDS}"


def test_one_that_waits_for_a_core_is_not_frozen(frozen, monkeypatch):
    """As the learner where others have all of them."""
    monkeypatch.setattr(side_program, "_seen", lambda pid: ("R", 5))
    for at in (1.0, 2.0 + FROZEN_SECONDS):
        frozen.tell(at)
    assert frozen.process.poll() is None
    assert frozen.side.trouble == ""


def test_what_always_goes_wrong_is_said_each_time_and_logged_once(monkeypatch, capsys, caplog):
    errors = iter([ValueError("one"), ValueError("one"), None, ValueError("one"), KeyError("two")])

    def answer(seconds):
        if (error := next(errors)) is not None:
            raise error

    monkeypatch.setattr(side_program, "told", lambda: iter("12345"))
    side_program.answer_slots(answer, lambda: math.nan, 1.0, 0.5)
    said = [json.loads(line)["error"] for line in capsys.readouterr().out.splitlines()]
    assert said == ["ValueError: one"] * 3 + ["KeyError: 'two'"]
    assert [record.message for record in caplog.records] == ["slot 1", "slot 4", "slot 5"]


def test_closing_has_an_end(frozen, monkeypatch):
    for patience in ("_REAPED", "_PATIENCE"):
        monkeypatch.setattr(side_program, patience, 0.0)
    monkeypatch.setattr(frozen.process, "kill", lambda: None)
    frozen.side.close()
    assert frozen.process.poll() is None
    monkeypatch.undo()
    frozen.process.kill()
    frozen.process.wait(SECONDS)


def test_what_is_not_understood_is_left_out(tmp_path, caplog):
    side = SideProgram("garbage", [], tmp_path / "log")
    side._heard.extend(['{"slot": 1}', " ** On entry to DLASCL", "[1]", "", "[" * 100_000, '{"slot": 2}'])
    assert list(side.said()) == [{"slot": 1}, {"slot": 2}]
    assert sum("is not understood" in record.message for record in caplog.records) == 4
    assert max(len(record.message) for record in caplog.records) < 200


def test_a_program_that_has_nothing_to_read_is_not_frozen(tmp_path):
    """As one whose slots are long: it waits, and takes no time."""
    time = [0.0]
    side = SideProgram("echo", [sys.executable, "-c", ECHO], tmp_path / "log", now=lambda: time[0])
    heard = listen(side)
    for line in range(3):
        time[0] += 2 * FROZEN_SECONDS
        side.tell(str(line))
        heard.wait()
        process = side._process
        assert process is not None
        assert process.poll() is None
    assert side.heard() == ["0", "1", "2"]
    side.close()
    assert side.trouble == ""


def test_a_program_that_goes_on_is_not_frozen_by_the_clock_alone(frozen):
    frozen.tell(1.0)
    os.kill(frozen.process.pid, signal.SIGCONT)
    frozen.heard.wait()
    frozen.tell(1.0 + 2 * FROZEN_SECONDS)
    assert frozen.process.poll() is None


def test_a_program_dies_with_the_loop_though_it_never_comes_to_look_whether_it_is_told_anything():
    """As one that has only idle cores, on a machine that has none."""
    program = (
        "import os, signal; from dl2_scheduler.live.side_program import be_nice; be_nice(); "
        "print(os.getpid(), flush=True); signal.pause()"
    )
    loop = [sys.executable, "-c", f"import subprocess, sys; subprocess.call([sys.executable, '-c', {program!r}])"]
    with subprocess.Popen(loop, stdout=subprocess.PIPE) as started:
        beside = int(started.stdout.readline())
        started.kill()
        try:
            assert started.communicate(timeout=SECONDS)[0] == b"", "both have closed it"
        except subprocess.TimeoutExpired:
            os.kill(beside, signal.SIGKILL)
            raise


@pytest.mark.skipif(not Path("/proc/self/autogroup").exists(), reason="this kernel does not weigh sessions")
@pytest.mark.parametrize("only_idle_cores", [False, True])
def test_a_whole_session_is_nice_as_others_do_not_see_the_niceness_within(only_idle_cores):
    """It is never dearer than who starts it, which may be nice itself."""
    own = session_niceness(Path("/proc/self/autogroup"))
    code = (
        "from dl2_scheduler.live.side_program import be_nice, session_niceness; from pathlib import Path; "
        f"be_nice({only_idle_cores}); print(session_niceness(Path('/proc/self/autogroup')))"
    )
    found = subprocess.run(
        [sys.executable, "-c", code], start_new_session=True, capture_output=True, text=True, timeout=SECONDS
    )
    assert int(found.stdout) == (19 if only_idle_cores else min(own + 10, 19))
