"""What cannot be done is refused, in the words of PyTorch, with what to do instead."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.utils.data import IterableDataset  # noqa: E402

import elastic_ps.torch as elastic  # noqa: E402
from elastic_ps.core.errors import ConfigurationError  # noqa: E402
from elastic_ps.core.script_hints import PHRASES  # noqa: E402
from elastic_ps.torch.rules import hyper, translate  # noqa: E402
from tests.elastic_ps.torch.lone_job import lone_job  # noqa: E402
from tests.elastic_ps.torch.small_script import DATA, Around, model, wrapped  # noqa: E402


class Mine(torch.optim.SGD):
    pass


class Unknown(torch.optim.Optimizer):
    def __init__(self, params: Any) -> None:
        super().__init__(params, {"lr": 0.1})


class Named(torch.optim.SGD):
    elastic_rule = "my_rules:Mine"

    def elastic_args(self) -> dict[str, Any]:
        return {"beta": 0.5}


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (
            lambda: wrapped(torch.optim.SparseAdam),
            r"SparseAdam is not known to the servers: it keeps rows apart .*. Use one of torch.optim's ASGD, Adad",
        ),
        (lambda: wrapped(torch.optim.LBFGS), "LBFGS is not known to the servers: it calls the loss several times"),
        (lambda: wrapped(Unknown), "Unknown is not known to the servers. Use"),
        (lambda: wrapped(Mine, lr=0.1), "Mine is a subclass of SGD whose code stays"),
        (lambda: wrapped(torch.optim.Adam, eps=0), "has eps=0: .* above 0"),
        (lambda: wrapped(torch.optim.Adagrad, initial_accumulator_value=0.1), "servers begin with 0; leave it out"),
        (lambda: wrapped(torch.optim.SGD, lr=0.1, differentiable=True), "differentiable"),
        (lambda: elastic.Optimizer(torch.optim.SGD(model().parameters(), 0.1), model()), "takes a torch.nn.Module"),
        (
            lambda: elastic.Optimizer(model(), torch.optim.SGD(model().parameters(), 0.1)),
            r"none of the model's: .*ModuleList\(",
        ),
        (lambda: elastic.Optimizer(model(), wrapped(torch.optim.SGD, lr=0.1)), "is an elastic.Optimizer already"),
        (
            lambda: elastic.Optimizer(model(), Around(torch.optim.SGD(model().parameters(), 0.1))),
            r"Around has not called .*: where it wraps another, .* give elastic.Optimizer the optimizer itself",
        ),
        (
            lambda: elastic.Optimizer(model(), torch.optim.SGD(model().parameters(), 0.1), compression="2bit"),
            "compression='2bit': give 'bfloat16' or 'float16', or None",
        ),
        (lambda: wrapped(torch.optim.SGD, lr=0.1).add_param_group({"params": []}), "all its groups before"),
    ],
)
def test_optimizers(make: Any, words: str) -> None:
    with pytest.raises(ConfigurationError, match=words):
        make()


def test_an_optimizer_may_have_an_attribute_of_any_name() -> None:
    net = model()
    own = torch.optim.SGD(net.parameters(), 0.1)
    own.wrapped = True
    assert elastic.Optimizer(net, own).wrapped is own


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda net: net.to(torch.bfloat16), "parameter 0.weight is torch.bfloat16: keep .*autocast"),
        (lambda net: net.to("meta"), "parameter 0.weight is on meta"),
        (
            lambda net: net.register_parameter("few", nn.Parameter(torch.ones(2, dtype=torch.int8), False)) or net,
            "parameter few is torch.int8: a job cannot hold quantized parameters; load the model without",
        ),
    ],
)
def test_parameters(change: Any, words: str) -> None:
    net = change(model())
    with pytest.raises(ConfigurationError, match=words):
        elastic.Optimizer(net, torch.optim.SGD(net.parameters(), 0.1))


@pytest.mark.parametrize("kind", [nn.Embedding, nn.EmbeddingBag])
def test_embeddings_whose_forward_pass_changes_them(kind: Any) -> None:
    net = nn.Sequential(kind(6, 3, max_norm=0.5), nn.Linear(3, 1))
    with pytest.raises(ConfigurationError, match=r"parameter 0.weight is of an Embedding.* with max_norm=0.5: .* rows"):
        elastic.Optimizer(net, torch.optim.SGD(net.parameters(), 0.1))
    elastic.Optimizer(net, torch.optim.SGD(net[1].parameters(), 0.1))  # a frozen one comes to the same anywhere
    net = nn.Sequential(kind(6, 3), nn.Linear(3, 1))
    elastic.Optimizer(net, torch.optim.SGD(net.parameters(), 0.1))


def test_batch_norm_over_all_workers() -> None:
    net = nn.SyncBatchNorm.convert_sync_batchnorm(nn.Sequential(nn.Linear(4, 2), nn.BatchNorm1d(2)))
    with pytest.raises(ConfigurationError, match="1 is a SyncBatchNorm: there is no process group"):
        elastic.Optimizer(net, torch.optim.SGD(net.parameters(), 0.1))
    net[1].eval()
    elastic.Optimizer(net, torch.optim.SGD(net.parameters(), 0.1))


def test_flags_that_differ_between_groups() -> None:
    net = model()
    groups = [{"params": [net[0].weight], "nesterov": True}, {"params": [net[0].bias]}]
    with pytest.raises(ConfigurationError, match="nesterov differs between the parameter groups of SGD"):
        elastic.Optimizer(net, torch.optim.SGD(groups, 0.1, momentum=0.9))


def test_a_class_that_names_its_rule_is_taken() -> None:
    assert wrapped(Named, lr=0.1)._spec.to_json() == '{"args": {"beta": 0.5}, "keys": {}, "name": "my_rules:Mine"}'


class Endless(IterableDataset):
    def __iter__(self) -> Iterator[int]:
        return iter(range(3))


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: elastic.DataLoader(Endless(), 4), "can only be iterated over .* map-style"),
        (lambda: elastic.DataLoader(DATA), "DataLoader needs global_batch"),
        (lambda: elastic.Sampler(DATA), "Sampler needs global_batch"),
        (lambda: elastic.Sampler(Endless(), 4), "elastic.Sampler needs a data set with len"),
        (lambda: elastic.DataLoader(DATA, batch_size=4), "takes no batch_size: give global_batch"),
        (lambda: elastic.DataLoader(DATA, 4, batch_size=None), "takes no batch_size: give global_batch"),
        (lambda: elastic.DataLoader(DATA, 4, sampler=object()), "takes no sampler: the job divides"),
        (lambda: elastic.DataLoader(DATA, 4, timeout=30), "takes no timeout: leave it out"),
        (lambda: elastic.DataLoader(DATA, 4, num_workers=-1), "num_workers must be 0 or more"),
        (lambda: elastic.DataLoader(DATA, 4, num_workers="2"), "num_workers must be a whole number, not '2'"),
        (lambda: elastic.DataLoader(DATA, 4, num_workers=None), "num_workers must be a whole number, not None"),
        (lambda: elastic.DataLoader(DATA, 4, prefetch_factor=0), "prefetch_factor must be 1 or more, not 0"),
        (lambda: elastic.DataLoader(DATA, 4, prefetch_factor=2.5), "prefetch_factor must be a whole number, not 2.5"),
        (lambda: elastic.DataLoader(DATA, 4, collate_fn="stack"), "collate_fn must be a function, not 'stack'; or"),
        (lambda: elastic.DataLoader(DATA, 4, worker_init_fn=1), "worker_init_fn must be a function, not 1; or"),
        (lambda: elastic.Sampler(DATA, 64 / 8), "global_batch must be a whole number, not 8.0"),
        (lambda: elastic.epochs("3"), "the number of epochs must be a whole number, not '3'"),
        (lambda: elastic.epochs(torch.tensor(2.5)), "the number of epochs must be a whole number, not tensor"),
        (
            lambda: elastic.load("model.safetensors", model()),
            r"elastic.load\(model, path\) takes a torch.nn.Module, not",
        ),
    ],
)
def test_loaders(make: Any, words: str) -> None:
    with pytest.raises(ConfigurationError, match=words):
        make()


def test_pytorchs_own_defaults_are_taken() -> None:
    """A script that hands all of its settings on gives them as such."""
    nothing = dict.fromkeys(("sampler", "batch_sampler", "generator", "multiprocessing_context"))
    assert len(elastic.DataLoader(DATA, 4, timeout=0, **nothing)) == 3


def test_whole_numbers_of_pytorch_are_taken() -> None:
    with lone_job():
        loader = elastic.DataLoader(DATA, torch.tensor(4), num_workers=torch.tensor(0))
        assert (len(loader), type(loader.global_batch)) == (3, int)
        assert next(elastic.epochs(torch.tensor(2))) == 0


@pytest.mark.parametrize("bound", ["1.0", 0, -1.0, float("nan"), float("inf"), 10**400, 1j, torch.ones(2)])
def test_a_norm_that_is_no_number(bound: Any) -> None:
    net = model()
    own = torch.optim.SGD(net.parameters(), 0.1)
    with pytest.raises(ConfigurationError, match=r"max_norm=.*: give a number above 0, or None"):
        elastic.Optimizer(net, own, max_norm=bound)
    assert elastic.Optimizer(net, own, max_norm=torch.tensor(2)).max_norm == 2.0


@pytest.mark.parametrize("rate", [np.float32(0.5), np.float64(0.5), np.array(0.5), torch.tensor(0.5), np.int64(2)])
def test_numbers_of_numpy_are_the_step_s(rate: Any) -> None:
    own = torch.optim.SGD(model().parameters(), lr=rate)
    assert hyper(own, translate(own, {}), ()).groups[0]["lr"] == float(rate)


@pytest.mark.parametrize("rate", ["0.5", None, True, np.ones(2), np.bool_(True), 1j])
def test_a_setting_that_is_no_number(rate: Any) -> None:
    own = torch.optim.SGD(model().parameters(), lr=0.1)
    spec = translate(own, {})
    own.param_groups[0]["lr"] = rate
    with pytest.raises(ConfigurationError, match=r"parameter group 0: lr is .*; give a number"):
        hyper(own, spec, ())


@pytest.mark.parametrize("states", [None, {}, [1], model().state_dict()])
def test_states_of_something_else(states: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"takes what an optimizer's state_dict\(\) has returned, not "):
        wrapped(torch.optim.SGD, lr=0.1).load_state_dict(states)


def test_states_with_other_settings_change_nothing() -> None:
    optimizer, other = (wrapped(torch.optim.Adam, lr=rate, amsgrad=flag) for rate, flag in ((0.1, False), (0.2, True)))
    with pytest.raises(ConfigurationError, match="the groups to load have other settings"):
        optimizer.load_state_dict(other.state_dict())
    for groups in (optimizer.param_groups, optimizer.wrapped.param_groups):
        assert (groups[0]["lr"], groups[0]["amsgrad"]) == (0.1, False)


def test_an_unknown_argument_is_a_type_error() -> None:
    with pytest.raises(TypeError, match="no argument 'batchsize'"):
        elastic.DataLoader(DATA, 4, batchsize=4)


@pytest.mark.parametrize("phrase", PHRASES)
def test_every_phrase_has_a_hint(phrase: str) -> None:
    assert ". In PyTorch: " in str(ConfigurationError(f"this needs {phrase}"))
