"""Nodes, pods and ElasticJobs of the API server, as far as the scheduler reads them. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from dl2_scheduler.backends.kube.constraints import Constraints, Taint, constraints_of
from dl2_scheduler.backends.kube.quantities import amount, amounts, pod_requests
from dl2_scheduler.cluster import durations

GROUP = "dl2.scheduler"
JOB_LABEL = f"{GROUP}/job"
ROLE_LABEL = f"{GROUP}/role"
GANG = f"{GROUP}/gang"
DECISIONS = f"{GROUP}/decisions"
"""Annotation of a job: the last decisions about it, for `dl2 why`."""

SCHEDULER = "dl2"
"""Of pods that the scheduler binds."""

COORDINATOR, SERVER, WORKER = "coordinator", "server", "worker"
ROLES = (COORDINATOR, SERVER, WORKER)
"""In the order in which a gang's pods are bound."""

BY_SCHEDULER = "Scheduler"
MOST_BY_DEFAULT = 16
GANG_SECONDS = 300.0

Object = Mapping[str, Any]
"""As the API server writes it."""


@dataclass(frozen=True)
class NodeInfo:
    """A node.

    Attributes:
        name: of it.
        allocatable: by resource.
        labels: of it.
        taints: of it.
        cordoned: nothing new shall go there.
        ready: its kubelet says so.
    """

    name: str
    allocatable: Mapping[str, float]
    labels: Mapping[str, str]
    taints: tuple[Taint, ...]
    cordoned: bool
    ready: bool

    def refusal(self, constraints: Constraints) -> str:
        """Why a pod may not go there, for people; "": it may."""
        return constraints.refusal(self.name, self.labels, self.taints, self.cordoned) if self.ready else "is not ready"


@dataclass(frozen=True)
class PodInfo:
    """A pod that has not ended.

    Attributes:
        namespace: of it.
        name: of it.
        uid: of it.
        created: unix seconds.
        node: it is bound to; "": none.
        bound: unix seconds, since when; None: it is not.
        requests: by resource.
        constraints: where it may go.
        scheduler: that is to bind it.
        gated: it is not to be bound yet.
        deleting: it is about to go.
        job: of its label, in its namespace; "": it is no ElasticJob's.
        role: coordinator, server or worker; "": none.
        gang: workers and servers of its job's minimum; None: the job's own say.
        waits: why it is not bound, as the pod says; "": it does not say.
        cores_at_most: that its containers may use together; 0: nothing limits one of them.
    """

    namespace: str
    name: str
    uid: str
    created: float
    node: str
    bound: float | None
    requests: Mapping[str, float]
    constraints: Constraints
    scheduler: str
    gated: bool
    deleting: bool
    job: str
    role: str
    gang: tuple[int, int] | None
    waits: str
    cores_at_most: float = 0.0

    @property
    def key(self) -> tuple[str, str]:
        """Of its job."""
        return self.namespace, self.job


@dataclass(frozen=True)
class RoleInfo:
    """Workers, or servers, of a job.

    Attributes:
        replicas: first wish, and count where the job is scaled by hand.
        min: fewest.
        max: most.
        requests: of one pod.
        constraints: of one pod.
    """

    replicas: int
    min: int
    max: int
    requests: Mapping[str, float]
    constraints: Constraints


@dataclass(frozen=True)
class Allotment:
    """`spec.allocation`: what the scheduler gave a job last.

    Attributes:
        workers: how many.
        servers: how many.
        reason: why.
        slot: in which it was given.
    """

    workers: int
    servers: int
    reason: str
    slot: int


