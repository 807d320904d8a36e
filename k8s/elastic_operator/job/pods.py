"""This module reads pods as the API server has them into what matters of them for a job. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass

from elastic_ps.core.configuration import Role
from elastic_ps.system.jsonlog import plain
from k8s.elastic_operator.job.model import Body, unix
from k8s.foundation.names import COORDINATOR, JOINED_LABEL, MAIN, NODE_LABEL, ROLE_LABEL

READY, NOT_READY = "Ready", "NotReady"
"""What a node that answers says of itself; one that does not says nothing."""

_LATE_SECONDS = 15.0
"""From the end of a deleted pod's grace to when nobody counts on a node that is not ready to end it."""


@dataclass(frozen=True)
class Pod:
    """A `Pod` is one pod of the job.

    Attributes:
        name: of the pod.
        role: what it does; None: the coordinator.
        phase: Kubernetes' word; where `lingers`, that of the job's own container.
        node: that it is bound to; "": none yet.
        address: of the pod; "": none yet.
        member: id of its node in the job, as its label says; "": it has not been seen to register.
        joined: that has belonged to the job's configuration, as its label says.
        deleting: it is to end.
        deleted: unix seconds, since when.
        lost: and nobody knows whether it runs, see `is_lost`.
        disrupted: the cluster has ended it: an eviction, a preemption, a node that goes.
        unstarted: it has failed and its container never ran: its node would not take it.
        lingers: its own container has ended, and another one in it has not: it takes room until somebody deletes it.
        created: unix seconds, by the API server's clock.
        exit_status: of its container; None: it has not ended.
        container_restarts: of its container, in place, and of one that it waits for and that fails.
        barred: an init container that fails keeps its own container from starting.
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
    lingers: bool = False
    created: float = 0.0
    exit_status: int | None = None
    container_restarts: int = 0
    barred: bool = False
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
        main: Body = next((each for each in containers if each.get("name") == MAIN), {})
        ended = main.get("state", {}).get("terminated")
        lingers = role != COORDINATOR and bool(ended) and _is_running(status, containers)
        before = _before(status, main)
        barred = bool(before) and "running" not in before.get("state", {})  # else it may get on well this time
        return Pod(
            name=meta["name"],
            role=None if role == COORDINATOR else Role(role),
            phase=_phase_of(ended) if lingers else status.get("phase", "Pending"),
            node=node,
            address=status.get("podIP", ""),
            member=meta.get("labels", {}).get(NODE_LABEL, ""),
            joined=JOINED_LABEL in meta.get("labels", {}),
            deleting=deleting,
            deleted=unix(meta["deletionTimestamp"]) - meta.get("deletionGracePeriodSeconds", 0) if deleting else 0.0,
            lost=deleting and lost,
            disrupted=_condition(status, "DisruptionTarget").get("status") == "True",
            unstarted=status.get("phase") == "Failed" and not containers,
            lingers=lingers,
            created=unix(made) if (made := meta.get("creationTimestamp")) else 0.0,
            exit_status=ended.get("exitCode") if ended else None,
            container_restarts=main.get("restartCount", 0) + (before.get("restartCount", 0) if barred else 0),
            barred=barred,
            last_status=_ended(main).get("exitCode"),
            trouble=_trouble(status, main, before),
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


def _is_running(status: Body, containers: Sequence[Body]) -> bool:
    """Return whether a pod goes on, whichever of its containers has ended."""
    going = [each for each in containers if "terminated" not in each.get("state", {})]
    return status.get("phase") in ("Pending", "Running") and bool(going)


def _phase_of(ended: Body) -> str:
    return "Failed" if ended.get("exitCode") else "Succeeded"


def _condition(status: Body, kind: str) -> Body:
    return next((one for one in status.get("conditions", ()) if one.get("type") == kind), {})


def _trouble(status: Body, main: Body, before: Body) -> str:
    """Return why a pod does not run; "": nothing is known.

    Args:
        status: of the pod.
        main: status of its own container.
        before: of the container that keeps that from starting; empty: there is none.
    """
    placed = _condition(status, "PodScheduled")
    if placed.get("status") == "False":
        return f"not placed: {placed.get('message') or placed.get('reason', '')}"
    if before:
        why = _words(before) or f"exit status {_ended(before).get('exitCode')}"
        return f"init container {before.get('name')}: {why}"
    if status.get("reason") and not _waits(main):
        return f"{status['reason']}: {status.get('message', '')}".strip(": ")
    return _words(main)


def _before(status: Body, main: Body) -> Body:
    """Return the init container that a pod's own one waits for, where that cannot start or has failed; else nothing.

    One that runs comes last: it may get on well this time, as a sidecar does that has failed once.
    """
    if main.get("state", {}).get("waiting", {}).get("reason") != "PodInitializing":
        return {}
    failed = (each for each in status.get("initContainerStatuses", ()) if _waits(each) or _ended(each).get("exitCode"))
    return min(failed, key=lambda each: "running" in each.get("state", {}), default={})


def _words(container: Body) -> str:
    """Return why a container does not run, or has ended last; "": nothing is known."""
    ended, waits = _ended(container), _waits(container)
    said = str(ended.get("message", "")).strip().splitlines()
    reason = ended.get("reason", "")
    last = ["" if reason in ("Error", "Completed") else reason, plain(said[-1]) if said else ""]
    return ": ".join(filter(None, last)) or f"{waits.get('reason', '')}: {waits.get('message', '')}".strip(": ")


def _ended(container: Body) -> Body:
    """Return how a container has ended, or the one before it in its place."""
    return container.get("state", {}).get("terminated") or container.get("lastState", {}).get("terminated") or {}


def _waits(container: Body) -> Body:
    """Return what a container waits for, where that is not what each waits for at first."""
    waiting: Body = container.get("state", {}).get("waiting") or {}
    return {} if waiting.get("reason") in ("ContainerCreating", "PodInitializing") else waiting
