"""An MXNet optimizer in our terms: what is known, what is refused, what may change while training."""

import logging
import pickle
from functools import partial
from typing import Any

import numpy as np
import pytest

from elastic_ps.core.errors import ConfigurationError
from elastic_ps.core.optimizer import Hyper, OptimizerSpec
from elastic_ps.mxnet.optimizers import _KNOWN, AdamW, check_dtype, hyper, to_mxnet_states, translate
from elastic_ps.mxnet.shim import mxnet as mx
from elastic_ps.optimizers import make_rule

gluon = mx.gluon
pytestmark = pytest.mark.mxnet


def key(index: Any) -> str:
    return f"s:{index}" if isinstance(index, str) else f"i:{index}"


def test_names_and_constants_travel_and_nothing_else() -> None:
    spec = translate(mx.optimizer.SGD(momentum=0.9, learning_rate=0.3, wd=0.1, multi_precision=True), key)
    assert spec == OptimizerSpec(
        "sgd", {"momentum": 0.9, "lazy_update": True, "begin_num_update": 0, "multi_precision": True}
    )
    assert OptimizerSpec.from_json(spec.to_json()) == spec


@pytest.mark.parametrize(
    ("name", "args"),
    [
        ("adam", {"beta1": 0.9, "beta2": 0.999, "epsilon": 1e-8, "lazy_update": True}),
        ("adamw", {"beta1": 0.9, "beta2": 0.999, "epsilon": 1e-6, "correct_bias": True}),
        ("nag", {"momentum": 0.0}),
        ("rmsprop", {"gamma1": 0.9, "gamma2": 0.9, "epsilon": 1e-8, "centered": False, "clip_weights": None}),
        ("adagrad", {"eps": 1e-7}),
        ("ftrl", {"lamda1": 0.01, "beta": 1}),
        ("test", {}),
    ],
)
def test_each_by_its_name_in_mxnet(name: str, args: dict[str, Any]) -> None:
    spec = translate(mx.optimizer.create(name, begin_num_update=3), key)
    assert spec == OptimizerSpec(name, {**args, "begin_num_update": 3, "multi_precision": False})


def test_every_optimizer_of_mxnets_that_travels_is_one_that_servers_have_of_themselves() -> None:
    for kind in _KNOWN:
        make_rule(translate(kind(rescale_grad=2), key))


def test_adamw_trains_with_mxnets_own_kvstore_too() -> None:
    net = gluon.nn.Dense(1, in_units=2)
    net.initialize(mx.init.One())
    trainer = gluon.Trainer(net.collect_params(), "adamw", {"learning_rate": 0.1, "wd": 0.1}, kvstore="local")
    with mx.autograd.record():
        loss = net(mx.nd.ones((4, 2))).sum()
    loss.backward()
    trainer.step(4)
    # The gradient is 1, so Adam's step is lr; the decay is lr * sqrt(1 - beta2) / (1 - beta1) * wd.
    assert net.weight.data().asnumpy() == pytest.approx(1 - 0.1 - 0.1 * 0.001**0.5 / 0.1 * 0.1, rel=1e-4)


def test_numpys_numbers_are_numbers() -> None:
    spec = translate(mx.optimizer.SGD(momentum=np.float32(0.5)), key)
    assert spec.args["momentum"] == 0.5
    assert OptimizerSpec.from_json(spec.to_json()) == spec


class Louder(mx.optimizer.SGD):  # type: ignore[misc]
    pass


class Unrelated(mx.optimizer.Optimizer):  # type: ignore[misc]
    pass


class Served(mx.optimizer.SGD):  # type: ignore[misc]
    elastic_rule = "my_rules:Louder"

    def elastic_args(self) -> dict[str, Any]:
        return {"volume": 11}


class Child(Served):
    pass


def test_a_class_may_name_its_own_rule() -> None:
    assert translate(Served(), key) == OptimizerSpec("my_rules:Louder", {"volume": 11})


