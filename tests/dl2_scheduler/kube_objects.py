"""Nodes, pods and ElasticJobs as the API server writes them."""

import itertools
from datetime import UTC, datetime

NOW = 1_800_000_000.0
_UIDS = itertools.count(1)


def stamp(seconds):
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


PART = "example.com/part"
"""A resource that nodes have: slots are of virtual nodes alone."""


def node(name, cpu="4", taints=(), labels=(), ready=True, unschedulable=False, **more):
    return {
        "metadata": {"name": name, "uid": f"node-{name}", "labels": dict(labels), "resourceVersion": "1"},
        "spec": {"taints": [dict(taint) for taint in taints], "unschedulable": unschedulable},
        "status": {
            "allocatable": {"cpu": cpu, "memory": "8Gi", "pods": "110", **more},
            "conditions": [{"type": "Ready", "status": "True" if ready else "False"}],
        },
    }


def template(cpu="1", **spec):
    container = {"name": "main", "image": "i", "command": ["python"], "resources": {"requests": {"cpu": cpu}}}
    return {"spec": {"containers": [container], **spec}}


def pod(name, cpu="1", job="", role="", node="", namespace="default", created=0.0, bound=None, gang=None, **spec):
    """`created` and `bound` in seconds since NOW."""
    owner = {"apiVersion": "dl2.scheduler/v1alpha1", "kind": "ElasticJob", "name": job, "uid": f"uid-of-{job}"}
    labels = {"dl2.scheduler/job": job, "dl2.scheduler/role": role} if job else {}
    made = {
        "metadata": {
            "name": name,
            "namespace": namespace,
            "uid": f"uid-{next(_UIDS)}",
            "resourceVersion": "1",
            "creationTimestamp": stamp(NOW + created),
            "labels": labels,
            "ownerReferences": [owner] if job else [],
            "annotations": {"dl2.scheduler/gang": gang} if gang else {},
        },
        "spec": {"schedulerName": "dl2", **template(cpu)["spec"], **({"nodeName": node} if node else {}), **spec},
        "status": {"phase": "Pending", "conditions": []},
    }
    if node:
        made["status"]["conditions"] = [
            {"type": "PodScheduled", "status": "True", "lastTransitionTime": stamp(NOW + (bound or created))}
        ]
    return made


def job(name, workers=(1, 4), servers=(1, 4), cpu="1", namespace="default", created=0.0, allocation=(1, 1), **spec):
    """Roles as (min, max), or as they are written; `created` in seconds since NOW."""
    roles = {
        key: counts
        if isinstance(counts, dict)
        else {"min": counts[0], "max": counts[1], "replicas": counts[0], "template": template(cpu)}
        for key, counts in (("workers", workers), ("servers", servers))
    }
    given = {"workers": allocation[0], "servers": allocation[1], "reason": "", "slot": 0} if allocation else None
    return {
        "apiVersion": "dl2.scheduler/v1alpha1",
        "kind": "ElasticJob",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "uid": f"uid-{next(_UIDS)}",
            "resourceVersion": "1",
            "creationTimestamp": stamp(NOW + created),
        },
        "spec": {
            "modelType": "digits",
            "epochs": 40,
            "scaling": "Scheduler",
            **roles,
            **({"allocation": given} if given else {}),
            **spec,
        },
    }


def gang(name, workers=1, servers=1, cpu="1", coordinator="100m", least=None, created=0.0, nodes=None, bound=0.0):
    """A job's pods; `nodes`: where by the pod's name those are that are bound."""
    nodes, least = nodes or {}, least or f"{workers},{servers}"
    names = [(f"{name}-coordinator", "coordinator", coordinator)]
    names += [(f"{name}-server-{number}", "server", cpu) for number in range(servers)]
    names += [(f"{name}-worker-{number}", "worker", cpu) for number in range(workers)]
    return [
        pod(each, cpu=takes, job=name, role=role, node=nodes.get(each, ""), created=created, bound=bound, gang=least)
        for each, role, takes in names
    ]


def given(made, workers, servers, reason):
    """Return a job to which a policy has given so many, and why."""
    return {
        **made,
        "spec": {**made["spec"], "allocation": {"workers": workers, "servers": servers, "reason": reason, "slot": 1}},
    }
