"""The API server, for one leader: every write is refused once the lease is not known to be ours."""

import json
import logging
import secrets
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import aiohttp
from kubernetes.aio import client, config

from k8s.elastic_operator.job.model import GOING, GROUP, KIND, PLURAL, VERSION, Body, Desired, timestamp
from k8s.elastic_operator.job.status import Status

log = logging.getLogger(__name__)

MANAGER = "dl2-operator"
_MERGE = "application/merge-patch+json"
_APPLY = "application/apply-patch+yaml"
_CALL_SECONDS = 15.0
_LONGEST_MESSAGE = 1000
NOT_FOUND, CONFLICT = 404, 409
UNANSWERED = (aiohttp.ClientError, OSError, TimeoutError)
"""What a call raises beside `client.ApiException`, where there is no answer."""


async def connect() -> None:
    """Take the service account of this pod, else the user's kubeconfig, for connections made from now on."""
    try:
        config.load_incluster_config()
    except config.ConfigException:
        await config.load_kube_config()


class NotLeader(Exception):
    """The lease is not ours any more: nothing may be written."""


class Api:
    """What the operator asks of the API server. All methods raise `client.ApiException`, those that write `NotLeader`.

    Args:
        api: connection.
        leads: whether the lease is ours now.
    """

    def __init__(self, api: client.ApiClient, leads: Callable[[], bool]):
        self._core = client.CoreV1Api(api)
        self._policy = client.PolicyV1Api(api)
        self._custom = client.CustomObjectsApi(api)
        self._api = api
        self._leads = leads
        self.calls = 0

    async def job(self, job: Desired) -> Body:
        """The object as it is now."""
        self.calls += 1
        found: Any = await self._custom.get_namespaced_custom_object(
            GROUP, VERSION, job.namespace, PLURAL, job.name, _request_timeout=_CALL_SECONDS
        )
        body: Body = found
        return body

    async def first_job(self, namespace: str) -> Body | None:
        """One of the jobs of a namespace, or of all where it is ""; None: there is none."""
        self.calls += 1
        few: dict[str, Any] = {"limit": 1, "_request_timeout": _CALL_SECONDS}
        found: Any = await (
            self._custom.list_namespaced_custom_object(GROUP, VERSION, namespace, PLURAL, **few)
            if namespace
            else self._custom.list_cluster_custom_object(GROUP, VERSION, PLURAL, **few)
        )
        jobs: list[Body] = found["items"]
        return jobs[0] if jobs else None

    async def pods(self, namespace: str, selector: str) -> list[Body]:
        """Pods with these labels, as they are now."""
        self.calls += 1
        found = await self._core.list_namespaced_pod(namespace, label_selector=selector, _request_timeout=_CALL_SECONDS)
        plain: list[Body] = self._api.sanitize_for_serialization(found.items)
        return plain

    async def answers(self, node: str) -> bool:
        """Whether a node does; one that is gone does not."""
        self.calls += 1
        try:
            found = await self._core.read_node(node, _request_timeout=_CALL_SECONDS)
        except client.ApiException as error:
            if error.status != NOT_FOUND:
                raise
            return False
        conditions = (found.status.conditions if found.status else None) or []
        return any(one.type == "Ready" and one.status == "True" for one in conditions)

    async def write_status(self, body: Body, status: Status) -> Body:
        """Replace the status of `body`, if nobody has written the object since. Returns the new object."""
        job = Desired.of(body)
        written: Body = await self._write(
            self._custom.replace_namespaced_custom_object_status,
            GROUP,
            VERSION,
            job.namespace,
            PLURAL,
            job.name,
            {**body, "status": status.to_dict()},
        )
        return written

    async def set_finalizers(self, body: Body, finalizers: list[str]) -> Body:
        """Replace the finalizers of `body`, if nobody has written the object since. Returns the new object."""
        job = Desired.of(body)
        meta = {"finalizers": finalizers, "resourceVersion": body["metadata"]["resourceVersion"]}
        written: Body = await self._write(
            self._custom.patch_namespaced_custom_object,
            GROUP,
            VERSION,
            job.namespace,
            PLURAL,
            job.name,
            {"metadata": meta},
            _content_type=_MERGE,
        )
        return written

    async def delete_job(self, job: Desired) -> None:
        """Delete the object."""
        await self._gone(self._custom.delete_namespaced_custom_object, GROUP, VERSION, job.namespace, PLURAL, job.name)

    async def claim_phase(self, namespace: str, name: str) -> str:
        """Of a claim of a volume: Pending, Bound or Lost; GOING: it is being deleted, or there is none."""
        self.calls += 1
        read = self._core.read_namespaced_persistent_volume_claim
        try:
            found = await read(name, namespace, _request_timeout=_CALL_SECONDS)
        except client.ApiException as error:
            if error.status != NOT_FOUND:
                raise
            return GOING
        phase = (found.status.phase if found.status else None) or "Pending"
        return GOING if found.metadata and found.metadata.deletion_timestamp else phase

    async def create(self, manifest: Body) -> None:
        """Create a secret or a claim of a volume, unless it is there."""
        meta = manifest["metadata"]
        make = (
            self._core.create_namespaced_secret
            if manifest["kind"] == "Secret"
            else self._core.create_namespaced_persistent_volume_claim
        )
        try:
            await self._write(make, meta["namespace"], manifest)
        except client.ApiException as error:
            if error.status != CONFLICT:
                raise

    async def apply(self, manifest: Body) -> Body:
        """Make a service or a disruption budget as it is here. Returns it as it is then."""
        meta = manifest["metadata"]
        patch = (
            self._core.patch_namespaced_service
            if manifest["kind"] == "Service"
            else self._policy.patch_namespaced_pod_disruption_budget
        )
        made = await self._write(
            patch, meta["name"], meta["namespace"], manifest, field_manager=MANAGER, force=True, _content_type=_APPLY
        )
        plain: Body = self._api.sanitize_for_serialization(made)
        return plain

    async def create_pod(self, manifest: Body, dry_run: bool = False) -> Body:
        """Create it. Returns it; one that was there already as it is.

        Its template is a user's: it is sent as it stands, as the API server alone judges pods.

        Args:
            manifest: of it.
            dry_run: only say whether the API server takes it; fields that it does not know count, and so does one that
                is there.
        """
        meta = manifest["metadata"]
        try:
            made: Body = await self._write(
                self._post, f"/api/v1/namespaces/{meta['namespace']}/pods", manifest, dry_run
            )
        except client.ApiException as error:
            if dry_run or error.status != CONFLICT:
                raise
            read = self._core.read_namespaced_pod
            found = await read(meta["name"], meta["namespace"], _request_timeout=_CALL_SECONDS)
            made = self._api.sanitize_for_serialization(found)
        return made

    async def _post(self, path: str, body: Body, dry_run: bool, _request_timeout: float) -> Body:
        prepared = await self._api.param_serialize(
            "POST",
            path,
            query_params=[("dryRun", "All"), ("fieldValidation", "Strict")] if dry_run else [],
            header_params={"Accept": "application/json", "Content-Type": "application/json"},
            body=body,
            auth_settings=["BearerToken"],
        )
        response = await self._api.call_api(*prepared, _request_timeout=_request_timeout)
        text = (await response.read()).decode()
        if not 200 <= response.status < 300:
            raise client.ApiException.from_response(http_resp=response, body=text, data=None)
        made: Body = json.loads(text)
        return made

    async def delete_pod(self, namespace: str, name: str, at_once: bool) -> None:
        """Delete it; `at_once` does not wait for its kubelet."""
        grace = {"grace_period_seconds": 0} if at_once else {}
        await self._gone(self._core.delete_namespaced_pod, name, namespace, **grace)

    async def label_pod(self, namespace: str, name: str, labels: Mapping[str, str]) -> None:
        """Write labels on it."""
        body = {"metadata": {"labels": dict(labels)}}
        await self._gone(self._core.patch_namespaced_pod, name, namespace, body, _content_type=_MERGE)

    async def tell(self, job: Desired, reason: str, message: str, warning: bool) -> None:
        """An event on the job's object."""
        now = timestamp(time.time())
        about = {
            "apiVersion": f"{GROUP}/{VERSION}",
            "kind": KIND,
            "name": job.name,
            "namespace": job.namespace,
            "uid": job.uid,
        }
        event = {
            "metadata": {"name": f"{job.name}.{secrets.token_hex(8)}", "namespace": job.namespace},
            "involvedObject": about,
            "reason": reason,
            "message": message[:_LONGEST_MESSAGE],
            "type": "Warning" if warning else "Normal",
            "source": {"component": MANAGER},
            "reportingComponent": MANAGER,
            "firstTimestamp": now,
            "lastTimestamp": now,
            "count": 1,
        }
        await self._write(self._core.create_namespaced_event, job.namespace, event)

    async def _gone(self, call: Callable[..., Awaitable[Any]], *arguments: Any, **options: Any) -> None:
        try:
            await self._write(call, *arguments, **options)
        except client.ApiException as error:
            if error.status != NOT_FOUND:
                raise

    async def _write(self, call: Callable[..., Awaitable[Any]], *arguments: Any, **options: Any) -> Any:
        if not self._leads():
            raise NotLeader("the lease is not ours")
        self.calls += 1
        return await call(*arguments, _request_timeout=_CALL_SECONDS, **options)
