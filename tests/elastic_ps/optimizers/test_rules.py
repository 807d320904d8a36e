"""The servers' rules by themselves: what they promise to the storage, and what they refuse."""

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from elastic_ps.core.errors import ConfigurationError
from elastic_ps.core.optimizer import Hyper, OptimizerSpec
from elastic_ps.optimizers import Rule, make_rule
from elastic_ps.optimizers.constants import parsed_float
from elastic_ps.optimizers.rule import CHUNK
from elastic_ps.system.module_files import module_file

OWN = "examples.rules"
SPECS = [
    OptimizerSpec("sgd"),
    OptimizerSpec("sgd", {"momentum": 0.9}),
    OptimizerSpec("sgd", {"momentum": 0.9, "multi_precision": True}),
    OptimizerSpec("nag"),
    OptimizerSpec("nag", {"momentum": 0.9}),
    OptimizerSpec("adam"),
    OptimizerSpec("adam", {"multi_precision": True}),
    OptimizerSpec("adamw"),
    OptimizerSpec("rmsprop"),
    OptimizerSpec("rmsprop", {"centered": True, "clip_weights": 1.0}),
    OptimizerSpec("adagrad"),
    OptimizerSpec("ftrl"),
    OptimizerSpec("test"),
    OptimizerSpec("test", {"multi_precision": True}),
    OptimizerSpec(f"{OWN}:SignDescent"),
]
WHOLE = [*SPECS, OptimizerSpec("lamb"), OptimizerSpec("lamb", {"multi_precision": True})]
HYPER = Hyper(lr=0.05, wd=1e-3, rescale_grad=1 / 32, clip_gradient=0.1)


def fits(spec: OptimizerSpec, dtype: Any) -> bool:
    """Adam's and RMSProp's epsilon of 1e-8 is 0 in float16, which they refuse."""
    return dtype != np.float16 or spec.name not in ("adam", "rmsprop") or "multi_precision" in spec.args


DTYPES = (np.float16, np.float32, np.float64)


def each(specs: list[OptimizerSpec]) -> list[Any]:
    return [
        pytest.param(spec, dtype, id=f"{name_of(spec)}-{np.dtype(dtype)}")
        for spec in specs
        for dtype in DTYPES
        if fits(spec, dtype)
    ]


def rule_of(spec: OptimizerSpec) -> Rule:
    return make_rule(spec, {OWN: module_file(OWN)})


def name_of(spec: OptimizerSpec) -> str:
    return "-".join([spec.name.rpartition(":")[2], *map(str, spec.args)])


class Trained:
    """Values and states under a rule; `update` applies it to one range at a time."""

    def __init__(self, spec: OptimizerSpec, value: NDArray[Any]):
        self.rule = rule_of(spec)
        self.value = value.copy()
        self.states = {name: np.zeros(len(value), dtype) for name, dtype in self.rule.states(value.dtype)}
        self.rule.init(self.states, self.value)

    def update(self, gradient: NDArray[Any], count: int, cuts: list[int], hyper: Hyper = HYPER) -> None:
        edges = [0, *cuts, len(gradient)]
        for low, high in pairwise(edges):
            part = slice(low, high)
            states = {name: array[part] for name, array in self.states.items()}
            self.rule.update(self.value[part], gradient[part], states, count, hyper)

    def bytes(self) -> dict[str, bytes]:
        return {"value": self.value.tobytes()} | {name: array.tobytes() for name, array in self.states.items()}


def gradients(seed: int, steps: int, length: int, dtype: Any) -> list[NDArray[Any]]:
    random = np.random.default_rng(seed)
    return [(10 * random.standard_normal(length)).astype(dtype) for _ in range(steps)]


@pytest.mark.parametrize(("spec", "dtype"), each(SPECS))
@settings(deadline=None, derandomize=True, max_examples=12)
@given(data=st.data())
def test_any_split_into_runs_gives_the_same_bits(spec: OptimizerSpec, dtype: Any, data: st.DataObject) -> None:
    length = data.draw(st.sampled_from([1, 2, 63, 1000, CHUNK, 2 * CHUNK + 17]))
    value = np.random.default_rng(1).standard_normal(length).astype(dtype)
    whole, split = Trained(spec, value), Trained(spec, value)
    for count, gradient in enumerate(gradients(2, 3, length, dtype), 1):
        whole.update(gradient, count, [])
        split.update(gradient, count, sorted(data.draw(st.lists(st.integers(0, length), max_size=6))))
    assert split.bytes() == whole.bytes()
    assert whole.value.tobytes() != value.tobytes()


