"""A script that changes only the store's name: it trains, its servers scale, its workers are told how to."""

import json

import pytest

from coordinator.client import RequestRefused
from tests.e2e import jobs

DIGITS = jobs.SCRIPTS.parents[2] / "examples" / "digits_static.py"


@pytest.mark.mxnet
@pytest.mark.timeout(180)
def test_a_static_script_trains_its_servers_scale_and_worker_joins_are_refused(tmp_path):
    out = tmp_path / "result.json"
    with jobs.run(tmp_path, DIGITS, "--epochs", "60", "--out", out, workers=2, servers=1) as job:
        status = job.running(2, 1)
        assert not status.data.elastic
        with pytest.raises(RequestRefused, match=r"elastic_ps\.Sampler"):
            job.client.scale(workers=3)
        assert job.scale(2, 3).phase == "COMMITTED"
        assert job.wait(120) == 0, job.tail()
    assert json.loads(out.read_text())["test_accuracy"] > 0.9
