"""A step's sum: its buckets, its memory, and what becomes of it in the hands of optimizers."""

import weakref
from unittest.mock import patch

import pytest

torch = pytest.importorskip("torch")

from elastic_ps.core.errors import ConfigurationError  # noqa: E402
from elastic_ps.torch.allreduce.replica.record import StepRecord  # noqa: E402
from elastic_ps.torch.allreduce.replica.replica import PartWeights, Replica  # noqa: E402
from elastic_ps.torch.allreduce.replica.state_bytes import pack, unpack  # noqa: E402
from elastic_ps.torch.allreduce.store import ReplicaStore  # noqa: E402
from elastic_ps.torch.allreduce.summing.layout import Layout  # noqa: E402
from elastic_ps.torch.allreduce.summing.step_buffers import StepBuffers, is_in  # noqa: E402
from elastic_ps.torch.arrays import ModelArray, TorchArray  # noqa: E402
from elastic_ps.worker.script.staging import Staging  # noqa: E402
from protos import elastic_pb2 as pb  # noqa: E402
from tests.elastic_ps.torch.allreduce.small_replicas import OPTIMIZERS, filled, model_of, replica_of  # noqa: E402


def torch_rules():
    """Return the names of PyTorch's optimizers of dense gradients of any shape."""
    refused = {"Optimizer", "LBFGS", "SparseAdam", "Muon"}
    kinds = {name: kind for name, kind in vars(torch.optim).items() if isinstance(kind, type)}
    return sorted(
        name for name, kind in kinds.items() if issubclass(kind, torch.optim.Optimizer) and name not in refused
    )


def test_a_sum_counts_samples_and_leaves_its_record_as_it_is():
    """Two members with 3 and 1 samples: gradients and statistics are their means by samples."""
    models = [model_of(1), model_of(1)]
    replicas = [replica_of(model, OPTIMIZERS["SGD"]) for model in models]
    for model, number in zip(models, (1.0, 5.0), strict=True):
        for parameter in model.parameters():
            parameter.grad = torch.full_like(parameter, number)
        model[1].running_mean.fill_(number)
        model[1].num_batches_tracked.fill_(7)
    sums = replicas[0].layout.buffers()
    for replica, samples in zip(replicas, (3, 1), strict=True):
        own = filled(replica, PartWeights(samples / 4, samples / 4))
        for dtype, whole in own.items():
            sums[dtype] += whole
    before = {dtype: whole.clone() for dtype, whole in sums.items()}
    record = StepRecord(0, sums, (True,) * 4, replicas[0].numbers, pb.LedgerEntry())
    for model, replica in zip(models, replicas, strict=True):
        before_it, own = model[0].weight.clone(), model[0].weight.grad.clone()
        assert replica.apply(record)
        assert torch.equal(model[0].weight, before_it - 0.1 * torch.full((2, 3), 2.0))
        assert torch.equal(model[0].weight.grad, own), "the script's gradients stay its own"
        assert torch.equal(model[1].running_mean, torch.full((2,), 2.0))
        assert model[1].num_batches_tracked == 7
        model[0].weight.grad.zero_()
    assert all(torch.equal(whole, before[dtype]) for dtype, whole in sums.items())


def test_a_member_without_samples_adds_nothing():
    model = model_of(1)
    replica = replica_of(model, OPTIMIZERS["SGD"])
    for parameter in model.parameters():
        parameter.grad = torch.ones_like(parameter)
    model[1].running_mean.fill_(-torch.inf)  # the largest number of those that have not come yet, say
    assert not any(replica.present(False))
    assert not any(whole.any() for whole in filled(replica, PartWeights(0.0, 0.0)).values())


