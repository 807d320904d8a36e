"""Stand-ins for the simulator of Sia's authors and for its interpreter."""

import json
import sys
from typing import NamedTuple

from benchmarks.sia_simulator.runs import NEEDED_FILES


def artifact_in(folder):
    """Return a folder that has the simulator's file names and one empty workload."""
    for name in NEEDED_FILES:
        (folder / name).write_text("") if name.endswith(".py") else (folder / name / "philly").mkdir(parents=True)
    (folder / "workloads/philly/workload-1.csv").write_text("name,time,application,num_replicas,batch_size\n")
    return folder


def program(path, text):
    """Return an executable that stands for an interpreter."""
    path.write_text(f"#!{sys.executable}\n{text}\n")
    path.chmod(0o755)
    return path


RESULT = {
    "completion_seconds": {"net-0": 3600.0, "net-1": 7200.0},
    "restarts": {"net-0": 2, "net-1": 0},
    "makespan": 9000.0,
    "core_seconds": 3.0,
}
PLAYS = f"""
import json, sys
if "--out" in sys.argv:
    open(sys.argv[sys.argv.index("--out") + 1], "w").write({json.dumps(json.dumps(RESULT))})
"""


class Noise(NamedTuple):
    square: float
    variance: float


class Goodput:
    """A goodput function: its noise says how much of each further GPU is lost."""

    def __init__(self, single, noise):
        self.single, self._grad_params = single, Noise(*noise)


class Speedup:
    """A speedup function as the simulator has them."""

    def __init__(self, single, noise=(1.0, 1e9)):
        self._goodput_fn = Goodput(single, noise)

    def get_goodput(self, nodes, gpus):
        assert (nodes <= gpus).all()
        square, variance = self._goodput_fn._grad_params
        return self._goodput_fn.single * (variance + square) / (variance / gpus + square)
