"""What a job that trained `scripts/torch_regression.py` must show at its end, whatever happened to it."""

import importlib.util
import sys

import numpy as np
import torch

from elastic_ps.core.data_order import indices, permutation
from tests.e2e import jobs

SCRIPT = jobs.SCRIPTS / "torch_regression.py"


def _loaded():
    """Return the script as a module; it finds its neighbours in its own folder, as a program does."""
    sys.path.insert(0, str(jobs.SCRIPTS))
    try:
        spec = importlib.util.spec_from_file_location("torch_regression", SCRIPT)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    finally:
        sys.path.remove(str(jobs.SCRIPTS))
    return module


script = _loaded()


def assert_trained_by_one(weights, bound=None, seed=jobs.SEED):
    """Compare weights with those that one process of plain PyTorch trains.

    Args:
        weights: by name, with the number of epochs.
        bound: of the norm of all gradients together; None: they are not clipped.
        seed: of the order of the job's samples.
    """
    expected = script.network()
    optimizer = script.optimizer_of(expected)
    schedule = script.schedule_of(optimizer)
    for epoch in range(int(weights["epochs"])):
        order = permutation(seed, epoch, script.SAMPLES)
        for low in range(0, script.SAMPLES, script.BATCH):
            chosen = indices(order, range(low, min(low + script.BATCH, script.SAMPLES)))
            script.train(expected, optimizer, schedule, script.data()[torch.from_numpy(chosen)], bound)
    for name, values in expected.state_dict().items():
        np.testing.assert_allclose(weights[name], values.numpy(), rtol=1e-7, atol=1e-9, err_msg=name)
