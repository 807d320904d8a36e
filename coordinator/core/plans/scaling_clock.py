"""The scaling clock (DL2 section 5, step 2) is set near, and yet ahead of every node."""

from collections.abc import Iterable
from math import ceil

from coordinator.core.state import Vitals

MOST_STEPS = 1000
"""A clock never lies further ahead: a wrong round trip must not stall a plan."""


def scaling_clock(vitals: Iterable[Vitals], exchanges: int, margin: int, version: int = 0) -> int:
    """Return a step boundary that, in all likelihood, no node has reached when it hears of it; LATE mends the rest.

    Args:
        vitals: of the nodes concerned.
        exchanges: versions per sampler step.
        margin: sampler steps on top of the estimate.
        version: a version that some node is known to have reached besides.

    Returns:
        max(reported versions) + (ceil(worst round trip / step time) + margin) steps, rounded up to a boundary.
    """
    told = tuple(vitals)
    highest = max([version, *(v.version for v in told)])
    step = min((v.step_seconds for v in told if v.step_seconds > 0), default=0.0)
    trip = max([0.0, *(v.rtt_seconds for v in told)])
    steps = min(MOST_STEPS, trip / step) if step else 0  # of any numbers that nodes tell: the quotient may be infinite
    ahead = min(MOST_STEPS, ceil(steps) + margin)
    return (-(-highest // exchanges) + ahead) * exchanges
