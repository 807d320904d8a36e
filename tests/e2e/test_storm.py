"""A storm of scalings ends with the weights of the run without it (protocol, invariants 2 and 4)."""

import numpy as np
import pytest

from tests.e2e import jobs
from tests.e2e.proofs import finish, undisturbed

SCRIPT = jobs.SCRIPTS / "gluon_regression.py"
SERVERS_ONLY = [(2, servers) for servers in (2, 4, 1, 3, 2, 1, 4)]
PACE = ("--pace", "0.01")
"""Seconds of a step: a storm takes its time, and all the epochs of that time are trained once more for comparison."""
BOTH = [(1, 2), (3, 1), (2, 3), (4, 3), (1, 1), (3, 2), (2, 2)]


def stormy(tmp_path, arguments, transport, storm, options=()):
    folder = tmp_path / "stormy"
    folder.mkdir()
    numbers = {"workers": 2, "servers": 1, "options": ("--transport", transport, *options)}
    with jobs.run(tmp_path, SCRIPT, folder, *arguments, *PACE, name="stormy", **numbers) as job:
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


def calm(tmp_path, arguments, epochs):
    return undisturbed(tmp_path, epochs, *arguments, script=SCRIPT, workers=2)


@pytest.mark.mxnet
@pytest.mark.timeout(300)
@pytest.mark.parametrize(("optimizer", "transport"), [("sgd", "tcp"), ("adam", "auto")])
def test_a_storm_of_servers_changes_no_bit(tmp_path, optimizer, transport):
    found = stormy(tmp_path, ("--optimizer", optimizer), transport, SERVERS_ONLY)
    expected = calm(tmp_path, ("--optimizer", optimizer), int(found["epochs"]))
    assert len(expected) == 5
    for name, value in expected.items():
        assert (found[name] == value).all(), name


@pytest.mark.mxnet
@pytest.mark.timeout(300)
@pytest.mark.parametrize(("optimizer", "transport"), [("sgd", "shm"), ("adam", "tcp")])
def test_a_storm_of_workers_and_servers_loses_and_doubles_no_sample(tmp_path, optimizer, transport):
    """Gradients are sent as the backward pass makes them."""
    found = stormy(tmp_path, ("--optimizer", optimizer, "--portion", "300"), transport, BOTH)
    expected = calm(tmp_path, ("--optimizer", optimizer), int(found["epochs"]))
    for name, value in expected.items():
        np.testing.assert_allclose(found[name], value, rtol=1e-9, atol=1e-12, err_msg=name)


@pytest.mark.mxnet
@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("transport", "storm"), [("shm", SERVERS_ONLY[:5]), ("tcp", BOTH[:5])], ids=["shm-servers", "tcp-both"]
)
def test_a_storm_over_a_table_of_which_steps_touch_some_rows(tmp_path, transport, storm):
    arguments = ("--table", "--optimizer", "sgd", "--portion", "300")
    found = stormy(tmp_path, arguments, transport, storm, ("--block-bytes", "32768"))
    expected = calm(tmp_path, arguments, int(found["epochs"]))
    assert len(expected) == 6
    for name, value in expected.items():
        if storm == SERVERS_ONLY[:5]:
            assert (found[name] == value).all(), name
        np.testing.assert_allclose(found[name], value, rtol=1e-9, atol=1e-12, err_msg=name)