@pytest.mark.parametrize(("spec", "dtype"), each(WHOLE))
def test_padding_stays_zero_and_changes_nothing(spec: OptimizerSpec, dtype: Any) -> None:
    value = np.random.default_rng(1).standard_normal(100).astype(dtype)
    zeros = np.zeros(28, dtype)
    bare, padded = Trained(spec, value), Trained(spec, np.concatenate([value, zeros]))
    for count, gradient in enumerate(gradients(2, 5, 100, dtype), 1):
        bare.update(gradient, count, [])
        padded.update(np.concatenate([gradient, zeros]), count, [])
    assert padded.value[:100].tobytes() == bare.value.tobytes()
    assert padded.value[100:].tobytes() == zeros.tobytes()
    for array in padded.states.values():
        assert not array[100:].any()


@pytest.mark.parametrize("spec", WHOLE, ids=name_of)
def test_the_gradient_is_only_read(spec: OptimizerSpec) -> None:
    trained = Trained(spec, np.ones(50, np.float32))
    gradient = gradients(3, 1, 50, np.float32)[0]
    gradient.setflags(write=False)  # a follower gets the same array after the primary
    trained.update(gradient, 1, [])
    assert np.isfinite(trained.value).all()


@pytest.mark.parametrize("spec", WHOLE, ids=name_of)
def test_an_empty_run_is_no_update(spec: OptimizerSpec) -> None:
    trained = Trained(spec, np.ones(0, np.float32))
    trained.update(np.ones(0, np.float32), 1, [])
    assert len(trained.value) == 0


def test_multi_precision_keeps_what_float16_cannot_hold() -> None:
    start = np.ones(3, np.float16)
    trained = Trained(OptimizerSpec("sgd", {"multi_precision": True}), start)
    for count in range(1, 11):
        trained.update(np.full(3, 1e-4, np.float16), count, [], Hyper(lr=1.0))
    assert trained.states["master"] == pytest.approx(1 - 1e-3, rel=1e-4)
    assert trained.value == pytest.approx(1 - 1e-3, rel=1e-3)


def test_values_set_anew_reach_the_master_copy() -> None:
    trained = Trained(OptimizerSpec("adam", {"multi_precision": True}), np.ones(3, np.float16))
    trained.rule.init(trained.states, np.full(3, 2, np.float16))
    assert trained.states["master"].tolist() == [2, 2, 2]


def test_begin_num_update_shifts_the_count() -> None:
    late, early = (
        Trained(OptimizerSpec("adam", {"begin_num_update": begin}), np.ones(8, np.float32)) for begin in (7, 0)
    )
    gradient = gradients(4, 1, 8, np.float32)[0]
    late.update(gradient, 1, [])
    early.update(gradient, 8, [])
    assert late.bytes() == early.bytes()


@pytest.mark.parametrize("scale", [0.0, float("inf"), float("nan")])
def test_adamw_leaves_out_steps_that_loss_scaling_gave_up(scale: float) -> None:
    trained = Trained(OptimizerSpec("adamw"), np.ones(8, np.float32))
    before = trained.bytes()
    trained.update(np.ones(8, np.float32), 1, [], Hyper(rescale_grad=scale))
    assert trained.bytes() == before


