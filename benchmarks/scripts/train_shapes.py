"""A worker that only exchanges: a model's shapes, constant gradients, SGD with momentum on the servers.

Without computation in between every step is exchange, the hardest case for a migration beside it.
"""

import argparse

import numpy as np

import elastic_ps
from benchmarks.support.models import MODELS
from elastic_ps.core.optimizer import Hyper, OptimizerSpec
from elastic_ps.worker.script.numpy_array import NumpyArray
from elastic_ps.worker.script.worker_job import current_job

BATCH = 64
STEPS = 100  # of an epoch


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("model", choices=MODELS)
    arguments = parser.parse_args()
    shapes = MODELS[arguments.model]()
    keys = [f"i:{number}" for number in range(len(shapes))]
    weights = [NumpyArray(np.zeros(shape, dtype=np.float32)) for shape in shapes]
    gradients = [NumpyArray(np.full(shape, 1e-3, dtype=np.float32)) for shape in shapes]
    elastic_ps.init()
    store = None
    sampler = elastic_ps.Sampler(BATCH * STEPS, global_batch=BATCH)
    for _ in elastic_ps.epochs(1_000_000):
        for _step, _indices, _batch in sampler:
            if store is None:
                store = current_job().open_store()
                store.set_optimizer(
                    OptimizerSpec("sgd", {"momentum": 0.9}), lambda _updates: Hyper(0.1, 1e-4, 1 / BATCH)
                )
                store.broadcast(keys, weights, [[weight] for weight in weights])
            store.pushpull(keys, [[gradient] for gradient in gradients], [[weight] for weight in weights])


if __name__ == "__main__":
    main()
