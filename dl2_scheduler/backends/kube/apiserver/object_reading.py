"""This module reads nodes, pods and ElasticJobs as the API server has them."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from dl2_scheduler.backends.kube.apiserver.objects import (
    DECISIONS,
    GANG,
    Allotment,
    JobInfo,
    NodeInfo,
    PodInfo,
    ReportedStatus,
    RoleInfo,
)
from dl2_scheduler.backends.kube.apiserver.quantities import PODS, amounts, pod_requests
from dl2_scheduler.backends.kube.placement.node_constraints import Constraints, Taint, constraints_of
from dl2_scheduler.cluster import durations
from dl2_scheduler.cluster.document.quantities import amount
from dl2_scheduler.cluster.document.template import SLOTS
from dl2_scheduler.cluster.jobs import MOST_TASKS
from dl2_scheduler.cluster.ranges import LEAST_SPEED, MOST_EPOCHS, MOST_SAMPLES, MOST_SPEED, or_not_known
from elastic_ps.core.job_mode import JobMode
from k8s.foundation.names import JOB_LABEL, ROLE_LABEL, SERVER, WORKER, owner_of

_BY_SCHEDULER = "Scheduler"
_MOST_BY_DEFAULT = 16
_GANG_SECONDS = 300.0
_GANG = re.compile(r" *([0-9]{1,9}) *, *([0-9]{1,9}) *")

Object = Mapping[str, Any]
"""As the API server writes it."""


def unix(text: str | None) -> float | None:
    """Return the unix seconds of a time as the API server writes it; None: there is none."""
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
    job = name if (name := labels.get(JOB_LABEL, "")) == owner_of(metadata) else ""
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
        constraints=constraints_of(spec, metadata["namespace"], labels),
        scheduler=spec.get("schedulerName") or "",
        gated=bool(spec.get("schedulingGates")),
        deleting="deletionTimestamp" in metadata,
        job=job,
        role=labels.get(ROLE_LABEL, "") if job else "",
        gang=_pair(gang) if gang else None,
        waits=scheduled.get("message") or "" if not node else "",
        cores_at_most=_cores_at_most(spec),
        labels=labels,
        claims=tuple(_claims(metadata["name"], spec)),
    )


def job_of(found: Object) -> JobInfo:
    """Read an ElasticJob, which the API server has checked."""
    metadata, spec = found["metadata"], found["spec"]
    workers = _role(metadata, WORKER, spec.get("workers") or {})
    if spec.get("mode") == JobMode.ALL_REDUCE:
        servers = replace(workers, replicas=0, min=0, max=0, requests={})
    else:
        servers = _role(metadata, SERVER, spec.get("servers") or {}, spec.get("workers") or {})
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
        by_scheduler=spec.get("scaling", _BY_SCHEDULER) == _BY_SCHEDULER,
        suspend=bool(spec.get("suspend")),
        workers=workers,
        servers=servers,
        gang_seconds=durations.bounded(spec["gangTimeout"]) if spec.get("gangTimeout") else _GANG_SECONDS,
        allotment=Allotment(
            given.get("workers", 0), given.get("servers", 0), given.get("reason") or "", given.get("slot", 0)
        )
        if given
        else None,
        status=_reported(found.get("status") or {}),
        decisions=(metadata.get("annotations") or {}).get(DECISIONS, ""),
        saves=bool((spec.get("checkpoint") or {}).get("url")),
    )


def _role(job: Object, name: str, role: Object, otherwise: Object | None = None) -> RoleInfo:
    """Read a role of a job.

    Args:
        job: metadata of its job.
        name: of the role.
        role: as the document has it.
        otherwise: of whose template its pods are made where it has none, without what container and pod ask for.
    """
    own = role.get("template") or {}
    like = own or (otherwise or {}).get("template") or {}
    labels = {**((like.get("metadata") or {}).get("labels") or {}), JOB_LABEL: job["name"], ROLE_LABEL: name}
    least = role.get("min", 1)
    try:
        requests, initial = _demands(own.get("spec"), like.get("spec") or {})
        constraints = constraints_of(like.get("spec") or {}, job["namespace"], labels)
    except Exception:  # noqa: BLE001  (a pod's template may hold anything: the operator says what is wrong with it)
        requests, initial, constraints = {PODS: 1.0}, {PODS: 1.0}, Constraints()
    return RoleInfo(
        replicas=role.get("replicas", least),
        min=least,
        max=role.get("max", _MOST_BY_DEFAULT),
        requests=requests,
        initial=initial,
        constraints=constraints,
        namespace=job["namespace"],
        labels=labels,
    )


def _demands(own: Object | None, like: Object) -> tuple[dict[str, float], dict[str, float]]:
    """Return what a pod of a role takes of its node, and what it would without its container.

    Slots are of virtual nodes: the operator makes pods without them.

    Args:
        own: spec of the role's template; None: its pods are made without what that of the other role asks for.
        like: spec of the template that they are made of.
    """
    rest = {name: part for name, part in like.items() if name not in ("containers", "resources")}
    found = [pod_requests(spec) for spec in (own or rest, rest)]
    taken, initial = ({name: each for name, each in one.items() if name != SLOTS} for one in found)
    return taken, initial


def _image(role: Object) -> str:
    containers = ((role.get("template") or {}).get("spec") or {}).get("containers") or ()
    return next((each["image"] for each in containers if each.get("image")), "")


def _reported(status: Object) -> ReportedStatus:
    plans = status.get("plans") or ()
    last = plans[-1] if plans else {}
    missed = last.get("phase") in ("CANCELLED", "DROPPED", "FAILED", "Cancelled", "Failed")
    return ReportedStatus(
        phase=status.get("phase") or "",
        reason=status.get("reason") or "",
        workers=status.get("workers", 0),
        servers=status.get("servers", 0),
        epoch=or_not_known(status.get("epoch") or 0.0, MOST_EPOCHS),
        samples_per_epoch=or_not_known(status.get("samplesPerEpoch") or 0.0, MOST_SAMPLES),
        samples_per_second=or_not_known(status.get("samplesPerSecond") or 0.0, MOST_SPEED, LEAST_SPEED),
        ended=unix(status.get("completionTime")),
        plan=f"plan {last.get('id', '')} {last['phase'].lower()}: {last.get('reason') or 'no reason given'}"
        if missed
        else "",
        trained=bool(status.get("trained")),
        since=_since(plans) if status.get("phase") == "Running" else None,
        accepted=not any(
            each["type"] == "Accepted" and each["status"] == "False" for each in status.get("conditions") or ()
        ),
        forecast=status.get("forecast") or {},
    )


def _since(plans: Sequence[Object]) -> float | None:
    """Return the end of the last plan that was committed, in unix seconds; None: there is none."""
    return max((unix(plan.get("ended")) or 0.0 for plan in plans if plan.get("phase") == "COMMITTED"), default=None)


def _claims(pod: str, spec: Object) -> Iterator[str]:
    """Yield the names of the claims of a pod's volumes; one that lives as long as its pod is named after both."""
    for volume in spec.get("volumes") or ():
        if "persistentVolumeClaim" in volume:
            yield volume["persistentVolumeClaim"]["claimName"]
        elif "ephemeral" in volume:
            yield f"{pod}-{volume['name']}"


def _cores_at_most(spec: Object) -> float:
    limits = [(each.get("resources") or {}).get("limits") or {} for each in spec.get("containers") or ()]
    return sum(amount(limit["cpu"]) for limit in limits) if all("cpu" in limit for limit in limits) else 0.0


def _pair(gang: str) -> tuple[int, int] | None:
    """Return the workers and servers of a gang; None: it is none, or larger than any. Whoever makes pods writes it."""
    found = _GANG.fullmatch(gang)
    counts = (int(found[1]), int(found[2])) if found else (0, 0)
    return counts if found and max(counts) <= MOST_TASKS else None
