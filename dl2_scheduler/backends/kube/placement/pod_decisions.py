"""This module has what is decided about pods that are not bound."""

from dataclasses import dataclass, field

from dl2_scheduler.backends.kube.apiserver.objects import PodInfo


@dataclass(frozen=True)
class PodBinding:
    """A `PodBinding` binds a pod to a node."""

    pod: PodInfo
    node: str


@dataclass(frozen=True)
class PodWait:
    """A `PodWait` leaves a pod unbound.

    Attributes:
        pod: which.
        reason: why, for people.
    """

    pod: PodInfo
    reason: str


@dataclass(frozen=True)
class NodeChoice:
    """A `NodeChoice` lets a volume be made near a node, for a pod that is bound there once it is.

    Attributes:
        pod: which.
        claim: of the volume.
        node: where.
    """

    pod: PodInfo
    claim: str
    node: str


@dataclass(frozen=True)
class PodReturn:
    """A `PodReturn` deletes a pod of a gang that has not become whole.

    Attributes:
        pod: which.
        reason: why, for people.
    """

    pod: PodInfo
    reason: str


@dataclass(frozen=True)
class Reservation:
    """A `Reservation` keeps room for a pod that is not there yet, or that has waited too long for more than is free.

    Attributes:
        job: its id.
        role: of the pod.
        node: where.
    """

    job: str
    role: str
    node: str


@dataclass
class PodDecisions:
    """`PodDecisions` are about all pods that are not bound.

    Attributes:
        bindings: to make, in this order.
        choices: of nodes for volumes.
        waits: pods that are left.
        returns: pods to delete.
        reservations: kept until the next decision, which makes them again.
        placed: why tasks went where they did, for people, by namespace and name of their job, where a policy decided.
        again_at: unix seconds, at which something changes by time alone; None: nothing does.
    """

    bindings: list[PodBinding] = field(default_factory=list)
    choices: list[NodeChoice] = field(default_factory=list)
    waits: list[PodWait] = field(default_factory=list)
    returns: list[PodReturn] = field(default_factory=list)
    reservations: list[Reservation] = field(default_factory=list)
    placed: dict[tuple[str, str], str] = field(default_factory=dict)
    again_at: float | None = None
