"""The scaling clock of whatever numbers nodes report."""

import pytest

from coordinator.core.plans.scaling_clock import MOST_STEPS, scaling_clock
from coordinator.core.state import Vitals


def vitals(version: int, step: float, trip: float) -> Vitals:
    return Vitals(0.0, version=version, step_seconds=step, rtt_seconds=trip)


@pytest.mark.parametrize(
    ("told", "steps"),
    [
        ([vitals(5, 0.1, 0.25)], 5 + 3 + 2),
        ([vitals(5, 0.1, 0.25), vitals(7, 0.05, 0.0)], 7 + 5 + 2),
        ([vitals(5, 0.0, 0.25)], 5 + 2),
        ([vitals(5, 1e-308, 1e308)], 5 + MOST_STEPS),
        ([vitals(5, 1e-308, -1e308)], 5 + 2),
        ([vitals(5, -1.0, 1.0)], 5 + 2),
    ],
)
def test_a_clock_is_ahead_by_what_a_message_takes_and_by_no_more_than_the_bound(told: list[Vitals], steps: int) -> None:
    assert scaling_clock(told, 1, margin=2) == steps
