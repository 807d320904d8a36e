"""What a key store knows of its keys, whatever was refused."""

from types import SimpleNamespace

import numpy as np
import pytest

from elastic_ps.core.errors import ConfigurationError
from elastic_ps.worker.script.key_store import WorkerKeyStore
from elastic_ps.worker.script.numpy_array import NumpyArray


def test_keys_that_are_refused_with_one_that_is_known_can_be_initialized_afterwards():
    declared = []

    def declare(_store, tensors, *_):
        declared.extend(tensor.key for tensor in tensors)
        return []

    job = SimpleNamespace(node=None, staging=SimpleNamespace(rehearsing=False), declare=declare)
    store, value = WorkerKeyStore(job, 0), NumpyArray(np.ones(2, np.float32))
    store.init(["s:b"], [value])
    with pytest.raises(ConfigurationError, match="key b: initialized twice"):
        store.init(["s:a", "s:b"], [value] * 2)
    store.init(["s:a"], [value])
    assert declared == ["s:b", "s:a"]
