"""This module places a gang's tasks on nodes: all of them or none. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dl2_scheduler.backends.kube.apiserver.objects import ROLES, PodInfo
from dl2_scheduler.backends.kube.placement.free_resources import FreeNodeResources, Requests, TaskPlacement
from dl2_scheduler.backends.kube.placement.gangs import Gang
from dl2_scheduler.backends.kube.placement.node_constraints import Constraints


@dataclass(frozen=True)
class GangTask:
    """A `GangTask` is a pod to place, or one that is yet to come; see `free_resources.PlaceableTask`."""

    role: str
    requests: Requests
    constraints: Constraints
    namespace: str
    labels: Mapping[str, str]
    pod: PodInfo | None


def missing(gang: Gang) -> list[GangTask]:
    """Return what is missing of the minimum, in the order of binding; pods that are there come first."""
    return list(_missing(gang))


def _missing(gang: Gang) -> Iterator[GangTask]:
    for role in ROLES:
        there = gang.pending[role][: gang.missing[role]]
        for pod in there:
            yield GangTask(role, pod.requests, pod.constraints, pod.namespace, pod.labels, pod)
        like = gang.template(role)
        for _ in range(gang.missing[role] - len(there)):
            yield GangTask(role, like.requests, like.constraints, gang.job.namespace, like.labels, None)


def claim_all(tasks: Sequence[GangTask], resources: FreeNodeResources) -> list[TaskPlacement] | None:
    """Place all tasks or none; the larger ones first where the order of binding leaves no place for one.

    Tasks that want to be together are tried place by place (say, rack by rack), if the first that has room for one of
    them has not for all.
    """
    claims = _claim(tasks, resources, None)
    if claims is None:
        together = [task for task in tasks if task.constraints.neighbours and task.constraints.neighbours.near]
        for place in resources.places_for(together):
            claims = _claim(tasks, resources, place)
            if claims is not None:
                break
    return claims


def claim_chosen(
    tasks: Sequence[GangTask], resources: FreeNodeResources, nodes: Mapping[int, int]
) -> list[TaskPlacement] | None:
    """Place all tasks or none: first those that have a node on it, then others by the rule.

    Args:
        tasks: in the order of binding.
        resources: what is free.
        nodes: index of the node of a task, by the task's index.
    """
    claims: dict[int, TaskPlacement] = {}
    for number in sorted(range(len(tasks)), key=lambda number: number not in nodes):  # no other takes a chosen place
        task = tasks[number]
        claim = resources.claim_on(task, nodes[number]) if number in nodes else resources.claim(task)
        if claim is None:
            for taken in claims.values():
                resources.give_back(taken)
            return None
        claims[number] = claim
    return [claims[number] for number in range(len(tasks))]


def _claim(
    tasks: Sequence[GangTask], resources: FreeNodeResources, place: NDArray[np.bool_] | None
) -> list[TaskPlacement] | None:
    """Place all tasks or none; those that want to be together go to one place, if one is given.

    Where the rule finds no places they are packed, as a policy that counts tasks does it (`FreeResources.give`); that
    can help only where there was room for more than the tasks that are alike and come first.
    """
    in_order = list(range(len(tasks)))
    by_size = sorted(in_order, key=lambda number: _size(tasks[number], resources))
    packs = True
    for order, packed in ((in_order, False), (by_size, False), (in_order, True), (in_order[::-1], True)):
        if packed and not packs:
            return None
        claims = _claim_in_order(tasks, resources, place, order, packed)
        if len(claims) == len(tasks):
            return [claims[number] for number in in_order]
        for taken in claims.values():
            resources.give_back(taken)
        packs = packs and len(claims) >= len([task for task in tasks if task.role == tasks[order[0]].role])
    return None


def _claim_in_order(
    tasks: Sequence[GangTask],
    resources: FreeNodeResources,
    place: NDArray[np.bool_] | None,
    order: Sequence[int],
    packed: bool,
) -> dict[int, TaskPlacement]:
    """Place tasks until one finds no place.

    Args:
        tasks: of a gang.
        resources: what is free; changed.
        place: see `_claim`.
        order: of their indices.
        packed: on the nodes that are used most, whatever the rule is.
    """
    claims: dict[int, TaskPlacement] = {}
    for number in order:
        claim = resources.claim(tasks[number], place, packed)
        if claim is None:
            break
        claims[number] = claim
    return claims


def _size(task: GangTask, resources: FreeNodeResources) -> float:
    """Return a number that is the lower, the more a task takes of a node's resources."""
    largest = resources.largest
    return -max((amount / largest[name] for name, amount in task.requests.items() if largest.get(name)), default=0.0)


def why_not(gang: Gang, tasks: Sequence[GangTask], resources: FreeNodeResources) -> str:
    """Return which task of a gang finds no place when the others have theirs, and why, for people.

    Args:
        gang: of the tasks.
        tasks: in the order of binding.
        resources: what is free.
    """
    claims = []
    reason = ""
    for task in tasks:
        claim = resources.claim(task)
        if claim is None:
            reason = f"its {task.role}: {resources.why_not(task)}"
            break
        claims.append(claim)
    for claim in claims:
        resources.give_back(claim)
    return f"{gang.job.id} starts whole ({gang.words}); {reason}"
