"""Patience with a coordinator that is away."""

import pytest

from coordinator.client import CoordinatorUnreachable
from coordinator.waiting import Patience

ERROR = CoordinatorUnreachable("nobody there")


def test_patience_ends_after_its_time_and_starts_again_with_an_answer() -> None:
    now = 0.0
    patience = Patience(30.0, lambda: now)
    patience.away(ERROR)
    now = 30.0
    patience.away(ERROR)
    patience.answered()
    now = 50.0
    patience.away(ERROR)
    now = 80.5
    with pytest.raises(CoordinatorUnreachable, match="nobody there"):
        patience.away(ERROR)
