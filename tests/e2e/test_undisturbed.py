"""What all other jobs are compared with: weights computed in one process, which a job that nothing happens to has."""

import pytest

from tests.e2e import jobs
from tests.e2e.proofs import SCRIPT, assert_undisturbed, weights_in


@pytest.mark.slow
@pytest.mark.numeric
@pytest.mark.parametrize(("optimizer", "workers", "servers"), [("sgd", 1, 1), ("adam", 2, 2)])
def test_a_job_that_nothing_happens_to_has_them_to_the_bit(tmp_path, optimizer, workers, servers):
    arguments = ("--optimizer", optimizer, "--epochs", 30, "--pace", "0")
    with jobs.run(tmp_path, SCRIPT, tmp_path, *arguments, workers=workers, servers=servers) as job:
        assert job.wait() == 0, job.tail()
    weights = weights_in(tmp_path)
    assert int(weights["epochs"]) == 30
    assert_undisturbed(weights, exact=True, optimizer=optimizer, workers=workers)
