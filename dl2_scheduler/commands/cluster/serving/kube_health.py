"""This module tells probes whether a scheduler of Kubernetes gets on."""

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

from dl2_scheduler.cluster.errors import BadInput
from elastic_ps.core.errors import ConfigurationError
from k8s.foundation import probes
from k8s.foundation.probes import probe_page

LEASE_SECONDS = 60.0
"""That a leader may be without its lease: it ends by itself long before."""

DECISION_SECONDS = 600.0
"""For a decision, beside the slot's own length."""


class Health:
    """`Health` says how one process does. It has to be asked now and then: each question is a look too.

    It is safe from every thread.

    Args:
        slot_seconds: length of a slot.
        waits: whom this process sees hold the lease; "": nobody, or it has not read it yet.
        clock: monotonic seconds.
    """

    def __init__(self, slot_seconds: float, waits: Callable[[], str], clock: Callable[[], float] = time.monotonic):
        self._patience = DECISION_SECONDS + 2 * slot_seconds
        self._waits, self._clock = waits, clock
        self._holds: Callable[[], bool] | None = None
        self._slot: Callable[[], int] = lambda: 0
        self._first = self._last = 0
        self._held = self._moved = 0.0

    def leads(self, holds: Callable[[], bool], slot: Callable[[], int]) -> None:
        """Note that from now on this process schedules.

        Args:
            holds: whether the lease is its own.
            slot: number of the last slot.
        """
        self._slot, self._first, self._last = slot, slot(), slot()
        self._held = self._moved = self._clock()
        self._holds = holds

    def trouble(self) -> str:
        """Return why the process should be started again; "" where it gets on."""
        if self._holds is None:
            return ""
        now = self._clock()
        if self._holds():
            self._held = now
        if self._slot() != self._last:
            self._last, self._moved = self._slot(), now
        if now - self._held > LEASE_SECONDS:
            return f"the lease is not held for {now - self._held:.0f} s, and the process goes on"
        if now - self._moved > self._patience:
            return f"slot {self._last} stands still for {now - self._moved:.0f} s"
        return ""

    def unready(self) -> str:
        """Return why the process can schedule nothing now; "" where nothing is in the way.

        One that waits for the lease could schedule.
        """
        if self._holds is None:
            return "" if self._waits() else "the lease has not been read yet"
        return "its first slot has not been decided yet" if self._slot() == self._first else ""


@contextmanager
def answering(health: Health, where: str | None) -> Iterator[int]:
    """Answer /healthz and /readyz as long as the context lasts; yield the port.

    Args:
        health: what is told.
        where: [ADDRESS:]PORT; None: nowhere.

    Raises:
        BadInput: it is none, or cannot be had.
    """
    if where is None:
        yield 0
        return
    pages = {"/healthz": lambda: probe_page(health.trouble()), "/readyz": lambda: probe_page(health.unready())}
    with ExitStack() as stack:
        try:
            port = stack.enter_context(probes.answering(where, pages))
        except ConfigurationError as error:
            raise BadInput(f"--probes {error}") from error
        yield port
