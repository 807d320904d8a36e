"""How a script's end is told from its failure."""

import os
import queue
import signal
import subprocess
import sys

import pytest

from elastic_ps.system.process.signals import SignalCount
from elastic_ps.worker.script import process_ending

SCRIPT = """
import atexit, sys
from elastic_ps.core.errors import JobEnded
from elastic_ps.worker.script.process_ending import ScriptEnding, exits
ending = ScriptEnding()
atexit.register(lambda: print("failed" if ending.failed else "finished"))
{end}
"""


@pytest.mark.parametrize(
    ("end", "told", "status"),
    [
        ("", "finished", 0),
        ("sys.exit()", "finished", 0),
        ("sys.exit(0)", "finished", 0),
        ("sys.exit(3)", "failed", 3),
        ("sys.exit('no data')", "failed", 1),
        ("raise ValueError('no data')", "failed", 1),
        ("try: sys.exit(3)\nexcept SystemExit: sys.exit(0)", "finished", 0),
        ("with exits(): raise JobEnded('the group has failed', 1)", "failed", 1),
        ("with exits(): raise JobEnded('drained', 0)", "finished", 0),
        ("import threading; t = threading.Thread(target=sys.exit, args=(3,)); t.start(); t.join()", "finished", 0),
    ],
)
@pytest.mark.timeout(30)
def test_a_script_that_ends_with_a_status_has_not_finished(end, told, status):
    ran = subprocess.run([sys.executable, "-c", SCRIPT.format(end=end)], capture_output=True, text=True, check=False)
    assert (ran.stdout.strip(), ran.returncode) == (told, status)


FORKED = """
import os, sys
from elastic_ps.worker.script.script_job import ScriptJob
class Job(ScriptJob):
    def leave(self, finished):
        print("leaves", finished, flush=True)
Job(None).leave_at_exit()
child = os.fork()
if not child:
    sys.exit(0)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""

TERMINATED = """
import os, signal
from elastic_ps.worker.script.process_ending import drain_on_sigterm
drain_on_sigterm(lambda: "", print)
child = os.fork()
if not child:
    os.kill(os.getpid(), signal.SIGTERM)
    os._exit(7)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


@pytest.mark.parametrize(("script", "told"), [(FORKED, "0\nleaves True\n"), (TERMINATED, "-15\n")])
@pytest.mark.timeout(30)
def test_a_fork_of_a_worker_is_none(script, told):
    """It does not leave the job when it ends, and SIGTERM ends it."""
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert ran.stdout == told, ran.stderr


def test_two_signals_at_once_drain_and_a_later_one_ends(monkeypatch):
    """A launcher passes its own on, and who ends all processes together signals both: the worker ended at once."""
    now, done = [7.0], queue.SimpleQueue()
    monkeypatch.setattr(process_ending, "SignalCount", lambda seconds: SignalCount(seconds, lambda: now[0]))
    before = signal.signal(signal.SIGTERM, signal.SIG_DFL)
    try:
        process_ending.drain_on_sigterm(lambda: done.put("asks to leave") or "", done.put)
        os.kill(os.getpid(), signal.SIGTERM)
        assert done.get(timeout=30) == "asks to leave"
        now[0] += 0.005
        os.kill(os.getpid(), signal.SIGTERM)
        now[0] += 1.5
        os.kill(os.getpid(), signal.SIGTERM)
        assert done.get(timeout=30) == "a second SIGTERM"
        assert done.empty()
    finally:
        signal.signal(signal.SIGTERM, before)
