"""What a job that trained one of the networks in `scripts` must show at its end, whatever happened to it."""

import numpy as np

from coordinator.archive import read_archive
from coordinator.ctl.exactly_once_audit import audit, first_whole_epoch
from elastic_ps.core.data_order import DataSpec, indices, permutation, share
from elastic_ps.optimizers import make_rule
from elastic_ps.optimizers.gradient_sum import GradientSum
from tests.e2e import jobs
from tests.e2e.scripts.small_network import (
    BATCH,
    OPTIMIZERS,
    RATE,
    SAMPLES,
    data,
    gradients,
    parameters,
    schedule,
)

SCRIPT = jobs.SCRIPTS / "regression.py"


def weights_in(folder):
    with np.load(folder / "weights.npz") as found:
        return {name: found[name] for name in found}


def finish(job, folder, timeout=60.0, lost=False):
    """End the job at an epoch's end; returns its weights, proved to be made of every sample exactly once.

    Args:
        job: that trains.
        folder: of the script.
        timeout: seconds in which the job must end.
        lost: its ledger was: the epochs that began since can be proved.
    """
    (folder / "finish").touch()
    assert job.wait(timeout) == 0, job.tail()
    weights = weights_in(folder)
    ledger = read_archive(job.folder).ledger
    begin = first_whole_epoch(ledger) if lost else 0
    proof = audit(ledger, SAMPLES, BATCH, int(weights["epochs"]), begin=begin)
    assert proof.exactly_once, proof.problems
    return weights


def undisturbed(epochs, optimizer="sgd", workers=1, seed=jobs.SEED):
    """The weights that `SCRIPT` has to have, computed in this process: by no job that anything could happen to.

    Args:
        epochs: that are trained.
        optimizer: its `--optimizer`.
        workers: how many share each step: it decides in which order the samples' gradients are added.
        seed: of the job.
    """
    spec, rule = DataSpec(elastic=True, samples=SAMPLES, global_batch=BATCH), make_rule(OPTIMIZERS[optimizer])
    (inputs, targets), weights = data(), parameters()
    flats = {key: value.reshape(-1) for key, value in weights.items()}
    states = {key: {name: np.zeros(len(flat)) for name, _ in rule.states(flat.dtype)} for key, flat in flats.items()}
    count = 0
    for epoch in range(epochs):
        order = permutation(seed, epoch, SAMPLES)
        for step in range(spec.steps_per_epoch):
            parts = [indices(order, share(spec, step, rank, workers)) for rank in range(workers)]
            found = [gradients(weights, inputs[part], targets[part])[0] for part in parts]
            count += 1
            whole = BATCH / sum(map(len, parts))  # the last step of an epoch has fewer samples, and counts as much
            for key, flat in flats.items():
                total = GradientSum([each[key].reshape(-1) for each in found], factor=whole)
                rule.apply(flat, flat, total, states[key], count, schedule(RATE, count))
    return weights


def assert_undisturbed(weights, exact=False, **of_the_job):
    """They are those of a job that nothing happened to: but for the order of additions, or `exact`ly."""
    for name, value in undisturbed(int(weights["epochs"]), **of_the_job).items():
        if exact:
            assert (weights[name] == value).all(), name
        np.testing.assert_allclose(weights[name], value, rtol=1e-9, atol=1e-12, err_msg=name)


def improvement(weights):
    """How many times less the loss is than that of the untrained network."""
    before, after = (gradients(held, *data())[1] for held in (parameters(), weights))
    return before / after
