"""One of several schedulers acts: the one that holds the Lease.

The client's own election (kubernetes 37) has no deadline for its calls, so that one which hangs outlasts the lease; it
stops nobody who is in the middle of something, and keeps the lease at the end. So there is this one. A holder's `holds`
is by its own steady clock, counted from before the request that renewed: it is over before anybody else may begin, also
where the process was frozen.
"""

import logging
import threading
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

from dl2_scheduler.backends.kube.apiserver.rest_client import Api, ApiError, Conflict, NotFound
from dl2_scheduler.cluster.leadership import (
    ACTING_SECONDS,
    LEASE_SECONDS,
    RETRY_SECONDS,
    LeaseAction,
    ObservedLease,
    judge,
    steady,
)

log = logging.getLogger(__name__)


class Election:
    """A candidate for a lease.

    Args:
        api: of the cluster.
        namespace: of the lease.
        name: of the lease.
        me: which no other candidate has.
        lost: called from a thread, once, where the lease was held and is no more.
        clock: steady, in seconds.
    """

    def __init__(
        self,
        api: Api,
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
        self._seen: ObservedLease | None = None
        self._renewed: float | None = None
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None

    @property
    def holds(self) -> bool:
        """Whether this candidate may act now."""
        return self._renewed is not None and self._clock() - self._renewed < ACTING_SECONDS

    @property
    def holder(self) -> str:
        """Who holds it, as last seen; "": nobody."""
        return self._seen.holder if self._seen else ""

    def acquire(self, stopped: threading.Event) -> bool:
        """Wait until it is held; returns False where `stopped` was set before."""
        told = None
        while not stopped.is_set():
            self.attempt()
            if self.holds:
                self._thread = threading.Thread(target=self._keep, name="lease", daemon=True)
                self._thread.start()
                return True
            if told != self.holder:
                log.info("%s holds the lease %s; waiting for it", self.holder or "nobody known", self._name)
                told = self.holder
            stopped.wait(RETRY_SECONDS)
        return False

    def release(self) -> None:
        """Let go of it, so that another need not wait for it to run out."""
        self._stopped.set()
        if self._thread is not None:
            self._thread.join(LEASE_SECONDS)
        if self.holds:
            self._renewed = None
            try:
                self._write(self._read(), "")
            except ApiError as error:
                log.warning("the lease %s was not let go of: %s", self._name, error)

    def attempt(self) -> None:
        """Ask for it, or renew it, once."""
        began = self._clock()
        try:
            found = self._read()
            if judge(self._seen, self._me, self._clock()) is LeaseAction.LEAVE:
                self._renewed = None
                return
            self._write(found, self._me)
            self._renewed = began
        except (Conflict, NotFound):
            pass  # somebody was quicker: the next attempt sees who
        except ApiError as error:
            log.warning("the lease %s could not be renewed: %s", self._name, error)

    def _keep(self) -> None:
        while not self._stopped.wait(RETRY_SECONDS):
            self.attempt()
            if not self.holds:
                log.error("the lease %s is lost", self._name)
                self._lost()
                return

    def _read(self) -> dict[str, Any] | None:
        try:
            found = self._api.get(f"{self._folder}/{self._name}")
        except NotFound:
            self._seen = None
            return None
        spec, version = found.get("spec") or {}, found["metadata"]["resourceVersion"]
        if self._seen is None or self._seen.version != version:
            seconds = float(spec.get("leaseDurationSeconds") or LEASE_SECONDS)
            self._seen = ObservedLease(spec.get("holderIdentity") or "", seconds, version, self._clock())
        return found

    def _write(self, found: Mapping[str, Any] | None, holder: str) -> None:
        """With the version that was read: of two who try, one succeeds."""
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
        self._seen = ObservedLease(holder, LEASE_SECONDS, written["metadata"]["resourceVersion"], self._clock())
