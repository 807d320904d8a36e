"""One leader: a Lease of coordination.k8s.io. (The election of the kubernetes client 37 cannot create one.)

A thread of its own renews it, however busy the process is; one that hangs is ended by its liveness probe.
"""

import asyncio
import logging
import threading
from collections.abc import Callable
from datetime import UTC, datetime

import aiohttp
from kubernetes.aio import client, config

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

_CALL_SECONDS = 4.0
_NOT_FOUND = 404
_LOST = (client.ApiException, aiohttp.ClientError, TimeoutError, OSError)


async def connect() -> None:
    """Take the service account of this pod, else the user's kubeconfig, for connections made from now on."""
    try:
        config.load_incluster_config()
    except config.ConfigException:
        await config.load_kube_config()


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
        self._seen: ObservedLease | None = None
        self._until = 0.0
        self._tried = steady()
        self._acquired, self._closed = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run, name="lease", daemon=True)
        self._api: client.CoordinationV1Api

    def held(self) -> bool:
        """Whether nobody else can hold it now."""
        return steady() < self._until

    def silent(self) -> float:
        """Seconds since the last attempt to take or renew it."""
        return steady() - self._tried

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
        asked = self._tried = steady()
        try:
            async with asyncio.timeout(_CALL_SECONDS):
                if await self._write():
                    self._until = asked + ACTING_SECONDS
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
                lease_duration_seconds=int(LEASE_SECONDS),
                acquire_time=now,
                renew_time=now,
                lease_transitions=0,
            )
            body = client.V1Lease(metadata=client.V1ObjectMeta(name=self._name), spec=spec)
            await self._api.create_namespaced_lease(self._namespace, body)
            return True
        spec = lease.spec = lease.spec or client.V1LeaseSpec()
        version = (lease.metadata and lease.metadata.resource_version) or ""
        if self._seen is None or self._seen.version != version:
            seconds = float(spec.lease_duration_seconds or LEASE_SECONDS)
            self._seen = ObservedLease(spec.holder_identity or "", seconds, version, steady())
        if judge(self._seen, self._identity, steady()) is LeaseAction.LEAVE:
            return False
        if spec.holder_identity != self._identity:
            spec.holder_identity, spec.acquire_time = self._identity, now
            spec.lease_transitions = (spec.lease_transitions or 0) + 1
        spec.renew_time, spec.lease_duration_seconds = now, int(LEASE_SECONDS)
        await self._api.replace_namespaced_lease(self._name, self._namespace, lease)  # refused if written since
        return True
