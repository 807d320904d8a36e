"""The servers' rules against PyTorch's own optimizers, update by update."""

from functools import partial
from typing import Any

import numpy as np
import pytest

from elastic_ps.core.optimizer import Hyper, OptimizerSpec
from elastic_ps.native import fused
from elastic_ps.native import library as native
from elastic_ps.optimizers import make_rule

torch = pytest.importorskip("torch")

from tests.elastic_ps.optimizers.pytorch.roots import use_exact_roots  # noqa: E402

optim = torch.optim

ELEMENTS, UPDATES = 1031, 100

CASES: dict[str, tuple[Any, str, dict[str, bool], dict[str, float]]] = {
    "sgd": (partial(optim.SGD, lr=0.1, weight_decay=1e-3), "SGD", {}, {"lr": 0.1, "weight_decay": 1e-3}),
    "nesterov": (
        partial(optim.SGD, lr=0.1, momentum=0.9, nesterov=True, weight_decay=1e-3, maximize=True),
        "SGD",
        {"momentum": True, "nesterov": True, "maximize": True},
        {"lr": 0.1, "momentum": 0.9, "weight_decay": 1e-3},
    ),
    "dampening": (
        partial(optim.SGD, lr=0.1, momentum=0.9, dampening=0.3),
        "SGD",
        {"momentum": True},
        {"lr": 0.1, "momentum": 0.9, "dampening": 0.3},
    ),
    "adam": (partial(optim.Adam, lr=0.01, weight_decay=1e-3), "Adam", {}, {"lr": 0.01, "weight_decay": 1e-3}),
    "adam without momentum": (
        partial(optim.Adam, lr=0.01, betas=(0.0, 0.99)),
        "Adam",
        {},
        {"lr": 0.01, "beta1": 0.0, "beta2": 0.99},
    ),
    "amsgrad": (
        partial(optim.Adam, lr=0.01, amsgrad=True, maximize=True, betas=(0.4, 0.9)),
        "Adam",
        {"amsgrad": True, "maximize": True},
        {"lr": 0.01, "beta1": 0.4, "beta2": 0.9},
    ),
    "adamw": (partial(optim.AdamW, lr=0.01), "Adam", {"decoupled": True}, {"lr": 0.01, "weight_decay": 1e-2}),
    "adagrad": (
        partial(optim.Adagrad, lr=0.01, lr_decay=0.01, weight_decay=1e-2),
        "Adagrad",
        {},
        {"lr": 0.01, "lr_decay": 0.01, "weight_decay": 1e-2},
    ),
    "rmsprop": (partial(optim.RMSprop, lr=0.01, weight_decay=1e-2), "RMSprop", {}, {"weight_decay": 1e-2}),
    "rmsprop centered": (
        partial(optim.RMSprop, lr=0.01, centered=True, momentum=0.9),
        "RMSprop",
        {"centered": True, "momentum": True},
        {"lr": 0.01, "momentum": 0.9},
    ),
    "adadelta": (partial(optim.Adadelta, lr=0.5), "Adadelta", {}, {"lr": 0.5}),
    "adamax": (partial(optim.Adamax, lr=0.01), "Adamax", {}, {"lr": 0.01}),
    "nadam": (
        partial(optim.NAdam, lr=0.01, weight_decay=1e-2, decoupled_weight_decay=True),
        "NAdam",
        {"decoupled": True},
        {"lr": 0.01, "weight_decay": 1e-2},
    ),
    "rprop": (partial(optim.Rprop, lr=0.02, maximize=True), "Rprop", {"maximize": True}, {"lr": 0.02}),
    "rprop bounded": (
        partial(optim.Rprop, lr=0.02, etas=(0.4, 1.5), step_sizes=(0.01, 0.05)),
        "Rprop",
        {},
        {"lr": 0.02, "etaminus": 0.4, "etaplus": 1.5, "step_size_min": 0.01, "step_size_max": 0.05},
    ),
    "asgd": (
        partial(optim.ASGD, lr=0.05, lambd=1e-2, weight_decay=1e-2),
        "ASGD",
        {},
        {"lr": 0.05, "lambd": 1e-2, "weight_decay": 1e-2},
    ),
    "asgd averages": (
        partial(optim.ASGD, lr=0.05, t0=20, alpha=0.5, maximize=True),
        "ASGD",
        {"maximize": True},
        {"lr": 0.05, "t0": 20.0, "alpha": 0.5},
    ),
    "radam": (partial(optim.RAdam, lr=0.01, weight_decay=1e-2), "RAdam", {}, {"lr": 0.01, "weight_decay": 1e-2}),
}


def trained(case: str, dtype: str) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Parameters and states after `UPDATES`, PyTorch's and ours, by name."""
    make, name, arguments, numbers = CASES[case]
    random = np.random.default_rng(1)
    ours = random.standard_normal(ELEMENTS).astype(dtype)
    parameter = torch.nn.Parameter(torch.from_numpy(ours.copy()))
    optimizer, rule = make([parameter]), make_rule(OptimizerSpec(f"torch.{name}", dict(arguments)))
    states = {state: np.zeros(ELEMENTS, kind) for state, kind in rule.states(ours.dtype)}
    for count in range(1, UPDATES + 1):
        gradient = (random.standard_normal(ELEMENTS) * random.random()).astype(dtype)
        gradient[:5] = 0  # as in padding
        parameter.grad = torch.from_numpy(gradient.copy())
        optimizer.step()
        rule.update(ours, gradient, states, count, Hyper(groups=(numbers,)))
    theirs = {state: optimizer.state[parameter][state].numpy() for state in states}
    return {"parameter": parameter.detach().numpy(), **theirs}, {"parameter": ours, **states}


@pytest.mark.parametrize("compiled", [True, False])
@pytest.mark.parametrize("case", CASES)
def test_with_exact_roots_all_bits_are_pytorchs(case: str, compiled: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    use_exact_roots(monkeypatch)
    if not compiled:
        monkeypatch.setattr(fused, "library", lambda: None)
        monkeypatch.setattr(native, "has", lambda _name, _dtype: False)
    theirs, ours = trained(case, "float32")
    for name, expected in theirs.items():
        if name in ("exp_inf", "step_size"):  # PyTorch's are others where there never was a gradient
            expected[:5] = 0
        np.testing.assert_array_equal(ours[name], expected, err_msg=name)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("case", CASES)
def test_with_its_own_roots_the_last_places_of_the_largest_parameter(case: str, dtype: str) -> None:
    theirs, ours = trained(case, dtype)
    largest = np.abs(theirs["parameter"]).max()
    assert np.abs(ours["parameter"] - theirs["parameter"]).max() <= 4 * np.finfo(dtype).eps * largest
