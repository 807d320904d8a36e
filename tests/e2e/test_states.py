"""Optimizer states by file, in real jobs: training goes on as if it had never stopped (apache/mxnet#15923)."""

import os
import sys
from contextlib import contextmanager
from signal import SIGKILL

import numpy as np
import pytest

from tests.e2e import jobs

BEFORE = 12


@contextmanager
def job(tmp_path, name, *arguments, **numbers):
    folder = tmp_path / name
    folder.mkdir()
    with jobs.run(tmp_path, jobs.SCRIPTS / "gluon_states.py", folder, *arguments, name=name, **numbers) as running:
        yield running, folder
        assert running.wait() == 0, running.tail()


def result(folder):
    """Weights by name, the state arrays in order, and the update count of each key."""
    from elastic_ps.mxnet.shim import mxnet as mx

    weights = {name: value.asnumpy() for name, value in mx.nd.load(str(folder / "net.params")).items()}
    updater = mx.optimizer.get_updater(mx.optimizer.Adam())
    updater.set_states((folder / "trainer.states").read_bytes())
    states = [array.asnumpy() for key in sorted(updater.states) for array in updater.states[key]]
    return weights, states, set(updater.optimizer._index_update_count.values())


def updates(folder):
    """The numbers of the updates in their order; a step that was done again asks twice."""
    return list(dict.fromkeys(int(line) for line in (folder / "updates").read_text().split()))


@pytest.mark.mxnet
@pytest.mark.timeout(240)
def test_a_job_goes_on_from_a_file_whoever_is_chief_and_after_a_restore(tmp_path, monkeypatch):
    with job(tmp_path, "first", "--epochs", str(BEFORE), workers=1, servers=1) as (_, first):
        pass
    with job(tmp_path, "second", "--load", first, workers=2, servers=2) as (running, second):
        running.running(2, 2)
        assert running.scale(3, 1).phase == "COMMITTED"
        running.client.drain("w0")
        running.running(2, 1)
        saved = running.client.checkpoint().version
        running.until(lambda status: status.version > saved, "steps after the checkpoint")
        os.kill(running.pid(next(node.member.id for node in running.status().nodes if node.member.role == 2)), SIGKILL)
        reached = updates(second)[-1]
        running.until(lambda status: BEFORE + status.version > reached, "steps after the restore")
        (second / "finish").touch()
    after = len(updates(second))
    assert updates(second) == list(range(BEFORE + 1, BEFORE + 1 + after))
    with job(tmp_path, "whole", "--epochs", str(BEFORE + after), "--pace", "0", workers=1, servers=1) as (_, whole):
        pass
    assert updates(whole) == list(range(1, BEFORE + after + 1))

    from elastic_ps.mxnet.shim import mxnet as mx

    monkeypatch.setattr(sys.modules["__main__"], "Noted", mx.lr_scheduler.LRScheduler, raising=False)
    expected, found = result(whole), result(second)
    assert expected[2] == found[2] == {BEFORE + after}
    assert len(found[1]) == 8
    for name, value in expected[0].items():
        np.testing.assert_allclose(found[0][name], value, rtol=1e-9, atol=1e-12, err_msg=name)
    for mine, other in zip(found[1], expected[1], strict=True):
        np.testing.assert_allclose(mine, other, rtol=1e-9, atol=1e-15)
