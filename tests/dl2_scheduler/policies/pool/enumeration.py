"""The best of all plans for a few jobs, none of which arrives later."""

from itertools import product

import numpy as np


def best_plan(left: np.ndarray, curves: np.ndarray, units: int) -> float:
    """Return the least sum of ends, by trying all splits at each end."""
    here = [number for number in range(len(left)) if left[number] > 0]
    if not here:
        return 0.0
    if len(here) == 1:
        return float(left[here[0]] / curves[here[0]].max())
    least = np.inf
    for split in product(range(units + 1), repeat=len(here)):
        if sum(split) > units:
            continue
        rates = np.array([curves[number, count] for number, count in zip(here, split, strict=True)])
        if not rates.any():
            continue
        with np.errstate(divide="ignore"):
            soonest = float((left[here] / rates).min())
        rest = left.copy()
        rest[here] = np.maximum(left[here] - rates * soonest, 0.0)
        rest[rest < 1e-9 * left] = 0.0
        if soonest * len(here) < least:
            least = min(least, soonest * len(here) + best_plan(rest, curves, units))
    return least
