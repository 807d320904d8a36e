"""A float64 Gluon network without batch normalisation or dropout: what a batch is split into does not matter.

Trains until the test writes FOLDER/finish, or `--epochs`; writes FOLDER/weights.npz.
"""
# ruff: noqa: I001  # elastic_ps.mxnet makes mxnet importable

import argparse
import time
from pathlib import Path

import elastic_ps.mxnet

import mxnet as mx
import numpy as np
from ending import last_epoch
from mxnet import autograd, gluon
from mxnet.gluon import nn

from elastic_ps.worker.script import early_sends

SAMPLES, INPUTS, BATCH = 203, 12, 16
WORDS = 3000  # rows of the table, of which a step touches a few
ARGS = {"sgd": {"learning_rate": 0.05, "momentum": 0.9, "wd": 1e-4}, "adam": {"learning_rate": 0.01}}


def parsed():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--optimizer", default="sgd")
    parser.add_argument("--epochs", type=int)
    parser.add_argument("--table", action="store_true", help="inputs are words of an embedding with sparse gradients")
    parser.add_argument("--portion", type=int, help="bytes of gradients that are sent before others are ready")
    parser.add_argument("--pace", type=float, default=0.03, help="seconds of each step that stand for computation")
    return parser.parse_args()


def network(table):
    """One that takes the inputs, or their embeddings where they are words of a table."""
    net = nn.HybridSequential()
    if table:
        net.add(nn.Embedding(WORDS, 8, dtype="float64", sparse_grad=True), nn.Flatten())
    width = 8 * INPUTS if table else INPUTS
    net.add(nn.Dense(40, activation="tanh", in_units=width, dtype="float64"))
    net.add(nn.Dense(3, in_units=40, dtype="float64"))
    net.initialize(mx.init.Xavier())
    net.hybridize()
    return net


def main():
    arguments = parsed()
    if arguments.portion:
        early_sends.PORTION_BYTES = arguments.portion
    random = np.random.default_rng(5)
    inputs = random.normal(size=(SAMPLES, INPUTS))
    targets = np.sin(inputs @ random.normal(size=(INPUTS, 3)))
    mx.random.seed(3)
    net = network(arguments.table)
    if arguments.table:
        inputs = random.integers(0, WORDS, size=(SAMPLES, INPUTS)).astype(float)
    loss_of = gluon.loss.L2Loss()
    schedule = mx.lr_scheduler.FactorScheduler(step=50, factor=0.97, base_lr=ARGS[arguments.optimizer]["learning_rate"])
    trainer = gluon.Trainer(
        net.collect_params(),
        arguments.optimizer,
        {**ARGS[arguments.optimizer], "lr_scheduler": schedule},
        kvstore="dist_elastic",
    )
    sampler = elastic_ps.Sampler(SAMPLES, global_batch=BATCH)
    for epoch in elastic_ps.epochs(1_000_000):
        for step, indices, _ in sampler:
            with autograd.record():
                loss = loss_of(
                    net(mx.nd.array(inputs[indices], dtype="float64")), mx.nd.array(targets[indices], dtype="float64")
                )
            loss.backward()
            time.sleep(arguments.pace)
            trainer.step(BATCH)
            elastic_ps.report(step, loss=float(loss.sum().asscalar()))
        if epoch == last_epoch(arguments.folder, epoch, arguments.epochs and arguments.epochs - 1):
            break
    if elastic_ps.is_chief():
        weights = {name: parameter.data().asnumpy() for name, parameter in net.collect_params().items()}
        np.savez(arguments.folder / "weights.npz", epochs=epoch + 1, **weights)


if __name__ == "__main__":
    main()
