"""One of several candidates leads: the one that holds a Lease of Kubernetes.

The elections of the kubernetes client (37) have no deadline for their calls, so that one which hangs outlasts the
lease; one of them cannot create a lease. So there is this one. Other machines' clocks are not believed: a lease has run
out when it has not changed for its length by the candidate's own clock. A holder counts on less, from before the
request that renewed it: it has stopped before anybody else may begin, also where its process was frozen.
"""

import logging
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from enum import Enum
from typing import Any

from elastic_ps.system.steady_clock import steady
from k8s.foundation.api_server import ApiError, ApiServer, Conflict, NotFound

log = logging.getLogger(__name__)

LEASE_SECONDS = 15.0
"""How long a holder that says nothing more is believed to live."""

ACTING_SECONDS = 10.0
"""How long a holder acts after its last renewal."""

RETRY_SECONDS = 2.0

LEASE_CALL_SECONDS = 4.0
"""For a request of its own: one that hangs, as when the API server's machine goes, does not cost a holder its lease."""


class LeaseAction(Enum):
    """A candidate does one of these about a lease."""

    MAKE = "make"  # there is none
    RENEW = "renew"  # it is its own
    TAKE = "take"  # nobody holds it any more
    LEAVE = "leave"  # it is somebody else's


@dataclass(frozen=True)
class SeenLease:
    """A lease as it was when a candidate last saw it.

    Attributes:
        holder: who holds it; "": nobody.
        seconds: how long its holder asked for.
        version: of the object; "": somebody has deleted it.
        since: when the candidate first saw this version, by its own clock.
    """

    holder: str
    seconds: float
    version: str
    since: float


def action_on(lease: SeenLease | None, me: str, now: float) -> LeaseAction:
    """Return what a candidate does about a lease.

    Args:
        lease: as it was last seen; None: there is none.
        me: the candidate's name.
        now: seconds of the candidate's own clock.
    """
    if lease is None:
        return LeaseAction.MAKE
    if lease.holder == me:
        return LeaseAction.RENEW
    if not lease.holder or now - lease.since > lease.seconds:
        return LeaseAction.TAKE
    return LeaseAction.LEAVE


class Lease:
    """A `Lease` takes a lease for one candidate, and renews it by a thread of its own, however busy the process is.

    Args:
        api: the API server.
        namespace: of the lease.
        name: of the lease.
        me: the candidate's name, which no other candidate has.
        lost: called from the thread, once, where the lease was held and is no more, or the thread dies.
        clock: steady seconds.
    """

    def __init__(
        self,
        api: ApiServer,
        namespace: str,
        name: str,
        me: str,
        lost: Callable[[], None],
        clock: Callable[[], float] = steady,
    ):
        self._api = api
        self._folder = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"
        self._name = name
        self._me = me
        self._lost = lost
        self._clock = clock
        self._seen: SeenLease | None = None
        self._renewed: float | None = None
        self._tried = clock()
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None

    @property
    def held(self) -> bool:
        """Return whether this candidate may act now, as nobody else can hold the lease."""
        return self._renewed is not None and self._clock() - self._renewed < ACTING_SECONDS

    @property
    def holder(self) -> str:
        """Who holds the lease, as last seen; "": nobody."""
        return self._seen.holder if self._seen else ""

    @property
    def silent(self) -> float:
        """The seconds since the last attempt to take or renew the lease."""
        return self._clock() - self._tried

    def acquire(self, stopped: threading.Event) -> bool:
        """Wait until the lease is held; return False where `stopped` was set before."""
        told = None
        while not stopped.is_set():
            self.attempt()
            if self.held:
                self._thread = threading.Thread(target=self._run, name="lease", daemon=True)
                self._thread.start()
                return True
            if told != self.holder:
                log.info("%s holds the lease %s; waiting for it", self.holder or "nobody known", self._name)
                told = self.holder
            stopped.wait(RETRY_SECONDS)
        return False

    def release(self) -> None:
        """Give the lease back, so that the next holder need not wait for it to run out."""
        self._stopped.set()
        if self._thread is not None:
            self._thread.join(LEASE_SECONDS)
        if self.held:
            self._renewed = None
            try:
                found = self._read()
                if self.holder == self._me:  # who was frozen meanwhile may find another's
                    self._write(found, "")
            except ApiError as error:
                log.warning("the lease %s could not be given back, and runs out by itself: %s", self._name, error)

    def attempt(self) -> None:
        """Take the lease or renew it, once, if it is this candidate's to write."""
        began = self._tried = self._clock()
        try:
            found = self._read()
            if action_on(self._seen, self._me, self._clock()) is LeaseAction.LEAVE:
                self._renewed = None
                return
            self._write(found, self._me)
            self._renewed = began
        except (Conflict, NotFound):
            pass  # somebody was quicker: the next attempt sees who
        except ApiError as error:
            log.warning("the lease %s could not be renewed: %s", self._name, error)

    def _run(self) -> None:
        try:
            while self.held and not self._stopped.wait(RETRY_SECONDS):
                self.attempt()
        finally:
            if not self._stopped.is_set():
                log.error("the lease %s is lost", self._name)
                self._lost()

    def _read(self) -> dict[str, Any] | None:
        try:
            found = self._api.get(f"{self._folder}/{self._name}")
        except NotFound:
            self._seen = self._left_by(self._seen)
            return None
        spec, version = found.get("spec") or {}, found["metadata"]["resourceVersion"]
        if self._seen is None or self._seen.version != version:
            seconds = float(spec.get("leaseDurationSeconds") or LEASE_SECONDS)
            self._seen = SeenLease(spec.get("holderIdentity") or "", seconds, version, self._clock())
        return found

    def _left_by(self, seen: SeenLease | None) -> SeenLease | None:
        """Return the lease that is not there any more as one of who held it, and may act for a while yet."""
        if seen is None or seen.holder in ("", self._me):
            return None
        return seen if not seen.version else replace(seen, version="", since=self._clock())

    def _write(self, found: Mapping[str, Any] | None, holder: str) -> None:
        """Write the lease with the version that was read: of two who try, one succeeds."""
        now = datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
        before: Mapping[str, Any] = (found or {}).get("spec") or {}
        same = before.get("holderIdentity") == holder
        spec = {
            "holderIdentity": holder,
            "leaseDurationSeconds": int(LEASE_SECONDS) if holder else 1,
            "acquireTime": before.get("acquireTime", now) if same else now,
            "renewTime": now,
            "leaseTransitions": before.get("leaseTransitions", 0) + (0 if same or not holder else 1),
        }
        metadata = {"name": self._name}
        if found is None:
            made = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata, "spec": spec}
            written = self._api.create(self._folder, made)
        else:
            written = self._api.replace(f"{self._folder}/{self._name}", {**found, "spec": spec})
        self._seen = SeenLease(holder, LEASE_SECONDS, written["metadata"]["resourceVersion"], self._clock())
