"""A learner's program that dreams of a cluster beside what is measured."""

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path

from dl2_scheduler.cluster.free_resources import NodeRule
from dl2_scheduler.cluster.interfaces import JobOutcome, SlotOutcome
from dl2_scheduler.cluster.snapshot import Allocation, Grant, Snapshot, SpeedReport
from dl2_scheduler.cluster.speeds import Speeds
from dl2_scheduler.learning.networks import SharedPolicy
from dl2_scheduler.learning.run_folder import RunFolder
from dl2_scheduler.live.history import HISTORY_FILE, History
from elastic_ps.system.process.proc_stat import stat_fields

_BEGUN = 1.0  # seconds of computing after which it is in its first dream
_PATIENCE, _POLL, _TICKS = 900.0, 0.02, 100.0


@contextmanager
def dreaming(folder: Path, snapshot: Snapshot, speeds: Speeds) -> Iterator[Callable[[], float]]:
    """Let the learner's program dream of a cluster meanwhile, as `dl2 serve --learn --learn-cores 1` does.

    Args:
        folder: empty, for the cluster and the run.
        snapshot: of the cluster.
        speeds: that the jobs report.

    Yields:
        What tells the seconds that the program has computed so far.

    Raises:
        RuntimeError: it has not begun to dream.
    """
    run = RunFolder(folder / "run")
    run.begin({"seed": 0, "network": "shared"})
    policy = SharedPolicy(speeds.models)
    run.save(policy.weights(), {"policy": policy.state_dict(), "models": policy.models, "updates": 0})
    with closing(History(folder / HISTORY_FILE)) as history:
        _live_a_slot(history, snapshot, speeds)
    command = [sys.executable, "-m", "dl2_scheduler.learning.live.program", str(run.path), str(folder)]
    command += [str(int(NodeRule.SPREAD)), "1"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True) as program:
        assert program.stdin is not None
        try:
            program.stdin.write(f"{snapshot.slot}\n".encode())
            program.stdin.flush()
            _wait(lambda: (run.path / "before-live").exists(), program)
            before = _computed(program.pid)
            _wait(lambda: _computed(program.pid) > before + _BEGUN, program)
            yield lambda: _computed(program.pid)
        finally:
            program.kill()


def _live_a_slot(history: History, snapshot: Snapshot, speeds: Speeds) -> None:
    """Write a slot down before which a job of each type has told its speed with one worker and one server."""
    models = {state.job.model: state.job.id for state in snapshot.jobs}
    reports = [SpeedReport(job, model, 1, 1, speeds.of(model, 1, 1)) for model, job in models.items()]
    grants = {state.job.id: Grant(1, 1) for state in snapshot.jobs}
    history.decided(0.0, "drf", replace(snapshot, reports=tuple(reports)), Allocation(grants))
    done = [JobOutcome(state.job.id, 1, 1, 0.0, None) for state in snapshot.jobs]
    history.happened(SlotOutcome(snapshot.slot, done, ()))


def _wait(until: Callable[[], bool], program: "subprocess.Popen[bytes]") -> None:
    deadline = time.monotonic() + _PATIENCE
    while not until():
        if program.poll() is not None or time.monotonic() > deadline:
            raise RuntimeError(f"the learner does not dream within {_PATIENCE:g} s; its status is {program.poll()}")
        time.sleep(_POLL)


def _computed(pid: int) -> float:
    fields = stat_fields(pid)
    return (int(fields[11]) + int(fields[12])) / _TICKS
