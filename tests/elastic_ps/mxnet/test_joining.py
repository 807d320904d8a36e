"""A script of a job that ends without having joined it is told so, and how scripts join."""

import os
import subprocess
import sys

import pytest

from elastic_ps.mxnet import joining
from elastic_ps.worker.script import worker_job

pytestmark = pytest.mark.mxnet

SCRIPT = """
import elastic_ps.mxnet
from mxnet import gluon
net = gluon.nn.Dense(1, in_units=1)
net.initialize()
trainer = gluon.Trainer(net.collect_params(), "sgd", kvstore="dist_elastic")  # makes its kvstore at its first step
"""


@pytest.mark.parametrize(("environment", "told"), [({"ELASTIC_COORDINATOR": "127.0.0.1:1"}, True), ({}, False)])
def test_a_script_whose_trainer_never_steps(environment, told):
    command = [sys.executable, "-c", SCRIPT]
    done = subprocess.run(
        command, env={**os.environ, **environment}, capture_output=True, text=True, timeout=60, check=True
    )
    assert (joining.UNJOINED in done.stderr) is told


@pytest.mark.parametrize("known", [(worker_job, "_asked"), (sys, "last_value")])
def test_who_has_tried_to_join_or_failed_is_told_nothing(known, monkeypatch, capsys):
    monkeypatch.setattr(*known, True, raising=False)
    joining._tell()
    assert capsys.readouterr().err == ""
