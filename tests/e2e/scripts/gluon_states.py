"""Full batches of a float64 Gluon network: what an epoch does depends on the weights and the optimizer's state alone.

    gluon_states.py FOLDER [--load FOLDER] [--epochs N] [--pace SECONDS]

Trains until the test writes FOLDER/finish, or N epochs. Writes FOLDER/net.params, FOLDER/trainer.states, and to
FOLDER/updates the number of each update whose learning rate was asked for; begins with those of `--load`.
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

SAMPLES, INPUTS = 32, 6
UPDATES = None


class Noted(mx.lr_scheduler.LRScheduler):
    """Falls with every update, and writes down that it was asked."""

    def __call__(self, num_update):
        with UPDATES.open("a") as file:
            file.write(f"{num_update}\n")
        return self.base_lr * 0.999**num_update


def main():
    global UPDATES
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--load", type=Path)
    parser.add_argument("--epochs", type=int)
    parser.add_argument("--pace", type=float, default=0.03, help="seconds of each step that stand for computation")
    arguments = parser.parse_args()
    UPDATES = arguments.folder / "updates"
    random = np.random.default_rng(5)
    inputs = random.normal(size=(SAMPLES, INPUTS))
    targets = np.sin(inputs @ random.normal(size=(INPUTS, 2)))
    mx.random.seed(3)
    net = nn.HybridSequential()
    net.add(nn.Dense(9, activation="tanh", in_units=INPUTS, dtype="float64"), nn.Dense(2, in_units=9, dtype="float64"))
    net.initialize(mx.init.Xavier())
    if arguments.load:
        net.load_parameters(str(arguments.load / "net.params"))
    trainer = gluon.Trainer(net.collect_params(), "adam", {"lr_scheduler": Noted(base_lr=0.01)}, kvstore="dist_elastic")
    wanted = arguments.load
    loss_of = gluon.loss.L2Loss()
    sampler = elastic_ps.Sampler(SAMPLES, global_batch=SAMPLES)
    for epoch in elastic_ps.epochs(1_000_000):
        for _, indices, _ in sampler:
            with autograd.record():
                outputs = net(mx.nd.array(inputs[indices], dtype="float64"))
                loss = loss_of(outputs, mx.nd.array(targets[indices], dtype="float64"))
            loss.backward()
            time.sleep(arguments.pace)
            if wanted:
                trainer.load_states(str(wanted / "trainer.states"))
                wanted = None
            trainer.step(SAMPLES)
        if epoch == last_epoch(arguments.folder, epoch, arguments.epochs and arguments.epochs - 1):
            break
    if elastic_ps.is_chief():
        net.save_parameters(str(arguments.folder / "net.params"))
        trainer.save_states(str(arguments.folder / "trainer.states"))


if __name__ == "__main__":
    main()
