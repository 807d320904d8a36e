"""A benchmark takes its jobs along, however it is ended: the processes of a real job, and one that left its parents."""

import os
import signal
import subprocess
import sys
import time
import uuid
from pathlib import Path

import pytest

from tests.paths import ROOT

MARK = "MARK_OF_A_TEST"
SECONDS = 30.0

PROGRAM = """
import signal, subprocess, sys
from pathlib import Path
from benchmarks.support.report import as_program
from dl2_scheduler.backends.trial import Trial

signal.signal(signal.SIGINT, signal.default_int_handler)  # what a shell starts in the background ignores it

def main():
    folder = Path(sys.argv[1])
    subprocess.run(["sh", "-c", "setsid sleep 1000 & exit 0"], check=True)  # nobody's child, in a session of its own
    with Trial(folder, "left", ["regression", str(folder)], 1, 1) as job:
        job.until(1)
        print("trains", flush=True)
        sys.stdin.read()
    return 0

as_program(main)
"""


def marked(mark: str) -> list[str]:
    """The command lines of all processes that have the mark of a test in their environment."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            if f"{MARK}={mark}".encode() in (path / "environ").read_bytes():
                found.append((path / "cmdline").read_bytes().replace(b"\0", b" ").decode())
        except OSError:
            continue  # it has ended
    return found


@pytest.mark.slow
@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL, signal.SIGINT])
def test_a_benchmark_that_is_ended_leaves_no_process_behind(tmp_path, how):
    mark = uuid.uuid4().hex
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={**os.environ, MARK: mark, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT / "tests/e2e/scripts")},
        cwd=ROOT,
    ) as benchmark:
        assert benchmark.stdout is not None
        assert benchmark.stdout.readline() == b"trains\n"
        running = marked(mark)
        for program in ("elastic_ps.launch", "coordinator", "elastic_ps.server", "regression", "sleep 1000"):
            assert any(program in line for line in running), (program, running)
        benchmark.send_signal(how)
        benchmark.wait(SECONDS)
    deadline = time.monotonic() + SECONDS
    while marked(mark) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not marked(mark)
