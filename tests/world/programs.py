"""What the processes of the world run: production's programs, and a training script whose result tells every sample."""

from collections.abc import Callable, Sequence

import numpy as np

import coordinator.__main__
import elastic_ps.server.__main__
from elastic_ps.core.optimizer import Hyper, OptimizerSpec
from elastic_ps.data.sampler import Sampler, epochs
from elastic_ps.launch.job_agent import JobAgent
from elastic_ps.node.settings import NodeSettings
from elastic_ps.transport.frames import Frame
from elastic_ps.worker.script.api import KeyStore
from elastic_ps.worker.script.numpy_array import NumpyArray
from elastic_ps.worker.script.worker_job import WorkerJob
from tests.world import gradients, serverless
from tests.world.faults.draw import JobDraw
from tests.world.kernel import threads
from tests.world.kernel.scheduler import Process

Named = dict[str, NumpyArray]
"""Where the values of tensors go, by key."""

_SENT_EARLY, _DROPPED = 0.8, 0.05  # parts of the gradients that may be, and of those


def run_coordinator(process: Process) -> int:
    """Run `python -m coordinator`."""
    return coordinator.__main__.main(process.arguments)


def run_server(process: Process) -> int:
    """Run `python -m elastic_ps.server`."""
    return elastic_ps.server.__main__.main()


def run_launcher(process: Process, agent: JobAgent) -> int:
    """Run `elasticrun`."""
    return agent.run().status


def run_worker(process: Process, draw: JobDraw, watch: "Watch", pace: Callable[[], tuple[float, float]]) -> int:
    """Run a training script, and what Python does at its end."""
    settings = NodeSettings.from_environment(process.environment)
    process.make_job = lambda: serverless.make_job(settings) if draw.serverless else WorkerJob(settings)  # type: ignore[attr-defined]
    try:
        (serverless.train if draw.serverless else train)(process, draw, watch, pace)
        status = 0
    except SystemExit as error:
        status = error.code if isinstance(error.code, int) else 1
    except Exception as error:  # noqa: BLE001  # as the interpreter does
        watch.crashed(process, error)
        status = 1
    process.failed = status != 0
    for act in process.leaving:
        try:
            act()
        except SystemExit as error:
            status = error.code if isinstance(error.code, int) else 1
    return status


class Watch:
    """A `Watch` sees what scripts see. See `oracle.Oracle`."""

    scripts_ended = 0

    def stepped(self, process: Process, job: WorkerJob, arrays: list[np.ndarray]) -> None:
        """Take note that a worker begins a step with these parameters."""

    def started(self, process: Process) -> None:
        """Take note that a worker's script begins."""

    def finished(self, process: Process, arrays: list[np.ndarray]) -> None:
        """Take note that a worker's script has ended with these parameters."""

    def crashed(self, process: Process, error: Exception) -> None:
        """Take note that a script has raised."""

    def sent(self, process: Process, frame: Frame, payload: Sequence[memoryview]) -> None:
        """Take note of a frame on the data plane."""

    def overwritten(self, process: Process, sender: Process, frame: Frame) -> None:
        """Take note that a process uses a payload in shared memory that is not what was sent."""


def train(process: Process, draw: JobDraw, watch: Watch, pace: Callable[[], tuple[float, float]]) -> None:
    """Train: each tensor has an entry for each sample, whose gradient is one there; rate -1 counts the samples."""
    watch.started(process)
    arrays = [np.zeros(draw.samples, np.float32) for _ in range(draw.tensors)]
    targets = [NumpyArray(array) for array in arrays]
    size = {"global_batch" if draw.mode == "sync" else "batch": draw.batch}
    sampler = Sampler(draw.samples, **size, consistency=draw.mode, staleness=draw.staleness)
    stores: list[tuple[KeyStore, Named]] = []
    for _ in epochs(draw.epochs):
        for step, indices, _ in sampler:
            if not stores:
                stores = [(_opened(process, draw, named), named) for named in _divided(draw, targets)]
            elif process.job.rehearsed and (draw.mode != "sync" or process.job.node.version % len(stores) == 0):
                watch.stepped(process, process.job, arrays)
            for store, named in stores:
                least, most = pace()
                seconds = (least + (most - least) * threads.here.scheduler.random.random()) / len(stores)
                overflows = draw.has_overflow(step)
                made = [[gradients.gradient(draw.gradients, draw.samples, indices, overflows)] for _ in named]
                _compute(process, draw, store, list(named), made, seconds)
                store.pushpull(list(named), made, [[target] for target in named.values()])
            if draw.mode == "sync" and step % 2 == 0:
                meet(process, draw)
        meet(process, draw)
    watch.finished(process, arrays)


def _divided(draw: JobDraw, targets: Sequence[NumpyArray]) -> list[Named]:
    """Return the tensors of each key store."""
    named = {f"i:{number}": target for number, target in enumerate(targets)}
    first = list(named)[: len(named) // draw.stores]
    parts = [first, [key for key in named if key not in first]]
    return [{key: named[key] for key in part} for part in parts if part]


def _opened(process: Process, draw: JobDraw, named: Named) -> KeyStore:
    """Open a key store, and tell it of its tensors."""
    store: KeyStore = process.job.open_store()  # type: ignore[attr-defined]
    if (compression := gradients.compression(draw.gradients)) is not None:
        store.set_compression(compression)
    store.set_optimizer(OptimizerSpec("sgd"), lambda updates: Hyper(lr=-1.0, skip_overflow=draw.norm))
    store.broadcast(list(named), list(named.values()), [[target] for target in named.values()])
    return store


def _compute(
    process: Process, draw: JobDraw, store: KeyStore, keys: list[str], made: list[list[NumpyArray]], seconds: float
) -> None:
    """Take some time for gradients; some may be sent while others are made, and now and then the batch is left."""
    sends = draw.early and process.job.rehearsed and len(keys) > 1  # type: ignore[attr-defined]
    random = threads.here.scheduler.random
    for number in reversed(range(1, len(keys)) if sends else ()):
        threads.time.sleep(seconds / len(keys))
        if random.random() < _SENT_EARLY:
            store.push_early(keys, [keys[number]], [made[number]])
            if random.random() < _DROPPED:
                store.drop_early()
    threads.time.sleep(seconds / len(keys) if sends else seconds)


def meet(process: Process, draw: JobDraw) -> None:
    """Wait for the others in a barrier, where the job's script has some; a rehearsal has none."""
    if draw.meets and process.job.rehearsed:
        process.job.barrier()
