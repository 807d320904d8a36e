"""Jobs that differ in what they need: what `benchmarks.measure_interference` moves between nodes, and others place.

    train_placed.py KIND --gates FILE      # somebody else lets its steps begin, and counts them
    train_placed.py KIND --epochs 100

`digits`, `lstm` and `mlp` are the examples of those names; `table` and `wide`
are regressions in NumPy, on features that are gathered from a large table, and with far more parameters than work;
`device` is one whose work is an accelerator's, for which it waits without a processor.
"""

# ruff: noqa: I001  # elastic_ps.mxnet comes before mxnet
import argparse
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import numpy as np

import elastic_ps
from benchmarks.support.gates import Gates
from elastic_ps.core.optimizer import Hyper, OptimizerSpec
from elastic_ps.worker.script.numpy_array import NumpyArray
from elastic_ps.worker.script.worker_job import current_job

_ROWS, _WIDTH, _LOOK_UPS = 2_000_000, 32, 1000  # 256 MB of features; rows that a sample looks up
_WIDE = 1 << 22  # parameters of the wide regression, 16 MB
_DEVICE, _DEVICE_SECONDS = 1 << 20, 0.008  # parameters, 4 MB; of a step's work on the emulated accelerator
_SAMPLES = 2048

Steps = Iterator[int]
"""The samples of each step that the job has made."""

FOREVER = 1_000_000
"""Epochs of a job that somebody stops."""


def digits(epochs: int) -> Steps:
    """Train the convolutional network of `examples/digits.py`: computing, few parameters."""
    import digits as example

    return _gluon(example.network(), example.data()[0], example.GLOBAL_BATCH, epochs)


def lstm(epochs: int) -> Steps:
    """Train the language model of `examples/lstm.py`: long chains of small operations."""
    import lstm as example

    train, _, vocabulary = example.data()
    return _gluon(example.LanguageModel(vocabulary), train, example.GLOBAL_BATCH, epochs)


def mlp(epochs: int) -> Steps:
    """Train the perceptron of `examples/mlp.py`: 4.5 MB of parameters for little computing."""
    import mlp as example

    return _gluon(example.network(), example.data()[0], example.GLOBAL_BATCH, epochs)


def table(epochs: int) -> Steps:
    """Fit a regression on features gathered at random from a table that no cache holds: memory."""
    random = np.random.default_rng(1)
    features = random.standard_normal((_ROWS, _WIDTH), dtype=np.float32)
    wanted = random.integers(_ROWS, size=(_SAMPLES, _LOOK_UPS))

    def gradient(weights: NumpyArray, indices: list[int]) -> NumpyArray:
        found = features[wanted[indices]].mean(axis=1)
        return NumpyArray((found.T @ (found @ weights.values - 1.0)).astype(np.float32))

    return _numpy(_WIDTH, 32, gradient, epochs)


def wide(epochs: int) -> Steps:
    """Fit a regression with four million parameters to one sample a step: exchanging, and its servers' updates."""
    inputs = np.random.default_rng(1).standard_normal(_WIDE, dtype=np.float32) / _WIDE**0.5

    def gradient(weights: NumpyArray, indices: list[int]) -> NumpyArray:
        return NumpyArray(inputs * np.float32((inputs @ weights.values - 1.0) * len(indices)))

    return _numpy(_WIDE, 4, gradient, epochs)


def device(epochs: int) -> Steps:
    """Exchange what an accelerator computes: hardly any work for the worker's processor."""
    found = np.full(_DEVICE, 1e-3, np.float32)

    def gradient(_weights: NumpyArray, _indices: list[int]) -> NumpyArray:
        time.sleep(_DEVICE_SECONDS)
        return NumpyArray(found)

    return _numpy(_DEVICE, 16, gradient, epochs)


KINDS: Mapping[str, Callable[[int], Steps]] = {each.__name__: each for each in (device, digits, lstm, mlp, table, wide)}


def _gluon(net: object, train: object, batch: int, epochs: int) -> Steps:
    """Train as the examples do, and yield after each step.

    Args:
        net: a network of Gluon.
        train: its training set.
        batch: samples of a step.
        epochs: how many.
    """
    import elastic_ps.mxnet

    import mxnet as mx
    from mxnet import autograd, gluon

    net.initialize(mx.init.Xavier())  # type: ignore[attr-defined]  # mxnet has no types
    loss_of = gluon.loss.SoftmaxCrossEntropyLoss()
    loader = elastic_ps.mxnet.ElasticDataLoader(train, batch)
    settings = {"learning_rate": 0.01, "momentum": 0.9}
    trainer = gluon.Trainer(net.collect_params(), "sgd", settings, kvstore="dist_elastic")  # type: ignore[attr-defined]
    for _ in elastic_ps.epochs(epochs):
        for _step, _indices, (inputs, labels) in loader:
            with autograd.record():
                loss = loss_of(net(inputs), labels)  # type: ignore[operator]
            loss.backward()
            trainer.step(batch)
            mx.nd.waitall()
            yield batch


def _numpy(parameters: int, batch: int, gradient: Callable[[NumpyArray, list[int]], NumpyArray], epochs: int) -> Steps:
    """Train a regression by SGD, and yield after each step.

    Args:
        parameters: how many.
        batch: samples of a step.
        gradient: of the parameters and the samples of this worker.
        epochs: how many.
    """
    elastic_ps.init()
    keys, weights, store = ["i:0"], [NumpyArray(np.zeros(parameters, np.float32))], None
    sampler = elastic_ps.Sampler(_SAMPLES, global_batch=batch)
    for _ in elastic_ps.epochs(epochs):
        for _step, indices, _batch in sampler:
            if store is None:
                store = current_job().open_store()
                store.set_optimizer(OptimizerSpec("sgd", {"momentum": 0.9}), lambda _: Hyper(0.01, 0.0, 1 / batch))
                store.broadcast(keys, weights, [weights])
            store.pushpull(keys, [[gradient(weights[0], list(indices))]], [weights])
            yield batch


def main() -> None:
    """Train, for as long as the job is not stopped where its steps are counted."""
    sys.path.append(str(Path(__file__).parents[2] / "examples"))
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kind", choices=KINDS)
    parser.add_argument("--gates", type=Path, help="file of `benchmarks.support.gates`")
    parser.add_argument("--epochs", type=int, default=FOREVER)
    arguments = parser.parse_args()
    gates = Gates(arguments.gates) if arguments.gates else None
    for samples in KINDS[arguments.kind](arguments.epochs):
        if gates is not None:
            if elastic_ps.is_chief():
                gates.made(samples, time.monotonic_ns())
            gates.wait_until_open()


if __name__ == "__main__":
    main()
