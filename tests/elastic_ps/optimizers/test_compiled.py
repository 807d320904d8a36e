"""The compiled rules and the threads that run them: the same bits as numpy's."""

import shutil
import subprocess
import sys
import threading
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from elastic_ps.core.optimizer import Hyper
from elastic_ps.native import library as native
from elastic_ps.native import threads
from elastic_ps.optimizers.adam import Adam, AdamW
from elastic_ps.optimizers.gradient_sum import CHUNK, GradientSum
from elastic_ps.optimizers.lamb import LAMB
from elastic_ps.optimizers.momentum import SGD
from elastic_ps.optimizers.pytorch.adam import TorchAdam
from elastic_ps.optimizers.pytorch.sgd import TorchSGD
from elastic_ps.optimizers.rule import Elementwise, Rule
from tests.sweeps import sweep

LENGTH = 5 * (1 << 16) + 77  # several threads' shares and an odd end
RULES = [SGD(), SGD(momentum=0.9), Adam(beta1=0.8), AdamW(), AdamW(correct_bias=False)]
TORCH_RULES = [
    TorchSGD(),
    TorchSGD(momentum=True, maximize=True),
    TorchSGD(momentum=True, nesterov=True),
    TorchAdam(),
    TorchAdam(decoupled=True, maximize=True),
]
TORCH_HYPERS = [
    Hyper(groups=({"lr": 0.1, "momentum": 0.9, "dampening": 0.25, "weight_decay": 1e-3},)),
    Hyper(groups=({"lr": 0.1, "momentum": 0.0, "beta1": 0.3},)),
    Hyper(groups=({"lr": 0.1, "momentum": 0.0, "beta1": 0.0, "beta2": 0.0},)),
]
HYPERS = [Hyper(0.1, 1e-4, 1 / 3), Hyper(0.1, 0.0, 1.0, clip_gradient=0.3)]


@pytest.fixture(autouse=True)
def _four_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "_threads", lambda: 4)
    monkeypatch.setattr(native, "_UNIT", 1 << 16)


def trained(rule: Elementwise, dtype: Any, hyper: Hyper, aggregate: GradientSum, in_place: bool) -> list[bytes]:
    """Values and states after three updates."""
    value = np.random.default_rng(1).standard_normal(LENGTH).astype(dtype)
    value[:3] = np.nan, np.inf, -0.0
    states = {name: np.zeros(LENGTH, kind) for name, kind in rule.states(value.dtype)}
    for count in range(1, 4):
        new = value if in_place else np.full_like(value, 7)
        rule.apply(value, new, aggregate, states, count, hyper)
        value = new
    return [value.tobytes(), *(state.tobytes() for state in states.values())]


def gradients(dtype: Any, number: int) -> list[Any]:
    made = np.random.default_rng(2).standard_normal((number, LENGTH)).astype(dtype)
    made[:, 10:14] = np.inf, -np.inf, np.nan, 0
    return list(made)


def test_a_machine_with_a_compiler_has_the_library() -> None:
    assert (native.library() is not None) == (shutil.which("cc") is not None)


def sums_of(dtype: Any) -> list[GradientSum]:
    one, three = gradients(dtype, 1), gradients(dtype, 3)
    return [
        GradientSum(one),
        GradientSum(three, None, 0.7),
        GradientSum(three, [0.1, 0.2, 0.7]),
        GradientSum(one, None, 3.0),
    ]


@pytest.mark.skipif(native.library() is None, reason="no compiler here: there is nothing but numpy")
@pytest.mark.parametrize(
    ("rule", "hyper"),
    [
        (rule, hyper)
        for rules, hypers in ((RULES, HYPERS), (TORCH_RULES, TORCH_HYPERS))
        for rule in rules
        for hyper in hypers
    ],
    ids=repr,
)
@pytest.mark.parametrize("dtype", sweep([np.float32, np.float64]))
def test_the_bits_are_numpys(monkeypatch: pytest.MonkeyPatch, rule: Elementwise, dtype: Any, hyper: Hyper) -> None:
    sums = sums_of(dtype)
    calls = []
    monkeypatch.setattr(native, "update", lambda *given, update=native.update: calls.append(given[0]) or update(*given))
    compiled = [trained(rule, dtype, hyper, aggregate, in_place) for aggregate in sums for in_place in (True, False)]
    assert len(calls) == (0 if rule == SGD() and hyper.clip_gradient else 3 * len(compiled))
    monkeypatch.setattr(native, "has", lambda _name, _dtype: False)
    assert [trained(rule, dtype, hyper, aggregate, in_place) for aggregate in sums for in_place in (False, True)] == [
        found for pair in zip(compiled[1::2], compiled[::2], strict=True) for found in pair
    ]


