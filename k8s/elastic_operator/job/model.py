"""This module reads once, into plain values, what a job's document wants."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from dl2_scheduler.cluster import durations
from elastic_ps.core.configuration import Role
from elastic_ps.core.job_mode import JobMode
from k8s.foundation.names import COORDINATOR, GROUP

FINALIZER = f"{GROUP}/end-in-order"
PORT = 7000
"""Of every coordinator, in its pod."""
CAUSE = "operator-controller"
"""How requests to a coordinator begin that come from here: others are refused there."""

GOING = "Going"
"""Instead of the phase of a claim that is not to be counted on."""

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
    def is_counted(self) -> bool:
        """Return whether the document says how many nodes the job has: who replaces it drops the scheduler's word."""
        return self.deleting or self.suspended or not self.managed or "allocation" in self.spec

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
