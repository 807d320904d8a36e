"""A float64 network without a framework, of which every sample counts in the result: `regression.py` trains it."""

import numpy as np

from elastic_ps.core.optimizer import Hyper, OptimizerSpec

SAMPLES, INPUTS, HIDDEN, BATCH = 203, 12, 40, 16
RATE = 0.05
OPTIMIZERS = {"sgd": OptimizerSpec("sgd", {"momentum": 0.9}), "adam": OptimizerSpec("adam")}


def data():
    random = np.random.default_rng(5)
    inputs = random.normal(size=(SAMPLES, INPUTS))
    return inputs, np.sin(inputs @ random.normal(size=(INPUTS, 3)))


def parameters():
    random = np.random.default_rng(11)
    shapes = {"i:0": (INPUTS, HIDDEN), "i:1": (HIDDEN,), "i:2": (HIDDEN, 3), "i:3": (3,)}
    return {key: random.normal(size=shape) * 0.3 for key, shape in shapes.items()}


def gradients(weights, inputs, targets):
    """Of the squared error, summed over samples."""
    hidden = np.tanh(inputs @ weights["i:0"] + weights["i:1"])
    error = hidden @ weights["i:2"] + weights["i:3"] - targets
    back = (error @ weights["i:2"].T) * (1 - hidden**2)
    found = {"i:0": inputs.T @ back, "i:1": back.sum(0), "i:2": hidden.T @ error, "i:3": error.sum(0)}
    return found, float((error**2).sum() / 2)


def schedule(rate, updates):
    return Hyper(lr=rate * 0.999**updates, wd=1e-4, rescale_grad=1 / BATCH)
