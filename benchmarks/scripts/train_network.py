"""A worker that trains a real network by Gluon's Trainer, with MXNet's own store or with ours.

The networks and data are those of `examples/`; three whose steps have the size of users' (`resnet20`, `resnet18`,
`lstm200`) on the same data; and `device`: 8 layers of 4 MB whose backward pass takes 20 ms each
without a CPU, as an accelerator's would, which shows what of an exchange it hides. Every worker draws batches of its
own, as with `dist_sync`.
"""

# ruff: noqa: I001  # elastic_ps.mxnet comes before mxnet
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import elastic_ps.mxnet  # noqa: F401  # registers our stores, and lets MXNet 1.9.1 be imported

import mxnet as mx
import numpy as np
from mxnet import autograd, gluon
from mxnet.gluon.model_zoo import vision

from benchmarks.support.kvstores import tell, worker_arguments

sys.path.append(str(Path(__file__).parents[2] / "examples"))

_LAYER_SECONDS = 0.02
_BATCH = 32  # samples of a step on each worker

Made = tuple[Any, Any]
"""A network and its training set."""


def digits() -> Made:
    """Return a convolutional network, and handwritten digits."""
    import digits as example

    return example.network(), example.data()[0]


def lstm() -> Made:
    """Return a character-level language model, and its text."""
    import lstm as example

    train, _, vocabulary = example.data()
    return example.LanguageModel(vocabulary), train


def resnet20() -> Made:
    """Return the ResNet of 20 layers for images of 32 x 32 (He et al. 2015, table 6), and digits of that size."""
    net = vision.ResNetV1(vision.BasicBlockV1, [3, 3, 3], [16, 16, 32, 64], classes=10, thumbnail=True)
    net.hybridize()
    return net, _enlarged_digits()


def resnet18() -> Made:
    """Return the model zoo's ResNet of 18 layers, 45 MB, and digits of 32 x 32 pixels."""
    net = vision.resnet18_v1(classes=10)
    net.hybridize()
    return net, _enlarged_digits()


def lstm200() -> Made:
    """Return a language model of two layers of 200, the default of Gluon's own example, and letters."""
    import lstm as example

    train, _, vocabulary = example.data()
    net = gluon.nn.HybridSequential()
    net.add(gluon.nn.Embedding(vocabulary, 200))
    net.add(gluon.rnn.LSTM(200, num_layers=2, layout="NTC", input_size=200))
    net.add(gluon.nn.Dense(vocabulary, flatten=False, in_units=200))
    net.hybridize()
    return net, train


def _enlarged_digits() -> Any:
    import digits as example

    images, labels = (np.asarray(part) for part in example.data()[0][:])
    return gluon.data.ArrayDataset(images.repeat(4, axis=2).repeat(4, axis=3), labels)


class _Waiting(mx.operator.CustomOp):  # type: ignore[misc]  # mxnet has no types
    """The identity, whose backward pass waits."""

    def forward(self, is_train: bool, req: Any, in_data: Any, out_data: Any, aux: Any) -> None:
        self.assign(out_data[0], req[0], in_data[0])

    def backward(self, req: Any, out_grad: Any, in_data: Any, out_data: Any, in_grad: Any, aux: Any) -> None:
        time.sleep(_LAYER_SECONDS)
        self.assign(in_grad[0], req[0], out_grad[0])


@mx.operator.register("waiting")
class _WaitingProperties(mx.operator.CustomOpProp):  # type: ignore[misc]
    def create_operator(self, ctx: Any, in_shapes: Any, in_dtypes: Any) -> _Waiting:
        return _Waiting()


def device() -> Made:
    """Return layers that an accelerator computes, and inputs."""
    net = gluon.nn.HybridSequential()
    for _ in range(8):
        waiting = gluon.nn.HybridLambda(lambda F, x: F.Custom(x, op_type="waiting"))  # noqa: N803  # Gluon's signature
        net.add(gluon.nn.Dense(1000, in_units=1000), waiting)
    random = np.random.default_rng(1)
    inputs = random.normal(size=(256, 1000)).astype("float32")
    return net, gluon.data.ArrayDataset(inputs, random.integers(10, size=256).astype("float32"))


NETWORKS: dict[str, Callable[[], Made]] = {
    each.__name__: each for each in (digits, lstm, resnet20, resnet18, lstm200, device)
}


def main() -> None:
    arguments = worker_arguments(NETWORKS)
    mx.random.seed(1)
    store = mx.kv.create(arguments.store)
    net, train = NETWORKS[arguments.model]()
    net.initialize(mx.init.Xavier())
    loss_of = gluon.loss.SoftmaxCrossEntropyLoss()
    trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.01, "momentum": 0.9}, kvstore=store)
    inputs, labels = (np.asarray(part) for part in train[:])
    chosen = np.random.default_rng(store.rank)
    seconds = []
    for _ in range(arguments.steps):
        at = chosen.integers(len(inputs), size=_BATCH)
        batch, wanted = mx.nd.array(inputs[at]), mx.nd.array(labels[at])
        mx.nd.waitall()
        started = time.perf_counter()
        with autograd.record():
            loss = loss_of(net(batch), wanted)
        loss.backward()
        trainer.step(_BATCH * store.num_workers)
        mx.nd.waitall()
        seconds.append(time.perf_counter() - started)
    trained = [parameter for parameter in net.collect_params().values() if parameter.grad_req != "null"]
    tell(arguments.folder, store.rank, seconds, sum(float(each.data().norm().asscalar()) for each in trained))


if __name__ == "__main__":
    main()
