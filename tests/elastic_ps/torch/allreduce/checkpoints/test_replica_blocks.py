"""A replica is saved as servers keep it: they restore it, and it restores what they have saved."""

import io
import json

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from elastic_ps.core.errors import CheckpointError, ConfigurationError  # noqa: E402
from elastic_ps.core.model import Model, Tensor  # noqa: E402
from elastic_ps.core.optimizer import OptimizerSpec  # noqa: E402
from elastic_ps.optimizers.gradient_sum import GradientSum  # noqa: E402
from elastic_ps.server.blocks.block_store import ServerBlockStore  # noqa: E402
from elastic_ps.server.blocks.checkpoint_snapshot import CheckpointSnapshot  # noqa: E402
from elastic_ps.server.checkpoints.files import BlockFileWriter, BlockManifest  # noqa: E402
from elastic_ps.server.phases import BlockStatus  # noqa: E402
from elastic_ps.torch import states  # noqa: E402
from elastic_ps.torch.allreduce.checkpoints.replica_blocks import ReadBlock, ReplicaBlocks  # noqa: E402
from elastic_ps.torch.allreduce.replica.replica import Replica  # noqa: E402
from elastic_ps.torch.arrays import on_host  # noqa: E402
from elastic_ps.torch.model import parameter_keys, statistics, tensors_of  # noqa: E402
from elastic_ps.torch.rules import hyper, translate  # noqa: E402

BLOCK_BYTES = 128  # so that a weight is several blocks, and the last of them has padding

KNOWN = {
    "SGD": lambda groups: torch.optim.SGD(groups, lr=0.1),
    "momentum": lambda groups: torch.optim.SGD(groups, lr=0.1, momentum=0.9, nesterov=True),
    "AdamW": lambda groups: torch.optim.AdamW(groups, lr=0.1, amsgrad=True),
    "Adagrad": lambda groups: torch.optim.Adagrad(groups, lr=0.1),
    "Adadelta": lambda groups: torch.optim.Adadelta(groups, lr=0.1),
    "Adamax": lambda groups: torch.optim.Adamax(groups, lr=0.1),
    "NAdam": lambda groups: torch.optim.NAdam(groups, lr=0.1),
    "RAdam": lambda groups: torch.optim.RAdam(groups, lr=0.1),
    "RMSprop": lambda groups: torch.optim.RMSprop(groups, lr=0.1, momentum=0.5, centered=True),
    "Rprop": lambda groups: torch.optim.Rprop(groups, lr=0.1),
    "ASGD": lambda groups: torch.optim.ASGD(groups, lr=0.1),
}
OWN = {"Adafactor": lambda groups: torch.optim.Adafactor(groups, lr=0.1)}


def network(seed):
    torch.manual_seed(seed)
    model = torch.nn.Sequential(torch.nn.Linear(9, 7), torch.nn.BatchNorm1d(7), torch.nn.Linear(7, 3))
    model[2].bias.requires_grad_(False)
    model[2].register_buffer("nothing", torch.zeros(0))  # the last tensor of all, behind all bytes
    return model


def replica_of(model, make):
    """Return a replica whose optimizer updates what can be, and how the job knows them."""
    optimizer = make([parameter for parameter in model.parameters() if parameter.requires_grad])
    arrays, keys = dict(tensors_of(model, ())), parameter_keys(model, optimizer)
    replica = Replica(optimizer, list(keys), arrays, statistics(model))
    tensors = tuple(
        Tensor(0, key, array.shape, array.dtype, auxiliary=key in statistics(model)) for key, array in arrays.items()
    )
    known = type(optimizer) is not torch.optim.Adafactor
    spec = translate(optimizer, keys) if known else OptimizerSpec.scripts_own("Adafactor")
    return replica, Model(tensors, BLOCK_BYTES), spec


def train(model, optimizer, seeds):
    for seed in seeds:
        optimizer.zero_grad()
        model(torch.randn(4, 9, generator=torch.Generator().manual_seed(seed))).square().sum().backward()
        optimizer.step()


