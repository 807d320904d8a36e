"""A job that trains the network of `small_network`: it starts in a tenth of a second.

    regression.py FOLDER [--optimizer NAME]

Trains until the test writes FOLDER/finish, or `--epochs`; writes FOLDER/weights.npz.
"""

import argparse
import time
from contextlib import nullcontext
from functools import partial
from pathlib import Path

import numpy as np
from ending import last_epoch
from holding import hold
from small_network import BATCH, OPTIMIZERS, RATE, SAMPLES, data, gradients, parameters, schedule

import elastic_ps
from elastic_ps.worker.script import early_sends
from elastic_ps.worker.script.numpy_array import NumpyArray
from elastic_ps.worker.script.worker_job import current_job


def parsed():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--optimizer", default="sgd")
    parser.add_argument("--epochs", type=int)
    parser.add_argument("--consistency", default="sync")
    parser.add_argument("--staleness", type=int, default=0)
    parser.add_argument("--rate", type=float, default=RATE)
    parser.add_argument("--lag", type=float, default=0.0, help="seconds that a step takes longer for each rank")
    parser.add_argument("--pace", type=float, default=0.01, help="seconds of each step that stand for computation")
    parser.add_argument("--portion", type=int, help="bytes of gradients that are sent before others are ready")
    return parser.parse_args()


def main():
    arguments = parsed()
    if arguments.portion:
        early_sends.PORTION_BYTES = arguments.portion
    hold(arguments.folder / "hold-init")
    elastic_ps.init()
    inputs, targets = data()
    weights = parameters()
    arrays = {key: NumpyArray(value) for key, value in weights.items()}
    store = None
    beats = (arguments.folder / "beats").open("ab", buffering=0)  # its size: steps that all workers have made
    is_sync = arguments.consistency == "sync"
    size = {"global_batch" if is_sync else "batch": BATCH}
    sampler = elastic_ps.Sampler(SAMPLES, **size, consistency=arguments.consistency, staleness=arguments.staleness)
    for epoch in elastic_ps.epochs(1_000_000):
        loss = 0.0
        for step, indices, _ in sampler:
            found, error = gradients(weights, inputs[indices], targets[indices])
            loss += error
            if store is None:
                hold(arguments.folder / "hold")
                store = current_job().open_store()
                store.set_optimizer(OPTIMIZERS[arguments.optimizer], partial(schedule, arguments.rate))
                store.broadcast(list(arrays), list(arrays.values()), [[array] for array in arrays.values()])
            pushed = [[NumpyArray(gradient)] for gradient in found.values()]
            with store.combined(overlap=True) if arguments.portion else nullcontext():
                store.pushpull(list(found), pushed, [[arrays[key]] for key in found])
            beats.write(b".")
            time.sleep(arguments.pace + arguments.lag * elastic_ps.rank())
            elastic_ps.report(step, loss=error)
        if elastic_ps.is_chief():
            print(f"epoch {epoch} loss {loss:.6f}", flush=True)
        limit = arguments.epochs and arguments.epochs - 1
        if epoch == last_epoch(arguments.folder, epoch, limit, ahead=2 if is_sync else 10):
            break
    if elastic_ps.is_chief():
        np.savez(arguments.folder / "weights.npz", epochs=epoch + 1, **weights)


if __name__ == "__main__":
    main()
