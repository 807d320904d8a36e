"""This module writes the objects that belong to a job, as the API server takes them. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from hmac import HMAC
from math import ceil
from typing import Any

from elastic_ps.control.token import TOKEN_BYTES
from elastic_ps.core.configuration import Role
from elastic_ps.core.job_mode import JobMode
from elastic_ps.node.settings import MACHINE
from elastic_ps.transport.choice import FOLDER as MEETING_FOLDER
from k8s.elastic_operator.job.actions import StartCoordinator, StartNode
from k8s.elastic_operator.job.model import PORT, Body, Desired
from k8s.elastic_operator.job.templates import Manifest, own_program, template_of
from k8s.foundation.names import COORDINATOR, GROUP, JOB_LABEL, KIND, MAIN, ROLE_LABEL, VERSION

TOKEN_FOLDER = "/var/run/dl2"
TOKEN_FILE = f"{TOKEN_FOLDER}/token"
SHARED_FOLDER = "/var/run/dl2-shared"
_STATE = "/var/lib/dl2"
_USER = 65532
_METRICS_PORT = 9090
_LOST_SECONDS = 30
_GRACE_SECONDS = 60
_HANDED_OVER = 50e6
"""Bytes a second at which a server that goes is sure to hand over what it holds."""
_JOIN_SECONDS = 600
"""That a node waits for the job's coordinator: images are pulled, gangs are bound one pod after the other."""

_RIGHTS_OF_A_POD: Manifest = {
    "runAsNonRoot": True,
    "runAsUser": _USER,
    "runAsGroup": _USER,
    "fsGroup": _USER,
    "seccompProfile": {"type": "RuntimeDefault"},
}
_RIGHTS_OF_A_CONTAINER: Manifest = {
    "allowPrivilegeEscalation": False,
    "readOnlyRootFilesystem": True,
    "capabilities": {"drop": ["ALL"]},
}
COORDINATOR_RESOURCES: Mapping[str, Any] = {"requests": {"cpu": "50m", "memory": "128Mi"}}
"""Without limits, as nobody knows what a large job's needs: who has a quota that counts limits gives some."""


@dataclass(frozen=True)
class Defaults:
    """`Defaults` say what a document may leave out.

    Attributes:
        image: of pods whose template has none.
        scheduler: that places pods.
        coordinator_resources: of the coordinator's container.
    """

    image: str = ""
    scheduler: str = "dl2"
    coordinator_resources: Mapping[str, Any] = field(default_factory=lambda: COORDINATOR_RESOURCES)


def token(key: bytes, job: Desired) -> str:
    """Return the job's token, made from the operator's key, so that no secret has to be read to know it."""
    return HMAC(key, f"{job.namespace}/{job.name}/{job.uid}".encode(), sha256).hexdigest()[: 2 * TOKEN_BYTES]


def labels(job: Desired, role: str) -> dict[str, str]:
    """Return the labels of the job's objects."""
    return {JOB_LABEL: job.name, ROLE_LABEL: role, "app.kubernetes.io/managed-by": "dl2-operator"}


def pod_name(job: Desired, role: Role, number: int) -> str:
    """Return the name of a worker's or server's pod; a number is never used twice.

    Args:
        job: that the pod is of.
        role: of the pod.
        number: of the pod, among those of its role.
    """
    return f"{job.name}-{role}-{number}"


def _meta(job: Desired, name: str, role: str, **more: Any) -> Manifest:
    owner = {
        "apiVersion": f"{GROUP}/{VERSION}",
        "kind": KIND,
        "name": job.name,
        "uid": job.uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }
    return {
        "name": name,
        "namespace": job.namespace,
        "labels": labels(job, role),
        "ownerReferences": [owner],
        **more,
    }


def secret(job: Desired, value: str) -> Manifest:
    """Return the secret that holds the job's token."""
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": _meta(job, job.secret, COORDINATOR),
        "immutable": True,
        "stringData": {"token": value},
    }


def service(job: Desired, address: str = "") -> Manifest:
    """Return the service by which nodes find the coordinator.

    Args:
        job: that it is of.
        address: that nodes which run have been given; "": the API server chooses one.
    """
    name = f"{job.name}-{COORDINATOR}"
    chosen = {"clusterIP": address} if address else {}
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": _meta(job, name, COORDINATOR),
        "spec": {
            "selector": {JOB_LABEL: job.name, ROLE_LABEL: COORDINATOR},
            "ports": [{"name": "grpc", "port": PORT, "targetPort": PORT}],
            "publishNotReadyAddresses": True,  # its nodes try until it answers: sooner than a probe has found that out
            **chosen,
        },
    }


