"""Train a convolutional network on handwritten digits as an elastic job.

    elasticrun --workers 2 --servers 1 examples/digits.py --epochs 10

While it trains, change the numbers of workers and servers with `elasticctl scale`. The lines marked `# elastic` are
all that a plain Gluon script needs; those marked `# live` hand numbers over to `elasticctl watch` and may be left out.
"""
# ruff: noqa: I001  # elastic_ps.mxnet comes before mxnet, which it makes importable beside numpy 1.26

import argparse
import json
from pathlib import Path

import elastic_ps.mxnet  # elastic

import mxnet as mx
import numpy as np
from mxnet import autograd, gluon
from mxnet.gluon import nn
from sklearn.datasets import load_digits

GLOBAL_BATCH = 64  # samples of a step over all workers, however many there are


def data() -> tuple[gluon.data.ArrayDataset, gluon.data.ArrayDataset]:
    """Return 1,437 training and 360 test images of 1 x 8 x 8 pixels in [0, 1]; the same split in every process."""
    digits = load_digits()
    images = (digits.images[:, None] / 16).astype("float32")
    labels = digits.target.astype("float32")
    order = np.random.RandomState(0).permutation(len(images))
    test, train = order[:360], order[360:]
    return (
        gluon.data.ArrayDataset(images[train], labels[train]),
        gluon.data.ArrayDataset(images[test], labels[test]),
    )


def network() -> nn.HybridSequential:
    net = nn.HybridSequential()
    net.add(
        nn.Conv2D(16, 3, padding=1),
        nn.BatchNorm(),
        nn.Activation("relu"),
        nn.MaxPool2D(2),
        nn.Conv2D(32, 3, padding=1, activation="relu"),
        nn.MaxPool2D(2),
        nn.Dense(64, activation="relu"),
        nn.Dense(10),
    )
    return net


def accuracy(net: nn.HybridSequential, test: gluon.data.ArrayDataset) -> float:
    images, labels = test[:]
    predicted = net(mx.nd.array(images)).argmax(axis=1).asnumpy()
    return float((predicted == labels).mean())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--lr", type=float, default=0.05, help="first learning rate (default 0.05)")
    parser.add_argument("--compression", type=json.loads, help='of gradients, as JSON: {"type": "2bit"}')
    parser.add_argument("--out", type=Path, help="write the final test accuracy to this file as JSON")
    args = parser.parse_args()

    mx.random.seed(1)
    train, test = data()
    net = network()
    net.initialize(mx.init.Xavier())
    net.hybridize()
    loss_of = gluon.loss.SoftmaxCrossEntropyLoss()
    loader = elastic_ps.mxnet.ElasticDataLoader(train, GLOBAL_BATCH)  # elastic
    schedule = mx.lr_scheduler.CosineScheduler(args.epochs * len(loader), base_lr=args.lr)
    trainer = gluon.Trainer(
        net.collect_params(),
        "sgd",
        {"learning_rate": args.lr, "lr_scheduler": schedule, "momentum": 0.9, "wd": 1e-4},
        kvstore="dist_elastic",  # elastic
        compression_params=args.compression,
    )
    for epoch in elastic_ps.epochs(args.epochs):  # elastic
        for step, _indices, (images, labels) in loader:  # elastic
            with autograd.record():
                loss = loss_of(net(images), labels)
            loss.backward()
            trainer.step(GLOBAL_BATCH)
            elastic_ps.report(step, loss=loss.mean().asscalar())  # live
        if elastic_ps.is_chief():  # elastic
            score = accuracy(net, test)
            elastic_ps.report(step, accuracy=score)  # live
            print(f"epoch {epoch}: test accuracy {score:.3f}", flush=True)

    if elastic_ps.is_chief():
        result = {"test_accuracy": accuracy(net, test), "epochs": args.epochs}
        print(json.dumps(result), flush=True)
        if args.out:
            args.out.write_text(json.dumps(result))


if __name__ == "__main__":
    main()