def read_back(file, writer):
    """Return what was written, as who restores reads it."""
    told = json.loads(writer.contents("/c"))
    manifest = BlockManifest(json.dumps({"version": 3, "blocks": told["blocks"]}).encode())
    read = {}
    for name, found in manifest.entries(map(int, told["blocks"])).items():
        for number, entry in found:
            data = file.getvalue()[entry.offset : entry.offset + entry.length]
            entry.check(number, name, data)
            read[number] = ReadBlock(entry, data)
    return read


def saved(blocks, size=2):
    """Return all blocks as `size` members write them, and how many bytes each has written."""
    read, written = {}, []
    for rank in range(size):
        file = io.BytesIO()
        writer = BlockFileWriter(file, f"w{rank}.bin")
        for block in blocks.copy(blocks.part(rank, size)):
            writer.write_block(block.block, 3, block.count, block.written())
        read |= read_back(file, writer)
        written.append(len(file.getvalue()))
    return read, written


@pytest.mark.parametrize("name", [*KNOWN, *OWN])
def test_who_restores_it_trains_on_to_the_same_bits(name):
    model, other = network(1), network(2)
    make = (KNOWN | OWN)[name]
    replica, job_model, spec = replica_of(model, make)
    train(model, replica.optimizer, range(3))
    read, written = saved(ReplicaBlocks(replica, job_model, spec))
    assert sorted(read) == list(range(len(job_model.blocks)))
    assert all(written), "each member writes a part"
    taken, _, _ = replica_of(other, make)
    train(other, taken.optimizer, [9])  # what it has is overwritten
    ReplicaBlocks(taken, job_model, spec).install(read)
    train(model, replica.optimizer, range(3, 6))
    train(other, taken.optimizer, range(3, 6))
    for key, values in model.state_dict().items():
        assert torch.equal(values, other.state_dict()[key]), key


def test_each_member_copies_the_states_of_its_own_part_alone(monkeypatch):
    """Those of a model on a GPU are copied to the host for it: each of W members copied all of them."""
    model = network(1)
    replica, job_model, spec = replica_of(model, KNOWN["AdamW"])
    train(model, replica.optimizer, [1])
    copied = []
    monkeypatch.setattr(states, "on_host", lambda tensor: copied.append(tensor) or on_host(tensor))
    blocks = ReplicaBlocks(replica, job_model, spec)
    copies = blocks.copy(blocks.part(0, 2))
    keys = {job_model.tensors[job_model.blocks[copy.block].tensor].key for copy in copies}
    own = {id(replica.parameters[replica.parameter_numbers[key]]) for key in keys & replica.parameter_numbers.keys()}
    assert 0 < len(own) < len(replica.parameters)
    theirs = [
        value
        for parameter, state in replica.optimizer.state.items()
        if id(parameter) in own
        for value in state.values()
    ]
    assert {id(value) for value in copied} <= {id(value) for value in theirs}


def test_momentum_that_the_job_did_not_begin_with_is_not_lost_without_a_word():
    model = network(1)
    replica, job_model, spec = replica_of(model, KNOWN["SGD"])
    replica.optimizer.param_groups[0]["momentum"] = 0.9
    train(model, replica.optimizer, [1])
    with pytest.raises(ConfigurationError, match=r"keeps momentum_buffer of 0\.weight, and had none when"):
        saved(ReplicaBlocks(replica, job_model, spec))


def served(read, job_model, spec):
    """Return a server's blocks, restored as it restores them."""
    store = ServerBlockStore(job_model)
    store.grow(job_model, (spec.to_json(),))
    store.allocate([block.id for block in job_model.blocks], BlockStatus.EMPTY)
    for block in job_model.blocks:
        entry, states = read[block.id].entry, store.states((block.id, 1))
        held = [(state, array.dtype.name, array.nbytes) for state, array in states.items()]
        entry.check_layout(block.id, store.tensor(block.id).name, int(store.extents[block.id]), held)
        store.load((block.id, 1), np.frombuffer(read[block.id].data, np.uint8), entry.version, [entry.count], {})
        store.status[block.id] = BlockStatus.PRIMARY
    return store


