"""What is decided about pods that are not bound."""

from dataclasses import dataclass, field

from dl2_scheduler.backends.kube.apiserver.objects import PodInfo


@dataclass(frozen=True)
class Bind:
    """Bind a pod to a node."""

    pod: PodInfo
    node: str


@dataclass(frozen=True)
class Wait:
    """Leave a pod unbound.

    Attributes:
        pod: which.
        reason: why, for people.
    """

    pod: PodInfo
    reason: str


@dataclass(frozen=True)
class Choice:
    """Have a volume made near a node, for a pod that is bound there once it is.

    Attributes:
        pod: which.
        claim: of the volume.
        node: where.
    """

    pod: PodInfo
    claim: str
    node: str


@dataclass(frozen=True)
class Return:
    """Delete a pod of a gang that has not become whole.

    Attributes:
        pod: which.
        reason: why, for people.
    """

    pod: PodInfo
    reason: str


@dataclass(frozen=True)
class Reservation:
    """Room kept for a pod that is not there yet, or that has waited too long for more than is free.

    Attributes:
        job: its id.
        role: of the pod.
        node: where.
    """

    job: str
    role: str
    node: str


@dataclass
class Decisions:
    """About all pods that are not bound.

    Attributes:
        bindings: to make, in this order.
        choices: of nodes for volumes.
        waits: pods that are left.
        returns: pods to delete.
        reservations: kept until the next decision, which makes them again.
        again_at: unix seconds, at which something changes by time alone; None: nothing does.
    """

    bindings: list[Bind] = field(default_factory=list)
    choices: list[Choice] = field(default_factory=list)
    waits: list[Wait] = field(default_factory=list)
    returns: list[Return] = field(default_factory=list)
    reservations: list[Reservation] = field(default_factory=list)
    again_at: float | None = None
