"""Members that have other parameters frozen than the chief are found, and nobody else."""

import pytest

torch = pytest.importorskip("torch")

from elastic_ps.core.optimizer import Hyper  # noqa: E402
from elastic_ps.torch.allreduce.frozen_apart import frozen_apart  # noqa: E402
from elastic_ps.torch.allreduce.step_told import StepTold  # noqa: E402
from tests.elastic_ps.torch.allreduce.small_replicas import OPTIMIZERS, model_of, replica_of  # noqa: E402

FROZEN = 1
"""The number of a parameter, a bias."""


def told(is_frozen, gradient):
    """Return what a member tells whose parameter of number `FROZEN` is frozen or not, and has some gradient or none."""
    replica = replica_of(model_of(1), OPTIMIZERS["SGD"])
    for parameter in replica.parameters:
        parameter.grad = torch.ones_like(parameter)
    replica.parameters[FROZEN].requires_grad_(not is_frozen)
    replica.parameters[FROZEN].grad = gradient
    flags = tuple(replica.present(True)), tuple(replica.frozen(True))
    sent = StepTold(3, range(4), Hyper(), flags[0], replica.numbers, flags[1])
    received = StepTold.of(sent.told(), len(replica.parameters))
    assert received == sent
    return received


def test_who_joins_behind_a_freeze_lacks_gradients_of_zeros_that_the_others_have():
    """Their script calls `zero_grad(set_to_none=False)`; each worker that joined was refused."""
    others, joiner = told(True, torch.zeros(2)), told(True, None)
    assert frozen_apart([others, others, joiner]) == {}
    assert frozen_apart([joiner, others]) == {}


@pytest.mark.parametrize("gradient", [None, torch.zeros(2)])
def test_who_has_frozen_what_the_chief_trains_is_found_whatever_is_left_of_its_gradient(gradient):
    assert frozen_apart([told(False, torch.ones(2)), told(True, gradient)]) == {1: FROZEN}


def test_samples_that_do_not_use_a_parameter_freeze_nothing():
    assert frozen_apart([told(False, torch.ones(2)), told(False, None)]) == {}
