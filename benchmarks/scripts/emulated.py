"""A training job whose accelerator and network are emulated: all else of it is real.

    python -m benchmarks.scripts.emulated KIND --epochs 40     # by elasticrun

The script sleeps for as long as a step's work would take, where a real one computes and waits for its network: so tasks
run beside each other on fewer cores than they are, and speeds depend on workers and servers as on machines of their
own. Processes, coordinator, servers, exchanges, data order, epochs, checkpoints and scalings are real; the parameters
that travel are few.
"""

import argparse
import time
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

import elastic_ps
from elastic_ps.core.optimizer import Hyper, OptimizerSpec
from elastic_ps.worker.script.numpy_array import NumpyArray
from elastic_ps.worker.script.worker_job import current_job

SAMPLES, GLOBAL_BATCH = 640, 32  # 20 steps an epoch
KEYS = [f"i:{number}" for number in range(16)]  # a server holds one at least, so there are as many as it takes
PARAMETERS = 256  # of each key


@dataclass(frozen=True)
class StepCost:
    """A step's cost says what a type of job takes for it, in seconds; there is one step at a time, nothing overlaps.

    Attributes:
        compute: of the whole global batch on one worker; workers divide it.
        transfer: of all parameters and gradients over one link; each worker has one, and each server, over which its
            part of them goes to and from every worker.
        update: of all parameters on one server; servers divide it.
    """

    compute: float
    transfer: float
    update: float

    def seconds(self, part: float, workers: int, servers: int) -> float:
        """Return the seconds of a step.

        Args:
            part: of the global batch, that the slowest worker has.
            workers: of the job.
            servers: of the job.
        """
        return self.compute * part + self.transfer * max(1.0, workers / servers) + self.update / servers

    def samples_per_second(self, workers: int, servers: int) -> float:
        """Return the speed of a job, without what real processes add."""
        return GLOBAL_BATCH / self.seconds(1 / workers, workers, servers)


KINDS: Mapping[str, StepCost] = {
    "computing": StepCost(compute=0.8, transfer=0.01, update=0.01),
    "updating": StepCost(compute=0.15, transfer=0.015, update=0.6),
    "mixed": StepCost(compute=0.35, transfer=0.05, update=0.15),
    "transferring": StepCost(compute=0.1, transfer=0.25, update=0.05),
}
"""By the type that policies know them as: more workers help the first, more servers the second, nothing the last."""


def main() -> None:
    """Train so many epochs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kind", choices=KINDS)
    parser.add_argument("--epochs", type=int, required=True)
    parser.add_argument("--pace", type=float, default=1.0, help="times as long as its kind's steps take (default 1)")
    arguments = parser.parse_args()
    kind = KINDS[arguments.kind]
    job = current_job()
    store = job.open_store()
    store.set_optimizer(OptimizerSpec("sgd"), lambda _: Hyper(rescale_grad=1 / GLOBAL_BATCH))
    weights = [NumpyArray(np.zeros(PARAMETERS, np.float32)) for _ in KEYS]
    gradients = [[NumpyArray(np.ones(PARAMETERS, np.float32))] for _ in KEYS]
    outs = [[weight] for weight in weights]
    begun = False
    for _ in elastic_ps.epochs(arguments.epochs):
        for _step, indices, _batch in elastic_ps.Sampler(SAMPLES, GLOBAL_BATCH):
            if not begun:
                store.broadcast(KEYS, weights, outs)
                begun = True
            table = job.node.configuration
            part = len(indices) / GLOBAL_BATCH
            seconds = kind.seconds(part, max(1, len(table.workers)), len(table.servers) or 1)
            time.sleep(arguments.pace * seconds)
            store.pushpull(KEYS, gradients, outs)


if __name__ == "__main__":
    main()
