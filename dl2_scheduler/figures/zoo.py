"""This worker of the live figures trains one of the networks of MXNet's model zoo as an elastic job.

    python -m dl2_scheduler.figures.zoo resnet50_v1     # by elasticrun

The images are drawn, 3 x 32 x 32, and there are few of them: what a scaling costs goes by the network's size.
"""
# ruff: noqa: I001  # elastic_ps.mxnet comes before mxnet, which it makes importable beside numpy 1.26

import sys

import elastic_ps.mxnet

import mxnet as mx
import numpy as np
from mxnet import autograd, gluon
from mxnet.gluon.model_zoo import vision

_IMAGES = 256
_GLOBAL_BATCH = 8
_FOREVER = 1_000_000  # epochs


def main() -> None:
    """Train until the job is ended."""
    mx.random.seed(1)
    random = np.random.default_rng(1)
    images = random.random((_IMAGES, 3, 32, 32), dtype=np.float32)
    labels = random.integers(0, 10, _IMAGES).astype("float32")
    net = vision.get_model(sys.argv[1])
    net.initialize(mx.init.Xavier())
    net.hybridize()
    loss_of = gluon.loss.SoftmaxCrossEntropyLoss()
    trainer = gluon.Trainer(
        net.collect_params(), "sgd", {"learning_rate": 0.001, "momentum": 0.9}, kvstore="dist_elastic"
    )
    loader = elastic_ps.mxnet.ElasticDataLoader(gluon.data.ArrayDataset(images, labels), _GLOBAL_BATCH)
    for _ in elastic_ps.epochs(_FOREVER):
        for _step, _indices, (drawn, right) in loader:
            with autograd.record():
                loss = loss_of(net(drawn), right)
            loss.backward()
            trainer.step(_GLOBAL_BATCH)


if __name__ == "__main__":
    main()
