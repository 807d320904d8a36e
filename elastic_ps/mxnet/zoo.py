"""This module trains one of the networks of MXNet's model zoo as an elastic job, for live figures of its scaling.

    elasticrun -m elastic_ps.mxnet.zoo resnet50_v1

The images are drawn, 3 x 32 x 32, and there are few of them: what a scaling costs goes by the network's size.
"""

import sys

import mxnet as mx
import numpy as np
from mxnet import autograd, gluon
from mxnet.gluon.model_zoo import vision

from elastic_ps.data.sampler import epochs
from elastic_ps.mxnet.data import ElasticDataLoader

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
    loader = ElasticDataLoader(gluon.data.ArrayDataset(images, labels), _GLOBAL_BATCH)
    for _ in epochs(_FOREVER):
        for _step, _indices, (drawn, right) in loader:
            with autograd.record():
                loss = loss_of(net(drawn), right)
            loss.backward()
            trainer.step(_GLOBAL_BATCH)


if __name__ == "__main__":
    main()
