"""Optimizers of the script's own in jobs without servers: whoever joins or restores goes on as the members do."""

import pickle
from unittest.mock import Mock

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from elastic_ps.core.errors import CheckpointError, ConfigurationError  # noqa: E402
from elastic_ps.core.model import Model, Tensor  # noqa: E402
from elastic_ps.core.optimizer import OptimizerSpec  # noqa: E402
from elastic_ps.torch.allreduce.checkpoints.replica_blocks import ReplicaBlocks  # noqa: E402
from elastic_ps.torch.allreduce.replica.record import StepRecord  # noqa: E402
from elastic_ps.torch.allreduce.replica.state_bytes import pack, unpack  # noqa: E402
from protos import elastic_pb2 as pb  # noqa: E402
from tests.elastic_ps.torch.allreduce.checkpoints.test_replica_blocks import saved  # noqa: E402
from tests.elastic_ps.torch.allreduce.small_replicas import model_of, replica_of  # noqa: E402


class Own(torch.optim.Optimizer):
    """An optimizer of the script's own, whose steps become shorter by a count of them."""

    def __init__(self, parameters, **defaults):
        super().__init__(parameters, {"lr": 0.1, **defaults})
        self.history = None  # what other classes keep
        self.updated = [parameter for group in self.param_groups for parameter in group["params"]]
        self.settings = {"k": 3}

    def count(self):
        raise NotImplementedError

    @torch.no_grad()
    def step(self, closure=None):
        count = self.count()
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    parameter.add_(parameter.grad, alpha=-group["lr"] / count)


class InGroups(Own):
    """As many optimizers do, it counts in each group."""

    def count(self):
        for group in self.param_groups:
            group["step"] = group.get("step", 0) + 1
        return self.param_groups[0]["step"]


class InAttribute(Own):
    def count(self):
        self.steps = getattr(self, "steps", 0) + 1
        return self.steps


class InStateOfNone(Own):
    def count(self):
        found = self.state["k"].setdefault("count", torch.zeros(1))
        return found.add_(1).item()


class InHistory(Own):
    def count(self):
        self.history = [*(self.history or []), torch.ones(2)]
        return len(self.history)


class Wrapping(Own):
    """Another optimizer makes its steps, with states of its own."""

    def __init__(self, parameters):
        super().__init__(parameters)
        self.base = torch.optim.SGD(self.param_groups, lr=0.1, momentum=0.9)

    def count(self):
        self.base.step()
        return 1


class OwnSGD(torch.optim.SGD):
    """A class made of one of PyTorch's."""


class OwnAdagrad(torch.optim.Adagrad):
    """Likewise."""


class OwnAdam(torch.optim.AdamW):
    """Likewise."""


def in_defaults(parameters):
    return InGroups(parameters, step=0)


def applied(replica, versions):
    for version in versions:
        sums = replica.layout.buffers()
        sums[torch.float32].normal_(generator=torch.Generator().manual_seed(version))
        record = StepRecord(version, sums, (True,) * len(replica.parameters), replica.numbers, pb.LedgerEntry())
        assert replica.apply(record)


def check_alike(replica, other):
    for one, another in zip(replica.parameters, other.parameters, strict=True):
        assert torch.equal(one, another)


def blocks_of(replica):
    tensors = [
        Tensor(0, key, array.shape, array.dtype, auxiliary=key not in replica.parameter_numbers)
        for key, array in replica.arrays.items()
    ]
    return ReplicaBlocks(replica, Model(tuple(tensors), 64), OptimizerSpec.scripts_own("InGroups"))


@pytest.mark.parametrize("make", [InGroups, in_defaults])
@pytest.mark.parametrize("rests", [False, True])
def test_numbers_that_its_steps_change_go_to_whoever_joins_and_into_checkpoints(make, rests):
    replica, joiner, restored = (replica_of(model_of(seed), make) for seed in range(3))
    applied(replica, range(4))
    unpack(joiner, pack(replica, {}))
    blocks_of(restored).install(saved(blocks_of(joiner if rests else replica))[0])
    for other in (joiner, restored):
        for group in other.optimizer.param_groups:
            group["step"] = 0  # as a scheduler sets a group back to what it was in the rehearsal
    for other in (replica, joiner, restored):
        applied(other, range(4, 7))
        assert other.optimizer.param_groups[0]["step"] == 7
        check_alike(replica, other)


@pytest.mark.parametrize(
    ("make", "what"),
    [
        (InAttribute, r"self\.steps"),
        (InHistory, r"self\.history"),
        (InStateOfNone, r"self\.state\['k'\]"),
        (Wrapping, r"self\.base"),
    ],
)
def test_what_it_keeps_where_nobody_else_is_given_it_is_refused_in_the_first_step(make, what):
    replica = replica_of(model_of(1), make)
    with pytest.raises(ConfigurationError, match=f"keeps {what} and changes it .*: keep it there"):
        applied(replica, [0])


@pytest.mark.parametrize("kind", [OwnSGD, OwnAdagrad, OwnAdam])
def test_what_pytorch_notes_of_its_own_checks_is_not_refused(kind):
    replica = replica_of(model_of(1), lambda parameters: kind(parameters, lr=0.1, fused=True))
    applied(replica, [0, 1])


class WithNumpy(InGroups):
    """Its count is a number of numpy's, as of what it reckons with."""

    def count(self):
        for group in self.param_groups:
            group["step"] = np.float64(group.get("step", 0.0)) + 1
            for parameter in group["params"]:
                self.state[parameter]["scale"] = np.float64(0.5)
        return self.param_groups[0]["step"]


def test_numbers_of_numpy_can_be_restored():
    """`torch.load` refuses them, and the checkpoint was of no use."""
    replica, restored = (replica_of(model_of(seed), WithNumpy) for seed in range(2))
    applied(replica, range(3))
    blocks_of(restored).install(saved(blocks_of(replica))[0])
    assert restored.state_of(0) == {"scale": 0.5, "param_groups.step": 3.0}
    for other in (replica, restored):
        applied(other, [3])
    check_alike(replica, restored)


def test_a_state_that_cannot_be_read_is_told_of_and_changes_nothing(monkeypatch):
    replica, restored = (replica_of(model_of(seed), InGroups) for seed in range(2))
    applied(replica, range(3))
    read, before = saved(blocks_of(replica))[0], restored.parameters[0].clone()
    monkeypatch.setattr(torch, "load", Mock(side_effect=pickle.UnpicklingError("Weights only load failed")))
    with pytest.raises(CheckpointError, match=r"state of weight in the checkpoint cannot be read: Weights only"):
        blocks_of(restored).install(read)
    assert torch.equal(restored.parameters[0], before)
