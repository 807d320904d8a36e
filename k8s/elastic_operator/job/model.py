"""This module reads once, into plain values, what the operator sees of a job and what the job's document wants."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from dl2_scheduler.cluster import durations
from elastic_ps.core.configuration import Role
from elastic_ps.core.job_mode import JobMode
from elastic_ps.system.jsonlog import plain
from k8s.foundation.names import COORDINATOR, GROUP, JOINED_LABEL, NODE_LABEL, ROLE_LABEL

FINALIZER = f"{GROUP}/end-in-order"
PORT = 7000
"""Of every coordinator, in its pod."""
CAUSE = "operator-controller"
"""How requests to a coordinator begin that come from here: others are refused there."""

GOING = "Going"
"""Instead of the phase of a claim that is not to be counted on."""

READY, NOT_READY = "Ready", "NotReady"
"""What a node that answers says of itself; one that does not says nothing."""
_LATE_SECONDS = 15.0
"""From the end of a deleted pod's grace to when nobody counts on a node that is not ready to end it."""

Body = Mapping[str, Any]


def timestamp(seconds: float) -> str:
    """Return unix seconds as Kubernetes writes times: RFC 3339."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def unix(text: str) -> float:
    """Return the unix seconds of a time of Kubernetes."""
    return datetime.fromisoformat(text).timestamp()


@dataclass(frozen=True, slots=True)
class Counts:
    """`Counts` say how many workers and servers."""

    workers: int = 0
    servers: int = 0

    def of(self, role: Role) -> int:
        """Return the count of one role."""
        return self.workers if role is Role.WORKER else self.servers

    def __bool__(self) -> bool:
        return self.workers > 0

    @property
    def words(self) -> str:
        """Return them for people; of a job that runs with workers alone it says nothing of servers."""
        return f"{self.workers} workers and {self.servers} servers" if self.servers else f"{self.workers} workers"

    def __str__(self) -> str:
        return f"{self.workers}+{self.servers}"


@dataclass(frozen=True)
class Desired:
    """A `Desired` is what an ElasticJob's document wants.

    Attributes:
        name: of the job.
        namespace: of the job.
        uid: of the object.
        generation: of the document.
        deleting: whether it is to be deleted.
        finalizer: whether it has ours.
        spec: the document's, as it stands.
    """

    name: str
    namespace: str
    uid: str
    generation: int = 1
    deleting: bool = False
    finalizer: bool = True
    spec: Body = field(default_factory=dict)

    @staticmethod
    def of(body: Body) -> "Desired":
        """Read the API server's object."""
        meta = body["metadata"]
        return Desired(
            meta["name"],
            meta["namespace"],
            meta["uid"],
            meta.get("generation", 1),
            "deletionTimestamp" in meta,
            FINALIZER in meta.get("finalizers", ()),
            body.get("spec", {}),
        )

    def owns(self, body: Body) -> bool:
        """Return whether a pod is this job's, and not somebody else's, or of an earlier job of the same name."""
        return any(owner.get("uid") == self.uid for owner in body["metadata"].get("ownerReferences", ()))

    @property
    def managed(self) -> bool:
        """Return whether the scheduler says how many nodes the job has."""
        return bool(self.spec.get("scaling", "Scheduler") == "Scheduler")

    @property
    def suspended(self) -> bool:
        """Return whether somebody wants it suspended."""
        return bool(self.spec.get("suspend", False))

    @property
    def all_reduces(self) -> bool:
        """Return whether the job has no servers."""
        return bool(self.spec.get("mode") == JobMode.ALL_REDUCE)

    @property
    def roles(self) -> tuple[Role, ...]:
        """The roles of the job's pods beside its coordinator."""
        return (Role.WORKER,) if self.all_reduces else tuple(Role)

    def whole(self, workers: int, servers: int) -> Counts:
        """Return these counts of a job that has no servers, or has both roles; of another they are nothing."""
        if self.all_reduces:
            return Counts(workers)
        return Counts(workers, servers) if workers and servers else Counts()

    @property
    def minimum(self) -> Counts:
        """The counts without which the job cannot run."""
        return self.whole(*(self.spec.get(part, {}).get("min", 1) for part in ("workers", "servers")))

    @property
    def counts(self) -> Counts:
        """The counts that shall run now."""
        if self.deleting or self.suspended:
            return Counts()
        if self.managed:
            granted = self.spec.get("allocation", {})
            return self.whole(granted.get("workers", 0), granted.get("servers", 0))
        minimum = self.minimum
        parts = (("workers", minimum.workers), ("servers", minimum.servers))
        return self.whole(*(self.spec.get(part, {}).get("replicas", least) for part, least in parts))

    @property
    def cause(self) -> str:
        """Who wants these counts: shown in the plan's record."""
        if not self.managed:
            return f"{CAUSE}: replicas"
        why = self.spec.get("allocation", {}).get("reason", "")
        return f"{CAUSE}: scheduler" + (f": {why}" if why else "")

    @property
    def checkpoint(self) -> str:
        """Folder of the job's checkpoints, its alone, whatever jobs of its name come later; "": none."""
        url = self.spec.get("checkpoint", {}).get("url", "")
        return f"{url.rstrip('/')}/{self.name}-{self.uid[:8]}" if url else ""

    @property
    def interval(self) -> float:
        """Seconds between checkpoints; 0: on demand only."""
        given = self.spec.get("checkpoint", {}).get("interval")
        return durations.bounded(given) if given is not None else 0.0

    @property
    def block_replicas(self) -> int:
        """Servers that keep a copy of each block."""
        return int(self.spec.get("blockReplicas", 0))

    @property
    def shared_memory(self) -> str:
        """Folder of a node by which pods on it share memory; "": they do not."""
        return str(self.spec.get("sharedMemory", {}).get("hostPath", ""))

    @property
    def volume(self) -> Body:
        """The volume of the coordinator's journal; empty: it ends with the pod."""
        found: Body = self.spec.get("coordinator", {}).get("volume", {})
        return found

    @property
    def claim(self) -> str:
        """Name of the claim of that volume, the job's alone, whatever jobs of its name come later; "": none."""
        return f"{self.name}-{COORDINATOR}-{self.uid[:8]}" if self.volume else ""

    @property
    def secret(self) -> str:
        """Name of the secret of its token, likewise: that of an earlier job may still be there, and go at any time."""
        return f"{self.name}-token-{self.uid[:8]}"

    @property
    def retry_limit(self) -> int:
        """Return how many deaths of nodes are mended."""
        return int(self.spec.get("retryLimit", 3))

    @property
    def ttl(self) -> float | None:
        """Seconds that the object is kept after the job's end; None: for good."""
        given = self.spec.get("ttlSecondsAfterFinished")
        return None if given is None else float(given)


