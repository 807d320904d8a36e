"""What a job that trained one of the regressions in `scripts` must show at its end, whatever happened to it."""

import numpy as np

from coordinator.archive import read_archive
from coordinator.ctl.exactly_once_audit import audit
from tests.e2e import jobs

SCRIPT = jobs.SCRIPTS / "regression.py"
SAMPLES, BATCH = 203, 16


def weights_in(folder):
    with np.load(folder / "weights.npz") as found:
        return {name: found[name] for name in found}


def finish(job, folder, timeout=60.0):
    """End the job at an epoch's end; returns its weights, proved to be made of every sample exactly once."""
    (folder / "finish").touch()
    assert job.wait(timeout) == 0, job.tail()
    weights = weights_in(folder)
    proof = audit(read_archive(job.folder).ledger, SAMPLES, BATCH, int(weights["epochs"]))
    assert proof.exactly_once, proof.problems
    return weights


def undisturbed(folder, epochs, *arguments, script=SCRIPT, timeout=60.0, **numbers):
    """The weights of a job that nothing happened to; `numbers`: of its workers and servers."""
    folder = folder / "undisturbed"
    folder.mkdir()
    with jobs.run(folder, script, folder, "--epochs", epochs, *arguments, name="undisturbed", **numbers) as job:
        assert job.wait(timeout) == 0, job.tail()
    return weights_in(folder)
