"""Children of a launcher and their output."""

import io
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from elastic_ps.launch.processes import output
from elastic_ps.launch.processes.child_process import ChildProcess
from elastic_ps.launch.processes.output import ROOM, MergedStream, NodeLog
from tests.elastic_ps.launch.launch_stage import PATIENCE


def run(command: list[str], log: NodeLog | None) -> int:
    statuses: queue.SimpleQueue[int] = queue.SimpleQueue()
    ChildProcess("child", command, os.environ, log, statuses.put)
    return statuses.get(timeout=PATIENCE)


def python(code: str) -> list[str]:
    return [sys.executable, "-I", "-S", "-c", code]


class Shown(io.StringIO):
    """What a reader of the merged stream has seen when all of it is written."""

    merged: MergedStream

    def getvalue(self) -> str:
        self.merged.flush(PATIENCE)
        return super().getvalue()


@pytest.fixture
def stream() -> Shown:
    stream = Shown()
    stream.merged = MergedStream(stream)
    return stream


@pytest.fixture
def log(tmp_path: Path, stream: Shown) -> NodeLog:
    return NodeLog(tmp_path, "worker-1", stream.merged)


def test_no_child_is_left_behind_that_there_is_no_thread_for(log: NodeLog, monkeypatch: pytest.MonkeyPatch) -> None:
    class NoThread(threading.Thread):
        def start(self) -> None:
            raise RuntimeError("can't start new thread")

    started: list[subprocess.Popen[bytes]] = []

    class Started(subprocess.Popen[bytes]):
        def __init__(self, *arguments: Any, **options: Any):
            started.append(self)
            super().__init__(*arguments, **options)

    monkeypatch.setattr(threading, "Thread", NoThread)
    monkeypatch.setattr(subprocess, "Popen", Started)
    with pytest.raises(OSError, match="can't start new thread"):
        ChildProcess("child", python("import time; time.sleep(60)"), os.environ, log, lambda _status: None)
    log.close()
    assert [child.returncode for child in started] == [-signal.SIGKILL]


def test_the_exit_comes_after_the_last_line(log: NodeLog, stream: Shown) -> None:
    code = "import sys; print('out', flush=True); print('err', file=sys.stderr); print('no newline', end='')"
    assert run(python(code), log) == 0
    assert log.path.read_text() == "out\nerr\nno newline"
    assert stream.getvalue() == "[worker-1] out\n[worker-1] err\n[worker-1] no newline\n"


def test_output_that_is_no_text_and_has_no_lines(log: NodeLog, stream: Shown) -> None:
    assert run(python("import sys; sys.stdout.buffer.write(b'\\xff' + b'x' * 200_000)"), log) == 0
    assert log.path.stat().st_size == 200_001
    assert stream.getvalue().startswith("[worker-1] \ufffdxx")
    assert max(map(len, stream.getvalue().splitlines())) < 100_000


