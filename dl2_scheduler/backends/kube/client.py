"""This module asks a Kubernetes cluster with its user's rights; it has the methods of `live.client.ClusterClient`."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import asdict
from pathlib import Path
from types import TracebackType
from typing import Any

from dl2_scheduler.backends.kube import loads, views
from dl2_scheduler.backends.kube.apiserver.object_reading import job_of, node_of, pod_of
from dl2_scheduler.backends.kube.apiserver.objects import JobInfo, PodInfo, ReportedStatus, RoleInfo
from dl2_scheduler.backends.kube.forecast_status import forecast_of
from dl2_scheduler.cluster.document.job_document import API_VERSION, KIND
from dl2_scheduler.cluster.document.yamltext import read_yaml
from dl2_scheduler.cluster.errors import BadInput, ClusterRefused, NoSuchJob, NotServed
from dl2_scheduler.cluster.shown_job import shown_job
from k8s.foundation.api_server import (
    MERGE,
    NODES_PATH,
    PODS_PATH,
    AlreadyExists,
    ApiServer,
    ApiUnavailable,
    Conflict,
    KubeApi,
    NotFound,
    Rejected,
    job_path,
)
from k8s.foundation.names import JOB_LABEL, MAIN, WORKER
from protos import cluster_pb2 as pb

_USER = "dl2"
"""Field manager of what people write through these commands."""

_ATTEMPTS = 5


class KubeClient:
    """A `KubeClient` asks about the jobs of one namespace of a cluster. It is a context manager.

    Args:
        api: of the cluster.
        namespace: of the jobs.

    Every method raises ApiError, and what is refused: BadInput, NoSuchJob, ClusterRefused; NotServed where the cluster
    does not know ElasticJobs.
    """

    def __init__(self, api: ApiServer, namespace: str):
        self._api = api
        self.namespace = namespace
        self._pods_path = f"/api/v1/namespaces/{namespace}/pods"
        self._jobs_path = job_path(namespace, "")[:-1]

    @staticmethod
    def of(context: str | None, namespace: str | None) -> "KubeClient":
        """Connect by the user's kubeconfig; None: the present context, and the namespace that it names."""
        api = KubeApi(context)
        return KubeClient(api, namespace or api.namespace)

    def __enter__(self) -> "KubeClient":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """Do nothing: there is nothing to let go of."""

    def submit(self, document: str, folder: Path) -> str:
        """Submit a job; return its name. The API server checks the document; the folder is of no account there."""
        made = _read(document)
        name = made["metadata"]["name"]
        asked = made["metadata"].setdefault("namespace", self.namespace)
        if asked != self.namespace:
            raise BadInput(f"metadata.namespace is {asked}: leave it out, or give --namespace {asked}")
        try:
            self._api.create(self._jobs_path, made, {"fieldValidation": "Strict", "fieldManager": _USER})
        except AlreadyExists:
            way = self._removal(name)
            raise ClusterRefused(f"{name} exists already: give another name, or remove it: {way}") from None
        except Rejected as error:
            raise BadInput(str(error)) from error
        except NotFound as error:
            if str(error).startswith("namespaces "):
                make = f"kubectl create namespace {self.namespace}"
                raise BadInput(f"{error}: give another --namespace, or make it: {make}") from None
            raise self._not_installed(error) from error
        return str(name)

    def check(self, document: str, folder: Path) -> str:
        """Refuse: what would become of a job is not known here.

        Args:
            document: an ElasticJob, as YAML.
            folder: of no account.
        """
        raise BadInput("--dry-run is of a cluster of this machine: leave it out with --kube")

    def jobs(self) -> Sequence[pb.JobStatus]:
        """Return all jobs, by submission."""
        pods = self._pods(JOB_LABEL, loads.ALIVE)
        jobs = sorted(self._list(), key=lambda job: (job.created, job.name))
        return [_status(job, [pod for pod in pods if pod.job == job.name]) for job in jobs]

    def status(self, job: str) -> pb.JobStatus:
        """Return the status of one job."""
        pods = self._pods_of(job, loads.ALIVE)
        return _status(self._job(job), pods)

    def why(self, job: str, most: int) -> Sequence[pb.Decision]:
        """Return the latest decisions about a job, oldest first: those that changed something, each until the next."""
        fields = pb.Decision.DESCRIPTOR.fields_by_name
        return [
            pb.Decision(**{name: value for name, value in each.items() if name in fields})
            for each in views.decisions_until_now(self._job(job))[-most:]
        ]

    def stop(self, job: str) -> None:
        """End a job: it is deleted, and all of it; return when the wish is noted."""
        found = self._job(job)
        if found.status.over:
            raise ClusterRefused(f"{job} has ended ({found.status.phase}); to remove it: {self._deletion(job)}")
        self._api.delete(self._path(job), {"preconditions": {"uid": found.uid}, "propagationPolicy": "Background"})

    def hold(self, job: str) -> None:
        """Leave a job's counts to people, as they are now; one that has nothing goes on waiting."""

        def change(found: JobInfo) -> Mapping[str, Any]:
            _must_go_on(found)
            if not found.by_scheduler:
                raise ClusterRefused(f"{job} is held already: dl2 scale {job} --kube changes its counts")
            given = found.allotment
            if (given is None or not given.workers) and not found.saves:
                raise ClusterRefused(
                    f"{job} has nothing now, and without checkpoint.url cannot be kept so; to begin it with its "
                    f'replicas: kubectl patch elasticjob {job} --type merge -p \'{{"spec":{{"scaling":"Manual"}}}}\''
                )
            if given is None or not given.workers:
                return {"scaling": "Manual", "suspend": True}
            counts = _clamped(found.workers, given.workers), _clamped(found.servers, given.servers)
            return {"scaling": "Manual", **_counts(found, *counts)}

        self._change(job, change)

    def release(self, job: str) -> None:
        """Let the policy decide about a held job again, or a suspended one begin."""

        def change(found: JobInfo) -> Mapping[str, Any]:
            _must_go_on(found)
            if found.by_scheduler and not found.suspend:
                raise ClusterRefused(f"{job} is not held: the scheduler decides about it")
            return {"scaling": "Scheduler", "suspend": False}

        self._change(job, change)

    def scale(self, job: str, workers: int, servers: int) -> tuple[int, int]:
        """Give a held job other counts; return those that it is to have.

        Args:
            job: its name.
            workers: 0: as they are.
            servers: 0: as they are.
        """

        def change(found: JobInfo) -> Mapping[str, Any]:
            _must_go_on(found)
            if found.by_scheduler:
                raise ClusterRefused(f"{job} is held by the scheduler; dl2 hold {job} --kube first")
            if not (workers or servers):
                raise ClusterRefused(f"no counts for {job}: give --workers N, --servers N, or both")
            if servers and not found.has_servers:
                raise ClusterRefused(f"{job} has no servers, and gets none: its mode is all-reduce. Scale its workers")
            wanted = _allowed(found.workers, "workers", workers), _allowed(found.servers, "servers", servers)
            return {**_counts(found, *wanted), "suspend": False}

        written = self._change(job, change)
        return written.workers.replicas, written.servers.replicas

    def top(self) -> pb.TopReply:
        """Return what the nodes carry now."""
        nodes = [node_of(found) for found in self._api.get(NODES_PATH)["items"]]
        pods = [pod_of(found) for found in self._api.get(PODS_PATH, {"fieldSelector": loads.ALIVE})["items"]]
        path = f"/apis/metrics.k8s.io/v1beta1/namespaces/{self.namespace}/pods"
        try:
            usage = self._api.get(path, {"labelSelector": JOB_LABEL})["items"]
        except (NotFound, Rejected, ApiUnavailable):  # no metrics server, one that is down, or not for this user
            usage = None
        mine = [pod for pod in pods if pod.namespace == self.namespace and pod.job and pod.node]
        load = loads.load(nodes, pods, mine, usage)
        return pb.TopReply(
            nodes=[pb.NodeLoad(**asdict(each)) for each in load.nodes],
            tasks=[pb.TaskLoad(**asdict(each)) for each in load.tasks],
            isolation=load.isolation,
        )

    def logs(self, job: str, node: str, follow: bool, tail: int | None) -> Iterator[bytes]:
        """Yield the output of a pod of a job.

        Args:
            job: its name.
            node: as in worker-0, server-1, coordinator; "": the first worker that is there.
            follow: go on as it is written.
            tail: the last lines only; None: all.
        """
        self._job(job)
        pods = sorted(self._pods_of(job), key=lambda pod: (pod.role != WORKER, _number(pod), pod.name))
        names = {pod.name.removeprefix(f"{job}-"): pod.name for pod in pods}
        if not names:
            raise ClusterRefused(f"{job} has no pods now, and so no output")
        if node and node not in names:
            raise ClusterRefused(f"{job} has no pod {node}; there are: {', '.join(names)}")
        query: dict[str, str | int] = {"container": MAIN, "follow": str(follow).lower()}
        if tail is not None:
            query["tailLines"] = tail
        path = f"{self._pods_path}/{names[node] if node else pods[0].name}/log"
        with closing(self._api.lines(path, query)) as lines:
            for line in lines:
                yield f"{line}\n".encode()

    # ---- requests --------------------------------------------------------------------------------------------------

    def _path(self, job: str) -> str:
        return job_path(self.namespace, job)

    def _removal(self, name: str) -> str:
        """Return the command that removes a job: one that has ended cannot be stopped."""
        with suppress(NotFound):  # it is gone by now
            told = self._api.get(self._path(name)).get("status") or {}
            if ReportedStatus(phase=told.get("phase") or "").over:
                return self._deletion(name)
        return f"dl2 stop {name} --kube"

    def _deletion(self, name: str) -> str:
        return f"kubectl delete elasticjob {name} --namespace {self.namespace}"

    def _list(self) -> list[JobInfo]:
        try:
            return [job_of(found) for found in self._api.get(self._jobs_path)["items"]]
        except NotFound as error:
            raise self._not_installed(error) from error

    def _pods(self, labels: str, fields: str = "") -> list[PodInfo]:
        query = {"labelSelector": labels} | ({"fieldSelector": fields} if fields else {})
        return [pod_of(found) for found in self._api.get(self._pods_path, query)["items"]]

    def _pods_of(self, job: str, fields: str = "") -> list[PodInfo]:
        """Return the pods that were made for a job: others may bear its label, too."""
        return [pod for pod in self._pods(f"{JOB_LABEL}={job}", fields) if pod.job == job]

    def _job(self, name: str) -> JobInfo:
        try:
            return job_of(self._api.get(self._path(name)))
        except NotFound:
            names = ", ".join(job.name for job in self._list()) or "none"
            raise NoSuchJob(f"no ElasticJob {name} in the namespace {self.namespace}; there are: {names}") from None

    def _change(self, name: str, change: Callable[[JobInfo], Mapping[str, Any]]) -> JobInfo:
        """Patch a job as it was read; do it again where somebody wrote in between."""
        for _ in range(_ATTEMPTS):
            found = self._job(name)
            body = {"metadata": {"resourceVersion": found.version, "uid": found.uid}, "spec": change(found)}
            try:
                return job_of(self._api.patch(self._path(name), body, {"fieldManager": _USER}, MERGE))
            except Conflict:
                continue
        raise ClusterRefused(f"others keep changing {name}: try again")

    def _not_installed(self, error: NotFound) -> NotServed:
        return NotServed(f"the cluster knows no ElasticJobs ({error}): install the chart k8s/chart first")