@pytest.mark.parametrize(
    ("optimizer", "message"),
    [
        (Louder(), r"Louder is a subclass of SGD .* Use one of AdaGrad, Adam, .*elastic_rule = .module:Class"),
        (Child(), "Child is a subclass of SGD"),  # it may change what its parent's rule does
        (Unrelated(), "Unrelated is not known to the servers"),
        (mx.optimizer.Nadam(), "Nadam is not known to the servers.*update_on_kvstore=False"),
        (mx.optimizer.SGD(momentum=-1.0), "momentum must be 0 or more"),
        (mx.optimizer.Adam(epsilon=0.0), "epsilon must be above 0"),
        (mx.optimizer.SGD(momentum="much"), "momentum must be a number, not 'much'"),
    ],
)
def test_what_servers_cannot_do_is_refused(optimizer: Any, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        translate(optimizer, key)


def mults(optimizer: Any, indices: Any) -> dict[str, dict[str, float]]:
    """What MXNet's own methods say."""
    optimizer.lr = optimizer.wd = 1.0
    result = {}
    for index in indices:
        factors = {"lr_mult": optimizer._get_lr(index), "wd_mult": optimizer._get_wd(index)}
        if changed := {name: factor for name, factor in factors.items() if factor != 1}:
            result[key(index)] = changed
    return result


def test_factors_by_name_index_and_default() -> None:
    names = {0: "a_weight", 1: "a_bias", 2: "b_gamma", 3: "b_weight"}
    optimizer = mx.optimizer.SGD(param_idx2name=names)
    optimizer.set_lr_mult({"a_weight": 0.5, 3: 2.0})
    optimizer.set_wd_mult({"b_weight": 0.0})
    expected = mults(optimizer, [*names, "a_weight", "a_bias", "b_weight"])
    assert translate(optimizer, key).keys == expected
    assert expected["i:1"] == expected["s:a_bias"] == {"wd_mult": 0.0}
    assert expected["i:3"] == {"lr_mult": 2.0, "wd_mult": 0.0}


def test_factors_of_gluon_parameters_win() -> None:
    parameters = {index: gluon.Parameter(f"p{index}", lr_mult=index, wd_mult=1 - index) for index in range(3)}
    optimizer = mx.optimizer.SGD(param_dict=parameters)
    optimizer.set_lr_mult({0: 7.0})
    assert translate(optimizer, key).keys == mults(optimizer, range(3))


def test_values_of_a_step_follow_the_script() -> None:
    optimizer = mx.optimizer.Adam(learning_rate=0.5, wd=0.25, clip_gradient=2, rescale_grad=0.125)
    assert hyper(optimizer, 1) == Hyper(0.5, 0.25, 0.125, 2.0)
    optimizer.set_learning_rate(0.1)
    optimizer.rescale_grad = mx.nd.array([0.75])
    optimizer.clip_gradient = None
    assert hyper(optimizer, 2) == Hyper(0.1, 0.25, 0.75, None)


@pytest.mark.parametrize("scale", [np.inf, np.nan])
def test_a_step_that_loss_scaling_skips_is_left_out_by_the_servers(scale: float) -> None:
    """A frame brings finite numbers only."""
    optimizer = AdamW(rescale_grad=mx.nd.array([scale]))
    values = hyper(optimizer, 1)
    assert values.rescale_grad == 0
    rule = make_rule(translate(optimizer, key))
    value, states = np.ones(2, np.float32), {name: np.ones(2, np.float32) for name in ("mean", "variance")}
    rule.update(value, np.full(2, 3, np.float32), states, 1, values)
    assert [array.tolist() for array in (value, *states.values())] == [[1, 1]] * 3


@pytest.mark.parametrize("name", ["wd", "rescale_grad", "lr", "clip_gradient"])
def test_values_that_are_no_numbers_are_named(name: str) -> None:
    optimizer = mx.optimizer.SGD()
    setattr(optimizer, name, np.nan)
    with pytest.raises(ConfigurationError, match=f"the optimizer's {name} is nan; give a finite number"):
        hyper(optimizer, 1)


def test_an_infinite_bound_of_gradients_is_none() -> None:
    assert hyper(mx.optimizer.SGD(clip_gradient=np.inf), 1).clip_gradient is None


def test_a_schedule_may_be_asked_in_any_order(caplog: pytest.LogCaptureFixture) -> None:
    optimizer = mx.optimizer.SGD(lr_scheduler=mx.lr_scheduler.FactorScheduler(step=2, factor=0.5, base_lr=1.0))
    with caplog.at_level(logging.INFO):
        rates = [hyper(optimizer, number).lr for number in (1, 2, 3, 4, 5, 5, 6)]
    assert rates == [1, 1, 0.5, 0.5, 0.25, 0.25, 0.25]
    assert len([record for record in caplog.records if "Change learning rate" in record.message]) == 2
    assert hyper(optimizer, 1).lr == 1  # after a step was redone from further back
    assert hyper(optimizer, 5).lr == 0.25
    assert optimizer.lr_scheduler.base_lr == 1.0
    assert optimizer.num_update == 0


def test_a_new_schedule_counts_at_once() -> None:
    optimizer = mx.optimizer.SGD(lr_scheduler=mx.lr_scheduler.FactorScheduler(step=2, factor=0.5, base_lr=1.0))
    assert hyper(optimizer, 3).lr == 0.5
    optimizer.lr_scheduler = mx.lr_scheduler.FactorScheduler(step=2, factor=0.1, base_lr=4.0)
    assert hyper(optimizer, 3).lr == pytest.approx(0.4)


ENDING = {
    "poly": partial(mx.lr_scheduler.PolyScheduler, 10, base_lr=0.5, final_lr=0.125),
    "cosine": partial(mx.lr_scheduler.CosineScheduler, 10, base_lr=0.5, final_lr=0.125, warmup_steps=2),
}


@pytest.mark.parametrize("name", ENDING)
def test_a_schedule_that_has_ended_keeps_its_last_rate_in_a_new_chief(name: str) -> None:
    def rates(*numbers: int) -> list[float]:
        optimizer = mx.optimizer.SGD(lr_scheduler=ENDING[name]())
        return [hyper(optimizer, number).lr for number in numbers]

    whole = rates(*range(1, 14))
    assert whole[9:] == [0.125] * 4
    assert rates(11) == [0.125]  # the first that it evaluates
    assert rates(3, 12) == [whole[2], 0.125]  # it was chief before
    assert rates(12, 3, 12) == [0.125, whole[2], 0.125]


@pytest.mark.parametrize("name", ENDING)
@pytest.mark.parametrize("count", [10, 11])
def test_a_schedule_that_has_ended_is_saved_with_its_last_rate(name: str, count: int) -> None:
    optimizer = mx.optimizer.SGD(lr_scheduler=ENDING[name]())
    updater = mx.optimizer.get_updater(optimizer)
    updater.states = to_mxnet_states(optimizer, {0: {"count": count}})
    _, loaded = pickle.loads(updater.get_states(dump_optimizer=True))
    assert loaded.lr_scheduler(count + 1) == 0.125  # as MXNet's own kvstores ask
    assert hyper(loaded, count + 1).lr == 0.125
    assert hyper(optimizer, 3).lr == hyper(mx.optimizer.SGD(lr_scheduler=ENDING[name]()), 3).lr


def test_adagrads_negative_bound_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="clip_gradient must be 0 or more for AdaGrad, not -1"):
        hyper(mx.optimizer.AdaGrad(clip_gradient=-1), 1)
    assert hyper(mx.optimizer.SGD(clip_gradient=-1), 1).clip_gradient == -1  # there it means none


def test_keys_that_cannot_be_updated_are_named() -> None:
    spec = translate(AdamW(), key)
    check_dtype(spec, "weight", "float32")
    with pytest.raises(ConfigurationError, match="key labels: AdamW cannot update a int32 tensor"):
        check_dtype(spec, "labels", "int32")
    check_dtype(OptimizerSpec("my_rules:Louder"), "labels", "int32")  # its servers know
