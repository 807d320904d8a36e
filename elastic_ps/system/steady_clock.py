"""The steady clock counts on while the machine sleeps: others, whose machines do not, wait for it then."""

import time


def steady() -> float:
    """Return seconds of a clock that never goes back, and goes on while the machine sleeps."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)