@dataclass(frozen=True)
class Told:
    """`status`: what the operator says of a job.

    Attributes:
        phase: Waiting, Starting, Running, Suspending, Suspended, Completed or Failed; "": nothing yet.
        reason: why, for people.
        workers: members now.
        servers: members now.
        epoch: trained so far, parts of one too.
        samples_per_epoch: 0: not known yet.
        samples_per_second: of all workers; 0: not known.
        ended: unix seconds; None: it has not.
        plan: outcome of its last plan where that was not committed, for people; "": it was.
        trained: there is something that could be lost.
    """

    phase: str = ""
    reason: str = ""
    workers: int = 0
    servers: int = 0
    epoch: float = 0.0
    samples_per_epoch: float = 0.0
    samples_per_second: float = 0.0
    ended: float | None = None
    plan: str = ""
    trained: bool = False

    @property
    def over(self) -> bool:
        """Whether nothing comes after it."""
        return self.phase in ("Completed", "Failed")


@dataclass(frozen=True)
class JobInfo:
    """An ElasticJob.

    Attributes:
        namespace: of it.
        name: of it.
        uid: of it.
        version: by which a write is refused where the job has changed meanwhile.
        created: unix seconds.
        deleting: it is about to go.
        model: its type.
        epochs: that it trains; None: it does not say.
        by_scheduler: its counts are the scheduler's.
        suspend: it is to have nothing.
        workers: of it.
        servers: of it.
        gang_seconds: that a gang which is not whole may hold room.
        allotment: None: none yet.
        told: its status.
        decisions: annotation of that name, as it stands there.
        saves: there is a place for its checkpoints.
    """

    namespace: str
    name: str
    uid: str
    version: str
    created: float
    deleting: bool
    model: str
    epochs: float | None
    by_scheduler: bool
    suspend: bool
    workers: RoleInfo
    servers: RoleInfo
    gang_seconds: float
    allotment: Allotment | None
    told: Told
    decisions: str
    saves: bool

    @property
    def key(self) -> tuple[str, str]:
        """Of the job."""
        return self.namespace, self.name

    @property
    def id(self) -> str:
        """By which policies and people know it: its name, after its namespace where that is not `default`."""
        return job_id(self.namespace, self.name)

    @property
    def scaled(self) -> bool:
        """Whether the scheduler decides its counts now."""
        return self.by_scheduler and not (self.suspend or self.deleting or self.told.over)

    @property
    def wants_pods(self) -> bool:
        """Whether it is to have pods."""
        if self.suspend or self.deleting or self.told.over:
            return False
        return not self.by_scheduler or (self.allotment is not None and self.allotment.workers > 0)


def job_id(namespace: str, name: str) -> str:
    """Of a job; a name has no slash, so it is one job's."""
    return name if namespace == "default" else f"{namespace}/{name}"


def unix(text: str | None) -> float | None:
    """Of a time as the API server writes it."""
    return None if text is None else datetime.fromisoformat(text).timestamp()


def node_of(found: Object) -> NodeInfo:
    """Read a node."""
    spec, status = found.get("spec") or {}, found.get("status") or {}
    ready = [each["status"] for each in status.get("conditions") or () if each["type"] == "Ready"]
    return NodeInfo(
        name=found["metadata"]["name"],
        allocatable=amounts(status.get("allocatable") or {}),
        labels=found["metadata"].get("labels") or {},
        taints=tuple(Taint(each["key"], each.get("value") or "", each["effect"]) for each in spec.get("taints") or ()),
        cordoned=bool(spec.get("unschedulable")),
        ready=ready == ["True"],
    )


def pod_of(found: Object) -> PodInfo:
    """Read a pod."""
    metadata, spec, status = found["metadata"], found["spec"], found.get("status") or {}
    labels = metadata.get("labels") or {}
    created = unix(metadata["creationTimestamp"]) or 0.0
    conditions: dict[str, Object] = {each["type"]: each for each in status.get("conditions") or ()}
    scheduled = conditions.get("PodScheduled", {})
    node = spec.get("nodeName") or ""
    gang = (metadata.get("annotations") or {}).get(GANG)
    return PodInfo(
        namespace=metadata["namespace"],
        name=metadata["name"],
        uid=metadata["uid"],
        created=created,
        node=node,
        bound=(unix(scheduled.get("lastTransitionTime")) or created) if node else None,
        requests=pod_requests(spec),
        constraints=constraints_of(spec),
        scheduler=spec.get("schedulerName") or "",
        gated=bool(spec.get("schedulingGates")),
        deleting="deletionTimestamp" in metadata,
        job=labels.get(JOB_LABEL, ""),
        role=labels.get(ROLE_LABEL, ""),
        gang=_pair(gang) if gang else None,
        waits=scheduled.get("message") or "" if not node else "",
        cores_at_most=_cores_at_most(spec),
    )