@dataclass(frozen=True)
class Pod:
    """A `Pod` is one pod of the job.

    Attributes:
        name: of the pod.
        role: what it does; None: the coordinator.
        phase: Kubernetes' word.
        node: that it is bound to; "": none yet.
        address: of the pod; "": none yet.
        member: id of its node in the job, as its label says; "": it has not been seen to register.
        joined: that has belonged to the job's configuration, as its label says.
        deleting: it is to end.
        deleted: unix seconds, since when.
        lost: and nobody knows whether it runs, see `is_lost`.
        disrupted: the cluster has ended it: an eviction, a preemption, a node that goes.
        unstarted: it has failed and its container never ran: its node would not take it.
        created: unix seconds, by the API server's clock.
        exit_status: of its container; None: it has not ended.
        container_restarts: of its container, in place.
        last_status: exit status of its container, or of the one before it; None: neither has ended.
        trouble: why it does not run, in words; "": nothing known.
    """

    name: str
    role: Role | None
    phase: str = "Running"
    node: str = "node-1"
    address: str = ""
    member: str = ""
    joined: bool = False
    deleting: bool = False
    deleted: float = 0.0
    lost: bool = False
    disrupted: bool = False
    unstarted: bool = False
    created: float = 0.0
    exit_status: int | None = None
    container_restarts: int = 0
    last_status: int | None = None
    trouble: str = ""

    @property
    def alive(self) -> bool:
        """Return whether it runs, or will."""
        return self.phase in ("Pending", "Running", "Unknown") and not self.lost

    @property
    def staying(self) -> bool:
        """Return whether it is alive and nobody has deleted it."""
        return self.alive and not self.deleting

    @staticmethod
    def of(body: Body, lost: bool = False) -> "Pod":
        """Read the API server's object.

        Args:
            body: the object.
            lost: see `is_lost`.
        """
        meta, status = body["metadata"], body.get("status", {})
        role = meta.get("labels", {}).get(ROLE_LABEL, COORDINATOR)
        node = body.get("spec", {}).get("nodeName", "")
        deleting = "deletionTimestamp" in meta
        containers: Sequence[Body] = status.get("containerStatuses", ())
        main: Body = containers[0] if containers else {}
        ended = main.get("state", {}).get("terminated")
        last = ended or main.get("lastState", {}).get("terminated")
        return Pod(
            name=meta["name"],
            role=None if role == COORDINATOR else Role(role),
            phase=status.get("phase", "Pending"),
            node=node,
            address=status.get("podIP", ""),
            member=meta.get("labels", {}).get(NODE_LABEL, ""),
            joined=JOINED_LABEL in meta.get("labels", {}),
            deleting=deleting,
            deleted=unix(meta["deletionTimestamp"]) - meta.get("deletionGracePeriodSeconds", 0) if deleting else 0.0,
            lost=deleting and lost,
            disrupted=_condition(status, "DisruptionTarget").get("status") == "True",
            unstarted=status.get("phase") == "Failed" and not containers,
            created=unix(made) if (made := meta.get("creationTimestamp")) else 0.0,
            exit_status=ended.get("exitCode") if ended else None,
            container_restarts=main.get("restartCount", 0),
            last_status=last.get("exitCode") if last else None,
            trouble=_trouble(status, main),
        )