@pytest.mark.parametrize("compiled", [True, False])
@pytest.mark.parametrize("rule", [None, SGD(momentum=0.9), SGD(momentum=0.9, multi_precision=True), LAMB()], ids=repr)
def test_the_sum_is_kept_on_the_way(monkeypatch: pytest.MonkeyPatch, rule: Rule | None, compiled: bool) -> None:
    if not compiled:
        monkeypatch.setattr(native, "has", lambda _name, _dtype: False)
    dtype = np.float16 if rule == SGD(momentum=0.9, multi_precision=True) else np.float32
    one, three = gradients(dtype, 1), gradients(dtype, 3)
    for aggregate in GradientSum(one), GradientSum(one, None, 3.0), GradientSum(three, [0.1, 0.2, 0.7]):
        expected, kept = aggregate.whole(), np.full(LENGTH, 7, dtype)
        keeping, new = replace(aggregate, kept=kept), np.zeros(LENGTH, dtype)
        if rule is None:
            keeping.write(new)
            assert new.tobytes() == expected.tobytes()
        else:
            value = np.ones(LENGTH, dtype)
            states = {name: np.zeros(LENGTH, kind) for name, kind in rule.states(value.dtype)}
            rule.apply(value, new, keeping, states, 1, HYPERS[0])
        assert kept.tobytes() == expected.tobytes()


def test_ranges_are_whole_units_and_cover_everything() -> None:
    for length in (0, 1, CHUNK - 1, CHUNK, 2 * CHUNK, 3 * CHUNK + 1, 100 * CHUNK + 5):
        seen, lock = [], threading.Lock()

        def note(low: int, high: int, seen: list[Any] = seen, lock: Any = lock) -> None:
            with lock:
                seen.append((low, high))

        threads.in_parallel(length, CHUNK, note)
        assert sorted(seen)[0][0] == 0
        assert sorted(seen)[-1][1] == length
        assert [low for low, _ in sorted(seen)[1:]] == [high for _, high in sorted(seen)[:-1]]
        assert all(low % CHUNK == 0 for low, _ in seen)
        assert len(seen) == (1 if length < 2 * CHUNK else 2 if length < 4 * CHUNK else 4)


def test_an_error_of_one_range_is_raised_when_all_have_ended() -> None:
    ended = []

    def work(low: int, _high: int) -> None:
        if low:
            raise ValueError(str(low))
        ended.append(low)

    with pytest.raises(ValueError, match=str(CHUNK)):
        threads.in_parallel(2 * CHUNK, CHUNK, work)
    assert ended == [0]


def test_ranges_are_done_while_the_interpreter_ends() -> None:
    """The last step of a script is exchanged then."""
    script = """
import atexit
import numpy as np
from elastic_ps.native import threads
threads._threads = lambda: 4
made = np.zeros(1 << 20)
atexit.register(lambda: (threads.copy_all([(made, np.ones(1 << 20))]), print(made.sum())))
"""
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False)
    assert ran.stdout == "1048576.0\n", ran.stderr


@pytest.mark.parametrize("threads_", [1, 4])
def test_copies_of_any_sizes(monkeypatch: pytest.MonkeyPatch, threads_: int) -> None:
    monkeypatch.setattr(threads, "_threads", lambda: threads_)
    random = np.random.default_rng(5)
    sizes = [0, 1, 7, 3 << 18, 0, 1000, 1 << 18, *random.integers(1, 5000, 200)]
    sources = [random.standard_normal(size).astype(random.choice(["f4", "f8"])) for size in sizes]
    made = [np.zeros(size, random.choice(["f4", "f8"])) for size in sizes]
    threads.copy_all(list(zip(made, sources, strict=True)))
    for to, source in zip(made, sources, strict=True):
        np.testing.assert_array_equal(to, source.astype(to.dtype))
    threads.copy_all([])
