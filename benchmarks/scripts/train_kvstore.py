"""A worker that pushes and pulls a model's shapes through MXNet's kvstore API, by MXNet's own store or by ours.

The same script for both: the name of the store is all that differs. SGD with momentum runs on the servers.
"""

# ruff: noqa: I001  # elastic_ps.mxnet comes before mxnet
import time
from collections.abc import Callable
from typing import Any

import elastic_ps.mxnet  # noqa: F401  # registers our stores, and lets MXNet 1.9.1 be imported

import mxnet as mx

from benchmarks.support.kvstores import tell, worker_arguments
from benchmarks.support.models import MODELS, TOUCHED, Shape

_GRADIENT = 1e-3


def rows_of(store: Any, shape: Shape, touched: int) -> Callable[[], Any]:
    """Return a step that pushes and pulls some rows of key 0, the same in each, evenly spread.

    Args:
        store: of either system.
        shape: of the key.
        touched: how many rows.
    """
    rows = mx.nd.arange(0, shape[0], shape[0] // touched, dtype="int64")
    values = mx.nd.full((len(rows), *shape[1:]), _GRADIENT)

    def step() -> Any:
        store.push(0, mx.nd.sparse.row_sparse_array((values, rows), shape=shape))
        pulled = mx.nd.sparse.zeros("row_sparse", shape)
        store.row_sparse_pull(0, out=pulled, row_ids=rows)
        return pulled.data

    return step


def main() -> None:
    arguments = worker_arguments(MODELS)
    shapes = MODELS[arguments.model]()
    keys = list(range(len(shapes)))
    weights = [mx.nd.ones(shape) for shape in shapes]
    sparse = arguments.model in TOUCHED
    gradients = [mx.nd.zeros(shape) for shape in shapes] if not sparse else []
    store = mx.kv.create(arguments.store)
    if arguments.compression:
        store.set_gradient_compression(arguments.compression)
    store.init(keys, [weight.tostype("row_sparse") for weight in weights] if sparse else weights)
    store.set_optimizer(mx.optimizer.SGD(learning_rate=0.1, momentum=0.9, wd=1e-4, rescale_grad=1 / 64))
    step = rows_of(store, shapes[0], TOUCHED[arguments.model]) if sparse else None
    seconds = []
    for _ in range(arguments.steps):
        for gradient in gradients:
            gradient[:] = _GRADIENT  # MXNet's own store receives what it pulls where it has sent the gradient from
        mx.nd.waitall()
        started = time.perf_counter()
        if step is not None:
            weights = [step()]
        else:
            store.push(keys, gradients)
            store.pull(keys, weights)
        mx.nd.waitall()
        seconds.append(time.perf_counter() - started)
    tell(arguments.folder, store.rank, seconds, float(weights[-1].reshape(-1)[-1].asscalar()))


if __name__ == "__main__":
    main()
