"""The product of NAdam's momenta, which goes on from what was asked for last."""

import time

import numpy as np
import pytest

from elastic_ps.optimizers.pytorch.adam import nesterov_product


def from_the_start(beta1, decay, count):
    product = np.float32(1)
    for number in range(1, count + 1):
        product *= np.float32(beta1 * (1.0 - 0.5 * (0.96 ** (number * decay))))
    return float(product)


@pytest.mark.parametrize("counts", [range(1, 60), (50, 7, 8, 50, 50, 1), (3000, 3001, 20)])
def test_it_is_the_same_in_whatever_order_it_is_asked_for(counts):
    for count in counts:
        assert nesterov_product(0.9, 4e-3, count) == from_the_start(0.9, 4e-3, count)
        assert nesterov_product(0.8, 4e-3, count + 1) == from_the_start(0.8, 4e-3, count + 1), "each has its own"


@pytest.mark.parametrize("beta1", [0.8, 0.9, 0.99, 0.999, 0.99999])
def test_a_product_that_cannot_change_any_more_takes_no_more_factors(beta1):
    """Near 0 float32 rounds a product with more than 0.5 up to what it was: it does not come to 0."""
    for count in (140, 200, 5_000):
        assert nesterov_product(beta1, 4e-3, count) == from_the_start(beta1, 4e-3, count)
    began = time.monotonic()
    assert nesterov_product(beta1, 4e-3, 2**62) == from_the_start(beta1, 4e-3, 5_000)
    assert time.monotonic() - began < 5
