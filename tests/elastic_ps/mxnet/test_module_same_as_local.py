"""Module.fit and plain scripts through MXNet's `local` kvstore and through ours end with the same bits."""

import warnings
from typing import Any

import mxnet as mx
import numpy as np
import pytest

from elastic_ps.mxnet import ElasticKVStore, track_auxiliary
from elastic_ps.mxnet.arrays import MXNetHostArray
from tests.elastic_ps.mxnet.fake_store import FakeStore
from tests.elastic_ps.mxnet.two_stores import BATCH, Values, batches, check_same

pytestmark = pytest.mark.mxnet


def symbol() -> Any:
    x = mx.sym.Convolution(mx.sym.Variable("data"), kernel=(3, 3), num_filter=8, name="conv")
    x = mx.sym.Activation(mx.sym.BatchNorm(x, name="norm", fix_gamma=False), act_type="relu")
    return mx.sym.SoftmaxOutput(mx.sym.FullyConnected(x, num_hidden=3, name="full"), name="softmax")


def iterator() -> mx.io.NDArrayIter:
    data = batches()
    return mx.io.NDArrayIter(
        mx.nd.concat(*[images for images, _ in data], dim=0),
        mx.nd.concat(*[labels for _, labels in data], dim=0),
        batch_size=BATCH,
    )


def fit(module: Any, store: Any, **settings: Any) -> Values:
    module.fit(
        iterator(),
        kvstore=store,
        optimizer="sgd",
        optimizer_params={"learning_rate": 0.1, "momentum": 0.9, "wd": 0.01, **settings},
        initializer=mx.init.Xavier(),
        num_epoch=2,
    )
    arguments, auxiliary = module.get_params()
    return {name: array.asnumpy() for name, array in {**arguments, **auxiliary}.items()}


@pytest.mark.parametrize("devices", [[mx.cpu()], [mx.cpu(0), mx.cpu(1)]], ids=["one", "two"])
@pytest.mark.parametrize("on_store", ["1", "0"])
def test_module_fit(devices, on_store, monkeypatch):
    monkeypatch.setenv("MXNET_UPDATE_ON_KVSTORE", on_store)
    check_same(lambda store: fit(mx.mod.Module(symbol(), context=devices), store))


def test_module_in_a_job_of_several_workers_divides_by_the_global_batch(fake):
    fake.num_workers = 4
    fit(mx.mod.Module(symbol()), ElasticKVStore(fake))
    assert fake.hypers[-1].rescale_grad == 1 / (4 * BATCH)


@pytest.mark.parametrize("devices", [[mx.cpu()], [mx.cpu(0), mx.cpu(1)]], ids=["one", "two"])
def test_tracked_auxiliary_states_are_keys_that_are_never_pushed(fake, devices):
    module = track_auxiliary(mx.mod.Module(symbol(), context=devices))
    fit(module, ElasticKVStore(fake))
    assert fake.broadcasted - fake.pushed == {"s:aux:norm_moving_mean", "s:aux:norm_moving_var"}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        module.init_optimizer(kvstore=ElasticKVStore(fake))  # ignored by MXNet, and so by the hook
    assert len(fake.broadcasted) == len(fake.held)


def test_a_joiner_takes_the_jobs_auxiliary_states_over():
    store = FakeStore(values={"s:aux:norm_moving_mean": np.full(8, 5, "float32")})
    module = track_auxiliary(mx.mod.Module(symbol()))
    data = iterator()
    module.bind(data.provide_data, data.provide_label)
    module.init_params()
    module.init_optimizer(kvstore=ElasticKVStore(store))
    place = module._aux_names.index("norm_moving_mean")
    assert module._exec_group.aux_arrays[place][0].asnumpy().tolist() == [5] * 8


def test_tracking_changes_nothing_with_another_store():
    check_same(lambda store: fit(track_auxiliary(mx.mod.Module(symbol())), mx.kv.create("local")))


def test_a_module_for_inference_sees_what_was_written_to_arrays_that_it_shares():
    check_inference(symbol())


def test_a_recurrent_module_for_inference_sees_what_was_written():
    """MXNet keeps what oneDNN makes of a fused cell's weights until its engine counts a write of them."""
    cell = mx.rnn.FusedRNNCell(32, num_layers=1, mode="lstm", prefix="lstm_")
    rows = mx.sym.swapaxes(mx.sym.reshape(mx.sym.Variable("data"), shape=(-1, 8, 8)), 0, 1)
    outputs, _ = cell.unroll(8, rows, layout="TNC", merge_outputs=True)
    hidden = mx.sym.swapaxes(outputs, 0, 1)
    for units in (8, 5):
        hidden = mx.sym.FullyConnected(hidden, num_hidden=units)
    check_inference(mx.sym.SoftmaxOutput(hidden, name="softmax"))


def check_inference(network: Any) -> None:
    shapes = {"data_shapes": [("data", (BATCH, 1, 8, 8))], "label_shapes": [("softmax_label", (BATCH,))]}
    module, scored = mx.mod.Module(network), mx.mod.Module(network)
    module.bind(**shapes)
    module.init_params(mx.init.Xavier())
    scored.bind(**shapes, for_training=False, shared_module=module)
    batch = mx.io.DataBatch([mx.nd.random.uniform(shape=(BATCH, 1, 8, 8))], [mx.nd.zeros(BATCH)])

    def scores(of: Any) -> Any:
        of.forward(batch, is_train=False)
        return of.get_outputs()[0].asnumpy()

    before = scores(scored)
    arrays = [MXNetHostArray(array) for (array,) in module._exec_group.param_arrays]
    MXNetHostArray.settle(arrays, to_write=True)
    for number, array in enumerate(arrays):
        array.memory()[...] += np.random.default_rng(number).normal(0, 0.3, array.shape)
    after = scores(scored)
    assert np.abs(after - before).max() > 0.01
    np.testing.assert_allclose(after, scores(module), atol=1e-5)


# ---- plain scripts ---------------------------------------------------------------------------------------------------


def test_push_and_pull_in_any_order():
    def script(store: Any) -> Values:
        store.set_optimizer(mx.optimizer.SGD(learning_rate=0.1, momentum=0.9))
        keys = [5, 3, 9]
        store.init(keys, [mx.nd.ones((2, 2)) * key for key in keys])
        outs = [mx.nd.zeros((2, 2)) for _ in keys]
        store.push(9, mx.nd.ones((2, 2)))
        store.push([3, 9], [mx.nd.ones((2, 2)), [mx.nd.ones((2, 2)), mx.nd.ones((2, 2))]])
        store.pull(keys, out=outs)
        store.push(5, mx.nd.ones((2, 2)))
        store.pull(5, out=outs[0])
        return {str(key): out.asnumpy() for key, out in zip(keys, outs, strict=True)}

    check_same(script)