def test_buffers_are_used_again_when_no_record_lies_in_them():
    replica = replica_of(model_of(1), OPTIMIZERS["SGD"])
    needed = []
    buffers = StepBuffers(replica.layout, lambda memory: any(is_in(memory, sums) for sums in needed))
    first, received = buffers.of_step(), buffers.received
    needed.append(first)
    second = buffers.of_step()
    assert not any(is_in(whole, first) for whole in second.values())
    needed.clear()
    assert all(is_in(whole, first) for whole in buffers.of_step().values())
    buffers.abandon()
    assert not any(is_in(whole, first) or is_in(whole, second) for whole in buffers.of_step().values())
    assert buffers.received is not received


def test_who_joins_makes_its_memory_before_its_first_step():
    replica, made = replica_of(model_of(1), OPTIMIZERS["SGD"]), []
    buffers = StepBuffers(replica.layout, lambda memory: False)
    with patch.object(Layout, "buffers", lambda layout: made.append(layout) or {torch.float32: torch.zeros(1)}):
        buffers.prepare()
        assert len(made) == 2
        buffers.of_step()
        buffers.prepare()
    assert len(made) == 2


def test_memory_as_that_of_the_next_gradients():
    replica = replica_of(model_of(1), OPTIMIZERS["SGD"])
    spare = replica.spare_gradients()
    assert [each.nbytes for each in spare] == [each.nbytes for each in replica.parameters]
    assert not {each.data_ptr() for each in spare} & {each.data_ptr() for each in replica.parameters}
    replica.parameters[0].requires_grad_(False)
    assert [each.nbytes for each in replica.spare_gradients()] == [each.nbytes for each in replica.parameters[1:]], (
        "one that is frozen gets none, and may be most of the model"
    )


def test_memory_of_records_that_have_waited_for_a_shadow_is_let_go():
    replica = replica_of(model_of(1), OPTIMIZERS["SGD"])
    needed = []
    buffers = StepBuffers(replica.layout, lambda memory: any(is_in(memory, sums) for sums in needed))
    for _ in range(9):
        needed.append(buffers.of_step())
    known = [weakref.ref(sums[torch.float32]) for sums in needed]
    needed.clear()
    buffers.of_step()
    assert sum(each() is not None for each in known) == 2


def test_buckets_have_everything_once_and_the_last_gradients_first():
    replica = replica_of(model_of(1), OPTIMIZERS["SGD"])
    buckets = replica.layout.buckets(16)
    assert all(bucket.stop - bucket.start <= 4 for bucket in buckets if bucket.gradients)
    for dtype, length in replica.layout.lengths.items():
        covered = sorted(place for each in buckets if each.dtype == dtype for place in range(each.start, each.stop))
        assert covered == list(range(length))
    numbers = [piece.number for bucket in buckets for piece in reversed(bucket.gradients)]
    assert numbers == sorted(numbers, reverse=True)
    assert not any(bucket.gradients for bucket in buckets[-2:])
    shares = [buckets[0].share(rank, 3) for rank in range(3)]
    assert [each.start for each in shares] == [buckets[0].start, *(each.stop for each in shares[:2])]
    assert shares[-1].stop == buckets[0].stop


def applied(replica, steps):
    """Return of each step whether its record has stayed as it was, and what it is then; it was 1.0."""
    outcomes = []
    for version in range(steps):
        sums = replica.layout.buffers()
        sums[torch.float32].fill_(1.0)
        record = StepRecord(version, sums, (True,) * 4, replica.numbers, pb.LedgerEntry())
        outcomes.append((replica.apply(record), sums[torch.float32][0].item()))
    return outcomes


def doubled(parameter):
    parameter.grad.mul_(2)


def test_a_record_that_an_optimizer_has_changed_is_not_given_away_and_the_next_ones_are_copied():
    replica = replica_of(model_of(1), OPTIMIZERS["SGD"])
    with patch.object(torch.optim.SGD, "step", lambda optimizer: [doubled(each) for each in replica.parameters]):
        assert applied(replica, 2) == [(False, 2.0), (True, 1.0)]


