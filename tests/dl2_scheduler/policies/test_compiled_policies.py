"""Learnt policies of live clusters are compiled when they are made, not in the first slot that they decide."""

import subprocess
import sys
from pathlib import Path

import pytest

from dl2_scheduler.learning.networks import new_policy
from dl2_scheduler.policies.learnt.dl2 import save

DECIDES = """
import gc, sys
from numba.core.registry import CPUDispatcher
from dl2_scheduler.cluster.jobs import Job, Node
from dl2_scheduler.cluster.free_resources import FreeResources
from dl2_scheduler.cluster.snapshot import JobState, Snapshot
from dl2_scheduler.policies.registry import make_live_policy

def compiled():
    return {each.py_func.__qualname__: each.signatures for each in gc.get_objects() if isinstance(each, CPUDispatcher)}

policy = make_live_policy(f"dl2:{sys.argv[1]}")
before = compiled()
need = {"slots": 2.0, "gpu": 1.0}
states = tuple(JobState(Job(f"j{n}", 0.0, "ab"[n % 2], 9.0, 50.0, need, need), 1.5, n, n, n) for n in range(5))
now = Snapshot(7, 30.0, tuple(Node(f"n{n}", {"slots": 16.0, "gpu": 4.0}) for n in range(3)), states, ())
assert policy.allocate(now, FreeResources(now)).grants
assert any(before.values()) and compiled() == before, (before, compiled())
"""


@pytest.mark.slow
def test_nothing_is_compiled_in_its_first_slot(tmp_path: Path) -> None:
    save(new_policy(("a", "b"), 0).weights(), tmp_path / "policy.npz")
    done = subprocess.run([sys.executable, "-c", DECIDES, str(tmp_path)], stderr=subprocess.PIPE, text=True)
    assert done.returncode == 0, done.stderr
