"""Whether a server can run an optimizer is known before a job relies on it, whatever a user's code does."""

import re
import sys
from collections.abc import Mapping
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from elastic_ps.core.errors import RuleFailed
from elastic_ps.core.module_file import ModuleFile
from elastic_ps.core.optimizer import Hyper, OptimizerSpec
from elastic_ps.optimizers import Rule, make_rule
from elastic_ps.optimizers.trial import trial

MODULE = "rules_of_a_test"
MODULES = {MODULE: ModuleFile(MODULE)}


class Good(Rule):
    def states(self, dtype: Any) -> tuple[tuple[str, Any], ...]:
        return (("mean", dtype),)

    def update(self, value: Any, gradient: Any, states: Any, count: int, hyper: Hyper) -> None:
        states["mean"] += gradient
        value -= states["mean"]


class RaisesWhenMade(Good):
    def __init__(self) -> None:
        raise ValueError("no luck today")


class EndsTheProcessWhenMade(Good):
    def __init__(self) -> None:
        sys.exit(3)


class HasNoStates(Good):
    def states(self, dtype: Any) -> Any:
        return ("mean", dtype)


class RaisesInStates(Good):
    def states(self, dtype: Any) -> Any:
        raise KeyError(dtype.name)


class RaisesInInit(Good):
    def init(self, states: Any, value: Any) -> None:
        states["variance"][...] = value


class RaisesInUpdate(Good):
    def update(self, value: Any, gradient: Any, states: Any, count: int, hyper: Hyper) -> None:
        value -= gradient.no_such_thing


class WritesToTheGradient(Good):
    def update(self, value: Any, gradient: Any, states: Any, count: int, hyper: Hyper) -> None:
        gradient *= hyper.lr


class ChangesPadding(Good):
    def update(self, value: Any, gradient: Any, states: Any, count: int, hyper: Hyper) -> None:
        states["mean"] += 1


class OnlyDouble(Good):
    def states(self, dtype: Any) -> Any:
        return (("mean", {"float64": dtype}[dtype.name]),)


class RaisesLater(Good):
    def update(self, value: Any, gradient: Any, states: Any, count: int, hyper: Hyper) -> None:
        if count == 2:
            raise ArithmeticError("the second one")


@pytest.fixture(autouse=True)
def rules(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType(MODULE)
    module.__dict__.update({kind.__name__: kind for kind in (Good, *Good.__subclasses__())})
    monkeypatch.setitem(sys.modules, MODULE, module)


def tried(kind: str, *dtypes: str, modules: Mapping[str, ModuleFile] = MODULES) -> str:
    return trial(OptimizerSpec(f"{MODULE}:{kind}").to_json(), dtypes or ("float32",), modules)


def test_a_good_one_is_taken() -> None:
    assert tried("Good", "float16", "float32", "float64") == ""
    assert trial(OptimizerSpec("sgd", {"momentum": 0.9}).to_json(), ("float32", "int64"), ()) == ""


@pytest.mark.parametrize(
    ("kind", "why"),
    [
        ("Missing", "cannot be loaded on this server: .*no attribute 'Missing'"),
        ("RaisesWhenMade", r"cannot be made: ValueError\('no luck today'\)"),
        ("EndsTheProcessWhenMade", r"cannot be made: SystemExit\(3\)"),
        ("HasNoStates", "fails in states: ValueError"),
        ("RaisesInStates", r"fails in states: KeyError\('float32'\)"),
        ("RaisesInInit", r"fails in init: KeyError\('variance'\)"),
        ("RaisesInUpdate", "fails in update 1: AttributeError.*no_such_thing"),
        ("WritesToTheGradient", "fails in update 1: ValueError.*read-only"),
        ("ChangesPadding", "changes mean where value, gradient and states are 0"),
    ],
)
def test_what_does_not_work_is_named(kind: str, why: str) -> None:
    assert re.search(f"optimizer '{MODULE}:{kind}' {why}", tried(kind))


@pytest.mark.parametrize(
    ("name", "arguments"),
    [("adam", {"beta1": 1.0}), ("adamw", {"beta1": 1.0}), ("adam", {"beta2": 2}), ("adam", {"begin_num_update": -1})],
)
def test_numbers_with_which_nothing_can_be_calculated_are_named(name: str, arguments: dict[str, float]) -> None:
    """An error in its thread would end the server."""
    ((key, value),) = arguments.items()
    found = trial(OptimizerSpec(name, arguments).to_json(), ["float32"], {})
    assert re.search(rf"optimizer Adam.*{key}={value}.*: update \S+ cannot be calculated with these numbers", found)


def test_numbers_that_a_script_changes_to_such_are_named_while_the_job_trains() -> None:
    rule = make_rule(OptimizerSpec("torch.Adagrad"))
    value = np.zeros(4, np.float32)
    states = {"sum": np.zeros(4, np.float32)}
    hyper = Hyper(groups=({"lr_decay": -1.0},))
    rule.update(value, value, states, 1, hyper)
    with pytest.raises(RuleFailed, match=r"TorchAdagrad\(.*lr_decay=-1.0: update 2 cannot be calculated"):
        rule.update(value, value, states, 2, hyper)


def test_a_module_that_the_server_may_not_load() -> None:
    assert f"start it with --optimizer-module {MODULE}" in tried("Good", modules={})


def test_each_element_type_is_tried() -> None:
    assert tried("OnlyDouble", "float64") == ""
    assert "fails in states: KeyError('float32')" in tried("OnlyDouble", "float64", "float32")


def test_an_import_that_raises_anything(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_name: str) -> None:
        raise SystemExit(1)

    monkeypatch.setattr("elastic_ps.optimizers.user_rule.load", broken)
    assert "cannot be loaded on this server: SystemExit(1)" in tried("Good")


def test_a_rule_that_raises_while_the_job_trains_is_named() -> None:
    rule = make_rule(OptimizerSpec(f"{MODULE}:RaisesLater"), MODULES)
    value = np.zeros(4, np.float32)
    states = {"mean": np.zeros(4, np.float32)}
    rule.update(value, value, states, 1, Hyper())
    with pytest.raises(RuleFailed, match=f"optimizer '{MODULE}:RaisesLater' fails in update 2: ArithmeticError"):
        rule.update(value, value, states, 2, Hyper())


def test_a_lack_of_memory_is_not_the_rules_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    def update(*_: Any) -> None:
        raise MemoryError

    monkeypatch.setattr(Good, "update", update)
    rule = make_rule(OptimizerSpec(f"{MODULE}:Good"), MODULES)
    with pytest.raises(MemoryError):
        rule.update(np.zeros(1), np.zeros(1), {}, 1, Hyper())
