"""How much of a sweep `make test-fast` runs: of a test's many values and of a property's many examples a part."""

import os
from collections.abc import Iterable
from typing import Any

import pytest

FAST = "TESTS_FAST"
"""Name in the environment of `make test-fast`."""

_PART = 5


def sweep(values: Iterable[Any], every: int = _PART) -> list[Any]:
    """Return values to parametrize a test with: the first, and each `every`-th after it, are for `make test-fast`, too.

    Args:
        values: all that the test is run with.
        every: a step, from one that is not marked slow to the next.
    """
    slow = pytest.mark.slow
    return [pytest.param(value, marks=slow) if number % every else value for number, value in enumerate(values)]


def examples(many: int) -> int:
    """Return with how many examples a property is tried: `many`, and a part of them in `make test-fast`."""
    return many // _PART if FAST in os.environ else many
