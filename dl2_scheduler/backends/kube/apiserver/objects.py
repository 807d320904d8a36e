"""This module has what the scheduler knows of nodes, pods and ElasticJobs, as `object_reading` reads them. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from dl2_scheduler.backends.kube.placement.node_constraints import Constraints, Taint
from k8s.foundation.names import COORDINATOR, GROUP, SERVER, WORKER

GANG = f"{GROUP}/gang"
DECISIONS = f"{GROUP}/decisions"
"""Annotation of a job: the last decisions about it, for `dl2 why`."""

SCHEDULER = "dl2"
"""Of pods that the scheduler binds."""

ROLES = (COORDINATOR, SERVER, WORKER)
"""In the order in which a gang's pods are bound."""


@dataclass(frozen=True)
class NodeInfo:
    """A `NodeInfo` is what the scheduler knows of a node.

    Attributes:
        name: of the node.
        allocatable: by resource.
        labels: of the node.
        taints: of the node.
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
        """Return why a pod may not go to the node, for people; "": it may."""
        return constraints.refusal(self.name, self.labels, self.taints, self.cordoned) if self.ready else "is not ready"


@dataclass(frozen=True)
class PodInfo:
    """A `PodInfo` is what the scheduler knows of a pod that has not ended.

    Attributes:
        namespace: of the pod.
        name: of the pod.
        uid: of the pod.
        created: unix seconds.
        node: it is bound to; "": none.
        bound: unix seconds, since when; None: it is not.
        requests: by resource.
        constraints: where it may go.
        scheduler: that is to bind it.
        gated: it is not to be bound yet.
        deleting: it is about to go.
        job: of its label, in its namespace; "": it was made for no ElasticJob, whatever its labels say.
        role: coordinator, server or worker; "": none.
        gang: workers and servers of its job's minimum; None: the job's own say.
        waits: why it is not bound, as the pod says; "": it does not say.
        cores_at_most: that its containers may use together; 0: nothing limits one of them.
        labels: of the pod.
        claims: of volumes, by their names.
        refusal: why it may not be bound now whatever is free, for people; "": it may.
        unmade: those of its claims whose volumes are made when a node has been chosen.
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
    labels: Mapping[str, str] = field(default_factory=dict)
    claims: tuple[str, ...] = ()
    refusal: str = ""
    unmade: tuple[str, ...] = ()

    @property
    def key(self) -> tuple[str, str]:
        """Namespace and name of its job."""
        return self.namespace, self.job


@dataclass(frozen=True)
class RoleInfo:
    """A `RoleInfo` says how many workers, or servers, a job may have, and what one takes.

    Attributes:
        replicas: first wish, and count where the job is scaled by hand.
        min: fewest.
        max: most.
        requests: of one pod.
        constraints: of one pod.
        labels: of one pod.
        namespace: of the job.
        initial: what one pod would take without its container: the coordinator, made like a server, takes that, too.
    """

    replicas: int
    min: int
    max: int
    requests: Mapping[str, float]
    constraints: Constraints
    labels: Mapping[str, str] = field(default_factory=dict)
    namespace: str = ""
    initial: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Allotment:
    """An `Allotment` is `spec.allocation`: what the scheduler gave a job last.

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
class ReportedStatus:
    """A `ReportedStatus` is `status`: what the operator says of a job.

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
        since: unix seconds, since when it trains with its present counts; None: it does not, or nobody knows.
        accepted: the API server would make its pods, as far as anybody has asked.
        forecast: when it will start and end, as the scheduler has written it; see `forecast_status`.
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
    since: float | None = None
    accepted: bool = True
    forecast: Mapping[str, str] = field(default_factory=dict)

    @property
    def over(self) -> bool:
        """Return whether nothing comes after it."""
        return self.phase in ("Completed", "Failed")


@dataclass(frozen=True)
class JobInfo:
    """A `JobInfo` is what the scheduler knows of an ElasticJob.

    Attributes:
        namespace: of the job.
        name: of the job.
        uid: of the job.
        version: by which a write is refused where the job has changed meanwhile.
        created: unix seconds.
        deleting: it is about to go.
        model: its type.
        epochs: that it trains; None: it does not say.
        by_scheduler: its counts are the scheduler's.
        suspend: it is to have nothing.
        workers: of the job, as its document has them.
        servers: of the job, as its document has them; in mode all-reduce there may be none.
        gang_seconds: that a gang which is not whole may hold room.
        allotment: None: none yet.
        status: as the operator reports it.
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
    status: ReportedStatus
    decisions: str
    saves: bool

    @property
    def key(self) -> tuple[str, str]:
        """Namespace and name of the job."""
        return self.namespace, self.name

    @property
    def id(self) -> str:
        """By which policies and people know it: its name, after its namespace where that is not `default`."""
        return job_id(self.namespace, self.name)

    @property
    def has_servers(self) -> bool:
        """Return whether parameter servers train it; otherwise its workers all-reduce."""
        return self.servers.max > 0

    @property
    def scaled(self) -> bool:
        """Return whether the scheduler decides its counts now."""
        return self.by_scheduler and self.status.accepted and not (self.suspend or self.deleting or self.status.over)

    @property
    def wants_pods(self) -> bool:
        """Return whether it is to have pods."""
        if self.suspend or self.deleting or self.status.over or not self.status.accepted:
            return False
        return not self.by_scheduler or (self.allotment is not None and self.allotment.workers > 0)


def job_id(namespace: str, name: str) -> str:
    """Return the name by which policies and people know a job; a name has no slash, so it is one job's."""
    return name if namespace == "default" else f"{namespace}/{name}"
