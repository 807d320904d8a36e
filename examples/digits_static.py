"""Train on handwritten digits with a script for MXNet's `dist_sync`, of which only the store's name was changed.

    elasticrun --workers 2 --servers 1 examples/digits_static.py --epochs 10

Each worker draws its own batches, so servers can come and go while it trains, and workers cannot: examples/digits.py
shows the lines that let them.
"""
# ruff: noqa: I001  # elastic_ps.mxnet comes before mxnet, which it makes importable beside numpy 1.26

import argparse
import json
from pathlib import Path

import elastic_ps.mxnet  # noqa: F401  # makes "dist_elastic" known to MXNet

import mxnet as mx
import numpy as np
from digits import accuracy, data, network
from mxnet import autograd, gluon

BATCH = 32  # samples of a step on each worker


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--out", type=Path, help="write the final test accuracy to this file as JSON")
    args = parser.parse_args()

    mx.random.seed(1)
    store = mx.kv.create("dist_elastic")  # was: "dist_sync"
    train, test = data()
    mine = range(store.rank, len(train) - len(train) % store.num_workers, store.num_workers)
    loader = gluon.data.DataLoader(
        gluon.data.ArrayDataset(*(np.asarray(part)[mine] for part in train[:])),
        BATCH,
        shuffle=True,
        last_batch="discard",
    )
    net = network()
    net.initialize(mx.init.Xavier())
    net.hybridize()
    loss_of = gluon.loss.SoftmaxCrossEntropyLoss()
    trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.02, "momentum": 0.9}, kvstore=store)
    for epoch in range(args.epochs):
        for images, labels in loader:
            with autograd.record():
                loss = loss_of(net(images), labels)
            loss.backward()
            trainer.step(BATCH * store.num_workers)
        if store.rank == 0:
            print(f"epoch {epoch}: test accuracy {accuracy(net, test):.3f}", flush=True)

    if store.rank == 0 and args.out:
        args.out.write_text(json.dumps({"test_accuracy": accuracy(net, test), "epochs": args.epochs}))


if __name__ == "__main__":
    main()
