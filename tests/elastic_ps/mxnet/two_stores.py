"""The same script through MXNet's own `local` kvstore and through ours, to be compared bit by bit."""

from collections.abc import Callable
from typing import Any

import mxnet as mx
import numpy as np

from elastic_ps.mxnet import ElasticKVStore
from tests.elastic_ps.mxnet.fake_store import FakeStore

STEPS = 6
BATCH = 12
Values = dict[str, np.ndarray]
Script = Callable[[Any], Values]


def check_same(script: Script) -> None:
    """`script(kvstore)` returns the same bits through either store."""
    results = []
    for store in (mx.kv.create("local"), ElasticKVStore(FakeStore())):
        mx.random.seed(3)
        np.random.seed(3)  # MXNet's initializers draw from the global generator
        results.append(script(store))
    expected, got = results
    assert expected.keys() == got.keys()
    assert expected
    for name, values in expected.items():
        assert np.isfinite(values).all()
        np.testing.assert_array_equal(got[name], values, err_msg=name)


def batches(shape: tuple[int, ...] = (4, 6, 6), dtype: str = "float32") -> list[tuple[mx.nd.NDArray, mx.nd.NDArray]]:
    random = np.random.RandomState(5)
    return [
        (
            mx.nd.array(random.uniform(size=(BATCH, *shape)), dtype=dtype),
            mx.nd.array(random.randint(3, size=BATCH), dtype=dtype),
        )
        for _ in range(STEPS)
    ]
