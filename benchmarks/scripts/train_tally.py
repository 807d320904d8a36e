"""A worker whose parameters count samples: in the end each entry is the number of epochs, or an update is amiss.

    train_tally.py FOLDER --consistency async

Each tensor has an entry for each sample, whose gradient is one there; plain SGD by rate -1 adds it. So the parameters
are proof of what was trained in jobs of which no two runs are alike, and share no code with the ledger. It trains until
FOLDER/finish is there, and writes FOLDER/weights.npz.
"""

import argparse
import time
from pathlib import Path

import numpy as np

import elastic_ps
from elastic_ps.core.optimizer import Hyper, OptimizerSpec
from elastic_ps.worker.script.numpy_array import NumpyArray
from elastic_ps.worker.script.worker_job import current_job
from tests.e2e.scripts.ending import last_epoch

SAMPLES, BATCH, TENSORS = 208, 16, 6
_AHEAD = 10  # epochs by which the chief names the last one: more than workers draw apart


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--consistency", default="sync")
    parser.add_argument("--staleness", type=int, default=0)
    parser.add_argument("--pace", type=float, default=0.01, help="seconds of each step that stand for computation")
    arguments = parser.parse_args()
    elastic_ps.init()
    keys = [f"i:{number}" for number in range(TENSORS)]
    tallies = [NumpyArray(np.zeros(SAMPLES)) for _ in keys]
    size = {"global_batch" if arguments.consistency == "sync" else "batch": BATCH}
    sampler = elastic_ps.Sampler(SAMPLES, **size, consistency=arguments.consistency, staleness=arguments.staleness)
    store = None
    for epoch in elastic_ps.epochs(1_000_000):
        for _, indices, _ in sampler:
            if store is None:
                store = current_job().open_store()
                store.set_optimizer(OptimizerSpec("sgd"), lambda _updates: Hyper(lr=-1.0))
                store.broadcast(keys, tallies, [[tally] for tally in tallies])
            gradient = np.zeros(SAMPLES)
            gradient[indices] = 1.0
            time.sleep(arguments.pace)
            store.pushpull(keys, [[NumpyArray(gradient)] for _ in keys], [[tally] for tally in tallies])
        if epoch == last_epoch(arguments.folder, epoch, None, ahead=_AHEAD):
            break
    if elastic_ps.is_chief():
        values = {key: tally.values for key, tally in zip(keys, tallies, strict=True)}
        np.savez(arguments.folder / "weights.npz", epochs=epoch + 1, **values)


if __name__ == "__main__":
    main()