def push(store, model, optimizer, spec):
    """Update a server's blocks once, by the gradients that the model has."""
    step = hyper(optimizer, spec, first=())
    for block in store.model.blocks:
        tensor = store.tensor(block.id)
        gradient = None
        if not tensor.auxiliary and tensor.key[2:] in dict(model.named_parameters()):
            gradient = dict(model.named_parameters())[tensor.key[2:]].grad
        if gradient is None:
            continue
        padded = np.zeros(block.extent // 4, np.float32)
        low = block.offset // 4
        padded[: block.nbytes // 4] = gradient.numpy().reshape(-1)[low : low + block.nbytes // 4]
        store.update_segment((block.id, 1), GradientSum([padded]), step)


@pytest.mark.parametrize("name", KNOWN)
def test_servers_go_on_from_it_and_it_goes_on_from_what_they_save(name):
    """The next two steps are made by a server, and by PyTorch."""
    model, other = network(1), network(2)
    replica, job_model, spec = replica_of(model, KNOWN[name])
    train(model, replica.optimizer, range(3))
    store = served(saved(ReplicaBlocks(replica, job_model, spec))[0], job_model, spec)
    for seed in (3, 4):
        train(model, replica.optimizer, [seed])
        push(store, model, replica.optimizer, spec)
    file, snapshot = io.BytesIO(), CheckpointSnapshot(store, 0, "", at_once=True)
    writer = BlockFileWriter(file, "s0.bin")
    while (piece := snapshot.next_piece()) is not None:
        writer.write(piece)
    taken, _, _ = replica_of(other, KNOWN[name])
    ReplicaBlocks(taken, job_model, spec).install(read_back(file, writer))
    updated = {key for key, values in model.named_parameters() if values.requires_grad}
    for key in updated:
        torch.testing.assert_close(other.state_dict()[key], model.state_dict()[key], rtol=1e-5, atol=1e-6)
    for mine, theirs in zip(replica.parameters, taken.parameters, strict=True):
        expected, found = replica.optimizer.state[mine], taken.optimizer.state[theirs]
        assert found.keys() == expected.keys()
        for part, value in expected.items():
            torch.testing.assert_close(torch.as_tensor(found[part]), torch.as_tensor(value), rtol=1e-5, atol=1e-6)


def test_a_copy_stays_as_it_was():
    model = network(1)
    replica, job_model, spec = replica_of(model, OWN["Adafactor"])
    train(model, replica.optimizer, range(2))
    blocks = ReplicaBlocks(replica, job_model, spec)
    before = [[(name, array.tolist()) for name, array in block.written()] for block in blocks.copy(blocks.part(0, 1))]
    copied = blocks.copy(blocks.part(0, 1))
    train(model, replica.optimizer, range(2, 4))
    assert [[(name, array.tolist()) for name, array in block.written()] for block in copied] == before


def test_what_another_optimizer_has_saved_is_refused_and_changes_nothing():
    model, other = network(1), network(2)
    replica, job_model, spec = replica_of(model, KNOWN["AdamW"])
    train(model, replica.optimizer, range(2))
    read, _ = saved(ReplicaBlocks(replica, job_model, spec))
    taken, _, sgd = replica_of(other, KNOWN["momentum"])
    before = {key: values.clone() for key, values in other.state_dict().items()}
    with pytest.raises(CheckpointError, match=r"was saved with other state \(exp_avg of 128 bytes, float32, .* than"):
        ReplicaBlocks(taken, job_model, sgd).install(read)
    assert all(torch.equal(values, before[key]) for key, values in other.state_dict().items())


def test_a_model_that_has_more_is_refused():
    replica, job_model, spec = replica_of(network(1), KNOWN["SGD"])
    blocks = ReplicaBlocks(replica, job_model, spec)
    read, _ = saved(blocks)
    del read[len(read) - 1]
    with pytest.raises(CheckpointError, match=r"lacks key 2.nothing: it is of another model"):
        blocks.install(read)


def test_a_state_that_cannot_be_saved_is_refused_by_name():
    replica, job_model, spec = replica_of(network(1), OWN["Adafactor"])
    replica.optimizer.state[replica.parameters[0]] = {"history": ["what?"]}
    blocks = ReplicaBlocks(replica, job_model, spec)
    with pytest.raises(ConfigurationError, match="the optimizer's state has history, a list"):
        blocks.copy(blocks.part(0, 1))