def job_of(found: Object) -> JobInfo:
    """Read an ElasticJob, which the API server has checked."""
    metadata, spec = found["metadata"], found["spec"]
    workers = _role(spec.get("workers") or {})
    given = spec.get("allocation")
    return JobInfo(
        namespace=metadata["namespace"],
        name=metadata["name"],
        uid=metadata["uid"],
        version=metadata["resourceVersion"],
        created=unix(metadata["creationTimestamp"]) or 0.0,
        deleting="deletionTimestamp" in metadata,
        model=spec.get("modelType") or _image(spec.get("workers") or {}),
        epochs=spec.get("epochs"),
        by_scheduler=spec.get("scaling", BY_SCHEDULER) == BY_SCHEDULER,
        suspend=bool(spec.get("suspend")),
        workers=workers,
        servers=_role(spec.get("servers") or {}, workers.constraints),
        gang_seconds=durations.seconds(spec["gangTimeout"]) if spec.get("gangTimeout") else GANG_SECONDS,
        allotment=Allotment(
            given.get("workers", 0), given.get("servers", 0), given.get("reason") or "", given.get("slot", 0)
        )
        if given
        else None,
        told=_told(found.get("status") or {}),
        decisions=(metadata.get("annotations") or {}).get(DECISIONS, ""),
        saves=bool((spec.get("checkpoint") or {}).get("url")),
    )


def _role(role: Object, constraints: Constraints | None = None) -> RoleInfo:
    """Of a role.

    Args:
        role: as the document has it.
        constraints: of one without a template: servers are made of the workers' then, without their requests.
    """
    spec = (role.get("template") or {}).get("spec")
    least = role.get("min", 1)
    return RoleInfo(
        replicas=role.get("replicas", least),
        min=least,
        max=role.get("max", MOST_BY_DEFAULT),
        requests=pod_requests(spec or {}),
        constraints=constraints if spec is None and constraints is not None else constraints_of(spec or {}),
    )


def _image(role: Object) -> str:
    containers = ((role.get("template") or {}).get("spec") or {}).get("containers") or ()
    return next((each["image"] for each in containers if each.get("image")), "")


def _told(status: Object) -> Told:
    plans = status.get("plans") or ()
    last = plans[-1] if plans else {}
    missed = last.get("phase") in ("CANCELLED", "FAILED", "Cancelled", "Failed")
    return Told(
        phase=status.get("phase") or "",
        reason=status.get("reason") or "",
        workers=status.get("workers", 0),
        servers=status.get("servers", 0),
        epoch=status.get("epoch") or 0.0,
        samples_per_epoch=status.get("samplesPerEpoch") or 0.0,
        samples_per_second=status.get("samplesPerSecond") or 0.0,
        ended=unix(status.get("completionTime")),
        plan=f"plan {last.get('id', '')} {last['phase'].lower()}: {last.get('reason') or 'no reason given'}"
        if missed
        else "",
        trained=bool(status.get("trained")),
    )


def _cores_at_most(spec: Object) -> float:
    limits = [(each.get("resources") or {}).get("limits") or {} for each in spec.get("containers") or ()]
    return sum(amount(limit["cpu"]) for limit in limits) if all("cpu" in limit for limit in limits) else 0.0


def _pair(gang: str) -> tuple[int, int] | None:
    parts = gang.split(",")
    return (int(parts[0]), int(parts[1])) if len(parts) == 2 and all(part.strip().isdigit() for part in parts) else None
