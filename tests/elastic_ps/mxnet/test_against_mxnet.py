"""Step by step against MXNet's own optimizers, from the optimizer object to the bits of weights and state.

Measured with MXNet 1.9.1: every rule gives MXNet's bits, in every dtype that MXNet's operator takes, with one
exception: LAMB in float64, whose norms MXNet adds up in float32 from products in float64. There it is 1e-6.
"""

import pickle
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from elastic_ps.core.errors import ConfigurationError
from elastic_ps.mxnet.optimizers import AdamW, from_mxnet_states, hyper, to_mxnet_states, translate
from elastic_ps.mxnet.shim import mxnet as mx
from elastic_ps.optimizers import make_rule

pytestmark = pytest.mark.mxnet

SHAPES: tuple[tuple[int, ...], ...] = ((1,), (7, 11), (4, 3, 2, 5), (1000,))
SINGLE, DOUBLE, HALF = "float32", "float64", "float16"
STEPS = 24
opt = mx.optimizer


@dataclass
class Servers:
    """What servers do with an optimizer: a rule per store, arrays per key."""

    optimizer: Any
    values: dict[int, NDArray[Any]]
    states: dict[int, dict[str, NDArray[Any]]] = field(default_factory=dict)
    counts: dict[int, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.spec = translate(self.optimizer, "i:{}".format)
        self.rule = make_rule(self.spec)
        for key, value in self.values.items():
            self.states[key] = {name: np.zeros(value.size, dtype) for name, dtype in self.rule.states(value.dtype)}
            self.rule.init(self.states[key], value.reshape(-1))
            self.counts[key] = 0

    def step(self, number: int, gradients: dict[int, NDArray[Any]]) -> None:
        common = hyper(self.optimizer, number)
        for key, gradient in gradients.items():
            factors = self.spec.keys.get(f"i:{key}", {})
            own = replace(
                common, lr=common.lr * factors.get("lr_mult", 1.0), wd=common.wd * factors.get("wd_mult", 1.0)
            )
            self.counts[key] += 1
            self.rule.update(
                self.values[key].reshape(-1), gradient.reshape(-1), self.states[key], self.counts[key], own
            )

    def collected(self) -> dict[Any, dict[str, Any]]:
        """As `KeyStore.optimizer_states` gives them, by index."""
        return {
            key: {"count": self.counts[key]}
            | {name: array.reshape(self.values[key].shape) for name, array in self.states[key].items()}
            for key in self.values
        }


@dataclass
class Pair:
    """The same keys under MXNet's updater and under ours."""

    updater: Any
    weights: dict[int, Any]
    servers: Servers
    random: np.random.Generator
    done: int = 0

    def run(self, steps: int) -> None:
        for number in range(self.done + 1, self.done + steps + 1):
            gradients = {}
            for key, weight in self.weights.items():
                gradients[key] = (10 * self.random.standard_normal(weight.shape)).astype(weight.dtype)
                gradients[key].reshape(-1)[::5] = 0
                self.updater(key, mx.nd.array(gradients[key], dtype=weight.dtype), weight)
            self.servers.step(number, gradients)
        self.done += steps


def make_pair(make: Any, dtype: str, **options: Any) -> Pair:
    random = np.random.default_rng(0)
    names = {0: "net_weight", 1: "net_gamma", 2: "net_bias", 3: "other_weight"}
    common = {"wd": 1e-3, "rescale_grad": 1 / 32, "param_idx2name": names} | options
    theirs, ours = make(**common), make(**common)
    for optimizer in (theirs, ours):
        optimizer.set_lr_mult({"net_gamma": 0.5, 3: 0.0})
        optimizer.set_wd_mult({"other_weight": 3.0})
    values = {key: random.standard_normal(shape).astype(dtype) for key, shape in enumerate(SHAPES)}
    weights = {key: mx.nd.array(value, dtype=dtype) for key, value in values.items()}
    return Pair(opt.Updater(theirs), weights, Servers(ours, values), random)


def flat(state: Any) -> list[Any]:
    if isinstance(state, tuple):
        return [array for part in state for array in flat(part)]
    return [] if state is None else [state.asnumpy()]


def assert_same_bits(pair: Pair) -> None:
    for key, weight in pair.weights.items():
        np.testing.assert_array_equal(pair.servers.values[key], weight.asnumpy(), strict=True)
    ours = to_mxnet_states(pair.servers.optimizer, pair.servers.collected())
    for key, state in pair.updater.states.items():
        for mine, theirs in zip(flat(ours[key]), flat(state), strict=True):
            np.testing.assert_array_equal(mine, theirs, strict=True)


SGD = partial(opt.SGD, momentum=0.9, learning_rate=0.05)
OPTIMIZERS: dict[str, tuple[Any, tuple[str, ...]]] = {
    "sgd": (partial(opt.SGD, learning_rate=0.05), (SINGLE, DOUBLE, HALF)),
    "momentum": (SGD, (SINGLE, DOUBLE, HALF)),
    "ccsgd": (partial(opt.ccSGD, momentum=0.5), (SINGLE,)),
    "nag": (partial(opt.NAG, learning_rate=0.05), (SINGLE, DOUBLE, HALF)),
    "nag-momentum": (partial(opt.NAG, momentum=0.9, learning_rate=0.05), (SINGLE, DOUBLE, HALF)),
    "adam": (opt.Adam, (SINGLE, DOUBLE)),
    "adam-betas": (partial(opt.Adam, beta1=0.8, beta2=0.99, epsilon=1e-4), (SINGLE, DOUBLE, HALF)),
    "adamw": (AdamW, (SINGLE, DOUBLE, HALF)),
    "adamw-plain": (partial(AdamW, correct_bias=False, beta1=0.8), (SINGLE,)),
    "rmsprop": (opt.RMSProp, (SINGLE,)),
    "rmsprop-clip": (partial(opt.RMSProp, gamma1=0.8, clip_weights=1.0), (SINGLE,)),
    "rmsprop-centered": (partial(opt.RMSProp, centered=True, gamma2=0.7), (SINGLE,)),
    "rmsprop-centered-clip": (partial(opt.RMSProp, centered=True, clip_weights=1.0), (SINGLE,)),
    "adagrad": (partial(opt.AdaGrad, learning_rate=0.05, eps=1e-6), (SINGLE,)),
    "ftrl": (partial(opt.Ftrl, lamda1=0.1, beta=0.5), (SINGLE,)),
    "lamb": (opt.LAMB, (SINGLE, HALF)),
    "lamb-bounds": (partial(opt.LAMB, lower_bound=1.0, upper_bound=5.0), (SINGLE, HALF)),
    "lamb-uncorrected": (partial(opt.LAMB, bias_correction=False), (SINGLE, HALF)),
    "test": (opt.Test, (SINGLE, DOUBLE, HALF)),
}
CASES = [(name, dtype) for name, (_, dtypes) in OPTIMIZERS.items() for dtype in dtypes]
# MXNet itself warns that float16 without multi_precision loses accuracy.
quiet_half = pytest.mark.filterwarnings("ignore:Accumulating with float16:UserWarning")


@quiet_half
@pytest.mark.parametrize("clip", [None, 0.1, 0.0])
@pytest.mark.parametrize(("name", "dtype"), CASES)
def test_the_same_bits(name: str, dtype: str, clip: float | None) -> None:
    pair = make_pair(OPTIMIZERS[name][0], dtype, clip_gradient=clip)
    pair.run(STEPS)
    assert_same_bits(pair)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_the_same_bits_with_float32_copies_of_float16(name: str) -> None:
    pair = make_pair(OPTIMIZERS[name][0], HALF, multi_precision=True, clip_gradient=0.1)
    pair.run(STEPS)
    assert_same_bits(pair)


@pytest.mark.parametrize("bounds", [{}, {"lower_bound": 1.0, "upper_bound": 10.0}])
def test_lamb_in_float64_is_as_near_as_its_float32_norms(bounds: dict[str, float]) -> None:
    pair = make_pair(partial(opt.LAMB, **bounds), DOUBLE)
    pair.run(STEPS)
    for key, weight in pair.weights.items():
        np.testing.assert_allclose(pair.servers.values[key], weight.asnumpy(), rtol=1e-6, atol=1e-8)


SCHEDULES = {
    "factor": partial(mx.lr_scheduler.FactorScheduler, step=5, factor=0.7, base_lr=0.05),
    "multifactor": partial(mx.lr_scheduler.MultiFactorScheduler, step=[4, 9], factor=0.1, base_lr=0.05),
    "poly": partial(mx.lr_scheduler.PolyScheduler, max_update=20, base_lr=0.05, warmup_steps=5),
    "cosine": partial(mx.lr_scheduler.CosineScheduler, max_update=20, base_lr=0.05, final_lr=1e-5),
}


@pytest.mark.parametrize("begin", [0, 7])
@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("name", ["momentum", "adam", "lamb"])
def test_the_same_bits_under_a_schedule(name: str, schedule: str, begin: int) -> None:
    kind = OPTIMIZERS[name][0]
    kind = partial(
        getattr(kind, "func", kind), **{k: v for k, v in getattr(kind, "keywords", {}).items() if k != "learning_rate"}
    )
    pair = make_pair(
        lambda **options: kind(lr_scheduler=SCHEDULES[schedule](), learning_rate=None, **options),
        SINGLE,
        begin_num_update=begin,
    )
    pair.run(STEPS)
    assert_same_bits(pair)


@pytest.mark.parametrize("rate", [3.1234567e-05, 1e-7, 0.1, 1 / 3, 12345.678e-9])
def test_the_same_bits_for_rates_that_mxnet_parses_in_its_own_way(rate: float) -> None:
    for kind in (opt.Adam, opt.NAG, opt.Ftrl, opt.LAMB, opt.RMSProp, opt.AdaGrad, AdamW, SGD):
        pair = make_pair(partial(kind, learning_rate=rate), SINGLE, wd=rate / 7, clip_gradient=1 / 3)
        pair.run(3)
        assert_same_bits(pair)


def test_a_tensor_longer_than_the_cache() -> None:
    for kind in (opt.Adam, opt.LAMB, partial(opt.SGD, momentum=0.9)):
        pair = make_pair(kind, SINGLE)
        value = pair.random.standard_normal(40_001).astype(SINGLE)
        pair.weights = {0: mx.nd.array(value)}
        pair.servers = Servers(pair.servers.optimizer, {0: value})
        pair.run(3)
        assert_same_bits(pair)


STATEFUL = (
    "sgd",
    "momentum",
    "nag-momentum",
    "adam",
    "adamw",
    "rmsprop",
    "rmsprop-centered",
    "adagrad",
    "ftrl",
    "lamb",
)


@pytest.mark.parametrize("half", [False, True])
@pytest.mark.parametrize("name", STATEFUL)
def test_training_goes_on_from_our_states_in_mxnet_and_from_mxnets_in_ours(name: str, half: bool) -> None:
    options = {"multi_precision": True} if half else {}
    pair = make_pair(OPTIMIZERS[name][0], HALF if half else SINGLE, **options)
    pair.run(5)
    ours, theirs = pair.servers, pair.updater

    loaded = opt.Updater(theirs.optimizer)
    loaded.states = to_mxnet_states(ours.optimizer, ours.collected())
    loaded.optimizer = ours.optimizer
    file = loaded.get_states(dump_optimizer=True)
    pair.updater = opt.Updater(theirs.optimizer)
    pair.updater.set_states(file)

    states, optimizer = pickle.loads(theirs.get_states(dump_optimizer=True))
    pair.servers = Servers(ours.optimizer, ours.values)
    for key, state in from_mxnet_states(optimizer, states).items():
        pair.servers.counts[key] = state.pop("count")
        pair.servers.states[key] = {part: array.reshape(-1) for part, array in state.items()}
    assert set(pair.servers.counts.values()) == {5}

    pair.run(5)
    assert_same_bits(pair)


def test_states_without_their_optimizer_have_no_count() -> None:
    pair = make_pair(opt.Adam, SINGLE)
    pair.run(2)
    states = from_mxnet_states(opt.Adam(), pickle.loads(pair.updater.get_states()))
    assert set(states[0]) == {"mean", "variance"}


@pytest.mark.parametrize("other", [opt.SGD(), opt.SGD(momentum=0.9), opt.RMSProp(), opt.RMSProp(centered=True)])
def test_states_of_another_optimizer_are_refused(other: Any) -> None:
    pair = make_pair(opt.Adam, SINGLE)
    pair.run(1)
    with pytest.raises(ConfigurationError, match="key 0: the optimizer state in the file does not fit"):
        from_mxnet_states(other, pair.updater.states)
