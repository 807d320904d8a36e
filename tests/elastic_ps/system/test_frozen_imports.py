"""What workers had imported when they began, which garbage collections pass over."""

import os
import subprocess
import sys

import pytest

from tests.paths import ROOT

COUNTS = "import gc; {before}; import {adapter}; print(gc.get_freeze_count() > len(gc.get_objects()))"
HELPED = """
import multiprocessing
helper = multiprocessing.get_context("spawn").Process(target=exec, args=({counts!r},))
helper.start()
helper.join()
"""
TORCH, MXNET = "elastic_ps.torch", pytest.param("elastic_ps.mxnet", marks=pytest.mark.mxnet)


def is_frozen(adapter, before="pass", within="{counts}", **environment):
    counts = COUNTS.format(adapter=adapter, before=before)
    ran = subprocess.run(
        [sys.executable, "-c", within.format(counts=counts)],
        cwd=ROOT,
        env=os.environ | environment,
        capture_output=True,
        text=True,
        check=True,
    )
    return {"True\n": True, "False\n": False}[ran.stdout]


@pytest.mark.parametrize("environment", [{}, {"ELASTIC_COORDINATOR": "127.0.0.1:1"}], ids=["alone", "worker"])
@pytest.mark.parametrize("adapter", [TORCH, MXNET])
def test_a_worker_collects_nothing_of_what_its_adapter_imports(adapter, environment):
    """A script that only imports the adapter is not told how to collect its garbage."""
    assert is_frozen(adapter, **environment) is bool(environment)


@pytest.mark.parametrize("adapter", [TORCH, MXNET])
def test_a_process_that_loads_data_for_a_worker_is_left_alone(adapter):
    assert not is_frozen(adapter, within=HELPED, ELASTIC_COORDINATOR="127.0.0.1:1")


@pytest.mark.parametrize(
    ("adapter", "before"),
    [
        (TORCH, "import torch; model = torch.nn.Linear(1, 1)"),
        (TORCH, "Run = type('Run', (), {'log': open('/dev/null', 'w')})"),
        (TORCH, "import io; held = io.BufferedWriter(io.BytesIO())"),
        (TORCH, "import torch; from torch import optim; made = optim.SGD([torch.ones(1)], lr=1)"),
        pytest.param(
            "elastic_ps.mxnet",
            "import numpy; numpy.bool = bool; import mxnet; net = mxnet.gluon.nn.Dense(1)",
            marks=pytest.mark.mxnet,
        ),
    ],
)
def test_a_script_that_has_begun_may_give_up_what_it_has_made(adapter, before):
    """And the adapter finds its schedulers, which it would not among what is frozen; files of a class are flushed."""
    assert not is_frozen(adapter, before, ELASTIC_COORDINATOR="127.0.0.1:1")
