"""This module says what the graph paper's own agents read (section IV-A): jobs have numbers, and so have partitions.

An agent knows the jobs that have tasks in its partition, those that were submitted to it and wait, and the one at hand,
by arrival; the paper keeps the most that it knows to itself. Numbers are scaled to about one, which it does not say.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dl2_scheduler.cluster.hardware.view import RESOURCES
from dl2_scheduler.policies.learnt.graph.agent_inputs import TaskInputs, Watched
from dl2_scheduler.policies.learnt.graph.edge_conv import F32

MOST_JOBS = 128
"""Jobs that an agent knows; others, the last to come, it does not see."""
PAPER_VERTEX = len(RESOURCES) + 2 * MOST_JOBS
"""Numbers of a vertex: what is free, and the workers and servers of each job; nothing for all but groups."""
_ABOUT = 2 * (1 + len(RESOURCES))  # numbers of a job: its workers and what one takes, its servers likewise
_AMOUNTS = 16.0, 4.0
_TASKS = 4.0


def jobs_width(models: int) -> int:
    """Return how many numbers tell an agent's jobs, and the task at hand: role, model, and what its job asks for."""
    return MOST_JOBS * (models + _ABOUT) + 1 + models + _ABOUT


@dataclass(frozen=True)
class PaperInputs:
    """These `PaperInputs` are what one agent reads, beside what others tell it.

    Attributes:
        rows: of the vertices of its partition, (vertices, PAPER_VERTEX).
        numbers: of the edges there, (edges, NUMBERS).
        about: its jobs and the task at hand, (jobs_width,).
    """

    rows: F32
    numbers: F32
    about: F32


def paper_inputs(watched: Watched, pod: int, job: int | None, role: int) -> PaperInputs:
    """Return what an agent reads.

    Args:
        watched: the cluster.
        pod: the agent's partition.
        job: index of the job at hand; None: the agent has none.
        role: of the task at hand.
    """
    draft, graph = watched.draft, watched.graphs.pods[pod]
    view = draft.view
    here = {each for group in graph.groups.tolist() for each, _ in draft.tasks[group]}
    waits = view.missing.any(axis=1).tolist()
    here |= {
        number
        for number, each in enumerate(view.jobs)
        if waits[number] and each.job.partition == pod and number not in draft.groups
    }
    here |= set() if job is None else {job}
    slots = {each: slot for slot, each in enumerate(sorted(here)[:MOST_JOBS])}
    rows = np.zeros((len(graph.kinds), PAPER_VERTEX), dtype=np.float32)
    rows[: len(graph.groups), : len(RESOURCES)] = draft.free[graph.groups] / _AMOUNTS
    for row, group in enumerate(graph.groups.tolist()):
        for each, own in draft.tasks[group]:
            if each in slots:
                rows[row, len(RESOURCES) + 2 * slots[each] + own] += 1.0
    models = len(view.models)
    known = np.zeros((MOST_JOBS, models + _ABOUT), dtype=np.float32)
    for each, slot in slots.items():
        known[slot] = _about(watched, each)
    at_hand = np.zeros(1 + models + _ABOUT, dtype=np.float32)
    if job is not None:
        at_hand[0], at_hand[1:] = role, _about(watched, job)
    return PaperInputs(rows, watched.numbers(graph), np.concatenate([known.ravel(), at_hand]))


def _about(watched: Watched, job: int) -> F32:
    """Return a job's model, its workers and servers, and what one of each takes, (models + _ABOUT,)."""
    view = watched.draft.view
    found, asked = np.zeros(len(view.models) + _ABOUT, dtype=np.float32), view.jobs[job].job
    if (model := int(view.placed.model[job])) >= 0:
        found[model] = 1.0
    worker, server = view.demand[job] / _AMOUNTS
    found[len(view.models) :] = [asked.max_workers / _TASKS, *worker, asked.max_servers / _TASKS, *server]
    return found


def paper_actions(inputs: TaskInputs) -> NDArray[np.bool_]:
    """Return which actions are allowed: groups, then partitions to forward to; nobody waits by choice, (actions,)."""
    return np.concatenate([inputs.fits, inputs.forwards])
