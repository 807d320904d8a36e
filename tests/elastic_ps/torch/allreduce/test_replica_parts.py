"""What members give one another: an optimizer's numbers, all of a replica, the ledger's end."""

import zlib
from unittest.mock import Mock

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from elastic_ps.core.configuration import ConfigId, Configuration, Member, Role  # noqa: E402
from elastic_ps.core.errors import ConfigurationError, ProtocolError  # noqa: E402
from elastic_ps.node.standing import Standing  # noqa: E402
from elastic_ps.torch.allreduce.following.follow_stream import record_parts  # noqa: E402
from elastic_ps.torch.allreduce.ledger import REPORT_ENTRIES, WorkersLedger  # noqa: E402
from elastic_ps.torch.allreduce.node import GroupNode  # noqa: E402
from elastic_ps.torch.allreduce.replica import replica as replicas  # noqa: E402
from elastic_ps.torch.allreduce.replica.group_numbers import group_numbers, set_group_numbers  # noqa: E402
from elastic_ps.torch.allreduce.replica.record import StepRecord  # noqa: E402
from elastic_ps.torch.allreduce.replica.replica import PartWeights  # noqa: E402
from elastic_ps.torch.allreduce.replica.state_bytes import pack, unpack  # noqa: E402
from elastic_ps.torch.arrays import bytes_of_each  # noqa: E402
from elastic_ps.torch.before_rehearsal import BeforeRehearsal  # noqa: E402
from elastic_ps.torch.model import tensors_of  # noqa: E402
from protos import elastic_pb2 as pb  # noqa: E402
from tests.devices import ON_EACH  # noqa: E402
from tests.elastic_ps.torch.allreduce.small_replicas import OPTIMIZERS, filled, model_of, replica_of, train  # noqa: E402


@ON_EACH
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_who_takes_a_replica_trains_on_to_the_same_bits(name, device):
    model, other = model_of(1, device), model_of(2, device)
    given, taken = replica_of(model, OPTIMIZERS[name]), replica_of(other, OPTIMIZERS[name])
    for seed in range(3):
        train(model, given.optimizer, seed)
    given.keep_statistics()
    assert unpack(taken, pack(given, {"version": 3})) == {"version": 3}
    for seed in range(3, 6):
        train(model, given.optimizer, seed)
        train(other, taken.optimizer, seed)
    for key, values in model.state_dict().items():
        assert torch.equal(values, other.state_dict()[key]), key


def test_a_buffer_of_fewer_numbers_than_elements_is_taken_and_the_rehearsals_is_undone():
    """PyTorch refuses to write into a tensor that was expanded."""
    model, other = model_of(1), model_of(2)
    for each, value in ((model, 5.0), (other, 6.0)):
        each[0].register_buffer("wide", torch.full((2, 1), value).expand(2, 3))
    unpack(replica_of(other, OPTIMIZERS["SGD"]), pack(replica_of(model, OPTIMIZERS["SGD"]), {}))
    assert other[0].wide.tolist() == [[5.0] * 3] * 2
    before = BeforeRehearsal(dict(tensors_of(model, ())), ())
    before.buffers = {"s:0.wide": torch.ones(2, 3)}
    before.undo()
    assert model[0].wide.tolist() == [[1.0] * 3] * 2


@ON_EACH
def test_a_buffer_that_is_no_state_is_given_as_the_job_began_with_it(device):
    """What a member's module has made of it belongs to the member's own batches."""
    replicas = []
    for seed in (1, 2, 3):
        model = model_of(seed, device)
        model[0].register_buffer("table", torch.full((3,), float(seed), device=device), persistent=False)
        replicas.append(replica_of(model, OPTIMIZERS["SGD"], {"0.table": model[0].table.clone()}))
    first, joined, last = replicas
    first.arrays["0.table"].tensor.add_(5)
    unpack(joined, pack(first, {}))
    assert joined.arrays["0.table"].tensor.tolist() == [1.0] * 3
    joined.arrays["0.table"].tensor.add_(6)
    unpack(last, pack(joined, {}))
    assert last.arrays["0.table"].tensor.tolist() == [1.0] * 3


