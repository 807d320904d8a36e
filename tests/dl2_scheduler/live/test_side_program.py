"""Programs beside the loop: told of the latest only, started again, ended with it."""

import os
import sys

from dl2_scheduler.live.side_program import SideProgram, told
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


def test_a_program_that_cannot_be_started(tmp_path):
    side = SideProgram("none", [str(tmp_path / "none")], tmp_path / "log")
    side.tell("one")
    assert side.trouble.startswith("it cannot be started: ")
    side.close()
