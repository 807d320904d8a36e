"""How a script's end is told from its failure."""

import subprocess
import sys

import pytest

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
