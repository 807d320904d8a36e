"""This module has the actions that a reconciliation asks for.

Each may be done twice, and may fail: the next reconciliation sees what has become of it.
"""

from dataclasses import dataclass

from elastic_ps.core.configuration import Role
from k8s.elastic_operator.job.model import Counts


@dataclass(frozen=True, slots=True)
class Ensure:
    """Make the token's secret, the coordinator's service and claim, and the disruption budgets as the document says."""


@dataclass(frozen=True, slots=True)
class JudgePods:
    """Let the API server say whether it would take the job's pods; its verdict is in a later observation."""


@dataclass(frozen=True, slots=True)
class StartCoordinator:
    """Create the coordinator's pod.

    Attributes:
        term: at least the one that it has.
        counts: that the job starts with.
        restore: from the newest checkpoint.
        begins: with new nodes only: what a journal has of others is over.
    """

    term: int
    counts: Counts
    restore: bool = False
    begins: bool = False


@dataclass(frozen=True, slots=True)
class StartNode:
    """Create the pod of a worker or a server.

    Attributes:
        role: what it does.
        number: of the node, among those of its role.
        held: bytes that one like it has to hand over before it ends.
    """

    role: Role
    number: int
    held: int = 0


@dataclass(frozen=True, slots=True)
class DeletePod:
    """Delete a pod.

    Attributes:
        name: of the pod.
        at_once: its node does not answer, or nobody waits for it: only its object goes now.
    """

    name: str
    at_once: bool = False


@dataclass(frozen=True, slots=True)
class LabelPod:
    """Write on a pod which node of the job it is, and whether that has belonged to the job's configuration."""

    name: str
    member: str
    joined: bool


@dataclass(frozen=True, slots=True)
class RequestScale:
    """Ask the coordinator for other numbers of workers and servers."""

    counts: Counts
    cause: str


KILLED = 137
"""Exit status of a process that nobody saw end."""


@dataclass(frozen=True, slots=True)
class TellExit:
    """Tell the coordinator that the process of a node is gone, with its exit status."""

    nonce: str
    node: str
    status: int = KILLED


@dataclass(frozen=True, slots=True)
class SaveJob:
    """Let the coordinator write a checkpoint; it takes a while, and its outcome is in a later observation.

    Attributes:
        term: of the coordinator.
    """

    term: int


@dataclass(frozen=True, slots=True)
class StopJob:
    """Let the coordinator end the job."""

    reason: str


@dataclass(frozen=True, slots=True)
class SetFinalizer:
    """Put our finalizer on the object, or take it off."""

    on: bool


@dataclass(frozen=True, slots=True)
class DeleteJob:
    """Delete the object, whose time is over."""


@dataclass(frozen=True, slots=True)
class WriteEvent:
    """Write an event on the job's object.

    Attributes:
        reason: one word.
        message: for people.
        warning: rather than normal.
    """

    reason: str
    message: str
    warning: bool = False


Start = StartCoordinator | StartNode

Action = (
    Ensure
    | JudgePods
    | StartCoordinator
    | StartNode
    | DeletePod
    | LabelPod
    | RequestScale
    | TellExit
    | SaveJob
    | StopJob
    | SetFinalizer
    | DeleteJob
    | WriteEvent
)
