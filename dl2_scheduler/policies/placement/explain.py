"""This module says for people why tasks went where they did: what a model of speeds predicts here and elsewhere."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from dl2_scheduler.cluster.hardware.machines import Ints
from dl2_scheduler.cluster.hardware.placements import SERVER, WORKER, PlacedSpeed
from dl2_scheduler.cluster.hardware.view import PlacementView, Places
from dl2_scheduler.policies.placement.draft import Draft, missing_tasks

_MOST_ELSEWHERE = 3
"""Other nodes that a sentence names."""
_MOST_TRIED = 16
"""Other nodes that are looked at for a job: those with most of it free."""

Chosen = tuple[Sequence[int], Sequence[int]]
"""Groups of a job's new workers and servers."""


@dataclass(frozen=True)
class _Prediction:
    """A `_Prediction` says how fast a job would be at some places.

    Attributes:
        node: where all its new tasks would be; None: where they are put.
        rate: samples a second beside the others there.
        alone: samples a second without them.
    """

    node: int | None
    rate: float
    alone: float


def explain(view: PlacementView, places: Places, speeds: PlacedSpeed, names: Sequence[str]) -> dict[int, str]:
    """Return a sentence for each job that got places, by its index in the view.

    A percentage says by how much longer a step takes than for the job alone at the best of the places that the sentence
    names.

    Args:
        view: that the policy saw, with models numbered as the speeds know them.
        places: what it answered.
        speeds: a fitted model; jobs that it does not know have the rate 0.
        names: of the nodes.
    """
    draft = Draft(view)
    for job, roles in places.groups.items():
        draft.put_all(job, roles)
    found = {}
    for job, roles in places.groups.items():
        chosen = _predicted(draft, job, None, speeds)
        if chosen.rate <= 0:
            found[job] = f"{where(view, roles, names)}: the model of speeds does not know its type"
            continue
        others = list(_elsewhere(draft, job, roles, speeds))
        best = max(each.alone for each in (chosen, *others))
        others.sort(key=lambda each: -each.rate)
        said = [f"{names[each.node or 0]}: {_slower(each, best)}" for each in others[:_MOST_ELSEWHERE]]
        own = f"{where(view, roles, names)}: {_slower(chosen, best)}{_beside(draft, job)}"
        found[job] = "; ".join([own, *said])
    return found


def where(view: PlacementView, roles: Chosen, names: Sequence[str]) -> str:
    """Return the nodes of a job's new tasks, for people.

    Args:
        view: of the cluster.
        roles: groups of its workers and servers.
        names: of the nodes.
    """
    nodes = [[names[int(view.machines.node_of[group])] for group in groups] for groups in roles]
    if len({*nodes[WORKER], *nodes[SERVER]}) == 1:
        return (nodes[WORKER] or nodes[SERVER])[0]
    return ", ".join(
        f"{what} on {' '.join(sorted(set(of_role)))}"
        for what, of_role in zip(("workers", "servers"), nodes, strict=True)
        if of_role
    )


def _slower(found: _Prediction, best: float) -> str:
    return f"{100 * (best / found.rate - 1):+.0f}% slowdown" if found.rate > 0 else "unknown"


def _predicted(draft: Draft, job: int, node: int | None, speeds: PlacedSpeed) -> _Prediction:
    arrays = draft.arrays()
    own = arrays.of_tasks(arrays.job == job)
    return _Prediction(node, float(speeds.rates(arrays)[job]), float(speeds.rates(own)[job]))


def _elsewhere(draft: Draft, job: int, roles: Chosen, speeds: PlacedSpeed) -> Iterator[_Prediction]:
    """Yield what is predicted for all new tasks of a job on one other node, where they fit it; the draft stays."""
    node_of: Ints = draft.view.machines.node_of
    here = {int(node_of[group]) for groups in roles for group in groups}
    draft.drop(job)
    free = np.bincount(node_of, draft.free.sum(axis=1))
    others = [int(node) for node in np.argsort(-free, kind="stable") if {int(node)} != here]
    for node in others[:_MOST_TRIED]:
        if _fill_node(draft, job, np.flatnonzero(node_of == node)):
            yield _predicted(draft, job, node, speeds)
        draft.drop(job)
    draft.put_all(job, roles)


def _fill_node(draft: Draft, job: int, groups: Ints) -> bool:
    """Put a job's new tasks into groups of one node, and return whether all fit."""
    for role in missing_tasks(draft.view, job):
        fitting = np.intersect1d(draft.fitting(job, role), groups)
        if not len(fitting):
            return False
        draft.put(job, role, int(fitting[0]))
    return True


def _beside(draft: Draft, job: int) -> str:
    """Return the types of other jobs in the groups where a job has tasks, for people; "": it is alone there."""
    jobs = draft.view.jobs
    types = {
        jobs[other].job.model
        for tasks in draft.tasks
        if any(own == job for own, _ in tasks)
        for other, _ in tasks
        if other != job
    }
    return f" beside {' '.join(sorted(types))}" if types else ", alone there"