def is_lost(body: Body, said: str, now: float) -> bool:
    """Return whether a deleted pod is given up, as nobody will end it or tell of its end.

    A node that answers though it is not ready may well end its pods in order, as when it is shut down: each has its
    grace.

    Args:
        body: the pod, as the API server has it.
        said: by its node: READY, NOT_READY, "".
        now: unix seconds.
    """
    if said == READY or "deletionTimestamp" not in body["metadata"]:
        return False
    return not said or now > unix(body["metadata"]["deletionTimestamp"]) + _LATE_SECONDS


def _condition(status: Body, kind: str) -> Body:
    return next((one for one in status.get("conditions", ()) if one.get("type") == kind), {})


def _trouble(status: Body, container: Body) -> str:
    """Return why a pod does not run; "": nothing is known."""
    placed = _condition(status, "PodScheduled")
    if placed.get("status") == "False":
        return f"not placed: {placed.get('message') or placed.get('reason', '')}"
    state = container.get("state", {})
    last = state.get("terminated") or container.get("lastState", {}).get("terminated") or {}
    said = [plain(line) for line in str(last.get("message", "")).strip().splitlines()]
    if (waiting := state.get("waiting")) and waiting.get("reason") not in ("ContainerCreating", "PodInitializing"):
        return said[-1] if said else f"{waiting.get('reason')}: {waiting.get('message', '')}".strip(": ")
    if status.get("reason"):
        return f"{status['reason']}: {status.get('message', '')}".strip(": ")
    return said[-1] if said else ""
