"""One of several candidates leads: what each does about the Lease of Kubernetes that says who. Pure, but for the clock.

Other machines' clocks are not believed: a lease has run out when it has not changed for its length by the candidate's
own. A holder counts on less, so that it has stopped before anybody else may begin.
"""

import time
from dataclasses import dataclass
from enum import Enum

LEASE_SECONDS = 15.0
"""That a holder which says nothing more is believed to live."""

ACTING_SECONDS = 10.0
"""After its last renewal, a holder acts."""

RETRY_SECONDS = 2.0


def steady() -> float:
    """Seconds that also pass while the machine sleeps."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class LeaseAction(Enum):
    """What a candidate does about a lease."""

    MAKE = "make"  # there is none
    RENEW = "renew"  # it is its own
    TAKE = "take"  # nobody holds it any more
    LEAVE = "leave"  # it is somebody else's


@dataclass(frozen=True)
class ObservedLease:
    """A lease as last seen.

    Attributes:
        holder: "": nobody.
        seconds: that its holder asked for.
        version: of the object.
        since: of the candidate's own clock, when it first saw this version: other machines' clocks are not believed.
    """

    holder: str
    seconds: float
    version: str
    since: float


def judge(lease: ObservedLease | None, me: str, now: float) -> LeaseAction:
    """What to do.

    Args:
        lease: None: there is none.
        me: the candidate's name.
        now: of its own clock.
    """
    if lease is None:
        return LeaseAction.MAKE
    if lease.holder == me:
        return LeaseAction.RENEW
    if not lease.holder or now - lease.since > lease.seconds:
        return LeaseAction.TAKE
    return LeaseAction.LEAVE