@ON_EACH
def test_statistics_of_fewer_numbers_than_elements_are_averaged_and_restored(device):
    """A script may give a buffer an expanded tensor in each batch."""
    model = model_of(1, device)
    model[0].register_buffer("running_wide", torch.full((2, 1), 5.0, device=device).expand(2, 3))
    replica = replica_of(model, OPTIMIZERS["SGD"])
    model[0].running_wide = torch.full((2, 1), 7.0, device=device).expand(2, 3)
    sums = filled(replica, PartWeights(1.0, 0.5))
    replica.undo_batch()
    assert model[0].running_wide.tolist() == [[5.0] * 3] * 2
    replica.apply(StepRecord(0, sums, (False,) * 4, replica.numbers, pb.LedgerEntry()))
    assert model[0].running_wide.tolist() == [[3.5] * 3] * 2
    replica.arrays["0.running_wide"].write(torch.ones(2, 3).numpy())
    assert model[0].running_wide.tolist() == [[1.0] * 3] * 2


@ON_EACH
def test_a_batch_that_is_computed_again_changes_statistics_once(device):
    """They begin as the script's, as another worker's, or as a record's."""
    model, other = model_of(1, device), model_of(2, device)
    replica, taken = replica_of(model, OPTIMIZERS["SGD"]), replica_of(other, OPTIMIZERS["SGD"])
    train(model, replica.optimizer, 0)
    replica.keep_statistics()
    unpack(taken, pack(replica, {}))
    for own, of in ((replica, model), (taken, other)):
        for _ in range(2):
            train(of, own.optimizer, 1)
            assert int(of[1].num_batches_tracked) == 2
            own.undo_batch()
            assert int(of[1].num_batches_tracked) == 1
    sums = filled(replica, PartWeights(1.0, 1.0))
    replica.apply(StepRecord(0, sums, (True,) * 4, replica.numbers, pb.LedgerEntry()))
    kept = model[1].running_mean.clone()
    for whole in sums.values():
        whole.zero_()  # its memory is another step's by then
    train(model, replica.optimizer, 2)
    assert not torch.equal(model[1].running_mean, kept)
    unpack(taken, pack(replica, {}))  # who gives does so in the middle of a step
    assert torch.equal(other[1].running_mean, kept)
    assert int(other[1].num_batches_tracked) == int(model[1].num_batches_tracked) - 1
    replica.undo_batch()
    assert torch.equal(model[1].running_mean, kept)


def test_other_threads_read_what_the_scripts_own_stream_has_changed(monkeypatch):
    """A GPU makes it later, and other threads are on other streams."""
    pending = []
    monkeypatch.setattr(replicas, "copies_made", lambda devices: pending.append(1) or pending.clear)
    replica, other = (replica_of(model_of(1), OPTIMIZERS["SGD"]) for _ in range(2))
    for read in (replica.fingerprint, lambda: pack(replica, {})):
        sums = replica.layout.buffers()
        replica.apply(StepRecord(0, sums, (True,) * 4, replica.numbers, pb.LedgerEntry()))
        assert pending
        packed = read()
        assert not pending
    unpack(other, packed)
    assert pending
    other.fingerprint()
    assert not pending


@ON_EACH
def test_fingerprints_tell_parameters_and_states(device):
    model, other = model_of(1, device), model_of(1, device)
    one, two = replica_of(model, OPTIMIZERS["momentum"]), replica_of(other, OPTIMIZERS["momentum"])
    for replica, of in ((one, model), (two, other)):
        train(of, replica.optimizer, 0)
    assert one.fingerprint() == two.fingerprint()
    two.state_of(0)["momentum_buffer"].add_(1)
    assert one.fingerprint() != two.fingerprint()
    two.state_of(0)["momentum_buffer"].copy_(one.state_of(0)["momentum_buffer"])
    assert one.fingerprint() == two.fingerprint()
    with torch.no_grad():
        two.parameters[1].add_(1)
    assert one.fingerprint() != two.fingerprint()


