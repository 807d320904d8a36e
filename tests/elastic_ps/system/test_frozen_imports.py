"""What workers had imported when they began, which garbage collections pass over."""

import os
import subprocess
import sys

import pytest

from tests.paths import ROOT

COUNTS = "import {adapter}, gc; print(gc.get_freeze_count() > len(gc.get_objects()))"


@pytest.mark.parametrize("environment", [{}, {"ELASTIC_COORDINATOR": "127.0.0.1:1"}], ids=["alone", "worker"])
@pytest.mark.parametrize("adapter", ["elastic_ps.torch", pytest.param("elastic_ps.mxnet", marks=pytest.mark.mxnet)])
def test_a_worker_collects_nothing_of_what_its_adapter_imports(adapter, environment):
    """A script that only imports the adapter is not told how to collect its garbage."""
    ran = subprocess.run(
        [sys.executable, "-c", COUNTS.format(adapter=adapter)],
        cwd=ROOT,
        env=os.environ | environment,
        capture_output=True,
        text=True,
        check=True,
    )
    assert ran.stdout == f"{bool(environment)}\n"