def _read(document: str) -> dict[str, Any]:
    found = read_yaml(document)
    if not isinstance(found, dict) or (found.get("apiVersion"), found.get("kind")) != (API_VERSION, KIND):
        raise BadInput(f"not an {KIND} document: begin with `apiVersion: {API_VERSION}` and `kind: {KIND}`")
    if not isinstance(found.get("metadata"), dict) or not isinstance(found["metadata"].get("name"), str):
        raise BadInput("metadata.name is missing: give the job a name")
    return found


def _status(job: JobInfo, pods: Sequence[PodInfo]) -> pb.JobStatus:
    found = views.status_of(job, job.name, pods)
    now = time.time()
    return shown_job(found, forecast_of(job.status.forecast, now), now)


def _must_go_on(job: JobInfo) -> None:
    if job.status.over or job.deleting:
        raise ClusterRefused(f"{job.name} has ended" if job.status.over else f"{job.name} is being stopped")


def _clamped(role: RoleInfo, count: int) -> int:
    return max(role.min, min(role.max, count))


def _allowed(role: RoleInfo, name: str, count: int) -> int:
    if count and not role.min <= count <= role.max:
        raise ClusterRefused(f"{count} {name}: its document allows {role.min} to {role.max}")
    return count or role.replicas


def _counts(job: JobInfo, workers: int, servers: int) -> dict[str, Any]:
    """Return counts as a job's document has them: one without servers has no such field, and may not get it."""
    counts = {"workers": {"replicas": workers}}
    return {**counts, "servers": {"replicas": servers}} if job.has_servers else counts


def _number(pod: PodInfo) -> int:
    number = pod.name.rpartition("-")[2]
    return int(number) if number.isdigit() else 0