class Greedy(torch.optim.SGD):
    """An optimizer that uses the gradients for its own purposes, so that PyTorch does not count it."""

    def step(self, closure=None):
        double_uncounted(self)
        return super().step(closure)


def double_uncounted(optimizer, *_):
    for parameter in optimizer.param_groups[0]["params"]:
        parameter.grad.data.mul_(2)


def hooked(parameters):
    optimizer = torch.optim.SGD(parameters, lr=0.1)
    optimizer.register_step_pre_hook(double_uncounted)
    return optimizer


@pytest.mark.parametrize("make", [lambda parameters: Greedy(parameters, lr=0.1), hooked])
def test_what_is_none_of_torch_optim_is_lent_no_record_and_not_followed(make):
    replica = replica_of(model_of(1), make)
    weight = replica.parameters[0].detach().clone()
    assert applied(replica, 2) == [(True, 1.0)] * 2
    torch.testing.assert_close(replica.parameters[0].detach(), weight - 2 * 0.1 * 2.0)
    with pytest.raises(ConfigurationError, match="may update parameters together"):
        replica.check_parts()


@pytest.mark.parametrize("name", torch_rules())
def test_no_optimizer_of_torch_changes_a_record(name):
    model = model_of(1)
    replica = replica_of(model, lambda parameters: getattr(torch.optim, name)(parameters, lr=0.1))
    for version in range(3):
        sums = replica.layout.buffers()
        sums[torch.float32].fill_(1.0)
        assert replica.apply(StepRecord(version, sums, (True,) * 4, replica.numbers, pb.LedgerEntry()))


@pytest.mark.parametrize("kind", [torch.optim.SGD, torch.optim.AdamW])
def test_fused_optimizers_update_parameters_that_lie_in_another_order_as_others_do(kind):
    """They go through the memory of parameters, gradients and states from end to end; so at members and at joiners."""
    settings = {"momentum": 0.9} if kind is torch.optim.SGD else {}
    models = [torch.nn.Conv2d(3, 4, 2).to(memory_format=torch.channels_last) for _ in range(4)]
    replicas = []
    for model, fused in zip(models, (False, True, True, True), strict=True):
        model.load_state_dict(models[0].state_dict())
        parameters = list(model.parameters())
        arrays = {key: ModelArray(model, key) for key, _ in model.named_parameters()}
        replicas.append(Replica(kind(parameters, lr=0.1, fused=fused, **settings), parameters, arrays, ()))
    plain, fused, joiner, follower = replicas
    for version in range(4):
        sums = plain.layout.buffers()
        sums[torch.float32].normal_(generator=torch.Generator().manual_seed(version))
        if version == 2:
            unpack(joiner, pack(fused, {}))
        for replica in [plain, fused, *[joiner] * (version >= 2)]:
            assert replica.apply(StepRecord(version, sums, (True, True), replica.numbers, pb.LedgerEntry()))
        follower.apply_portion(range(2), (True, True), follower.numbers, sums)
    for other in models[1:]:
        torch.testing.assert_close(other.weight, models[0].weight)


def test_parameters_without_elements_are_in_no_bucket():
    empty, other = torch.nn.Parameter(torch.zeros(0, dtype=torch.float64)), torch.nn.Parameter(torch.zeros(3))
    layout = Layout.of([other, empty], [])
    assert [bucket.dtype for bucket in layout.buckets(16)] == [torch.float32]
    assert not is_in(layout.buffers()[torch.float64], layout.buffers()), "where nothing lies is nowhere twice"


def test_a_sparse_gradient_is_refused_before_it_leaves_early():
    store = ReplicaStore(Staging(), lambda: None, lambda keys: pytest.fail("it has left"))
    table = torch.nn.Embedding(4, 2, sparse=True)
    table(torch.tensor([1])).sum().backward()
    with pytest.raises(ConfigurationError, match="a gradient is sparse, and --mode all-reduce sums dense ones"):
        store.push_early(["s:weight"], ["s:weight"], [[TorchArray(table.weight.grad)]])
