"""Sees a job come back from a fault."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from tests.chaos.disturbed import DisturbedJob, Hung
from tests.chaos.inject import Injection

_LOOK_SECONDS = 0.1
_STALL_SECONDS = 1.0
_WHOLE_SECONDS = 0.5
_STEPS = 5  # of each worker, that prove that a job trains
_STRAY_SECONDS = 30.0  # after which who is frozen or cut off for ever, and whom nobody has ended, is let go on


class Steps:
    """How a job's steps went on.

    Args:
        now: monotonic seconds.
        count: of steps until then.

    Attributes:
        count: of them.
        grew: when that grew last.
        trained: seconds from the beginning until they went on for good; 0: they never stood for long.
        stood: the longest time without one.
    """

    def __init__(self, now: float, count: int):
        self._began = self.grew = now
        self.count = count
        self.trained = self.stood = 0.0

    def look(self, now: float, count: int) -> None:
        """There are so many now."""
        if count > self.count:
            if now - self.grew > _STALL_SECONDS:
                self.trained = now - self._began
            self.stood = max(self.stood, now - self.grew)
            self.count, self.grew = count, now


@contextmanager
def seen(steps: Steps, count: Callable[[], int]) -> Iterator[None]:
    """Look at the steps from a thread, as the watch waits for a coordinator that does not answer."""
    over = threading.Event()

    def look() -> None:
        while not over.wait(_LOOK_SECONDS):
            steps.look(time.monotonic(), count())

    thread = threading.Thread(target=look, name="steps", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


class Watch:
    """Sees a job come back from a fault that has just been made of it.

    Args:
        job: that was hit.
        injection: of the fault.
        plan: that was hit; 0: none.
    """

    def __init__(self, job: DisturbedJob, injection: Injection, plan: int):
        self._job = job
        self._injection = injection
        self._plan = plan
        self._began = time.monotonic()
        self._passes_at = self._began + injection.fault.leases * job.lease
        self._passed = not injection.fault.leases
        self._steps = Steps(self._began, job.beats())
        self._planned: float | None = None
        self._noticed: float | None = None
        self._whole_since: tuple[float, int] | None = None  # and the steps that had been made then
        self._strays_since = 0.0

    def back(self) -> dict[str, float | None]:
        """Wait until the job is whole; returns the times of the result. Raises Hung."""
        with seen(self._steps, self._job.beats):
            return self._back(self._passes_at + self._job.bound)

    def _back(self, deadline: float) -> dict[str, float | None]:
        while True:
            now = time.monotonic()
            if not self._passed and now >= self._passes_at:
                self._injection.undo()
                self._passed = True
            status = self._job.status()
            self._look(now, status)
            if self._whole_since is not None:
                since, beats = self._whole_since
                if now - since > _WHOLE_SECONDS and self._steps.count >= beats + _STEPS * status.wanted_workers:
                    trained = {"trained": self._steps.trained, "stood": self._steps.stood}
                    return {"noticed": self._noticed, **trained, "whole": since - self._began, "planned": self._planned}
            if now > deadline:
                raise Hung(f"not whole {now - self._began:.0f} s after the fault: {self._state()}")
            time.sleep(_LOOK_SECONDS)

    def _look(self, now: float, status: Any) -> None:
        if self._plan and self._planned is None and status is not None and status.plan.id != self._plan:
            self._planned = now - self._began
        if status is not None and status.phase == "running" and self._is_short_of_servers(status):
            self._job.scale(self._job.base)
        taken = status is not None and self._injection.has_taken_effect(status)
        if taken and self._noticed is None and self._injection.fault.costs_a_process:
            self._noticed = now - self._began
        if not taken or not self._is_whole(now, status):
            self._whole_since = None
        elif self._whole_since is None:
            self._whole_since = now, self._steps.count

    def _is_short_of_servers(self, status: Any) -> bool:
        """Whether a job with replicas wants so few that nobody could follow; an operator asks again, as the docs say.

        A coordinator without a journal wants what is in force.
        """
        return bool(self._job.replicas) and status.wanted_servers < self._job.base[1] and not status.plan.id

    def _is_whole(self, now: float, status: Any) -> bool:
        if not (self._passed and self._job.is_whole(status)):
            return False
        if not self._job.strays(status):
            return True
        self._strays_since = self._strays_since or now
        if now > self._strays_since + _STRAY_SECONDS:  # expelled: it must end by itself
            self._injection.undo()
        return False

    def _state(self) -> str:
        status = self._job.job.status()
        if status is None:
            return "its coordinator does not answer"
        still = time.monotonic() - self._steps.grew
        plan = (
            f"plan {status.plan.id} {status.plan.phase}, missing {list(status.plan.missing)}"
            if status.plan.id
            else "no plan"
        )
        nodes = ", ".join(f"{node.member.id} {node.state}" for node in status.nodes)
        return (
            f"{status.phase}, {plan}, no step for {still:.0f} s, strays {self._job.strays(status)}, wanted "
            f"{status.wanted_workers} and {status.wanted_servers}, nodes {nodes}"
        )