def test_only_lamb_needs_whole_tensors() -> None:
    assert {name_of(spec) for spec in WHOLE if not rule_of(spec).divisible} == {"lamb", "lamb-multi_precision"}


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (OptimizerSpec("lars"), "unknown optimizer 'lars': the servers have adagrad, adam"),
        (OptimizerSpec("sgd", {"nesterov": True}), "unknown argument 'nesterov'; it takes .*momentum"),
        (OptimizerSpec("sgd", {"momentum": "0.9"}), "momentum must be a number, not '0.9'"),
        (OptimizerSpec("sgd", {"momentum": True}), "momentum must be a number, not True"),
        (OptimizerSpec("sgd", {"momentum": -0.5}), "momentum must be 0 or more"),
        (OptimizerSpec("sgd", {"begin_num_update": 1.5}), "begin_num_update must be a whole number"),
        (OptimizerSpec("rmsprop", {"centered": 1}), "centered must be true or false"),
        (OptimizerSpec("rmsprop", {"clip_weights": "1"}), "clip_weights must be a number or null"),
        (OptimizerSpec("adam", {"epsilon": 0.0}), "epsilon must be above 0"),
        (OptimizerSpec("ftrl", {"beta": 0}), "beta must be above 0"),
        (OptimizerSpec("os:system"), "may not load module 'os'; start it with --optimizer-module os"),
        (OptimizerSpec(f"{OWN}:Nothing"), "cannot be loaded on this server"),
        (OptimizerSpec(f"{OWN}:Hyper"), "no subclass of elastic_ps.optimizers.Rule"),
        (OptimizerSpec(f"{OWN}:SignDescent", {"alpha": 1}), "unexpected keyword argument 'alpha'"),
        (OptimizerSpec(f"{OWN}:SignDescent", {"beta": 1}), "beta must be from 0 to below 1, not 1"),
    ],
)
def test_what_is_refused_says_why(spec: OptimizerSpec, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        make_rule(spec, {OWN: module_file(OWN)})


def test_whole_numbers_and_null_are_arguments_too() -> None:
    rule = make_rule(OptimizerSpec("rmsprop", {"gamma1": 1, "clip_weights": None}))
    assert [name for name, _ in rule.states(np.dtype(np.float32))] == ["n"]


def test_a_missing_module_is_a_clear_error() -> None:
    with pytest.raises(ConfigurationError, match="No module named 'no_such_module'"):
        make_rule(OptimizerSpec("no_such_module:Rule"), {"no_such_module": module_file("no_such_module")})


@pytest.mark.parametrize("dtype", [np.int32, np.uint8, np.bool_])
def test_integers_are_not_optimized(dtype: Any) -> None:
    with pytest.raises(ConfigurationError, match=f"SGD cannot update a {np.dtype(dtype)} tensor"):
        make_rule(OptimizerSpec("sgd")).states(np.dtype(dtype))


@pytest.mark.parametrize("name", ["adam", "rmsprop"])
def test_an_epsilon_that_float16_rounds_to_zero_is_refused(name: str) -> None:
    with pytest.raises(ConfigurationError, match=r"epsilon 1e-08 is 0 in float16.*use multi_precision=True"):
        make_rule(OptimizerSpec(name)).states(np.dtype(np.float16))
    make_rule(OptimizerSpec(name, {"epsilon": 1e-4})).states(np.dtype(np.float16))


@pytest.mark.parametrize("name", ["torch.SGD", "torch.RMSprop"])
@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_a_momentum_counts_for_nothing_where_there_are_no_velocities(name: str, momentum: float) -> None:
    """A push may tell one of a rule that was made without."""
    rule, value = make_rule(OptimizerSpec(name)), np.ones(4, np.float32)
    states = {slot: np.zeros(4, dtype) for slot, dtype in rule.states(value.dtype)}
    rule.update(value, np.ones(4, np.float32), states, 1, Hyper(groups=({"lr": 0.1, "momentum": momentum},)))
    assert value == pytest.approx(np.full(4, 0.9 if name == "torch.SGD" else 0.0), abs=1e-6)


@pytest.mark.parametrize(
    ("value", "bits"),
    [(0.1, np.float32(0.1)), (-2.5, np.float32(-2.5)), (0.0, np.float32(0)), (1e-8, np.float32(1) / np.float32(1e8))],
)
def test_plain_numbers_are_read_as_anyone_reads_them(value: float, bits: np.float32) -> None:
    assert parsed_float(value).tobytes() == bits.tobytes()


def test_numbers_that_an_operator_misreads_are_misread_alike() -> None:
    values = np.random.default_rng(0).uniform(1e-6, 1e-4, 2000)
    off = [value for value in values if parsed_float(float(value)) != np.float32(value)]
    assert 0 < len(off) < len(values)
    assert np.allclose([parsed_float(float(value)) for value in off], off, rtol=3e-7)
