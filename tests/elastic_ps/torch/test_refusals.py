"""What cannot be done is refused, in the words of PyTorch, with what to do instead."""

import copy
import io
import multiprocessing
from collections.abc import Iterator
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.utils.data import IterableDataset, TensorDataset  # noqa: E402

import elastic_ps.torch as elastic  # noqa: E402
from elastic_ps.core.errors import ConfigurationError  # noqa: E402
from elastic_ps.core.script_hints import PHRASES  # noqa: E402
from elastic_ps.torch.arrays import ModelArray  # noqa: E402
from tests.elastic_ps.torch.lone_job import lone_job  # noqa: E402

DATA = TensorDataset(torch.randn(12, 4), torch.randn(12, 2))


def model() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 2))


def loss(net: nn.Module, batch: Any) -> torch.Tensor:
    return ((net(batch[0]) - batch[1]) ** 2).mean()


def wrapped(kind: Any, **arguments: Any) -> elastic.Optimizer:
    net = model()
    return elastic.Optimizer(net, kind(net.parameters(), **arguments))


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
        (lambda: elastic.Optimizer(model(), torch.optim.SGD(model().parameters(), 0.1)), "none of the model's"),
        (lambda: elastic.Optimizer(model(), wrapped(torch.optim.SGD, lr=0.1)), "is an elastic.Optimizer already"),
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
        (lambda: elastic.DataLoader(DATA, 4, sampler=object()), "takes no sampler: the job divides"),
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


def train(
    body: Any, kind: Any = torch.optim.SGD, schedule: Any = None, overlap: bool = False, **arguments: Any
) -> None:
    """A loop whose body is called with (model, optimizer, batch, number)."""
    with lone_job():
        net = model()
        optimizer = elastic.Optimizer(net, kind(net.parameters(), **{"lr": 0.1, **arguments}), overlap=overlap)
        scheduler = schedule(optimizer) if schedule else None
        loader = elastic.DataLoader(DATA, 4)
        for _epoch in elastic.epochs(2):
            for number, batch in enumerate(loader):
                body(net, optimizer, batch, number)
        del scheduler


def first_batch() -> None:
    next(elastic.epochs(1))
    next(iter(elastic.DataLoader(DATA, 4)))


def test_a_loop_without_epochs() -> None:
    with lone_job(), pytest.raises(ConfigurationError, match=r"outside of `for epoch in elastic.epochs\(n\)`"):
        next(iter(elastic.DataLoader(DATA, 4)))


def plain(net: nn.Module, optimizer: Any, batch: Any, _number: int) -> None:
    optimizer.zero_grad()
    loss(net, batch).backward()
    optimizer.step()


def test_a_second_loop_goes_on_where_the_first_has_ended() -> None:
    with lone_job() as (_, servers):
        net = model()
        optimizer = elastic.Optimizer(net, torch.optim.SGD(net.parameters(), 0.1))
        loader = elastic.DataLoader(DATA, 4)
        for last in (2, 5):
            for epoch in elastic.epochs(last):
                for batch in loader:
                    plain(net, optimizer, batch, epoch)
        assert len(servers.exchanges) == 5 * len(loader)
        with pytest.raises(ConfigurationError, match=r"epochs\(3\) has no epoch left: .* such as elastic.epochs\(8\)"):
            elastic.epochs(3)


def test_a_plain_body_is_taken() -> None:
    train(plain)
    train(exploding)


def exploding(net: nn.Module, optimizer: Any, batch: Any, _number: int) -> None:
    optimizer.zero_grad()
    (loss(net, batch) * torch.nan).backward()
    optimizer.step()


def clipping(net: nn.Module, optimizer: Any, batch: Any, _number: int) -> None:
    optimizer.zero_grad()
    loss(net, batch).backward()
    nn.utils.clip_grad_norm_(net.parameters(), 1.0)
    optimizer.step()


def clamping(net: nn.Module, optimizer: Any, batch: Any, _number: int) -> None:
    optimizer.zero_grad()
    loss(net, batch).backward()
    for parameter in net.parameters():
        parameter.grad.data.clamp_(-1e-3, 1e-3)  # which PyTorch does not count
    optimizer.step()


def accumulating(net: nn.Module, optimizer: Any, batch: Any, number: int) -> None:
    loss(net, batch).backward()
    if number % 2 == 0:
        optimizer.step()


def with_closure(net: nn.Module, optimizer: Any, batch: Any, _number: int) -> None:
    optimizer.step(lambda: loss(net, batch))


def without_backward(_net: nn.Module, optimizer: Any, _batch: Any, _number: int) -> None:
    optimizer.zero_grad()
    optimizer.step()


