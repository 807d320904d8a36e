"""A storm of scalings ends with the weights of the run without it (protocol, invariants 2 and 4)."""

import jobs
import numpy as np
import pytest

from coordinator.archive import read_archive
from coordinator.audit import audit

SAMPLES, BATCH = 203, 16
SERVERS_ONLY = [(2, servers) for servers in (2, 4, 1, 3, 2, 4, 3, 1, 2, 1, 4, 2)]
BOTH = [(1, 2), (3, 1), (2, 3), (4, 3), (1, 1), (2, 1), (2, 3), (3, 2), (1, 3), (2, 2), (4, 1), (2, 2)]


def weights(folder):
    with np.load(folder / "weights.npz") as found:
        return {name: found[name] for name in found}


def finished(job, folder):
    (folder / "finish").touch()
    assert job.wait() == 0, job.tail()
    return weights(folder)


def undisturbed(tmp_path, script, optimizer, epochs):
    folder = tmp_path / "undisturbed"
    folder.mkdir()
    arguments = (folder, "--optimizer", optimizer, "--epochs", str(epochs))
    with jobs.run(tmp_path, script, *arguments, name="undisturbed", workers=2, servers=1) as job:
        assert job.wait() == 0, job.tail()
    return weights(folder)


def stormy(tmp_path, script, optimizer, storm):
    folder = tmp_path / "stormy"
    folder.mkdir()
    with jobs.run(tmp_path, script, folder, "--optimizer", optimizer, name="stormy", workers=2, servers=1) as job:
        job.running(2, 1)
        for workers, servers in storm:
            plan = job.scale(workers, servers)
            assert plan.phase == "COMMITTED"
        found = finished(job, folder)
    proof = audit(read_archive(job.folder).ledger, SAMPLES, BATCH, int(found["epochs"]))
    assert proof.exactly_once, proof.problems
    return found


@pytest.mark.mxnet
@pytest.mark.timeout(300)
@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_a_storm_of_servers_changes_no_bit(tmp_path, optimizer):
    script = jobs.SCRIPTS / "gluon_regression.py"
    found = stormy(tmp_path, script, optimizer, SERVERS_ONLY)
    expected = undisturbed(tmp_path, script, optimizer, int(found["epochs"]))
    assert len(expected) == 5
    for name, value in expected.items():
        assert (found[name] == value).all(), name


@pytest.mark.mxnet
@pytest.mark.timeout(300)
@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_a_storm_of_workers_and_servers_loses_and_doubles_no_sample(tmp_path, optimizer):
    script = jobs.SCRIPTS / "gluon_regression.py"
    found = stormy(tmp_path, script, optimizer, BOTH)
    expected = undisturbed(tmp_path, script, optimizer, int(found["epochs"]))
    for name, value in expected.items():
        np.testing.assert_allclose(found[name], value, rtol=1e-9, atol=1e-12, err_msg=name)
