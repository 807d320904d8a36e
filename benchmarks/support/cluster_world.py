"""Nodes and jobs for benchmarks/cluster_kube.py, an operator that is played, and requests that are counted."""

import json
import sys
import time
import uuid
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

from dl2_scheduler.backends.kube.apiserver.informers import Informers
from dl2_scheduler.backends.kube.apiserver.objects import DECISIONS
from dl2_scheduler.backends.kube.views import MOST_DECISIONS
from k8s.foundation.api_server import MERGE, ApiError, KubeApi, Query, job_path

MOST = 2  # workers, and servers, of a job

_ENTRY = {
    "at": 1_700_000_000.123,
    "policy": "drf",
    "workers_before": 1,
    "servers_before": 1,
    "workers": 2,
    "servers": 2,
    "reason": "all that it can use",
    "epochs_done": 0.1234,
    "happened": {"workers": 2, "servers": 2, "epochs": 0.0123, "note": ""},
}
_PAST = json.dumps([{"slot": slot, **_ENTRY} for slot in range(MOST_DECISIONS)], separators=(",", ":"))
"""As a job that has been scaled for long has it: the object is as large as it gets."""

_THREADS = 12
_WAIT_SECONDS = 300.0


class CountedApi(KubeApi):
    """Tells its requests by kind."""

    def __init__(self) -> None:
        super().__init__()
        self._kinds: list[str] = []

    def kinds(self, after: int = 0) -> dict[str, int]:
        """Return how often each kind of request was made, but for so many first ones."""
        return dict(Counter(self._kinds[after:]).most_common())

    def get(self, path: str, query: Query | None = None) -> dict[str, Any]:
        """See `ApiServer.get`."""
        self._note("get", path)
        return super().get(path, query)

    def create(self, path: str, body: Mapping[str, Any], query: Query | None = None) -> dict[str, Any]:
        """See `ApiServer.create`."""
        self._note("create", path)
        return super().create(path, body, query)

    def replace(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """See `ApiServer.replace`."""
        self._note("replace", path)
        return super().replace(path, body)

    def patch(
        self, path: str, body: Mapping[str, Any], query: Query | None = None, kind: str = MERGE
    ) -> dict[str, Any]:
        """See `ApiServer.patch`."""
        self._note("patch", path)
        return super().patch(path, body, query, kind)

    def watch(self, path: str, query: Query) -> Generator[dict[str, Any], None, None]:
        """See `ApiServer.watch`."""
        self._note("watch", path)
        return super().watch(path, query)

    def _note(self, verb: str, path: str) -> None:
        kinds = ("elasticjobs", "pods", "nodes", "leases", "events")
        self._kinds.append(f"{verb} {next((kind for kind in kinds if f'/{kind}' in path), path)}")


class World:
    """Nodes, jobs and what an operator does with them, by requests that are not the scheduler's."""

    def __init__(self, nodes: int, jobs: int):
        self.api = KubeApi()
        self.name = f"sched-bench-{uuid.uuid4().hex[:6]}"
        self.nodes = [f"{self.name}-{number}" for number in range(nodes)]
        self.jobs = [f"job-{number}" for number in range(jobs)]
        self._pool = ThreadPoolExecutor(_THREADS)

    def each(self, act: Callable[[str], object], names: Iterable[str]) -> None:
        """Act on all at once, as far as threads go."""
        list(self._pool.map(act, names))

    def make(self) -> None:
        """Create nodes and jobs."""
        self.api.create("/api/v1/namespaces", {"metadata": {"name": self.name}})
        self.each(self._node, self.nodes)
        self.each(self._job, self.jobs)

    def remove(self) -> None:
        """Remove everything again."""

        def drop(path: str) -> None:
            try:
                self.api.delete(path, {"gracePeriodSeconds": 0})
            except ApiError as error:
                print(f"{path}: {error}", file=sys.stderr)

        pods = self.api.get(f"/api/v1/namespaces/{self.name}/pods")["items"]
        self.each(drop, [f"/api/v1/namespaces/{self.name}/pods/{pod['metadata']['name']}" for pod in pods])
        self.each(drop, [job_path(self.name, name) for name in self.jobs])
        self.each(drop, [f"/api/v1/nodes/{name}" for name in self.nodes])
        drop(f"/api/v1/namespaces/{self.name}")

    def _node(self, name: str) -> None:
        amounts = {"cpu": "8", "memory": "64Gi", "pods": "110"}
        metadata = {"name": name, "labels": {"dl2-bench": self.name}, "annotations": {"kwok.x-k8s.io/node": "fake"}}
        taint = {"key": "kwok.x-k8s.io/node", "value": "fake", "effect": "NoSchedule"}
        status = {"allocatable": amounts, "capacity": amounts}
        self.api.create("/api/v1/nodes", {"metadata": metadata, "spec": {"taints": [taint]}, "status": status})

    def _spec(self, cpu: str, **container: Any) -> dict[str, Any]:
        return {
            "nodeSelector": {"dl2-bench": self.name},
            "tolerations": [{"key": "kwok.x-k8s.io/node", "operator": "Exists"}],
            "containers": [{"name": "main", "image": "i", "resources": {"requests": {"cpu": cpu}}, **container}],
        }

    def _job(self, name: str) -> None:
        spec = {
            "modelType": f"type-{hash(name) % 8}",
            "epochs": 1000,
            "workers": {"max": MOST, "template": {"spec": self._spec("2", command=["python"])}},
            "servers": {"max": MOST, "template": {"spec": self._spec("1")}},
        }
        metadata = {"name": name, "annotations": {DECISIONS: _PAST}}
        body = {"apiVersion": "dl2.scheduler/v1alpha1", "kind": "ElasticJob", "metadata": metadata, "spec": spec}
        self.api.create(job_path(self.name, "")[:-1], body)

    def add_pods(self, job: str) -> None:
        """Create a job's gang, as the operator makes it."""
        made = self.api.get(job_path(self.name, job))
        owner = {"apiVersion": made["apiVersion"], "kind": made["kind"], "name": job, "uid": made["metadata"]["uid"]}
        for role, cpu in (("coordinator", "50m"), ("server", "1"), ("worker", "2")):
            labels = {"dl2.scheduler/job": job, "dl2.scheduler/role": role}
            annotations = {"dl2.scheduler/gang": "1,1"}
            metadata = {"name": f"{job}-{role}-0", "labels": labels, "annotations": annotations}
            metadata["ownerReferences"] = [owner]
            spec = {"schedulerName": "dl2", **self._spec(cpu)}
            self.api.create(f"/api/v1/namespaces/{self.name}/pods", {"metadata": metadata, "spec": spec})

    def tell(self, job: str, epoch: float, count: int = MOST) -> None:
        """Tell how far a job has come, with so many workers and servers.

        Args:
            job: its name.
            epoch: that it has reached.
            count: of its workers, and of its servers.
        """
        status = {"phase": "Running", "workers": count, "servers": count, "epoch": epoch, "samplesPerEpoch": 100}
        body = {"status": {**status, "samplesPerSecond": 10, "trained": True}}
        self.api.patch(f"{job_path(self.name, job)}/status", body)

    def follow(self, jobs: Iterable[str], count: int, informers: Informers) -> None:
        """Let jobs get what they were granted, and wait until the scheduler knows.

        Args:
            jobs: their names.
            count: of the workers, and of the servers, of each.
            informers: of the scheduler.
        """
        names = set(jobs)
        self.each(partial(self.tell, epoch=0.1, count=count), names)
        until(lambda: all(j.status.workers == count for j in informers.jobs() if j.name in names), "jobs are told of")


def until(holds: Callable[[], bool], what: str) -> None:
    """Wait; the benchmark ends where it takes too long."""
    end = time.monotonic() + _WAIT_SECONDS
    while not holds():
        if time.monotonic() > end:
            raise SystemExit(f"after {_WAIT_SECONDS:g} s still not: {what}")
        time.sleep(0.05)
