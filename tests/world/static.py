"""The training script of a job with servers that draws its own batches: servers come and go, its workers do not."""

from collections.abc import Callable
from typing import Any

import numpy as np

from elastic_ps.core.optimizer import Hyper, OptimizerSpec
from elastic_ps.worker.script.numpy_array import NumpyArray
from tests.world.faults.job_draw import ASYNC, JobDraw
from tests.world.kernel import threads

Pace = Callable[[], tuple[float, float]]


def train(process: Any, draw: JobDraw, watch: Any, pace: Pace) -> None:
    """Train: each worker pushes one at the entry that has its first rank, so that its pushes are counted there.

    A script that is started again, as the job goes back to its checkpoint, begins with its first step.
    """
    watch.started(process)
    process.job = job = process.make_job()
    job.start()
    own, store = job.rank, job.open_store(ASYNC if draw.mode == ASYNC else None)
    store.set_optimizer(OptimizerSpec("sgd"), lambda _: Hyper(lr=-1.0))
    arrays = [np.zeros(draw.samples, np.float32) for _ in range(draw.tensors)]
    keys, outs = [f"i:{number}" for number in range(draw.tensors)], [[NumpyArray(array)] for array in arrays]
    store.broadcast(keys, [out for (out,) in outs], outs)
    gradient = np.zeros(draw.samples, np.float32)
    gradient[own] = 1.0
    for _ in range(draw.steps):
        least, most = pace()
        threads.time.sleep(least + (most - least) * threads.here.scheduler.random.random())
        before = [array.copy() for array in arrays]
        store.pushpull(keys, [[NumpyArray(gradient)] for _ in keys], outs)
        watch.counted(process, own, before, arrays)
    watch.finished(process, arrays)
