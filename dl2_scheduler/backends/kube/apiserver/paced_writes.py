"""This module writes to the API server for the scheduler, while that leads and as fast as it may."""

import threading
import time
import uuid
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

from dl2_scheduler.backends.kube.apiserver.objects import SCHEDULER, JobInfo, PodInfo
from dl2_scheduler.backends.kube.placement.volumes import SELECTED_NODE
from k8s.foundation.api_server import MERGE, STRATEGIC, ApiError, ApiServer, job_path
from k8s.foundation.event_bodies import event_body, event_path, job_reference, timestamp

MANAGER = "dl2-scheduler"
"""Field manager of all that the scheduler writes."""

_RATE, _BURST = 50.0, 1200


class NotLeading(ApiError):
    """Another scheduler leads, or nobody: nothing may be written."""


class WritePace:
    """A `WritePace` lets so many writes pass a second, after so many at once. It is safe from several threads.

    Args:
        rate: a second.
        burst: at once.
        clock: steady, in seconds.
        sleep: waits.
    """

    def __init__(
        self,
        rate: float = _RATE,
        burst: int = _BURST,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ):
        self._rate, self._burst = rate, burst
        self._clock, self._sleep = clock, sleep
        self._lock = threading.Lock()
        self._left = float(burst)
        self._at = clock()

    def take(self) -> None:
        """Wait until one more write may be made."""
        with self._lock:
            now = self._clock()
            self._left = min(self._burst, self._left + (now - self._at) * self._rate) - 1
            self._at = now
            wait = -self._left / self._rate
        if wait > 0:
            self._sleep(wait)


class PacedWriter:
    """A `PacedWriter` writes for the scheduler. It is safe from several threads.

    Every method raises ApiError, and NotLeading where the lease is lost.

    Args:
        api: of the cluster.
        leads: whether this scheduler may write now.
        pace: of all writes.
    """

    def __init__(self, api: ApiServer, leads: Callable[[], bool], pace: WritePace | None = None):
        self._api = api
        self._leads = leads
        self._pace = pace or WritePace()
        self._instance = uuid.uuid4().hex[:10]

    def bind(self, pod: PodInfo, node: str) -> None:
        """Bind a pod; Conflict where it is bound, or another has its name now."""
        self._begin()
        body = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": pod.name, "namespace": pod.namespace, "uid": pod.uid},
            "target": {"apiVersion": "v1", "kind": "Node", "name": node},
        }
        self._api.create(f"{_pod(pod)}/binding", body, {"fieldManager": MANAGER})

    def choose(self, namespace: str, claim: str, node: str) -> None:
        """Let the volume of a claim be made near a node.

        Args:
            namespace: of the claim.
            claim: its name.
            node: its name.
        """
        self._begin()
        path = f"/api/v1/namespaces/{namespace}/persistentvolumeclaims/{claim}"
        self._api.patch(path, {"metadata": {"annotations": {SELECTED_NODE: node}}}, {"fieldManager": MANAGER})

    def delete(self, pod: PodInfo) -> None:
        """Delete this very pod; Conflict where another has its name now."""
        self._begin()
        self._api.delete(_pod(pod), {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": pod.uid}})

    def tell_pod(self, pod: PodInfo, reason: str) -> None:
        """Say why a pod is not bound: in its conditions, and by an event, as `kubectl describe` shows."""
        self._begin()
        condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": reason}
        if not pod.waits:
            condition["lastTransitionTime"] = timestamp(datetime.now(UTC))
        body = {"metadata": {"uid": pod.uid}, "status": {"conditions": [condition]}}
        self._api.patch(f"{_pod(pod)}/status", body, {"fieldManager": MANAGER}, STRATEGIC)
        about = {"apiVersion": "v1", "kind": "Pod", "name": pod.name, "namespace": pod.namespace, "uid": pod.uid}
        self._event(about, "FailedScheduling", reason)

    def tell_job(self, job: JobInfo, reason: str, message: str, warning: bool = True) -> None:
        """Write an event on a job.

        Args:
            job: which.
            reason: one word, in camel case.
            message: for people.
            warning: whether something is wrong.
        """
        about = job_reference(job.namespace, job.name, job.uid)
        self._event(about, reason, message, warning)

    def allocate(self, job: JobInfo, body: Mapping[str, Any]) -> str:
        """Write what a job is given; return its new version. Conflict where it has changed since it was read."""
        self._begin()
        whole = {**body, "metadata": {**body.get("metadata", {}), "uid": job.uid, "resourceVersion": job.version}}
        query = {"fieldManager": MANAGER, "fieldValidation": "Ignore"}  # to look for unknown fields costs a third of it
        written = self._api.patch(job_path(job.namespace, job.name), whole, query, MERGE)
        return str(written["metadata"]["resourceVersion"])

    def tell_forecast(self, job: JobInfo, status: Mapping[str, Any]) -> None:
        """Write when a job will start and end, whoever else has written it meanwhile; Conflict where it is another.

        Args:
            job: which.
            status: merge patch of its status.
        """
        self._begin()
        body = {"metadata": {"uid": job.uid}, "status": status}
        self._api.patch(f"{job_path(job.namespace, job.name)}/status", body, {"fieldManager": MANAGER}, MERGE)

    def _event(self, about: Mapping[str, Any], reason: str, message: str, warning: bool = True) -> None:
        self._begin()
        body = event_body(about, reason, message, SCHEDULER, warning=warning, instance=self._instance)
        self._api.create(event_path(about["namespace"]), body)

    def _begin(self) -> None:
        self._pace.take()
        if not self._leads():  # after the wait
            raise NotLeading("this scheduler does not hold the lease (any more)")


def _pod(pod: PodInfo) -> str:
    return f"/api/v1/namespaces/{pod.namespace}/pods/{pod.name}"
