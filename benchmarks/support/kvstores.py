"""Jobs of `train_kvstore` and `train_network`, by MXNet's own parameter server and by ours: time of steps, memory."""

import argparse
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from dl2_scheduler.backends.trial import Trial
from dl2_scheduler.cluster.errors import TrialFailed

OWN, ASYNC, MXNET = "dist_elastic", "dist_elastic_async", "dist_sync"
WARM_UP = 3
"""First steps that are not counted: they touch the memory for the first time."""

_POLL_SECONDS = 0.1
ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")


@dataclass(frozen=True)
class Size:
    """The size of a job says how many workers and servers it has."""

    workers: int
    servers: int

    def __str__(self) -> str:
        return f"{self.workers}w{self.servers}s"


@dataclass(frozen=True)
class Measured:
    """This was measured in one run of one job.

    Attributes:
        seconds: of the counted steps of all workers.
        peak_bytes: of all its processes together; memory that they share counts once.
        value: tells whether two systems have trained the same.
    """

    seconds: list[float]
    peak_bytes: int
    value: float


def run_own(
    folder: Path,
    module: str,
    model: str,
    size: Size,
    steps: int,
    options: tuple[str, ...] = (),
    store: str = OWN,
    more: tuple[str, ...] = (),
) -> Measured:
    """Run a job of ours, whose workers run a module that trains a model.

    Args:
        folder: of the job.
        module: that workers run.
        model: for it.
        size: of the job.
        steps: that count.
        options: of the launcher.
        store: name of the kvstore, which says how consistent the job is.
        more: further arguments of the module.
    """
    results = _results(folder)
    script = [module, store, model, str(results), "--steps", str(WARM_UP + steps), *more]
    with Trial(folder, folder.name, script, size.workers, size.servers, options) as job:
        return _outcome(results, size, [job.process], alike=store != ASYNC)


def run_mxnet(folder: Path, module: str, model: str, size: Size, steps: int) -> Measured:
    """Run the same job with MXNet's own store: scheduler, servers and workers of ps-lite.

    Args:
        folder: of the job.
        module: that workers run.
        model: for it.
        size: of the job.
        steps: that count.
    """
    results = _results(folder)
    work = ["-m", module, MXNET, model, str(results), "--steps", str(WARM_UP + steps)]
    serve = ["-c", "import elastic_ps.mxnet"]  # MXNet's own import never returns in these roles
    roles = [("scheduler", serve), *[("server", serve)] * size.servers, *[("worker", work)] * size.workers]
    common = {
        **os.environ,
        **ONE_THREAD,
        "DMLC_PS_ROOT_URI": "127.0.0.1",
        "DMLC_PS_ROOT_PORT": str(free_port()),
        "DMLC_NUM_WORKER": str(size.workers),
        "DMLC_NUM_SERVER": str(size.servers),
    }
    with (folder / "mxnet.log").open("wb") as log, ExitStack() as stack:
        processes = [
            stack.enter_context(started(arguments, {**common, "DMLC_ROLE": role}, log.fileno()))
            for role, arguments in roles
        ]
        outcome = _outcome(results, size, processes)
        for process in processes:
            process.wait(60)
    return outcome


