"""Any sequence of calls writes what MXNet's own `local` stores write, when they write it."""

from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

import mxnet as mx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mxnet import autograd, gluon
from mxnet.gluon import nn

from elastic_ps.mxnet import ElasticKVStore
from tests.elastic_ps.mxnet.mx_arrays import ones, values, zeros
from tests.elastic_ps.worker.instant_job import instant_job, replace, sgd

pytestmark = pytest.mark.mxnet

KEYS = ["a", "b", "c"]


def local() -> Any:
    """A store that adds what is pushed."""
    store = mx.kv.create("local")

    def add(_key: Any, gradient: Any, value: Any) -> None:
        value += gradient

    store._set_updater(add)
    return store


@dataclass(frozen=True)
class Call:
    """Of one of two stores. "loop" is one of MXNet's: a pushpull for each key."""

    store: int
    verb: str
    keys: list[str]
    number: float


calls = st.builds(
    Call,
    store=st.integers(0, 1),
    verb=st.sampled_from(["push", "pull", "pushpull", "loop", "barrier"]),
    keys=st.lists(st.sampled_from(KEYS), min_size=1, max_size=3, unique=True),
    number=st.integers(1, 9).map(float),
)


class Script:
    """Two stores with the same keys, and an array for the values of each."""

    def __init__(self, stores: list[Any]):
        self.stores = stores
        self.outs = [{key: zeros(1) for key in KEYS} for _ in stores]
        for store in stores:
            store.init(KEYS, [zeros(1)] * len(KEYS))

    def call(self, call: Call) -> None:
        store = self.stores[call.store]
        gradients = [ones(1) * call.number for _ in call.keys]
        outs = [self.outs[call.store][key] for key in call.keys]
        if call.verb == "push":
            store.push(call.keys, gradients)
        elif call.verb == "pull":
            store.pull(call.keys, out=outs)
        elif call.verb == "pushpull":
            store.pushpull(call.keys, gradients, out=outs)
        elif call.verb == "loop":
            mx.model._update_params_on_kvstore(
                [[out] for out in outs], [[each] for each in gradients], store, call.keys
            )
        else:
            store._barrier()

    @property
    def written(self) -> list[dict[str, list[float]]]:
        return [{key: values(out) for key, out in outs.items()} for outs in self.outs]


@given(st.lists(calls, max_size=12))
@settings(deadline=None, max_examples=200, derandomize=True)
def test_calls_write_what_they_write_with_mxnets_stores(sequence):
    with instant_job() as (job, _):
        expected = Script([local(), local()])
        ours = Script([ElasticKVStore(job.open_store()) for _ in range(2)])
        for call in sequence:
            expected.call(call)
            ours.call(call)
            assert ours.written == expected.written
        job.leave(finished=True)  # which sends what nobody has waited for
        for number, store in enumerate(expected.stores):
            for key in KEYS:
                store.pull(key, out=expected.outs[number][key])
                held = job.parts(number, [f"s:{key}"])[f"s:{key}"]
                assert expected.outs[number][key].asnumpy().ravel().tolist() == [x for part in held for x in part]


def test_two_stores_write_in_their_own_turns():
    with instant_job() as (job, exchanges):
        first, second = (ElasticKVStore(job.open_store()) for _ in range(2))
        first.init("a", zeros(1))
        second.init("b", zeros(1))
        seen = []
        for number in (1, 2, 3):
            for store, key in ((first, "a"), (second, "b")):
                array = ones(1) * number
                store.pushpull(key, array, out=array)
                seen += values(array)
    assert seen == [1, 1, 3, 3, 6, 6]
    assert exchanges == [["s:a"], ["s:b"]] * 3


def test_a_script_that_crashed_sends_no_more():
    with instant_job() as (job, exchanges):
        store = ElasticKVStore(job.open_store())
        store.init("a", zeros(1))
        store.push("a", ones(1))
        job.leave(finished=False)
    assert exchanges == []


def test_after_an_exception_in_a_loop_nothing_that_it_staged_is_sent():
    with instant_job() as (job, exchanges):
        store = ElasticKVStore(job.open_store())
        store.init(KEYS, [zeros(1)] * 3)
        with suppress(ZeroDivisionError), store.combined():
            store.pushpull("a", ones(1))
            raise ZeroDivisionError
        store.pushpull("b", ones(1))
    assert exchanges == [["s:b"]]


def test_the_loops_of_module_are_one_exchange_each():
    """Module's own updater reads what the pushpulls have written."""
    seen = []
    arrays = [[[ones(1)] for _ in KEYS] for _ in range(2)]
    with instant_job() as (job, exchanges):
        store = ElasticKVStore(job.open_store())
        store.init(KEYS, [ones(1)] * 3)
        mx.model._update_params_on_kvstore(*arrays, store, KEYS)
        update = partial(mx.module.module._update_params, kvstore=store, param_names=KEYS)
        update(*arrays, lambda _keys, gradients, _values: seen.extend(map(values, gradients)), 1)
    assert exchanges == [["s:a", "s:b", "s:c"]] * 2
    assert seen == [[3]] * 3


class Net:
    """Two layers and their Trainer."""

    def __init__(self, store: Any, **settings: Any):
        self.layers = [nn.Dense(1, in_units=1, weight_initializer="one", prefix=f"{name}_") for name in "ab"]
        self.net = nn.Sequential()
        self.net.add(*self.layers)
        self.net.initialize()
        self.trainer = gluon.Trainer(self.net.collect_params(), "sgd", kvstore=store, **settings)

    def step(self, number: int) -> None:
        with autograd.record():
            loss = self.net(ones((1, 1)) * number)
        loss.backward()
        self.trainer.step(10)

    def freeze(self, layer: int, frozen: bool = True) -> None:
        self.layers[layer].collect_params().setattr("grad_req", "null" if frozen else "write")

    @property
    def weights(self) -> list[Any]:
        return [values(parameter.data()) for parameter in self.net.collect_params().values()]


@pytest.mark.parametrize("on_store", [True, False])
@pytest.mark.parametrize("layer", [0, 1])
def test_trainers_of_one_script_with_layers_that_are_frozen_and_thawed(on_store, layer):
    """A GAN's loop. Each Trainer's step is one exchange."""

    def script(stores: list[Any]) -> list[Any]:
        nets = [Net(store, update_on_kvstore=on_store) for store in stores]
        written = []
        for number in range(8):
            if number in (3, 6):
                nets[0].freeze(layer, frozen=number == 3)
                nets[1].freeze(1 - layer, frozen=number == 3)
            for net in nets:
                net.step(number)
                written.append([each.weights for each in nets])
        return written

    with instant_job(sgd if on_store else replace) as (job, exchanges):
        expected = script([mx.kv.create("local") for _ in range(2)])
        assert script([ElasticKVStore(job.open_store()) for _ in range(2)]) == expected
    assert len(exchanges) == 2 * 8
    assert expected[0] != expected[-1]
