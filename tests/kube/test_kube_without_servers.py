"""A job without servers in real pods: suspended and back again, and all of its pods lost."""

import pytest

pytest.importorskip("torch")

from tests.e2e.torch_proofs import assert_trained_by_one

SCRIPT = ["{sources}/tests/e2e/scripts/torch_regression.py", "{folder}"]


def test_it_goes_on_from_its_checkpoint_and_is_trained_as_by_one_process(make_job):
    job = make_job("ring", SCRIPT, 2, mode="all-reduce", checkpoint={"url": "shared", "interval": "2s"})
    del job.document["spec"]["servers"]
    job.apply()
    job.running(2, 0)
    job.trained(2)
    back = job.suspend_and_return(2, 0)
    job.trained(2)
    for pod in job.pods():
        job.delete_at_once(pod["metadata"]["name"])
    job.until(lambda status: status["term"] > back["term"], "another term")
    job.running(2, 0)
    job.trained(2)
    assert_trained_by_one(job.finish(), seed=job.order)
