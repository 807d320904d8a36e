"""MXNet's KVStore contract: what cannot be is refused by key and reason."""

import mxnet as mx
import numpy as np
import pytest

from elastic_ps.core.errors import ConfigurationError, PeerLost
from tests.elastic_ps.mxnet.mx_arrays import ones, zeros

pytestmark = pytest.mark.mxnet


REFUSALS = {
    "key of a wrong type": (lambda kv: kv.init(2.5, ones(1)), r"key 2\.5: a key is an int or a str, not float"),
    "numpy's integer": (lambda kv: kv.init(np.int64(1), ones(1)), "a key is an int or a str, not int64"),
    "a bool": (lambda kv: kv.init(True, ones(1)), "key True: a key is an int or a str, not bool"),
    "bytes": (lambda kv: kv.push(b"w", ones(1)), "key b'w': a key is"),
    "lists of other lengths": (lambda kv: kv.push([1, 2], [ones(1)]), "2 keys need a list of 2 values, not 1"),
    "array for keys": (lambda kv: kv.push([1], ones(1)), "1 keys need a list of 1 values, not NDArray"),
    "numpy array": (lambda kv: kv.push(1, np.ones(1)), "key 1: an NDArray or a list of them is needed"),
    "no arrays": (lambda kv: kv.push(1, []), "key 1: an NDArray or a list of them is needed"),
    "number in the list": (lambda kv: kv.push("w", [ones(1), 2]), "key w: an NDArray is needed, not int"),
    "two first values": (lambda kv: kv.init(1, [ones(1), ones(1)]), "key 1: initialized with 2 values; give one"),
    "a key twice": (lambda kv: kv.init(["q", "q"], [ones(1)] * 2), "key q: 2 times in the list of keys; init each"),
    "csr": (lambda kv: kv.init("w", ones((2, 2)).tostype("csr")), "key w: storage type 'csr'"),
    "pull without out": (lambda kv: kv.pull("w"), "key w: pull needs out="),
    "row_sparse_pull without rows": (
        lambda kv: kv.row_sparse_pull("w", out=mx.nd.sparse.zeros("row_sparse", (2, 2))),
        "key w: row_sparse_pull needs out= and row_ids=",
    ),
    "too many rows": (
        lambda kv: kv.row_sparse_pull(
            "w", out=mx.nd.sparse.zeros("row_sparse", (2, 2)), row_ids=[mx.nd.array([0]), mx.nd.array([1])]
        ),
        "key w: 2 row_ids for 1 arrays",
    ),
    "rows of a wrong type": (
        lambda kv: kv.row_sparse_pull("w", out=mx.nd.sparse.zeros("row_sparse", (2, 2)), row_ids=[[0]]),
        "key w: row_ids must be an NDArray, not int",
    ),
    "sparse pushpull": (
        lambda kv: kv.pushpull("w", ones((2, 2)).tostype("row_sparse")),
        "key w: pushpull takes no row-sparse arrays; use push, then row_sparse_pull",
    ),
    "out without value": (lambda kv: kv.pushpull([1], [ones(1)], out=[]), "1 keys need a list of 1 values, not 0"),
    "compression": (
        lambda kv: kv.set_gradient_compression({"type": "2bit", "threshold": -1}),
        "gradient compression 2bit: threshold must be above 0 and at most 3.40282e\\+38, not -1",
    ),
    "compression by name": (
        lambda kv: kv.set_gradient_compression("2bit"),
        "gradient compression '2bit': give a dictionary with its 'type'",
    ),
    "updater": (lambda kv: kv._set_updater(print), "cannot run the updater"),
    "save without optimizer": (
        lambda kv: kv.save_optimizer_states("x"),
        "cannot save optimizer states: .* no optimizer",
    ),
    "load without optimizer": (
        lambda kv: kv.load_optimizer_states("x"),
        "cannot load optimizer states: .* no optimizer",
    ),
    "foreign optimizer": (lambda kv: kv.set_optimizer(mx.optimizer.Signum()), "Signum"),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_refusals_name_the_key_and_the_reason(kv, fake, name):
    act, message = REFUSALS[name]
    with pytest.raises(ConfigurationError, match=message) as found:
        act(kv)
    assert isinstance(found.value, mx.MXNetError)
    assert fake.calls == []


def test_a_second_init_is_refused(kv):
    kv.init("w", ones(2))
    with pytest.raises(ConfigurationError, match="key w"):
        kv.init("w", ones(2))
    with pytest.raises(ConfigurationError, match="key w"):
        kv.broadcast("w", ones(2), out=zeros(2))


def test_mxnets_own_errors_are_caught_as_scripts_do(kv):
    kv.init("w", ones(2))
    mx.test_utils.assert_exception(kv.pull, mx.MXNetError, "unknown", out=ones(2))
    mx.test_utils.assert_exception(kv.push, mx.MXNetError, "w", ones((3, 3)))
    mx.test_utils.assert_exception(kv.init, mx.MXNetError, "w", ones(2))
    with pytest.raises(mx.MXNetError, match="key unknown"), kv.combined():
        kv.pushpull("unknown", ones(2))


def test_what_the_job_could_not_do_is_an_error_of_mxnet_too(kv, fake, monkeypatch):
    def lost() -> None:
        raise PeerLost("s0", "reset")

    monkeypatch.setattr(fake, "barrier", lost)
    with pytest.raises(mx.MXNetError, match="lost s0: reset") as found:
        kv.barrier()
    assert isinstance(found.value.__cause__, PeerLost)


def test_an_error_of_the_scripts_own_is_left_as_it_is(kv):
    with pytest.raises(ZeroDivisionError), kv.combined():
        raise ZeroDivisionError