def hooking(net: nn.Module, optimizer: Any, batch: Any, number: int) -> None:
    if number == 1:
        optimizer.wrapped.register_step_post_hook(lambda *_: None)
    plain(net, optimizer, batch, number)


def turning(net: nn.Module, optimizer: Any, batch: Any, number: int) -> None:
    optimizer.param_groups[0]["maximize"] = number == 1
    plain(net, optimizer, batch, number)


def diverging(net: nn.Module, optimizer: Any, batch: Any, number: int) -> None:
    optimizer.param_groups[0]["lr"] = float("nan")
    plain(net, optimizer, batch, number)


def gaining_momentum(net: nn.Module, optimizer: Any, batch: Any, number: int) -> None:
    optimizer.param_groups[0]["momentum"] = 0.9
    plain(net, optimizer, batch, number)


def adding_a_group(net: nn.Module, optimizer: Any, batch: Any, number: int) -> None:
    if number == 1:
        net.register_parameter("scale", nn.Parameter(torch.ones(2)))
        optimizer.wrapped.add_param_group({"params": [net.scale]})
    plain(net, optimizer, batch, number)


def taking_a_parameter_out(net: nn.Module, optimizer: Any, batch: Any, number: int) -> None:
    if number == 1:
        optimizer.wrapped.param_groups[0]["params"] = [net[0].weight]
    plain(net, optimizer, batch, number)


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (adding_a_group, "have other parameters than when .* was made: give torch.optim's optimizer all its groups"),
        (taking_a_parameter_out, "have other parameters than when"),
        (clipping, "gradient of 0.weight was changed after loss.backward.*clip_grad_norm_"),
        (clamping, "gradient of 0.weight was changed after loss.backward"),
        (accumulating, r"no optimizer.step\(\) in this batch: .* larger global_batch"),
        (with_closure, r"optimizer.step\(closure\) is refused"),
        (without_backward, r"without a gradient: call loss.backward\(\)"),
        (hooking, "SGD has hooks of its step, .* register them with the elastic.Optimizer"),
        (turning, "group 0 has maximize=True now, and the optimizer was made with False, which servers do not"),
        (diverging, "parameter group 0: lr is nan"),
        (gaining_momentum, "parameter group 0 has momentum 0.9, but none had any"),
    ],
)
def test_bodies(body: Any, words: str) -> None:
    with pytest.raises(ConfigurationError, match=words):
        train(body)


def train_with_cache(found: torch.Tensor | None, first: int) -> None:
    """A loop whose model has a buffer of four numbers, which is another one from the batch `first` on."""
    with lone_job():
        net = model()
        net.register_buffer("cache", torch.zeros(4))
        optimizer = elastic.Optimizer(net, torch.optim.SGD(net.parameters(), 0.1))
        next(elastic.epochs(1))
        for number, batch in enumerate(elastic.DataLoader(DATA, 4)):
            if number == first:
                net.cache = found
            plain(net, optimizer, batch, number)


@pytest.mark.parametrize("first", [0, 2])
@pytest.mark.parametrize(
    ("found", "now"),
    [
        (torch.ones(9), r"has the shape \(9,\) now"),
        (torch.ones(2), r"has the shape \(2,\) now"),
        (None, "is None now"),
    ],
)
def test_a_buffer_whose_shape_changes(found: torch.Tensor | None, now: str, first: int) -> None:
    with pytest.raises(ConfigurationError, match=rf"buffer cache {now}, and had the shape \(4,\) when the job began"):
        train_with_cache(found, first)


def test_memory_that_has_become_smaller_is_not_written_over() -> None:
    net = model()
    net.register_buffer("cache", torch.zeros(4))
    arrays = [ModelArray(net, "cache"), ModelArray(net[0], "bias")]
    assert ModelArray.addresses(arrays).all()
    net.cache = torch.zeros(2)
    assert ModelArray.addresses(arrays).astype(bool).tolist() == [False, True]


def dividing(net: nn.Module, optimizer: Any, batch: Any, _number: int) -> None:
    optimizer.zero_grad()
    for _ in range(2):
        loss(net, batch).backward()
    optimizer.step()


def taking_away(net: nn.Module, optimizer: Any, batch: Any, _number: int) -> None:
    loss(net, batch).backward()
    net[0].bias.grad = None
    optimizer.step()