def run_ddp(folder: Path, module: str, model: str, workers: int, steps: int, more: tuple[str, ...] = ()) -> Measured:
    """Run a module by PyTorch's DistributedDataParallel with gloo, one process a worker.

    Args:
        folder: for results.
        module: that workers run.
        model: for it.
        workers: how many.
        steps: that count.
        more: further arguments of the module.
    """
    results = _results(folder)
    arguments = ["-m", module, "ddp", model, str(results), "--steps", str(WARM_UP + steps), *more]
    common = {**os.environ, **ONE_THREAD, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    with (folder / "ddp.log").open("wb") as log, ExitStack() as stack:
        processes = [
            stack.enter_context(
                started(arguments, {**common, "RANK": str(rank), "WORLD_SIZE": str(workers)}, log.fileno())
            )
            for rank in range(workers)
        ]
        return _outcome(results, Size(workers, 0), processes)


def _results(folder: Path) -> Path:
    results = folder / "results"
    results.mkdir(parents=True, exist_ok=True)
    for old in results.iterdir():
        old.unlink()
    return results


def free_port() -> int:
    """Return a port that nobody listens at now."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


@contextmanager
def started(arguments: list[str], environment: Mapping[str, str], log: int) -> Iterator[subprocess.Popen[bytes]]:
    """Run Python while the block lasts.

    Args:
        arguments: of Python.
        environment: of the process.
        log: descriptor of the file that takes its output.
    """
    process = subprocess.Popen([sys.executable, *arguments], env=environment, stdout=log, stderr=subprocess.STDOUT)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def worker_arguments(models: Iterable[str]) -> argparse.Namespace:
    """Return what a worker's script is told: store, model, folder, steps, compression."""
    parser = argparse.ArgumentParser()
    parser.add_argument("store")
    parser.add_argument("model", choices=list(models))
    parser.add_argument("folder", type=Path)
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--compression", type=json.loads, help="of gradients, as a dictionary in JSON")
    return parser.parse_args()


def write_result(folder: Path, rank: int, seconds: list[float], value: float) -> None:
    """Tell a worker's result; see `tell`.

    Args:
        folder: for results.
        rank: of the worker.
        seconds: of its steps.
        value: tells whether two systems have trained the same.
    """
    result = folder / f"{rank}.json"
    result.with_suffix(".part").write_text(json.dumps({"seconds": seconds, "value": value}))
    result.with_suffix(".part").rename(result)


def tell(folder: Path, rank: int, seconds: list[float], value: float) -> None:
    """Tell a worker's result; return when it may end: its memory has been looked at.

    Args:
        folder: for results.
        rank: of the worker.
        seconds: of its steps.
        value: tells whether two systems have trained the same.
    """
    write_result(folder, rank, seconds, value)
    while not (folder / "done").exists():
        time.sleep(_POLL_SECONDS)


def _outcome(
    results: Path, size: Size, processes: list[subprocess.Popen[bytes]], seconds: float = 600.0, alike: bool = True
) -> Measured:
    """Wait for the workers' results, look at their memory, and let them go; `alike`: they must hold equal values."""
    deadline = time.monotonic() + seconds
    files = [results / f"{rank}.json" for rank in range(size.workers)]
    while not all(file.exists() for file in files):
        if time.monotonic() > deadline or any(process.poll() is not None for process in processes):
            raise TrialFailed(f"no results of all workers in {results}: see the logs beside it")
        time.sleep(_POLL_SECONDS)
    peak = sum(_peak_bytes(pid) for process in processes for pid in _family(process.pid))
    (results / "done").touch()
    ranks = [json.loads(file.read_text()) for file in files]
    values = {rank["value"] for rank in ranks}
    if alike and len(values) != 1:
        raise TrialFailed(f"the workers hold different values: {values}")
    return Measured([step for rank in ranks for step in rank["seconds"][WARM_UP:]], peak, values.pop())


def _family(pid: int) -> Iterator[int]:
    """Yield a process and all its descendants."""
    yield pid
    for task in Path(f"/proc/{pid}/task").iterdir():
        for child in (task / "children").read_text().split():
            yield from _family(int(child))


def _peak_bytes(pid: int) -> int:
    """Return the most private memory that a process had, and its share of what it has in common with others now."""
    status = _kilobytes(Path(f"/proc/{pid}/status"))
    shared = _kilobytes(Path(f"/proc/{pid}/smaps_rollup"))
    return (status["VmHWM"] - status["RssShmem"] + shared["Pss_Shmem"]) * 1024


def _kilobytes(file: Path) -> dict[str, int]:
    fields = (line.split() for line in file.read_text().splitlines())
    return {field[0].rstrip(":"): int(field[1]) for field in fields if len(field) == 3 and field[2] == "kB"}
