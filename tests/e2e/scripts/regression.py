"""A float64 network without a framework: starts in a tenth of a second, and every sample counts in its result.

    regression.py FOLDER --optimizer NAME

Trains until the test writes FOLDER/finish, or `--epochs`; writes FOLDER/weights.npz.
"""

import argparse
import os
import time
from functools import partial
from pathlib import Path

import numpy as np
from ending import last_epoch

import elastic_ps
from elastic_ps.core.optimizer import Hyper, OptimizerSpec
from elastic_ps.worker.script.numpy_array import NumpyArray
from elastic_ps.worker.script.worker_job import current_job

SAMPLES, INPUTS, HIDDEN, BATCH = 203, 12, 40, 16
ARGS = {"sgd": {"momentum": 0.9}, "adam": {}}


def data():
    random = np.random.default_rng(5)
    inputs = random.normal(size=(SAMPLES, INPUTS))
    return inputs, np.sin(inputs @ random.normal(size=(INPUTS, 3)))


def parameters():
    random = np.random.default_rng(11)
    shapes = {"i:0": (INPUTS, HIDDEN), "i:1": (HIDDEN,), "i:2": (HIDDEN, 3), "i:3": (3,)}
    return {key: random.normal(size=shape) * 0.3 for key, shape in shapes.items()}


def gradients(weights, inputs, targets):
    """Of the squared error, summed over samples."""
    hidden = np.tanh(inputs @ weights["i:0"] + weights["i:1"])
    error = hidden @ weights["i:2"] + weights["i:3"] - targets
    back = (error @ weights["i:2"].T) * (1 - hidden**2)
    found = {"i:0": inputs.T @ back, "i:1": back.sum(0), "i:2": hidden.T @ error, "i:3": error.sum(0)}
    return found, float((error**2).sum() / 2)


def schedule(rate, updates):
    return Hyper(lr=rate * 0.999**updates, wd=1e-4, rescale_grad=1 / BATCH)


def hold(path):
    """Wait while a test has something to do before this worker goes on; FOLDER/NAME.PID says that it waits."""
    if path.exists():
        waits = path.with_name(f"{path.name}.{os.getpid()}")
        waits.touch()
        while path.exists():
            time.sleep(0.01)
        waits.unlink()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--optimizer", default="sgd")
    parser.add_argument("--epochs", type=int)
    parser.add_argument("--consistency", default="sync")
    parser.add_argument("--staleness", type=int, default=0)
    parser.add_argument("--rate", type=float, default=0.05)
    parser.add_argument("--lag", type=float, default=0.0, help="seconds that a step takes longer for each rank")
    parser.add_argument("--pace", type=float, default=0.002, help="seconds of each step that stand for computation")
    arguments = parser.parse_args()
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
                store.set_optimizer(
                    OptimizerSpec(arguments.optimizer, ARGS[arguments.optimizer]), partial(schedule, arguments.rate)
                )
                store.broadcast(list(arrays), list(arrays.values()), [[array] for array in arrays.values()])
            store.pushpull(
                list(found), [[NumpyArray(gradient)] for gradient in found.values()], [[arrays[key]] for key in found]
            )
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
