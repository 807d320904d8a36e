"""What jobs read of tensors, and write to them, on a CPU and on a GPU."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from elastic_ps.core.errors import ConfigurationError  # noqa: E402
from elastic_ps.torch.allreduce.replica.record import StepRecord  # noqa: E402
from elastic_ps.torch.allreduce.replica.replica import PartWeights  # noqa: E402
from elastic_ps.torch.arrays import TorchArray, check_tensor  # noqa: E402
from elastic_ps.torch.states import from_torch, to_torch  # noqa: E402
from protos import elastic_pb2 as pb  # noqa: E402
from tests.devices import ON_EACH  # noqa: E402
from tests.elastic_ps.torch.allreduce.small_replicas import (  # noqa: E402
    OPTIMIZERS,
    filled,
    model_of,
    replica_of,
    train,
)

OF_RULES = OPTIMIZERS | {
    "Adagrad": lambda parameters: torch.optim.Adagrad(parameters, lr=0.1),
    "RMSprop": lambda parameters: torch.optim.RMSprop(parameters, lr=0.01, momentum=0.5, centered=True),
    "Adadelta": lambda parameters: torch.optim.Adadelta(parameters),
    "Adamax": lambda parameters: torch.optim.Adamax(parameters, lr=0.1),
    "RAdam": lambda parameters: torch.optim.RAdam(parameters, lr=0.1),
    "Rprop": lambda parameters: torch.optim.Rprop(parameters, lr=0.1),
}


@ON_EACH
@pytest.mark.parametrize("dtype", [torch.float32, torch.int64])
def test_values_are_read_and_written_as_they_are(device, dtype):
    tensor = torch.arange(6, device=device).reshape(2, 3).to(dtype)
    for each in (tensor, tensor.T):
        array = TorchArray(each)
        assert (array.shape, array.read().tolist()) == (tuple(each.shape), each.tolist())
    array.write(np.full((3, 2), 7, array.dtype))
    assert tensor.tolist() == [[7] * 3] * 2
    own = TorchArray(tensor)
    assert (own.memory() is None) == (device != "cpu")
    assert own.addresses([own]).tolist() == [tensor.data_ptr() if device == "cpu" else 0]


@ON_EACH
def test_rows_are_read_once_each(device):
    table = torch.nn.Embedding(9, 2, sparse=True, device=device)
    table(torch.tensor([4, 1, 4], device=device)).sum().backward()
    rows = TorchArray(table.weight.grad).stored_rows()
    assert (rows.numbers.tolist(), rows.values.tolist()) == ([1, 4], [[1, 1], [2, 2]])


@ON_EACH
def test_a_batch_without_any_index_has_no_rows(device):
    table = torch.nn.Embedding(9, 2, sparse=True, device=device)
    table(torch.tensor([], dtype=torch.int64, device=device)).sum().backward()
    rows = TorchArray(table.weight.grad).stored_rows()
    assert (rows.numbers.tolist(), rows.values.shape) == ([], (0, 2))


def test_a_device_that_nobody_has_tried_is_refused():
    with pytest.raises(ConfigurationError, match=r"parameter w is on meta: .*on CPUs and on GPUs of CUDA"):
        check_tensor("w", torch.empty(1, device="meta"), "parameter")


@ON_EACH
@pytest.mark.parametrize("name", OF_RULES)
def test_states_go_to_the_servers_and_back(name, device):
    model, other = model_of(1, device), model_of(1, device)
    one, two = OF_RULES[name](model.parameters()), OF_RULES[name](other.parameters())
    for seed in range(3):
        train(model, one, seed)
    other.load_state_dict(model.state_dict())
    keys, others = ({value: key for key, value in each.named_parameters()} for each in (model, other))
    to_torch(two, from_torch(one, keys), others)
    for seed in range(3, 6):
        train(model, one, seed)
        train(other, two, seed)
    for key, values in model.state_dict().items():
        torch.testing.assert_close(values, other.state_dict()[key], msg=key)


@pytest.mark.parametrize("name", OF_RULES)
def test_states_of_a_script_with_a_default_device_are_where_its_parameters_are(name):
    model = model_of(1)
    one, two = (OF_RULES[name](model.parameters()) for _ in range(2))
    train(model, one, 0)
    keys = {value: key for key, value in model.named_parameters()}
    with torch.device("meta"):
        to_torch(two, from_torch(one, keys), keys)
    for parameter in keys:
        for part, value in two.state[parameter].items():
            assert value is None or torch.equal(value, one.state[parameter][part]), part


@ON_EACH
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_replica_is_filled_and_updated_as_one_process_would(name, device):
    model, alone = model_of(1, device), model_of(1, device)
    replica, optimizer = replica_of(model, OPTIMIZERS[name]), OPTIMIZERS[name](alone.parameters())
    for seed in range(3):
        train(alone, optimizer, seed)
        inputs = torch.randn(4, 3, generator=torch.Generator().manual_seed(seed)).to(device)
        replica.optimizer.zero_grad()
        model(inputs).square().sum().backward()
        sums = filled(replica, PartWeights(1.0, 1.0))
        assert all(whole.is_cpu and whole.is_pinned() == (device == "cuda") for whole in sums.values())
        replica.apply(StepRecord(seed, sums, (True,) * 4, replica.numbers, pb.LedgerEntry()))
    for key, values in model.state_dict().items():
        torch.testing.assert_close(values, alone.state_dict()[key], msg=key)
