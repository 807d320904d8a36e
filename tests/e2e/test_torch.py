"""A script of PyTorch as a real job: it grows and shrinks while it trains, and every sample counts once."""

import pytest

from coordinator.archive import read_archive
from coordinator.ctl.exactly_once_audit import audit
from tests.e2e import jobs

torch = pytest.importorskip("torch")

SAMPLES = 1437


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("loaders", [0, 2])
def test_digits_grow_and_shrink(tmp_path, loaders):
    script = jobs.SCRIPTS / "torch_digits.py"
    with jobs.run(tmp_path, script, tmp_path, "--loaders", loaders, workers=2, servers=1) as job:
        job.until(lambda status: status.version > 0, "training", timeout=240)
        for workers, servers in [(1, 2), (3, 2), (2, 1)]:
            job.client.scale(workers, servers)
            job.until(lambda status, n=(workers, servers): jobs.counts(status) == n, f"{workers} workers", timeout=240)
            before = job.status().version
            job.until(lambda status, version=before: status.version > version + 30, "steps after the plan")
        (tmp_path / "finish").touch()
        assert job.wait(120) == 0, job.tail()
    found = torch.load(tmp_path / "weights.pt", weights_only=True)
    proof = audit(read_archive(job.folder).ledger, SAMPLES, 64, found["epochs"])
    assert proof.exactly_once, proof.problems
    assert found["accuracy"] >= 0.95
    assert int(found["model"]["1.num_batches_tracked"]) == job_steps(found["epochs"])


def job_steps(epochs):
    """The mean over the workers of a count that each has raised once in each step."""
    return epochs * -(-SAMPLES // 64)
