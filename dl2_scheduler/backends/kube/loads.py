"""This module says what the nodes carry and what tasks use, for `dl2 top`. Pure."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from dl2_scheduler.backends.kube.apiserver.objects import NodeInfo, PodInfo
from dl2_scheduler.backends.kube.apiserver.quantities import PODS, amounts
from dl2_scheduler.cluster.desk import ClusterLoad, NodeLoad, TaskLoad

ALIVE = "status.phase!=Succeeded,status.phase!=Failed"
"""Field selector: of pods that have not ended."""

_PLAIN = ("cpu", "memory", PODS)


def load(
    nodes: Sequence[NodeInfo],
    pods: Sequence[PodInfo],
    mine: Sequence[PodInfo],
    usage: Sequence[Mapping[str, Any]] | None,
    unmeasured: str = "not known: no metrics server answers",
    name: Callable[[PodInfo], str] = lambda pod: pod.job,
) -> ClusterLoad:
    """Return what the nodes carry now.

    Args:
        nodes: all.
        pods: all that have not ended, whosever they are.
        mine: those to tell about one by one.
        usage: PodMetrics; None: nobody measures.
        unmeasured: says so, for people.
        name: returns the name of a pod's job, for people.
    """
    there: dict[str, list[PodInfo]] = {node.name: [] for node in nodes}
    for pod in pods:
        if pod.node in there:
            there[pod.node].append(pod)
    used = {found["metadata"]["name"]: _usage(found) for found in usage or ()}
    known = "as the metrics server says" if usage is not None else unmeasured
    return ClusterLoad(
        nodes=[_node(node, there[node.name]) for node in nodes],
        tasks=[
            _task(pod, name(pod), used.get(pod.name, {})) for pod in sorted(mine, key=lambda pod: (name(pod), pod.name))
        ],
        isolation=f"Kubernetes: requests and limits of pods; usage {known}",
        is_measured=usage is not None,
    )


def _node(node: NodeInfo, pods: Sequence[PodInfo]) -> NodeLoad:
    names = [name for name in node.allocatable if name in _PLAIN or "/" in name]
    return NodeLoad(
        name=node.name,
        capacity={name: node.allocatable[name] for name in names},
        used={name: sum(pod.requests.get(name, 0.0) for pod in pods) for name in names},
    )


def _task(pod: PodInfo, job: str, used: Mapping[str, float]) -> TaskLoad:
    return TaskLoad(
        job=job,
        task=pod.name.removeprefix(f"{pod.job}-"),
        node=pod.node,
        cores=used.get("cpu", 0.0),
        limit_cores=pod.cores_at_most,
        memory_bytes=int(used.get("memory", 0.0)),
    )


def _usage(found: Mapping[str, Any]) -> dict[str, float]:
    each = [amounts(container.get("usage") or {}) for container in found.get("containers") or ()]
    return {name: sum(one.get(name, 0.0) for one in each) for name in ("cpu", "memory")}
