"""This module says whether the operator gets on, as its probes are told. Times are monotonic seconds.

A process that stands still need not say so: its loop does not answer the probe. One that is cut off from the API server
loses its lease, and ends. What is left is here: a lease that nobody renews, a reconciliation that does not come to its
end, a watch that brings nothing.
"""

import time
from collections.abc import Awaitable, Callable, Mapping

from k8s.elastic_operator.job.model import Body
from k8s.foundation.api_server import ApiError, ApiUnavailable

LEASE_SECONDS = 60.0
"""Without an attempt to take or renew the lease: one is made every few seconds."""
STEP_SECONDS = 300.0
"""For one step of a reconciliation: each call that it makes has a limit far below."""
ECHO_SECONDS = 120.0
"""Until a watch brings what was written here."""
READY_SECONDS = 10.0
"""That an answer to `/readyz` is good for."""

Clock = Callable[[], float]


class Pulse:
    """A `Pulse` says whether one job's keeper gets on.

    Args:
        clock: monotonic seconds.
    """

    def __init__(self, clock: Clock = time.monotonic):
        self._clock = clock
        self._step: float | None = None
        self._heard = 0
        self._written: tuple[int, float] | None = None

    def steps(self) -> None:
        """Note that a reconciliation has begun, or has done one more thing."""
        self._step = self._clock()

    def rests(self) -> None:
        """Note that the reconciliation is over."""
        self._step = None

    def wrote(self, body: Body) -> None:
        """Note that the object has been written here, and is this now."""
        if self._written is None and version(body) > self._heard:
            self._written = version(body), self._clock()

    def hears(self, body: Body) -> None:
        """Note that the watch has brought the object."""
        self._heard = max(self._heard, version(body))
        if self._written is not None and self._heard >= self._written[0]:
            self._written = None

    def trouble(self) -> str:
        """Return what is wrong, for people; "": nothing."""
        now = self._clock()
        if self._step is not None and now - self._step > STEP_SECONDS:
            return f"a reconciliation stands still for {now - self._step:.0f} s"
        if self._written is not None and now - self._written[1] > ECHO_SECONDS:
            return f"its watch has not brought what was written {now - self._written[1]:.0f} s ago"
        return ""


def version(body: Body) -> int:
    """Return the version of an object: a later one is higher."""
    return int(body["metadata"].get("resourceVersion", 0))


def troubles(lease_silent: float, pulses: Mapping[str, Pulse], deaf: float = 0.0) -> list[str]:
    """Return why this process should be started again; an empty list: it gets on.

    Args:
        lease_silent: seconds since the last attempt at the lease.
        pulses: of the keepers, by name of the job.
        deaf: seconds for which the watch has brought no job though there are some.
    """
    found = [f"{name}: {trouble}" for name, pulse in pulses.items() if (trouble := pulse.trouble())]
    if lease_silent > LEASE_SECONDS:
        found.append(f"the lease's thread has done nothing for {lease_silent:.0f} s")
    if deaf > ECHO_SECONDS:  # of a definition that came later than the process, or anew, it does not hear by itself
        found.append(f"its watch has brought no job for {deaf:.0f} s, and there are some")
    return found


class Readiness:
    """A `Readiness` says whether jobs can be kept: they can be listed, and the watch has brought what there is.

    A process that waits for the lease is ready too, where it could begin.

    Args:
        first: asks for one job, whichever; None: there is none.
        idle: whether this process leads and keeps no job.
        clock: monotonic seconds.

    Attributes:
        deaf: the seconds for which, whenever it was asked, there were jobs and the watch had brought none.
    """

    def __init__(
        self, first: Callable[[], Awaitable[Body | None]], idle: Callable[[], bool], clock: Clock = time.monotonic
    ):
        self._first, self._idle, self._clock = first, idle, clock
        self._answer: tuple[str, float] | None = None
        self._heard, self.deaf = clock(), 0.0

    async def trouble(self) -> str:
        """Return why jobs cannot be kept now; "": they can."""
        if self._answer is None or self._clock() - self._answer[1] > READY_SECONDS:
            self._answer = await self._ask(), self._clock()
        return self._answer[0]

    async def _ask(self) -> str:
        is_deaf, trouble = await self._look()
        now = self._clock()
        if not is_deaf:
            self._heard = now
        self.deaf = now - self._heard
        return trouble

    async def _look(self) -> tuple[bool, str]:
        """Return whether there are jobs and none is kept, and why jobs cannot be kept."""
        try:
            job = await self._first()
        except ApiUnavailable as error:
            return False, str(error)
        except ApiError as error:
            return False, f"ElasticJobs cannot be listed: {error.status} {error}"
        is_deaf = job is not None and self._idle()
        return is_deaf, "the watch has not brought the jobs yet" if is_deaf else ""