def test_a_log_that_has_grown_for_long_begins_anew(
    tmp_path: Path, log: NodeLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A script that prints each step filled the disk of a job of weeks."""
    monkeypatch.setattr(output, "MOST_BYTES", 40)
    for number in range(7):
        log.line(b"this is step %d\n" % number)
    log.close()
    files = {path.name: path.read_text().split("\n")[:-1] for path in tmp_path.iterdir()}
    assert files == {
        "worker-1.log.1": ["this is step 4", "this is step 5"],
        "worker-1.log": ["this is step 6"],
    }


def test_a_log_that_cannot_be_put_aside_goes_on(tmp_path: Path, log: NodeLog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(output, "MOST_BYTES", 40)
    (tmp_path / "worker-1.log.1").mkdir()
    for number in range(7):
        log.line(b"this is step %d\n" % number)
    log.close()
    assert len((tmp_path / "worker-1.log").read_text().split("\n")) == 8


def test_a_log_knows_what_a_process_has_said_last(log: NodeLog) -> None:
    assert log.last == ""
    for line in (b"Traceback (most recent call last):\n", b"ValueError: no \x1b[1mfile\n", b"  \r\n"):
        log.line(line)
    assert log.last == "ValueError: no \\x1b[1mfile"
    log.line(b"50%\r100%" + b"x" * 900 + b"\n")
    assert log.last == "100%" + "x" * 296
    log.close()


def test_what_a_process_has_said_last_is_cut_before_it_is_looked_at(log: NodeLog) -> None:
    """To search a line that is padded with blanks takes the square of their number: 20 s of all threads."""
    began = time.process_time()
    log.line(b"padded" + b" " * 60_000 + b"|\n")
    assert time.process_time() - began < 2
    assert log.last.strip() == "padded"
    log.close()


def test_without_a_log_output_and_errors_are_passed_on_as_they_are(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    code = "import sys; sys.stdout.buffer.write(b'10%\\r20%\\xff'); sys.stderr.write('an error')"
    assert run(python(code), None) == 0
    assert capfdbinary.readouterr() == (b"10%\r20%\xff", b"an error")


def test_what_is_passed_on_is_seen_at_once_and_nobody_has_to_read_it() -> None:
    (reading, writing), (seen, shown) = os.pipe(), os.pipe()
    thread = threading.Thread(target=output.pass_on, args=(os.fdopen(reading, "rb"), shown))
    thread.start()
    with os.fdopen(writing, "wb", buffering=0) as child:
        child.write(b"a progress bar: 10%\r")
        assert os.read(seen, 100) == b"a progress bar: 10%\r"
        os.close(seen)
        for _ in range(100):  # more than a pipe holds
            child.write(b"x" * 10_000)
    thread.join(PATIENCE)
    os.close(shown)
    assert not thread.is_alive()


def test_a_command_that_does_not_exist(log: NodeLog, stream: Shown) -> None:
    assert run(["/no/such/program"], log) == 127
    assert stream.getvalue() == "[worker-1] cannot start /no/such/program: No such file or directory\n"


def test_signals_to_what_has_ended_reach_nobody(log: NodeLog) -> None:
    statuses: queue.SimpleQueue[int] = queue.SimpleQueue()
    process = ChildProcess("child", python(""), os.environ, log, statuses.put)
    assert statuses.get(timeout=PATIENCE) == 0
    process.terminate()
    process.kill()


def test_the_end_of_another_users_process_is_told(log: NodeLog, monkeypatch: pytest.MonkeyPatch) -> None:
    """`sudo` is one: the kernel lets nobody else signal it, nor its group once it is alone in that."""

    def refused(_pid: int, _number: int) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "kill", refused)
    monkeypatch.setattr(os, "killpg", refused)
    statuses: queue.SimpleQueue[int] = queue.SimpleQueue()
    child = ChildProcess("child", python("raise SystemExit(3)"), os.environ, log, statuses.put)
    child.terminate()
    child.kill()
    assert statuses.get(timeout=PATIENCE) == 3


class Told:
    """A sink that lets a test wait for a line."""

    def __init__(self) -> None:
        self.lines: queue.SimpleQueue[bytes] = queue.SimpleQueue()

    def line(self, line: bytes) -> None:
        self.lines.put(line)

    def close(self) -> None:
        pass


def test_a_script_may_name_its_process_as_it_likes() -> None:
    """Linux cuts names after 15 bytes, in the middle of a character too."""
    rename = "open('/proc/self/comm', 'wb').write('job 1: 训练模型'.encode()[:15])"
    statuses: queue.SimpleQueue[int] = queue.SimpleQueue()
    told = Told()
    code = f"import signal; {rename}; print('named', flush=True); signal.pause()"
    child = ChildProcess("child", python(code), os.environ, told, statuses.put)
    try:
        assert told.lines.get(timeout=PATIENCE) == b"named\n"
        assert not child.is_stopped
    finally:
        child.kill()
    assert statuses.get(timeout=PATIENCE) == 137


def test_a_log_without_its_name_still_says_that_it_lacks_lines(tmp_path: Path, stream: Shown) -> None:
    (tmp_path / "lost.log").symlink_to("/dev/full")
    log = NodeLog(tmp_path, "lost", stream.merged)
    (tmp_path / "w3.log").mkdir()
    log.rename("w3")
    for _ in range(2):
        log.line(b"said\n")
    log.close()
    assert stream.getvalue().count("cannot rename") == 1
    assert stream.getvalue().count(f"cannot write {tmp_path}/lost.log: No space left on device") == 1


def test_the_log_takes_the_nodes_name(log: NodeLog, stream: Shown, tmp_path: Path) -> None:
    log.line(b"before\n")
    log.rename("w3")
    log.line(b"after\r\n")
    log.close()
    assert [path.name for path in tmp_path.iterdir()] == ["w3.log"]
    assert log.path.read_bytes() == b"before\nafter\r\n"
    assert stream.getvalue() == "[worker-1] before\n[w3] after\n"


def test_a_progress_bar_is_shown_as_it_stands_in_the_end(log: NodeLog, stream: Shown) -> None:
    """Its returns would write over the label on a terminal."""
    log.line(b"  0%\r 50%\r100%\r\n")
    log.close()
    assert log.path.read_bytes() == b"  0%\r 50%\r100%\r\n"
    assert stream.getvalue() == "[worker-1] 100%\n"


def test_colour_is_for_terminals(stream: Shown) -> None:
    stream.merged = MergedStream(stream, colour=True)
    stream.merged.line("w0", "text")
    assert stream.getvalue().startswith("\x1b[")
    assert stream.getvalue().endswith("m[w0]\x1b[0m text\n")


def test_a_full_disk_stops_neither_the_process_nor_the_stream(stream: Shown, tmp_path: Path) -> None:
    (tmp_path / "w0.log").symlink_to("/dev/full")
    log = NodeLog(tmp_path, "w0", stream.merged)
    assert run(python("print('one'); print('two')"), log) == 0
    complaint, first, second = stream.getvalue().splitlines()
    assert (first, second) == ("[w0] one", "[w0] two")
    assert complaint == f"[w0] elasticrun: cannot write {tmp_path / 'w0.log'}: No space left on device"


def test_logs_that_somebody_has_removed_stop_neither_the_process_nor_the_stream(stream: Shown, tmp_path: Path) -> None:
    folder = tmp_path / "logs"
    folder.mkdir()
    before = NodeLog(folder, "worker-1", stream.merged)
    before.path.unlink()
    folder.rmdir()
    before.rename("w0")
    assert run(python("print('one')"), before) == 0
    assert run(python("print('two')"), NodeLog(folder, "worker-2", stream.merged)) == 0
    lines = stream.getvalue().splitlines()
    assert lines[:2] == [
        f"[w0] elasticrun: cannot rename {folder / 'worker-1.log'}: No such file or directory",
        "[w0] one",
    ]
    assert lines[2:] == [
        f"[worker-2] elasticrun: cannot make {folder / 'worker-2.log'}: No such file or directory",
        "[worker-2] two",
    ]


class _Closed(io.StringIO):
    def write(self, text: str) -> int:
        raise BrokenPipeError


def test_a_reader_that_has_gone_does_not_stop_the_logs(tmp_path: Path) -> None:
    merged = MergedStream(_Closed())
    log = NodeLog(tmp_path, "w0", merged)
    log.line(b"one\n")
    merged.flush(PATIENCE)
    log.line(b"two\n")
    log.close()
    assert log.path.read_text() == "one\ntwo\n"


def test_a_pipe_that_does_not_wait_has_every_line_all_the_same() -> None:
    """A parent that reads by events, as Node.js does, may have made it so."""
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    with os.fdopen(writing, "w") as pipe, os.fdopen(reading) as reader:
        merged = MergedStream(pipe)
        for number in range(2_000):  # the pipe takes 64 kB
            merged.line("w0", f"{number} {'x' * 90}")
        merged.flush(0.1)
        assert [int(reader.readline().split()[1]) for _ in range(2_000)] == list(range(2_000))


def test_output_that_nobody_reads_stops_no_process_and_is_whole_in_the_logs(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    with os.fdopen(writing, "w") as pipe, os.fdopen(reading) as reader:
        merged = MergedStream(pipe)
        code = "for n in range(40_000): print(n, 'x' * 90)"
        assert run(python(code), NodeLog(tmp_path, "w0", merged)) == 0  # the pipe takes 64 kB
        assert len((tmp_path / "w0.log").read_text().splitlines()) == 40_000
        merged.flush(0.0)  # it waits no longer than it is told
        shown = 0
        while "left out" not in (line := reader.readline()):
            assert line.startswith(f"[w0] {shown} xxx")
            shown += 1
        assert ROOM / 200 < shown < 40_000
        assert (
            line == f"[elasticrun] {40_000 - shown} lines are left out here, as nobody read them; the logs have all\n"
        )
        merged.line("w0", "read again")
        assert reader.readline() == "[w0] read again\n"