def claim(job: Desired) -> Manifest:
    """Return the claim of the volume that the coordinator's journal lies on; it goes with the job."""
    volume = job.volume
    named = {"storageClassName": volume["storageClassName"]} if "storageClassName" in volume else {}
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": _meta(job, job.claim, COORDINATOR),
        "spec": {
            "accessModes": ["ReadWriteOncePod"],
            "resources": {"requests": {"storage": volume["size"]}},
            **named,
        },
    }


def budgets(job: Desired) -> list[Manifest]:
    """Return what evictions must leave of each role: its minimum, or all but one where it has no more than that.

    So a node can always be drained: a pod that is evicted hands over before it goes, and is replaced.
    """
    counts = job.counts if job.is_counted else job.minimum
    return [
        {
            "apiVersion": "policy/v1",
            "kind": "PodDisruptionBudget",
            "metadata": _meta(job, f"{job.name}-{role}s", role),
            "spec": {
                "minAvailable": max(0, min(job.minimum.of(role), counts.of(role) - 1)),
                "selector": {"matchLabels": {JOB_LABEL: job.name, ROLE_LABEL: str(role)}},
            },
        }
        for role in job.roles
    ]


def _pod(
    job: Desired, name: str, role: str, defaults: Defaults, parts: tuple[Manifest, Manifest, Manifest]
) -> Manifest:
    """Return a pod around a container, with as few rights as training needs, unless the template says otherwise."""
    meta, spec, container = parts
    minimum = job.minimum
    annotations = {**meta.get("annotations", {}), f"{GROUP}/gang": f"{minimum.workers},{minimum.servers}"}
    named = _meta(job, name, role, annotations=annotations)
    named["labels"] = {**meta.get("labels", {}), **named["labels"]}
    lost = {"operator": "Exists", "effect": "NoExecute", "tolerationSeconds": _LOST_SECONDS}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": named,
        "spec": {
            "schedulerName": defaults.scheduler,
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            **spec,
            "restartPolicy": "Never",
            "securityContext": {**_RIGHTS_OF_A_POD, **spec.get("securityContext", {})},
            "tolerations": [
                *spec.get("tolerations", ()),
                {"key": "node.kubernetes.io/unreachable", **lost},
                {"key": "node.kubernetes.io/not-ready", **lost},
            ],
            "volumes": [
                *spec.get("volumes", ()),
                {"name": "dl2-token", "secret": {"secretName": job.secret, "defaultMode": 0o440}},
                {"name": "dl2-tmp", "emptyDir": {}},
            ],
            "containers": [_container(container, defaults)],
        },
    }


def _container(given: Manifest, defaults: Defaults) -> Manifest:
    """Return the only container of a pod."""
    return {
        "image": defaults.image,
        "terminationMessagePolicy": "FallbackToLogsOnError",
        **given,
        "name": MAIN,
        "securityContext": {**_RIGHTS_OF_A_CONTAINER, **given.get("securityContext", {})},
        "volumeMounts": [
            *given.get("volumeMounts", ()),
            {"name": "dl2-token", "mountPath": TOKEN_FOLDER, "readOnly": True},
            {"name": "dl2-tmp", "mountPath": "/tmp"},
        ],
    }


def grace(held: int) -> int:
    """Return the seconds that a node has from SIGTERM on, with this many bytes to hand over."""
    return _GRACE_SECONDS + ceil(held / _HANDED_OVER)


