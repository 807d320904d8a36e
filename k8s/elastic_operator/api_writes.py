"""This module asks the API server for one leader: every write is refused once the lease is not known to be ours."""

import asyncio
import contextlib
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from types import MappingProxyType
from typing import Any

from k8s.elastic_operator.job.model import GOING, Body, Desired
from k8s.elastic_operator.job.pods import NOT_READY, READY
from k8s.elastic_operator.job.status import ElasticJobStatus
from k8s.foundation.api_server import (
    APPLY,
    CONNECTIONS,
    JOBS_PATH,
    AlreadyExists,
    ApiServer,
    Conflict,
    NotFound,
    job_path,
)
from k8s.foundation.event_bodies import event_body, event_path, job_reference

MANAGER = "dl2-operator"
"""Field manager of all that the operator writes."""


class NotLeader(Exception):
    """The lease is not ours any more: nothing may be written."""


class OperatorApi:
    """An `OperatorApi` asks what the operator needs, by threads of its own, so that the loop goes on meanwhile.

    All methods raise `ApiError`, those that write `NotLeader`.

    Args:
        server: the API server.
        leads: whether the lease is ours now.
    """

    def __init__(self, server: ApiServer, leads: Callable[[], bool]):
        self._server = server
        self._leads = leads
        self._threads = ThreadPoolExecutor(CONNECTIONS, "api")

    def check_leads(self) -> None:
        """Raise NotLeader unless the lease is ours now: asked before anything is changed, also at coordinators."""
        if not self._leads():
            raise NotLeader("the lease is not ours")

    async def close(self) -> None:
        """Wait for the requests that are under way; none is made afterwards."""
        await asyncio.to_thread(self._threads.shutdown, cancel_futures=True)

    async def job(self, job: Desired) -> Body:
        """Return the object as it is now."""
        return await self._get(job_path(job.namespace, job.name))

    async def first_job(self, namespaces: Sequence[str]) -> Body | None:
        """Return one of the jobs of some namespaces, or of all where none is named; None: there is none."""
        for path in [job_path(each, "").rstrip("/") for each in namespaces] or [JOBS_PATH]:
            jobs: list[Body] = (await self._get(path, {"limit": 1}))["items"]
            if jobs:
                return jobs[0]
        return None

    async def pods(self, namespace: str, selector: str) -> list[Body]:
        """Return the pods with these labels, as they are now."""
        found: list[Body] = (await self._get(_path(namespace, "pods"), {"labelSelector": selector}))["items"]
        return found

    async def readiness(self, node: str) -> str:
        """Return what a node says of itself: READY, NOT_READY; "": it does not answer, or is gone."""
        try:
            found = await self._get(f"/api/v1/nodes/{node}")
        except NotFound:
            return ""
        conditions = found.get("status", {}).get("conditions") or []
        said = next((one["status"] for one in conditions if one["type"] == "Ready"), "")
        return {"True": READY, "False": NOT_READY}.get(said, "")  # Unknown: Kubernetes has not heard of it for a while

    async def write_status(self, body: Body, status: ElasticJobStatus) -> Body:
        """Replace the status of `body`, if nobody has written the object since; return the new object."""
        job = Desired.of(body)
        path = f"{job_path(job.namespace, job.name)}/status"
        return await self._write(self._server.replace, path, {**body, "status": status.to_dict()})

    async def set_finalizers(self, body: Body, finalizers: list[str]) -> Body:
        """Replace the finalizers of `body`, if nobody has written the object since; return the new object."""
        job = Desired.of(body)
        meta = {"finalizers": finalizers, "resourceVersion": body["metadata"]["resourceVersion"]}
        return await self._write(self._server.patch, job_path(job.namespace, job.name), {"metadata": meta})

    async def delete_job(self, job: Desired) -> None:
        """Delete this very object, and none that has its name by now."""
        await self._delete(job_path(job.namespace, job.name), job.uid)

    async def claim_phase(self, namespace: str, name: str) -> str:
        """Return the phase of a claim: Pending, Bound or Lost; GOING: it is being deleted, or there is none."""
        try:
            found = await self._get(_path(namespace, "persistentvolumeclaims", name))
        except NotFound:
            return GOING
        phase: str = found.get("status", {}).get("phase") or "Pending"
        return GOING if "deletionTimestamp" in found["metadata"] else phase

    async def create(self, manifest: Body) -> None:
        """Create a secret or a claim of a volume, unless it is there."""
        kind = "secrets" if manifest["kind"] == "Secret" else "persistentvolumeclaims"
        try:
            await self._write(self._server.create, _path(manifest["metadata"]["namespace"], kind), manifest)
        except AlreadyExists:
            return

    async def find(self, manifest: Body) -> Body | None:
        """Return the service or the disruption budget that has the name of a manifest's; None: there is none."""
        with contextlib.suppress(NotFound):
            return await self._get(_applied_path(manifest))
        return None

    async def apply(self, manifest: Body) -> Body:
        """Make a service or a disruption budget as the manifest says, whosever it is; return it as it is then."""
        query = {"fieldManager": MANAGER, "force": "true"}
        return await self._write(self._server.patch, _applied_path(manifest), manifest, query, APPLY)

    async def create_pod(self, manifest: Body, dry_run: bool = False) -> Body:
        """Create a pod; return it, or the one that was there already as it is.

        Its template is a user's: it is sent as it stands, as the API server alone judges pods.

        Args:
            manifest: of the pod.
            dry_run: only ask whether the API server takes it; then fields that it does not know count, and so does a
                pod that is there.
        """
        meta = manifest["metadata"]
        folder = _path(meta["namespace"], "pods")
        query = {"dryRun": "All", "fieldValidation": "Strict"} if dry_run else None
        try:
            return await self._write(self._server.create, folder, manifest, query)
        except AlreadyExists:
            if dry_run:
                raise
            return await self._get(f"{folder}/{meta['name']}")

    async def delete_pod(self, pod: Body, at_once: bool) -> None:
        """Delete this very pod, and none that has its name by now.

        Args:
            pod: as the API server has it.
            at_once: do not wait for its kubelet.
        """
        meta = pod["metadata"]
        options = {"gracePeriodSeconds": 0} if at_once else {}
        await self._delete(_path(meta["namespace"], "pods", meta["name"]), meta["uid"], options)

    async def label_pod(self, namespace: str, name: str, labels: Mapping[str, str]) -> None:
        """Write labels on a pod.

        Args:
            namespace: of the pod.
            name: of the pod.
            labels: to be added to those that it has.
        """
        body = {"metadata": {"labels": dict(labels)}}
        await self._unless_gone(self._server.patch, _path(namespace, "pods", name), body)

    async def write_event(self, job: Desired, reason: str, message: str, warning: bool) -> None:
        """Write an event on the job's object.

        Args:
            job: which job.
            reason: one word, in camel case.
            message: for people.
            warning: rather than normal.
        """
        about = job_reference(job.namespace, job.name, job.uid)
        body = event_body(about, reason, message, MANAGER, warning=warning)
        await self._write(self._server.create, event_path(job.namespace), body)

    async def _get(self, path: str, query: Mapping[str, str | int] | None = None) -> Body:
        found: Body = await self._in_thread(partial(self._server.get, path, query))
        return found

    async def _delete(self, path: str, uid: str, options: Mapping[str, Any] = MappingProxyType({})) -> None:
        with contextlib.suppress(Conflict):  # another has its name, and this one is gone
            await self._unless_gone(self._server.delete, path, {"preconditions": {"uid": uid}, **options})

    async def _unless_gone(self, call: Callable[..., Any], *arguments: Any) -> None:
        try:
            await self._write(call, *arguments)
        except NotFound:
            return

    async def _write(self, call: Callable[..., Any], *arguments: Any) -> Body:
        written: Body = await self._in_thread(partial(self._write_now, call, *arguments))
        return written

    def _write_now(self, call: Callable[..., Any], *arguments: Any) -> Any:
        self.check_leads()  # asked last, after the wait for a thread
        return call(*arguments)

    async def _in_thread(self, call: Callable[[], Any]) -> Any:
        return await asyncio.get_running_loop().run_in_executor(self._threads, call)


def _applied_path(manifest: Body) -> str:
    meta = manifest["metadata"]
    if manifest["kind"] == "Service":
        return _path(meta["namespace"], "services", meta["name"])
    return f"/apis/policy/v1/namespaces/{meta['namespace']}/poddisruptionbudgets/{meta['name']}"


def _path(namespace: str, *names: str) -> str:
    return "/".join((f"/api/v1/namespaces/{namespace}", *names))
