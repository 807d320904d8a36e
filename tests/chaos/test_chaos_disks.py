"""Disks that fail or lose power, and clocks that jump: what a program sees of them."""

import json
import subprocess
import sys

import pytest

from tests.chaos import network
from tests.chaos.preload import Preload
from tests.chaos.room import inside

ROOM = not network.refusal()
needs_room = pytest.mark.skipif(not ROOM, reason="needs namespaces of one's own, as `make chaos` does")

PROGRAM = """
import json, os, sqlite3, sys, threading, time
folder = sys.argv[1]
base = sqlite3.connect(f"{folder}/journal", isolation_level=None)
base.execute("PRAGMA journal_mode=WAL")
base.execute("CREATE TABLE steps (number)")
lines = open(f"{folder}/lines", "ab", buffering=0)

def tried(act):
    try:
        act()
    except (OSError, sqlite3.Error) as error:
        return str(error)
    return ""

lock = threading.Lock()
lock.acquire()
for _ in sys.stdin:
    began = time.monotonic()
    lock.acquire(timeout=0.05)
    waited = time.monotonic() - began
    failed = [
        tried(lambda: lines.write(b"x")),
        tried(lambda: os.fsync(lines.fileno())),
        tried(lambda: base.execute("INSERT INTO steps VALUES (1)")),
    ]
    print(json.dumps([time.time(), waited, failed]), flush=True)
"""

POWER = """
import os, sys
from pathlib import Path
from tests.chaos.disks import PoweredDisk
disk, images = Path(sys.argv[1]) / "disk", Path(sys.argv[1]) / "images"
disk.mkdir()
images.mkdir()
powered = PoweredDisk(disk, images)
lines = (disk / "lines").open("ab", buffering=0)
lines.write(b"synced ")
os.fsync(lines.fileno())
lines.write(b"not")
(disk / "never").write_text("synced")
powered.lose_power()
print((disk / "lines").read_text(), (disk / "never").exists())
try:
    lines.write(b"more")
except OSError as error:
    print(error.strerror)
powered.sync()
(disk / "later").write_text("synced")
powered.sync()
powered.lose_power()
print((disk / "later").read_text())
"""


class Program:
    """A program under a preload."""

    def __init__(self, process):
        self._process = process
        self.pid = process.pid

    def tried(self):
        """Its time of the day, how long it waited for 0.05 s, and what writing came to."""
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        return json.loads(self._process.stdout.readline())


@pytest.fixture
def disks(tmp_path):
    """A job's two folders."""
    found = tmp_path / "state", tmp_path / "storage"
    for folder in found:
        folder.mkdir()
    return found


@pytest.fixture
def preload(tmp_path, disks):
    return Preload(tmp_path, disks)


@pytest.fixture
def program(preload, disks):
    command = [*preload.wrap, sys.executable, "-c", PROGRAM, str(disks[0])]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        yield Program(process)
        process.stdin.close()


@needs_room
def test_writing_fails_below_the_folder_that_is_to_fail_until_it_works_again(preload, program, disks):
    state, storage = disks
    assert program.tried()[2] == ["", "", ""]
    preload.fail(storage)
    assert program.tried()[2] == ["", "", ""]
    assert preload.failed(storage) == 0
    preload.fail(state)
    wrong = "[Errno 5] Input/output error"
    assert program.tried()[2] == [wrong, wrong, "disk I/O error"]
    assert preload.failed(state) >= 3
    preload.fail(state, False)
    assert program.tried()[2] == ["", "", ""]


@needs_room
@pytest.mark.parametrize("hours", [-8, 7])
def test_a_clock_of_the_day_jumps_and_no_wait_with_it(preload, program, hours):
    before = program.tried()[0]
    preload.jump(program.pid, hours * 3600)
    now, waited, _ = program.tried()
    assert now - before == pytest.approx(hours * 3600, abs=600)
    assert 0.04 < waited < 60


@needs_room
def test_what_was_not_synced_is_lost_with_the_power(tmp_path):
    told = subprocess.run(
        inside([sys.executable, "-c", POWER, str(tmp_path)], network=True), capture_output=True, text=True, check=False
    )
    assert told.stdout.splitlines() == ["synced  False", "Input/output error", "synced"], told.stderr
