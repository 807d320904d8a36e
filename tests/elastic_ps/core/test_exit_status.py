"""What the exit status of a process means."""

import signal

import pytest

from elastic_ps.core.exit_status import signal_of


@pytest.mark.parametrize(
    ("status", "number"),
    [(-9, signal.SIGKILL), (137, signal.SIGKILL), (143, signal.SIGTERM), (128 + 64, signal.SIGRTMAX)],
)
def test_who_was_ended_by_a_signal(status: int, number: int) -> None:
    assert signal_of(status) == number


@pytest.mark.parametrize("status", [0, 1, 75, 128, 193, 255, 256])
def test_who_has_ended_by_itself(status: int) -> None:
    """`sys.exit(-1)` ends with 255, which no signal does."""
    assert signal_of(status) == 0
