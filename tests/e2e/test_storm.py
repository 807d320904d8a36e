"""A storm of scalings ends with the weights of the run without it (protocol, invariants 2 and 4)."""

import numpy as np
import pytest

from tests.e2e import jobs
from tests.e2e.proofs import SCRIPT, assert_undisturbed, finish, weights_in

GLUON = jobs.SCRIPTS / "gluon_regression.py"
SERVERS_ONLY = [(2, servers) for servers in (2, 4, 1, 3, 2, 1, 4)]
BOTH = [(1, 2), (3, 1), (2, 3), (4, 3), (1, 1), (3, 2), (2, 2)]
EARLY = ("--portion", "300")
"""Gradients are sent as the backward pass makes them."""


def stormy(tmp_path, script, arguments, transport, storm, options=()):
    """The weights of a job that is scaled from `storm` to `storm`."""
    folder = tmp_path / "stormy"
    folder.mkdir()
    numbers = {"workers": 2, "servers": 1, "options": ("--transport", transport, *options)}
    with jobs.run(tmp_path, script, folder, *arguments, name="stormy", **numbers) as job:
        job.running(2, 1)
        job.until(
            lambda status: kinds(status) == {"shm" if transport == "auto" else transport}, "reports of transports"
        )
        for workers, servers in storm:
            plan = job.scale(workers, servers)
            assert plan.phase == "COMMITTED"
        return finish(job, folder)


def kinds(status):
    return {how for node in status.nodes for how in node.transports.values()}


def calm(tmp_path, arguments, epochs, workers):
    """The weights of a job with Gluon that nothing happens to."""
    folder = tmp_path / "calm"
    folder.mkdir()
    arguments = (*arguments, "--epochs", epochs, "--pace", "0")
    with jobs.run(tmp_path, GLUON, folder, *arguments, name="calm", workers=workers) as job:
        assert job.wait(120) == 0, job.tail()
    return weights_in(folder)


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize(("optimizer", "transport"), [("sgd", "tcp"), ("adam", "auto")])
def test_a_storm_of_servers_changes_no_bit(tmp_path, optimizer, transport):
    found = stormy(tmp_path, SCRIPT, ("--optimizer", optimizer), transport, SERVERS_ONLY)
    assert_undisturbed(found, exact=True, optimizer=optimizer, workers=2)


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize(("optimizer", "transport"), [("sgd", "shm"), ("adam", "tcp")])
def test_a_storm_of_workers_and_servers_loses_and_doubles_no_sample(tmp_path, optimizer, transport):
    found = stormy(tmp_path, SCRIPT, ("--optimizer", optimizer, *EARLY), transport, BOTH)
    assert_undisturbed(found, optimizer=optimizer)


@pytest.mark.mxnet
@pytest.mark.timeout(300)
def test_a_storm_of_workers_and_servers_that_gluon_trains_in(tmp_path):
    arguments = ("--optimizer", "adam", *EARLY)
    found = stormy(tmp_path, GLUON, arguments, "tcp", BOTH[:4])
    expected = calm(tmp_path, arguments, int(found["epochs"]), workers=1)
    assert len(expected) == 5
    for name, value in expected.items():
        np.testing.assert_allclose(found[name], value, rtol=1e-9, atol=1e-12, err_msg=name)


@pytest.mark.mxnet
@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("transport", "storm"), [("shm", SERVERS_ONLY[:5]), ("tcp", BOTH[:5])], ids=["shm-servers", "tcp-both"]
)
def test_a_storm_over_a_table_of_which_steps_touch_some_rows(tmp_path, transport, storm):
    arguments = ("--table", "--optimizer", "sgd", *EARLY)
    found = stormy(tmp_path, GLUON, arguments, transport, storm, ("--block-bytes", "32768"))
    exact = storm == SERVERS_ONLY[:5]
    expected = calm(tmp_path, arguments, int(found["epochs"]), workers=2 if exact else 1)
    assert len(expected) == 6
    for name, value in expected.items():
        if exact:
            assert (found[name] == value).all(), name
        np.testing.assert_allclose(found[name], value, rtol=1e-9, atol=1e-12, err_msg=name)
