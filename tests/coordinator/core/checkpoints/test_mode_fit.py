"""A checkpoint restores into the other mode, or it is said why not."""

from dataclasses import replace

import pytest

from coordinator.core.checkpoints.mode_fit import check_mode
from elastic_ps.core.errors import ConfigurationError
from elastic_ps.core.model import Model, Tensor
from elastic_ps.core.optimizer import OptimizerSpec
from tests.coordinator.played_job import ASYNC
from tests.coordinator.server.test_checkpoint_storage import manifest

ADAM = OptimizerSpec("torch.Adam").to_json()
OWN = OptimizerSpec.scripts_own("Adafactor").to_json()


@pytest.mark.parametrize(("optimizer", "all_reduces"), [(ADAM, True), (ADAM, False), (OWN, True)])
def test_it_fits(optimizer, all_reduces):
    check_mode("/ckpt", replace(manifest(9), optimizers=(optimizer,)), all_reduces)


@pytest.mark.parametrize(
    ("changes", "all_reduces", "why"),
    [
        (
            {"optimizers": (OWN,)},
            False,
            "servers cannot run its optimizer Adafactor: restore it with --mode all-reduce",
        ),
        (
            {"optimizers": ()},
            True,
            "it has no optimizer, and jobs without servers run those of torch.optim: restore it",
        ),
        ({"optimizers": (OptimizerSpec("sgd").to_json(),)}, True, "its optimizer is sgd, and jobs without"),
        ({"optimizers": (ADAM,), "data": ASYNC}, True, 'its job was "async", which needs servers: restore it with'),
        (
            {
                "optimizers": (ADAM, ADAM),
                "model": Model((Tensor(0, "s:a", (1,), "int8"), Tensor(1, "s:a", (1,), "int8"))),
            },
            True,
            "it has several key stores, or elastic.Optimizers",
        ),
    ],
)
def test_it_is_refused(changes, all_reduces, why):
    with pytest.raises(ConfigurationError) as caught:
        check_mode("/ckpt", replace(manifest(9), **changes), all_reduces)
    assert str(caught.value).startswith(f"/ckpt cannot be restored: {why}")
