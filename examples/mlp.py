"""Train a perceptron with wide layers on handwritten digits as an elastic job: its parameters are what takes time.

    elasticrun --workers 2 --servers 2 examples/mlp.py --epochs 4

Its 1.1 million parameters, 4.5 MB, go back and forth in every step of only 16 samples, so servers matter as much as
workers. examples/digits.py explains the lines that make a script elastic.
"""
# ruff: noqa: I001  # elastic_ps.mxnet comes before mxnet, which it makes importable beside numpy 1.26

import argparse
import json
from pathlib import Path

import elastic_ps.mxnet

import mxnet as mx
from digits import accuracy, data
from mxnet import autograd, gluon
from mxnet.gluon import nn

GLOBAL_BATCH = 16
WIDTH = 1024  # units of each hidden layer


def network() -> nn.HybridSequential:
    """Return a network from images, (N, 1, 8, 8), to logits of the ten digits, (N, 10)."""
    net = nn.HybridSequential()
    net.add(nn.Dense(WIDTH, activation="relu"), nn.Dense(WIDTH, activation="relu"), nn.Dense(10))
    return net


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--out", type=Path, help="write the final test accuracy to this file as JSON")
    args = parser.parse_args()

    mx.random.seed(1)
    train, test = data()
    net = network()
    net.initialize(mx.init.Xavier())
    net.hybridize()
    loss_of = gluon.loss.SoftmaxCrossEntropyLoss()
    trainer = gluon.Trainer(
        net.collect_params(), "sgd", {"learning_rate": 0.02, "momentum": 0.9}, kvstore="dist_elastic"
    )
    loader = elastic_ps.mxnet.ElasticDataLoader(train, GLOBAL_BATCH)
    for epoch in elastic_ps.epochs(args.epochs):
        for step, _indices, (images, labels) in loader:
            with autograd.record():
                loss = loss_of(net(images), labels)
            loss.backward()
            trainer.step(GLOBAL_BATCH)
            elastic_ps.report(step, loss=loss.mean().asscalar())
        if elastic_ps.is_chief():
            score = accuracy(net, test)
            elastic_ps.report(step, accuracy=score)
            print(f"epoch {epoch}: test accuracy {score:.3f}", flush=True)

    if elastic_ps.is_chief():
        result = {"test_accuracy": accuracy(net, test), "epochs": args.epochs}
        print(json.dumps(result), flush=True)
        if args.out:
            args.out.write_text(json.dumps(result))


if __name__ == "__main__":
    main()
