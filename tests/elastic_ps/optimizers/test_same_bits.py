"""The bits of every rule, written down: numpy 1.26 and 2 promote scalars by different rules (NEP 50), ours must agree.

A job may run its servers on the one and its workers on the other, and a checkpoint may move between them.
"""

from hashlib import sha256

import numpy as np
import pytest

from elastic_ps.core.optimizer import Hyper, OptimizerSpec
from elastic_ps.native import fused
from elastic_ps.native import library as native
from elastic_ps.optimizers import make_rule

ELEMENTS = 1000
HYPERS = (Hyper(lr=0.1, wd=0.01, rescale_grad=1 / 3), Hyper(lr=0.03, wd=0.0, rescale_grad=0.25, clip_gradient=0.125))

RULES = {
    "sgd": ("sgd", {}),
    "sgd with momentum": ("sgd", {"momentum": 0.9}),
    "nag": ("nag", {"momentum": 0.9}),
    "adam": ("adam", {"epsilon": 0.001}),
    "adamw": ("adamw", {"epsilon": 0.001}),
    "rmsprop": ("rmsprop", {"epsilon": 0.001}),
    "rmsprop centered": ("rmsprop", {"centered": True, "epsilon": 0.001, "clip_weights": 0.9}),
    "adagrad": ("adagrad", {"eps": 0.001}),
    "ftrl": ("ftrl", {}),
    "lamb": ("lamb", {"epsilon": 0.001, "lower_bound": 0.001, "upper_bound": 10.0}),
    "test": ("test", {}),
}

TORCH_HYPERS = (
    Hyper(groups=({"lr": 0.1, "weight_decay": 0.01, "momentum": 0.9, "eps": 1e-3},)),
    Hyper(groups=({"lr": 0.03, "momentum": 0.5, "dampening": 0.25, "eps": 1e-3, "beta1": 0.5},)),
)

TORCH_RULES = {
    "SGD": {"momentum": True, "nesterov": True},
    "Adam": {"amsgrad": True},
    "Adagrad": {"maximize": True},
    "RMSprop": {"momentum": True, "centered": True},
    "Adadelta": {},
    "Adamax": {},
    "NAdam": {"decoupled": True},
    "RAdam": {},
    "Rprop": {},
}

TORCH_BITS = {
    "SGD": ("b8a183483765", "cd18ca979535"),
    "Adam": ("e2ee1464c0d8", "dc6e65606360"),
    "Adagrad": ("7e097bdf96b4", "07f0b5e8fc0f"),
    "RMSprop": ("a9883b27342f", "35259fd5b96e"),
    "Adadelta": ("c95384a1035a", "c7d5f49c530a"),
    "Adamax": ("5f8f8dccea6a", "7ca1961d9744"),
    "NAdam": ("0a8bfd919e30", "9a6f58ceeba9"),
    "RAdam": ("d326f76073d8", "853927228894"),
    "Rprop": ("b42b075073be", "ff2308dd3ab9"),
}

DTYPES = ("float16", "float16 and a master copy", "float32", "float64")

BITS = {
    "sgd": ("99fcf0a592c6", "b0588b5afdd8", "9e681db81f47", "e57c92baf035"),
    "sgd with momentum": ("3379defa8530", "18a9b288ea55", "d277d678fa9a", "19d722e7e108"),
    "nag": ("e618dcda34b1", "86473739d4b9", "61b800d3949c", "00b44f724b6e"),
    "adam": ("06846d3d942d", "762d3d5fdf47", "57e1add40374", "569dc4e6b751"),
    "adamw": ("aad3d5489ed9", "04e4d0b03bc0", "e94a9c782933", "bf101036dc90"),
    "rmsprop": ("f5880c91709d", "7c5a815e34d8", "7fb4db31cdc3", "8645ab1c2ef8"),
    "rmsprop centered": ("0a9abb337ba6", "2af10ebe68bb", "e84c2eed2478", "132809ca23ba"),
    "adagrad": ("30bd81e32cdc", "23f2e961d515", "fc466ce535ce", "77d25819188f"),
    "ftrl": ("561a7f63e301", "6e3d5b6bf0c1", "303b43b699d0", "a1dd5baa85ae"),
    "lamb": ("105175470a62", "765e16705ca2", "2f4393686660", "ecd404299ac5"),
    "test": ("c7475dd18574", "aea6f2c4d5dc", "1284d56a8f87", "715fc929fab9"),
}


def numbers(factor: int, dtype: str) -> np.ndarray:
    """Return numbers from -0.5 to 0.5 that every dtype holds exactly, by arithmetic of integers alone."""
    return ((np.arange(ELEMENTS) * factor % 257 - 128) / 256).astype(dtype)


def digest(rule: str, dtype: str) -> str:
    """Return a digest of the bytes of values and states after some updates."""
    name, arguments = RULES[rule]
    kind, _, master = dtype.partition(" ")
    return digest_of(OptimizerSpec(name, {**arguments, "multi_precision": bool(master)}), kind, HYPERS)


def digest_of(spec: OptimizerSpec, kind: str, hypers: tuple[Hyper, ...]) -> str:
    """Return the digest of a rule and an element type."""
    found = make_rule(spec)
    value = numbers(37, kind)
    states = {state: np.zeros(ELEMENTS, own) for state, own in found.states(value.dtype)}
    found.init(states, value)
    for count, hyper in enumerate(hypers * 2, start=1):
        found.update(value, numbers(11 + 4 * count, kind), states, count, hyper)
    result = sha256(value.tobytes())
    for state in sorted(states):
        result.update(states[state].tobytes())
    return result.hexdigest()[:12]


@pytest.mark.parametrize("compiled", [True, False])
@pytest.mark.parametrize("rule", RULES)
def test_bits(rule: str, compiled: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not compiled:
        monkeypatch.setattr(native, "has", lambda name, dtype: False)
    assert tuple(digest(rule, dtype) for dtype in DTYPES) == BITS[rule]


@pytest.mark.parametrize("compiled", [True, False])
@pytest.mark.parametrize("rule", TORCH_RULES)
def test_bits_of_torch(rule: str, compiled: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not compiled:
        monkeypatch.setattr(fused, "library", lambda: None)
        monkeypatch.setattr(native, "has", lambda _name, _dtype: False)
    spec = OptimizerSpec(f"torch.{rule}", TORCH_RULES[rule])
    assert tuple(digest_of(spec, kind, TORCH_HYPERS) for kind in ("float32", "float64")) == TORCH_BITS[rule]