def replacing(net: nn.Module, optimizer: Any, batch: Any, _number: int) -> None:
    optimizer.zero_grad()
    loss(net, batch).backward()
    net[0].bias.grad = 2 * net[0].bias.grad
    optimizer.step()


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (dividing, r"backward\(\) is called once more in this batch, .* without overlap=True"),
        (taking_away, "a gradient was taken away"),
        (replacing, "or replaced between"),
    ],
)
def test_bodies_whose_gradients_have_been_sent(monkeypatch: pytest.MonkeyPatch, body: Any, words: str) -> None:
    monkeypatch.setattr("elastic_ps.worker.script.early_sends.PORTION_BYTES", 1)
    train(plain, overlap=True)
    with pytest.raises(ConfigurationError, match=words):
        train(body, overlap=True)
    train(body)


def test_two_optimizers_do_not_overlap() -> None:
    with lone_job():
        net = model()
        parts = [net[0].weight], [net[0].bias]
        both = [elastic.Optimizer(net, torch.optim.SGD(part, 0.1), overlap=True) for part in parts]
        with pytest.raises(ConfigurationError, match=r"one elastic.Optimizer; leave it out"):
            first_batch()
        del both


def test_a_schedule_that_follows_a_metric() -> None:
    with pytest.raises(ConfigurationError, match="ReduceLROnPlateau is refused"):
        train(plain, schedule=torch.optim.lr_scheduler.ReduceLROnPlateau)


@pytest.mark.parametrize("copied", [copy.deepcopy, copy.copy, lambda it: torch.save({"it": it}, io.BytesIO())])
def test_a_copy_of_an_optimizer(copied: Any) -> None:
    optimizer = wrapped(torch.optim.SGD, lr=0.1)
    with pytest.raises(ConfigurationError, match=r"cannot be copied or pickled, .*: save optimizer.state_dict\(\)"):
        copied(optimizer)
    assert copied(optimizer.wrapped) is not optimizer.wrapped


def test_a_step_outside_of_the_loop() -> None:
    with lone_job():
        net = model()
        optimizer = elastic.Optimizer(net, torch.optim.SGD(net.parameters(), 0.1))
        loss(net, DATA[:4]).backward()
        with pytest.raises(ConfigurationError, match=r"outside of a loop over an elastic.DataLoader"):
            optimizer.step()


def test_an_optimizer_that_comes_too_late() -> None:
    with lone_job():
        net = model()
        first = elastic.Optimizer(net, torch.optim.SGD([net[0].weight], 0.1))
        next(elastic.epochs(1))
        for number, batch in enumerate(elastic.DataLoader(DATA, 4)):
            if number == 1:
                late = elastic.Optimizer(net, torch.optim.SGD([net[0].bias], 0.1))
                loss(net, batch).backward()
                with pytest.raises(ConfigurationError, match="before the loop"):
                    late.step()
                break
            plain(net, first, batch, number)


def test_an_optimizer_that_begins_behind_the_first_batch() -> None:
    with lone_job():
        net = model()
        one, two = (elastic.Optimizer(net, torch.optim.SGD([part], 0.1)) for part in net.parameters())
        next(elastic.epochs(1))
        batches = iter(elastic.DataLoader(DATA, 4))
        for number in range(2):
            plain(net, one, next(batches), number)
        with pytest.raises(ConfigurationError, match=r"more than the 1 exchanges .* In PyTorch: the first batch of"):
            two.step()


def test_a_parameter_of_two_optimizers() -> None:
    with lone_job():
        net = model()
        both = [elastic.Optimizer(net, torch.optim.SGD(net.parameters(), 0.1)) for _ in range(2)]
        with pytest.raises(ConfigurationError, match=r"parameter 0.weight is in two elastic.Optimizers"):
            first_batch()
        del both


@pytest.mark.parametrize("overlap", [False, True])
def test_an_optimizer_that_the_script_has_let_go_updates_nothing(overlap: bool) -> None:
    with lone_job() as (_, servers):
        net = model()
        optimizer = elastic.Optimizer(net, torch.optim.SGD(net.parameters(), 0.1), overlap=overlap)
        optimizer = elastic.Optimizer(net, torch.optim.SGD(net.parameters(), 0.2), overlap=overlap)
        scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)
        for _epoch in elastic.epochs(2):
            for number, batch in enumerate(elastic.DataLoader(DATA, 4)):
                plain(net, optimizer, batch, number)
            scheduler.step()
    assert len(servers.exchanges) == 2 * 3
    assert optimizer.param_groups[0]["lr"] == 0.05


def test_a_process_that_loads_data_does_not_train(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(multiprocessing, "parent_process", object)
    with pytest.raises(ConfigurationError, match='under `if __name__ == "__main__":`'):
        elastic.epochs(3)


@pytest.mark.parametrize("phrase", PHRASES)
def test_every_phrase_has_a_hint(phrase: str) -> None:
    assert ". In PyTorch: " in str(ConfigurationError(f"this needs {phrase}"))
