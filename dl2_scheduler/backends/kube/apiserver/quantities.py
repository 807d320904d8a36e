"""This module reads Kubernetes' resource quantities as numbers: cores, bytes, devices."""

from collections.abc import Mapping, Sequence
from typing import Any

from dl2_scheduler.cluster.document.quantities import amount

PODS = "pods"
"""The resource of which every task takes one."""


def amounts(quantities: Mapping[str, str | float]) -> dict[str, float]:
    """Return the amount of each resource. Kubernetes lets it begin with a plus.

    Raises:
        BadInput: a quantity is none.
    """
    return {name: amount(str(written).removeprefix("+")) for name, written in quantities.items()}


def pod_requests(spec: Mapping[str, Any]) -> dict[str, float]:
    """Return what a pod takes of its node, by resource.

    A limit without a request is a request, as the API server makes it. Initial containers run one after the other, with
    the sidecars (those that restart always) started before them; the pod takes the most that it ever takes. What it
    asks for as a whole (`spec.resources`, Kubernetes 1.34) stands for what its containers ask for of that.

    Args:
        spec: of the pod, or of a pod's template.

    Raises:
        BadInput: a quantity is none.
    """
    whole = _sum([_container(container) for container in spec.get("containers") or ()])
    sidecars: dict[str, float] = {}
    first: dict[str, float] = {}
    for container in spec.get("initContainers") or ():
        taken = _container(container)
        if container.get("restartPolicy") == "Always":
            sidecars = _sum([sidecars, taken])
            first = most_of(first, sidecars)
        else:
            first = most_of(first, _sum([sidecars, taken]))
    most = most_of(_sum([whole, sidecars]), first)
    of_pod = spec.get("resources") or {}
    most = {**amounts(of_pod.get("limits") or {}), **most, **amounts(of_pod.get("requests") or {})}
    return {**_sum([most, amounts(spec.get("overhead") or {})]), PODS: 1.0}


def _container(container: Mapping[str, Any]) -> dict[str, float]:
    resources = container.get("resources") or {}
    return amounts({**(resources.get("limits") or {}), **(resources.get("requests") or {})})


def _sum(each: Sequence[Mapping[str, float]]) -> dict[str, float]:
    return {name: sum(one.get(name, 0.0) for one in each) for name in {name for one in each for name in one}}


def most_of(left: Mapping[str, float], right: Mapping[str, float]) -> dict[str, float]:
    """Return the larger amount of each resource."""
    return {name: max(left.get(name, 0.0), right.get(name, 0.0)) for name in {*left, *right}}
