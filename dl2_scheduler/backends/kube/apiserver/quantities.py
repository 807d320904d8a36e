"""Kubernetes' resource quantities as numbers: cores, bytes, devices."""

from collections.abc import Mapping, Sequence
from typing import Any

from dl2_scheduler.cluster.errors import BadInput
from dl2_scheduler.cluster.quantities import quantity

PODS = "pods"
"""The resource of which every task takes one."""


def amount(text: str | float) -> float:
    """Of a quantity, as in "250m", "1.5Gi", "2e3" or 4.

    Raises:
        BadInput: it is none.
    """
    found = quantity(text)
    if found is None:
        raise BadInput(f"{text!r} is no quantity: write it as in 250m, 2 or 1.5Gi")
    return found


def amounts(quantities: Mapping[str, str | float]) -> dict[str, float]:
    """Of each resource. Raises BadInput."""
    return {name: amount(written) for name, written in quantities.items()}


def pod_requests(spec: Mapping[str, Any]) -> dict[str, float]:
    """What a pod takes of its node.

    A limit without a request is a request, as the API server makes it. Initial containers run one after the other, with
    the sidecars (those that restart always) started before them; the pod takes the most that it ever takes.

    Args:
        spec: of the pod, or of a pod's template.

    Raises:
        BadInput: a quantity is none.
    """
    whole = _sum([_container(container) for container in spec.get("containers", ())])
    sidecars: dict[str, float] = {}
    first: dict[str, float] = {}
    for container in spec.get("initContainers", ()):
        taken = _container(container)
        if container.get("restartPolicy") == "Always":
            sidecars = _sum([sidecars, taken])
            first = _most(first, sidecars)
        else:
            first = _most(first, _sum([sidecars, taken]))
    most = _most(_sum([whole, sidecars]), first)
    return {**_sum([most, amounts(spec.get("overhead") or {})]), PODS: 1.0}


def _container(container: Mapping[str, Any]) -> dict[str, float]:
    resources = container.get("resources") or {}
    return amounts({**(resources.get("limits") or {}), **(resources.get("requests") or {})})


def _sum(each: Sequence[Mapping[str, float]]) -> dict[str, float]:
    return {name: sum(one.get(name, 0.0) for one in each) for name in {name for one in each for name in one}}


def _most(left: Mapping[str, float], right: Mapping[str, float]) -> dict[str, float]:
    return {name: max(left.get(name, 0.0), right.get(name, 0.0)) for name in {*left, *right}}
