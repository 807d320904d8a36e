"""One leader: a Lease of coordination.k8s.io. (The election of the kubernetes client 37 cannot create one.)

Clocks of other machines are not trusted: a lease has run out when its record has not changed for its length by our own
clock. A leader counts on less: it stops `LEASE_SECONDS - LEAD_SECONDS` before anybody else may begin. A thread of its
own renews it, however busy the process is; one that hangs is ended by its liveness probe.
"""

import asyncio
import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import aiohttp
from kubernetes.aio import client, config

log = logging.getLogger(__name__)

LEASE_SECONDS = 15
LEAD_SECONDS = 10.0
RETRY_SECONDS = 2.0
_CALL_SECONDS = 4.0
_NOT_FOUND = 404
_LOST = (client.ApiException, aiohttp.ClientError, TimeoutError, OSError)


async def connect() -> None:
    """Take the service account of this pod, else the user's kubeconfig, for connections made from now on."""
    try:
        config.load_incluster_config()
    except config.ConfigException:
        await config.load_kube_config()


@dataclass(frozen=True)
class Seen:
    """The last record that another one was seen to write.

    Attributes:
        record: its holder and times.
        at: monotonic seconds when it was first seen.
    """

    record: tuple[Any, ...] = ()
    at: float = 0.0


def may_take(holder: str | None, identity: str, seen: Seen, now: float) -> bool:
    """Whether the lease is ours to write.

    Args:
        holder: whom it names.
        identity: ours.
        seen: its record.
        now: monotonic seconds.
    """
    return not holder or holder == identity or now - seen.at >= LEASE_SECONDS


class Lease:
    """A candidate.

    Args:
        name: of the lease.
        namespace: of the lease.
        identity: of this process, unlike any other's.
        lost: called, from another thread, where it is held no more.
    """

    def __init__(self, name: str, namespace: str, identity: str, lost: Callable[[], None]):
        self._name, self._namespace, self._identity = name, namespace, identity
        self._lost = lost
        self._seen = Seen()
        self._until = 0.0
        self._tried = time.monotonic()
        self._acquired, self._closed = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run, name="lease", daemon=True)
        self._api: client.CoordinationV1Api

    def held(self) -> bool:
        """Whether nobody else can hold it now."""
        return time.monotonic() < self._until

    def silent(self) -> float:
        """Seconds since the last attempt to take or renew it."""
        return time.monotonic() - self._tried

    async def acquire(self) -> None:
        """Return when it is held; it is renewed from then on."""
        self._thread.start()
        while not await asyncio.to_thread(self._acquired.wait, RETRY_SECONDS):
            if not self._thread.is_alive():
                raise RuntimeError("the thread of the lease has died")

    def release(self) -> None:
        """Let the next one lead at once."""
        self._closed.set()
        if self._thread.is_alive():
            self._thread.join(RETRY_SECONDS + 2 * _CALL_SECONDS)

    def _run(self) -> None:
        try:
            asyncio.run(self._live())
        finally:
            if not self._closed.is_set():
                self._lost()

    async def _live(self) -> None:
        await connect()
        async with client.ApiClient() as connection:
            self._api = client.CoordinationV1Api(connection)
            while not self._closed.is_set() and not await self._try():
                await asyncio.sleep(RETRY_SECONDS)
            self._acquired.set()
            while self.held() and not await asyncio.to_thread(self._closed.wait, RETRY_SECONDS):
                await self._try()
            if self.held():
                await self._give_back()

    async def _give_back(self) -> None:
        self._until = 0.0
        try:
            async with asyncio.timeout(_CALL_SECONDS):
                lease = await self._api.read_namespaced_lease(self._name, self._namespace)
                if lease.spec is not None and lease.spec.holder_identity == self._identity:
                    lease.spec.holder_identity = ""
                    await self._api.replace_namespaced_lease(self._name, self._namespace, lease)
        except _LOST as error:
            log.warning("the lease is not given back, and runs out by itself: %r", error)

    async def _try(self) -> bool:
        """Take or renew it, if it is ours to write; a server that does not answer counts as a refusal."""
        asked = self._tried = time.monotonic()
        try:
            async with asyncio.timeout(_CALL_SECONDS):
                if await self._write():
                    self._until = asked + LEAD_SECONDS
                    return True
        except _LOST as error:
            log.warning("the lease %s/%s is not written: %r", self._namespace, self._name, error)
        return False

    async def _write(self) -> bool:
        now = datetime.now(UTC)
        try:
            lease = await self._api.read_namespaced_lease(self._name, self._namespace)
        except client.ApiException as error:
            if error.status != _NOT_FOUND:
                raise
            spec = client.V1LeaseSpec(
                holder_identity=self._identity,
                lease_duration_seconds=LEASE_SECONDS,
                acquire_time=now,
                renew_time=now,
                lease_transitions=0,
            )
            body = client.V1Lease(metadata=client.V1ObjectMeta(name=self._name), spec=spec)
            await self._api.create_namespaced_lease(self._namespace, body)
            return True
        spec = lease.spec = lease.spec or client.V1LeaseSpec()
        record = (spec.holder_identity, spec.renew_time)
        if record != self._seen.record:
            self._seen = Seen(record, time.monotonic())
        if not may_take(spec.holder_identity, self._identity, self._seen, time.monotonic()):
            return False
        if spec.holder_identity != self._identity:
            spec.holder_identity, spec.acquire_time = self._identity, now
            spec.lease_transitions = (spec.lease_transitions or 0) + 1
        spec.renew_time, spec.lease_duration_seconds = now, LEASE_SECONDS
        await self._api.replace_namespaced_lease(self._name, self._namespace, lease)  # refused if written since
        return True