def node_pod(job: Desired, start: StartNode, defaults: Defaults, coordinator: str) -> Manifest:
    """Return the pod of a worker or a server.

    Args:
        job: that it is of.
        start: which.
        defaults: of pods.
        coordinator: address of the coordinator's service. A name might be asked of other name servers too, before the
            cluster's own knows it, and the job's token be shown to whoever answers there.
    """
    role = start.role
    name = pod_name(job, role, start.number)
    meta, spec, container = template_of(job, role)
    spec.setdefault("terminationGracePeriodSeconds", grace(start.held))
    options = {
        "--role": str(role),
        "--coordinator": f"[{coordinator}]:{PORT}" if ":" in coordinator else f"{coordinator}:{PORT}",
        "--token-file": TOKEN_FILE,
        "--host": "$(POD_IP)",
        "--nonce-prefix": name,
        "--join-timeout": str(_JOIN_SECONDS),
        "--grace": str(max(1, spec["terminationGracePeriodSeconds"] - 10)),
    }
    if job.all_reduces:  # a job's own image may be older than the option
        options["--mode"] = JobMode.ALL_REDUCE.value
    entry = [*own_program(job, "elastic_ps.launch"), *(word for option in options.items() for word in option)]
    script = [*container.pop("command", ())[1:], *container.pop("args", ())] if role is Role.WORKER else []
    environment = [
        {"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
        {"name": MACHINE, "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}},
        {"name": "HOME", "value": "/tmp"},
        *container.pop("env", ()),
    ]
    container |= {"command": [*entry, *script], "env": environment}
    if job.shared_memory:
        _share(job, spec, container)
    return _pod(job, name, str(role), defaults, (meta, spec, container))


def coordinator_address(pod: Body) -> str:
    """Return the address of the coordinator's service that a node's pod was made with; "": it is no node's."""
    for container in pod["spec"].get("containers", ()):
        command = container.get("command", ())
        if "--coordinator" in command:
            return str(command[command.index("--coordinator") + 1]).rpartition(":")[0].strip("[]")
    return ""


def _share(job: Desired, spec: Manifest, container: Manifest) -> None:
    """Let a pod meet those of the same job on its node. Of the folder it sees the job's part alone."""
    folder = {"name": "dl2-shared", "hostPath": {"path": job.shared_memory, "type": "DirectoryOrCreate"}}
    mount = {"name": "dl2-shared", "mountPath": SHARED_FOLDER, "subPath": f"{job.namespace}-{job.name}-{job.uid[:8]}"}
    container["env"] = [*container["env"], {"name": MEETING_FOLDER, "value": SHARED_FOLDER}]
    container["volumeMounts"] = [*container.get("volumeMounts", ()), mount]
    spec["volumes"] = [*spec.get("volumes", ()), folder]


_COORDINATOR_PROBES: Mapping[str, Manifest] = {
    "readinessProbe": {"grpc": {"port": PORT}, "periodSeconds": 2, "timeoutSeconds": 5},
    "livenessProbe": {"grpc": {"port": PORT}, "periodSeconds": 10, "failureThreshold": 6, "initialDelaySeconds": 30},
}


def _coordinator_options(job: Desired, start: StartCoordinator) -> dict[str, str]:
    """Return the options that the coordinator's program is started with."""
    options = {
        "--job": job.name,
        "--folder": _STATE,
        "--token-file": TOKEN_FILE,
        "--host": "0.0.0.0",
        "--advertise": f"{job.name}-{COORDINATOR}.{job.namespace}",
        "--port": str(PORT),
        "--workers": str(start.counts.workers),
        "--servers": str(start.counts.servers),
        "--metrics": str(_METRICS_PORT),
        "--seed": str(int(sha256(job.uid.encode()).hexdigest()[:8], 16)),  # the same at every start of the job
        "--term": str(start.term),
        "--identity": job.uid,
    }
    if job.block_replicas:  # a job's own image may be older than the option
        options["--replicas"] = str(job.block_replicas)
    if job.checkpoint:
        options |= {"--checkpoint": job.checkpoint, "--checkpoint-interval": f"{job.interval:g}"}
        options |= {"--restore": job.checkpoint} if start.restore else {}
    return options


def coordinator_pod(job: Desired, start: StartCoordinator, defaults: Defaults) -> Manifest:
    """Return the coordinator's pod. Its journal lives as long as the pod, or on a volume.

    Args:
        job: that the pod is of.
        start: how the coordinator begins.
        defaults: of pods.
    """
    meta, spec, container = template_of(job, Role.SERVER)
    spec.pop("resources", None)  # of a server's pod as a whole
    options = _coordinator_options(job, start)
    words = [word for option in options.items() for word in option]
    container |= {
        "command": [*own_program(job, "coordinator"), *words, "--operator", *["--begin-again"] * start.begins],
        "ports": [{"name": "grpc", "containerPort": PORT}, {"name": "metrics", "containerPort": _METRICS_PORT}],
        "env": [
            {"name": "HOME", "value": "/tmp"},
            {"name": "ELASTIC_COORDINATOR", "value": f"127.0.0.1:{PORT}"},  # for elasticctl inside this pod
            {"name": "ELASTIC_TOKEN_FILE", "value": TOKEN_FILE},
            *container.get("env", ()),
        ],
        "resources": dict(defaults.coordinator_resources),
        **_COORDINATOR_PROBES,
        "volumeMounts": [*container.get("volumeMounts", ()), {"name": "dl2-state", "mountPath": _STATE}],
    }
    scraped = {"prometheus.io/scrape": "true", "prometheus.io/port": str(_METRICS_PORT)}
    meta = {**meta, "annotations": {**meta.get("annotations", {}), **scraped}}
    where = {"persistentVolumeClaim": {"claimName": job.claim}} if job.claim else {"emptyDir": {}}
    spec["volumes"] = [*spec.get("volumes", ()), {"name": "dl2-state", **where}]
    pod = _pod(job, f"{job.name}-{COORDINATOR}", COORDINATOR, defaults, (meta, spec, container))
    pod["spec"] |= {"restartPolicy": "Always", "terminationGracePeriodSeconds": 10}
    return pod
