"""Real jobs whose tasks are moved between virtual nodes; a node is a core or some, and its tasks run on no other.

Each job is started once. Who measures opens and closes its gate, and moves its tasks by the kernel's affinities, which
end with their processes: nothing is left to be restored.
"""

import os
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from benchmarks.support.gates import GateCount, Gates
from coordinator.client import ClientError
from dl2_scheduler.backends.local.launchers.processes import Totals, pin, totals
from dl2_scheduler.backends.trial import Trial
from dl2_scheduler.cluster.errors import TrialFailed
from protos import elastic_pb2 as pb

_MODULE = "benchmarks.scripts.train_placed"
_BEGIN_SECONDS = 180.0
_POLL_SECONDS = 0.1


@dataclass(frozen=True)
class JobKind:
    """A `JobKind` says what a job trains, and with how many tasks.

    Attributes:
        model: of `benchmarks.scripts.train_placed.KINDS`.
        workers: how many.
        servers: how many.
    """

    model: str
    workers: int = 1
    servers: int = 1


@dataclass(frozen=True)
class ModelSize:
    """A `ModelSize` is what a model's jobs are like, wherever they run.

    Attributes:
        size_mb: of its parameters, in MB.
        batch: samples of a step.
    """

    size_mb: float
    batch: int


class PinnedJob:
    """A `PinnedJob` is a job that runs, with its gate closed until it is opened.

    Args:
        kind: of it.
        trial: runs it.
        gates: lets it go on.

    Attributes:
        tasks: processes of its workers, and of its servers, when it has begun.
    """

    def __init__(self, kind: JobKind, trial: Trial, gates: Gates):
        self.kind = kind
        self._trial = trial
        self._gates = gates
        self.tasks: tuple[tuple[int, ...], tuple[int, ...]] = ((), ())

    def begin(self) -> None:
        """Wait until it has made two steps, and find its tasks. Raises TrialFailed: it does not begin."""
        self._gates.open(True)
        self._trial.until(2, _BEGIN_SECONDS)
        self._gates.open(False)
        self.tasks = self._pids()
        if tuple(map(len, self.tasks)) != (self.kind.workers, self.kind.servers):
            raise TrialFailed(f"{self.kind} has other tasks: {self.tasks}")

    def open(self, is_open: bool) -> None:
        """Let it train, or wait."""
        self._gates.open(is_open)

    def pin(self, workers: Sequence[Sequence[int]], servers: Sequence[Sequence[int]]) -> None:
        """Move its tasks.

        Args:
            workers: the cores of each worker.
            servers: the cores of each server.
        """
        for pids, places in zip(self.tasks, (workers, servers), strict=True):
            for pid, cores in zip(pids, places, strict=True):
                pin(pid, frozenset(cores))

    def size(self) -> "ModelSize":
        """Return what its model is like."""
        made = self._gates.read()
        return ModelSize(self._trial.client.status().bytes / 1e6, made.samples // made.steps)

    def made(self) -> GateCount:
        """Return what it has done. Raises TrialFailed: it has ended."""
        if self._trial.process.poll() is not None:
            raise TrialFailed(f"{self.kind} has ended: see its log in {self._trial.folder}")
        return self._gates.read()

    def cpu_seconds(self, used: Mapping[int, Totals]) -> tuple[float, float]:
        """Return what its workers and its servers have used of processors."""
        worker, server = (sum(used[pid].cpu_seconds for pid in pids if pid in used) for pids in self.tasks)
        return worker, server

    def end(self) -> None:
        """Ask it to end: a worker that waits at its gate would not hear of it."""
        self._gates.open(True)
        self._trial.process.terminate()

    def _pids(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        with suppress(ClientError):
            nodes = sorted(self._trial.client.status().nodes, key=lambda node: int(node.member.id[1:]))
            of_role = ([node.pid for node in nodes if node.member.role == role] for role in (pb.WORKER, pb.SERVER))
            workers, servers = (tuple(pids) for pids in of_role)
            return workers, servers
        return (), ()


@contextmanager
def running(kinds: Sequence[JobKind], folder: Path) -> Iterator[list[PinnedJob]]:
    """Run jobs, one after the other until each has begun, and yield them with closed gates; they end with the block.

    Args:
        kinds: of the jobs.
        folder: of their state and logs.

    Raises:
        TrialFailed: one does not begin.
    """
    with ExitStack() as stack:
        jobs = []
        for number, kind in enumerate(kinds):
            name = f"{kind.model}-{kind.workers}w{kind.servers}s-{number}"
            gates = folder / f"{name}.gates"
            gates.parent.mkdir(parents=True, exist_ok=True)
            gates.unlink(missing_ok=True)
            job_gates = Gates(gates)
            module = (_MODULE, kind.model, "--gates", str(gates.resolve()))
            trial = stack.enter_context(Trial(folder, name, module, kind.workers, kind.servers))
            jobs.append(PinnedJob(kind, trial, job_gates))
            stack.callback(jobs[-1].end)
            jobs[-1].begin()
            print(f"{name} runs", file=sys.stderr, flush=True)
        yield jobs
        for job in jobs:  # all at once, and then one is waited for after the other
            job.end()


@dataclass(frozen=True)
class Used:
    """`Used` is what the machine's processors have done so far.

    Attributes:
        at: seconds of the monotonic clock.
        busy: seconds, of all processors together.
        groups: what each process group has used.
    """

    at: float
    busy: float
    groups: Mapping[int, Totals]


def used_now() -> Used:
    """Return what the processors have done."""
    fields = [int(field) for field in Path("/proc/stat").read_text().splitlines()[0].split()[1:]]
    user, nice, system, _idle, _wait, irq, soft, steal = fields[:8]
    busy = (user + nice + system + irq + soft + steal) / os.sysconf("SC_CLK_TCK")
    return Used(time.monotonic(), busy, totals())