@ON_EACH
def test_a_fingerprint_is_that_of_samples_one_behind_the_other(device):
    """Whatever types and layouts there are, and wherever they lie: members of all kinds have the same."""
    model = model_of(1, device)
    replica = replica_of(model, OPTIMIZERS["momentum"])
    train(model, replica.optimizer, 0)
    kinds = [torch.arange(300.0).view(20, 15).t(), torch.arange(9).bfloat16(), torch.arange(700), torch.tensor(2.5)]
    replica.state_of(0).update({f"of kind {number}": each.to(device) for number, each in enumerate(kinds)})
    found = 0
    for number, parameter in enumerate(replica.parameters):
        for tensor in (parameter, *(value for _, value in sorted(replica.state_of(number).items()))):
            flat = tensor.detach().cpu().reshape(-1)
            sample = flat[:: max(1, len(flat) // 64)].contiguous()
            found = zlib.crc32(sample.view(torch.uint8).numpy().tobytes(), found)
    assert replica.fingerprint() == found


@ON_EACH
def test_bytes_of_many_tensors_are_those_of_each(device):
    """In the tensors' order, so that members on other devices have the same fingerprint."""
    tensors = [
        torch.arange(5.0, device=device)[::2],
        torch.tensor([3.0]),
        torch.arange(4, device=device),
        torch.empty(0),
        torch.ones(3, dtype=torch.bfloat16),
        torch.tensor([True, False], device=device),
    ]
    expected = [each.cpu().contiguous().view(torch.uint8).numpy().tobytes() for each in tensors]
    assert bytes_of_each(tensors) == expected


def test_another_model_is_refused():
    given = replica_of(model_of(1), OPTIMIZERS["SGD"])
    del given.arrays["1.running_mean"]
    with pytest.raises(ProtocolError, match="the same script"):
        unpack(replica_of(model_of(1), OPTIMIZERS["SGD"]), pack(given, {}))


def test_a_state_that_cannot_be_given_is_refused_by_name():
    replica = replica_of(model_of(1), OPTIMIZERS["SGD"])
    replica.optimizer.state[replica.parameters[0]] = {"history": ["what?"]}
    with pytest.raises(ConfigurationError, match="the optimizer's state has history, a list"):
        pack(replica, {})


def test_numbers_of_groups_are_those_of_the_chief():
    chief = OPTIMIZERS["AdamW"]([torch.nn.Parameter(torch.zeros(1))])
    other = OPTIMIZERS["AdamW"]([torch.nn.Parameter(torch.zeros(1))])
    chief.param_groups[0].update(lr=0.03, betas=(0.8, 0.99))
    set_group_numbers(other, group_numbers(chief))
    assert {k: v for k, v in other.param_groups[0].items() if k != "params"} == {
        k: v for k, v in chief.param_groups[0].items() if k != "params"
    }


def test_numbers_in_lists_travel_as_those_in_tuples():
    """A script may set one so, and at some workers alone."""
    listed, other = [torch.optim.Adam([torch.nn.Parameter(torch.zeros(1))]) for _ in range(2)]
    listed.param_groups[0]["betas"] = [0.8, 0.9]
    set_group_numbers(other, group_numbers(listed))
    assert other.param_groups[0]["betas"] == (0.8, 0.9)
    other.param_groups[0]["betas"] = (0.7, 0.9)
    set_group_numbers(listed, group_numbers(other))
    assert listed.param_groups[0]["betas"] == [0.7, 0.9]


@pytest.mark.parametrize("made", [np.float32, np.array], ids=["a scalar", "an array without axes"])
def test_numbers_that_numpy_has_made_travel_as_others(made):
    """A script's own schedule may make some, and where it is the chief's alone, others have Python's."""
    chief, other = [torch.optim.Adam([torch.nn.Parameter(torch.zeros(1))]) for _ in range(2)]
    chief.param_groups[0].update(lr=made(0.25), betas=(made(0.5), 0.75))
    set_group_numbers(other, group_numbers(chief))
    assert (other.param_groups[0]["lr"], other.param_groups[0]["betas"]) == (0.25, (0.5, 0.75))
    for lr in (0.5, 2.0):
        chief.param_groups[0]["lr"], other.param_groups[0]["lr"] = made(0.25), lr
        set_group_numbers(chief, group_numbers(other))
        assert chief.param_groups[0]["lr"] == lr


def test_what_schedulers_note_in_groups_does_not_travel():
    """A script may have one at the chief alone."""
    plain, scheduled = [OPTIMIZERS["AdamW"]([torch.nn.Parameter(torch.zeros(1))]) for _ in range(2)]
    torch.optim.lr_scheduler.OneCycleLR(scheduled, 0.1, total_steps=9)
    assert {"initial_lr", "max_lr"} <= scheduled.param_groups[0].keys()
    numbers = group_numbers(scheduled)
    assert len(numbers) == len(group_numbers(plain))
    set_group_numbers(plain, numbers)
    assert plain.param_groups[0]["lr"] == scheduled.param_groups[0]["lr"] != 0.1


@pytest.mark.parametrize(("old", "new"), [(1, 0.5), (0, 0.9), (1.0, 2.0), (1, 2), (False, True)])
def test_a_number_that_was_whole_may_become_a_fraction(old, new):
    """`torch.optim.SGD(lr=1)` has whole numbers, its momentum is 0 by default."""
    chief, other = [torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1) for _ in range(2)]
    other.param_groups[0]["momentum"], chief.param_groups[0]["momentum"] = old, new
    set_group_numbers(other, group_numbers(chief))
    assert other.param_groups[0]["momentum"] == new
    assert type(other.param_groups[0]["momentum"]) is type(new)


def test_only_what_is_settled_is_reported_and_only_by_the_chief():
    ledger = WorkersLedger()
    ledger.begin("workers.1", ())
    for version in (5, 6, 7):
        ledger.append(pb.LedgerEntry(version=version))
    ledger.settle(7)
    request = pb.ReportRequest()
    ledger.report(request, is_chief=True)
    assert (request.ledger_of, request.ledger_sequence) == ("workers.1", 5)
    assert [entry.version for entry in request.ledger] == [5, 6]
    other = pb.ReportRequest()
    ledger.report(other, is_chief=False)
    assert (other.ledger_of, list(other.ledger)) == ("workers.1", [])
    ledger.kept(7)
    assert [entry.version for entry in ledger.entries] == [7]


def test_after_a_long_time_without_a_coordinator_the_ledger_is_told_in_several_reports_and_then_the_end():
    node, told = GroupNode(Mock(node="w0"), Mock()), []
    chief = Member("w0", Role.WORKER, "h", 1)
    node.standing = Standing("w0", Configuration(ConfigId(1, 1), (chief,), ()))
    node.progress.finished = True
    count = 2 * REPORT_ENTRIES + 3
    node.ledger.begin("workers.1", [pb.LedgerEntry(version=version) for version in range(count)])
    node.ledger.settle(count)
    while not node.progress.final_report.is_set():
        request = node.report()
        told += [entry.version for entry in request.ledger]
        node.reported(pb.ReportReply(ledger_kept=len(told)), request)
    assert told == list(range(count))
    assert node.session.report_soon.call_count == 2, "none of them waits for its time"
    assert not node.ledger.entries


def test_a_report_whose_ledger_was_not_taken_is_no_final_one():
    """The coordinator has just been started again, and reads its ledger yet: it keeps nothing."""
    node = GroupNode(Mock(node="w0"), Mock())
    node.standing = Standing("w0", Configuration(ConfigId(1, 1), (Member("w0", Role.WORKER, "h", 1),), ()))
    node.progress.finished = True
    node.ledger.begin("workers.1", [pb.LedgerEntry(version=version) for version in (5, 6)])
    node.ledger.settle(7)
    for kept, is_over in ((0, False), (6, False), (7, True)):
        request = node.report()
        assert request.finished
        node.reported(pb.ReportReply(ledger_kept=kept), request)
        assert node.progress.final_report.is_set() is is_over
    assert node.session.report_soon.call_count == 2
    assert not node.ledger.entries


def test_portions_bring_everything_once_and_are_small():
    model = model_of(1)
    replica = replica_of(model, OPTIMIZERS["AdamW"])
    train(model, replica.optimizer, 0)
    portions = replica.portions(100)
    assert sorted(key for portion in portions for key in portion.keys) == sorted(replica.arrays)
    assert [number for portion in portions for number in portion.parameters] == [0, 1, 2, 3]
    assert len(portions) > 2
    for portion in portions:
        assert len(portion.keys) == 1 or sum(map(replica.bytes_of, portion.parameters)) <= 100


@ON_EACH
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_portions_of_other_versions_come_to_the_same_bits_by_records_of_each(name, device):
    """A shadow gets one portion a version, and from then on what the records have of it."""
    model, other = model_of(1, device), model_of(2, device)
    given, taken = replica_of(model, OPTIMIZERS[name]), replica_of(other, OPTIMIZERS[name])
    train(model, given.optimizer, 9)
    portions = given.portions(60)
    layout, sent = given.layout, []
    for version in range(len(portions) + 2):
        if version < len(portions):
            unpack(taken, pack(given, {}, portions[version]))
            sent.append(portions[version].parameters)
        sums = layout.buffers()
        for whole in sums.values():
            whole.copy_(torch.randn(len(whole), generator=torch.Generator().manual_seed(version)))
        present = (True, version != 1, True, True)
        record = StepRecord(version, sums, present, given.numbers, pb.LedgerEntry())
        *parts, statistics = record_parts(layout, sent, sums)
        for parameters, part in zip(sent, parts, strict=True):
            taken.apply_portion(parameters, present, record.numbers, part)
        taken.set_statistics(statistics)
        given.apply(record)
    for key, values in model.state_dict().items():
        assert torch.equal(values, other.state_dict()[key]), key
    for number, parameter in enumerate(given.parameters):
        for state, value in given.optimizer.state[parameter].items():
            found = taken.state_of(number)[state]
            assert torch.equal(torch.as_tensor(value).cpu(), torch.as_tensor(found).cpu()), (number, state)
