"""This module is the network of our reward model, as numbers: what it reads of a cluster, and what it makes of that.

What lies in a group is summed up over its tasks' embeddings, so that neither the order nor the number of nodes and jobs
matters, and a job's speed follows from what its tasks find around them. `learning.placement.reward_model` fits it.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dl2_scheduler.cluster.hardware.machines import Floats, Ints
from dl2_scheduler.cluster.hardware.placements import SERVER, WORKER, PlacementArrays
from dl2_scheduler.policies.learnt.array_files import Shape, length_of

F32 = NDArray[np.float32]

COUNTS = 5
"""Numbers that a job's counts and spread give."""


def speed_shapes(models: int, found: Mapping[str, Shape]) -> dict[str, Shape]:
    """Return the shapes that the network's arrays have together, by name.

    Args:
        models: that it knows.
        found: shapes of a file's arrays, by which the sizes of the layers are known.
    """
    task, job = (length_of(found, f"{name}.0.bias") for name in ("task", "job"))
    kinds = found.get("kind.weight", ())
    embedded = max(kinds[1], 1) if len(kinds) == 2 else 1
    return {
        "kind.weight": (2 * models, embedded),
        "model.weight": (models, embedded),
        "task.0.weight": (task, 3 * embedded),
        "task.0.bias": (task,),
        "task.2.weight": (task, task),
        "task.2.bias": (task,),
        "job.0.weight": (job, COUNTS + embedded + 5 * task),
        "job.0.bias": (job,),
        "job.2.weight": (job, job),
        "job.2.bias": (job,),
        "job.4.weight": (1, job),
        "job.4.bias": (1,),
    }


@dataclass(frozen=True)
class PooledInputs:
    """These `PooledInputs` are what the model reads of a cluster's placements, or of several clusters' at once.

    Attributes:
        kind: `2 * model + role` of each task, (tasks,).
        group: of each task, numbered through all clusters, (tasks,).
        own: of each task, a number that all tasks of the same job in the same group have, (tasks,).
        job: of each task, numbered through all clusters, (tasks,).
        role: of each task, (tasks,).
        first: the first server of each job, an index of tasks, (jobs,).
        model: of each job, (jobs,).
        counts: of each job: logarithms of workers, servers, their ratio and the groups that it lies in, and the part of
            its pairs of worker and server that do not share a group, (jobs, COUNTS).
    """

    kind: Ints
    group: Ints
    own: Ints
    job: Ints
    role: Ints
    first: Ints
    model: Ints
    counts: F32


def pooled_inputs(placements: PlacementArrays) -> PooledInputs:
    """Return what the model reads. Each job has both roles."""
    jobs = len(placements.model)
    workers, servers = (
        np.bincount(placements.job[placements.role == role], minlength=jobs) for role in (WORKER, SERVER)
    )
    key = placements.group * jobs + placements.job
    _, own = np.unique(key, return_inverse=True)
    here = [np.bincount(own[placements.role == role], minlength=own.max() + 1) for role in (WORKER, SERVER)]
    job_of = np.zeros(own.max() + 1, dtype=np.int64)
    job_of[own] = placements.job
    together = np.bincount(job_of, here[WORKER] * here[SERVER], minlength=jobs)
    first = np.full(jobs, len(own))
    is_server = np.flatnonzero(placements.role == SERVER)
    np.minimum.at(first, placements.job[is_server], is_server)
    logs = np.log(np.stack([workers, servers, workers / servers, np.bincount(job_of, minlength=jobs)], axis=1))
    counts = np.column_stack([logs, 1.0 - together / (workers * servers)]).astype(np.float32)
    kind = 2 * placements.model[placements.job] + placements.role
    return PooledInputs(kind, placements.group, own, placements.job, placements.role, first, placements.model, counts)


@dataclass(frozen=True)
class PooledNetwork:
    """A `PooledNetwork` says how fast jobs train, over what their models do on two nodes alone.

    Attributes:
        arrays: its weights by name, as `learning.placement.reward_model.PooledNet` has them.
    """

    arrays: Mapping[str, F32]

    def logarithms(self, inputs: PooledInputs) -> Floats:
        """Return the logarithm of each job's speed over its model's `base`, (jobs,)."""
        tasks = self.tasks(inputs)
        pooled = [inputs.counts, self.arrays["model.weight"][inputs.model], tasks[inputs.first]]
        for role in (WORKER, SERVER):
            which = np.flatnonzero(inputs.role == role)
            order = which[np.argsort(inputs.job[which], kind="stable")]
            start = np.searchsorted(inputs.job[order], np.arange(len(inputs.model)))
            of_role = tasks[order]
            sums = np.add.reduceat(of_role, start, axis=0)
            pooled += [
                sums / np.diff(np.append(start, len(order)))[:, None],
                np.maximum.reduceat(of_role, start, axis=0),
            ]
        found: Floats = self.layers("job", np.concatenate(pooled, axis=1), 3)[:, 0].astype(float)
        return found

    def tasks(self, inputs: PooledInputs) -> F32:
        """Return what each task makes of what lies around it, (tasks, units)."""
        own = self.arrays["kind.weight"][inputs.kind]
        of_own, of_group = _sums(own, inputs.own), _sums(own, inputs.group)
        return np.maximum(self.layers("task", np.concatenate([own, of_own - own, of_group - of_own], axis=1), 2), 0)

    def layers(self, name: str, values: F32, layers: int) -> F32:
        """Return what layers make of values, (rows, units); there is a ReLU between them.

        Args:
            name: of the layers.
            values: rows.
            layers: how many.
        """
        for layer in range(layers):
            values = values @ self.arrays[f"{name}.{2 * layer}.weight"].T + self.arrays[f"{name}.{2 * layer}.bias"]
            if layer < layers - 1:
                values = np.maximum(values, 0)
        return values


def _sums(values: F32, of: Ints) -> F32:
    """Return for each row the sum of all rows that have the same number.

    Args:
        values: rows.
        of: the number of each.
    """
    order = np.argsort(of, kind="stable")
    starts = np.flatnonzero(np.diff(of[order], prepend=-1))
    sums = np.add.reduceat(values[order], starts, axis=0)
    at = np.empty(len(of), dtype=np.int64)
    at[order] = np.repeat(np.arange(len(starts)), np.diff(np.append(starts, len(of))))
    found: F32 = sums[at]
    return found


def complete_jobs(placements: PlacementArrays) -> tuple[NDArray[np.bool_], PlacementArrays]:
    """Return which jobs have both roles, (jobs,), and the placements of these alone."""
    whole = (placements.counts(WORKER) > 0) & (placements.counts(SERVER) > 0)
    if whole.all():
        return whole, placements
    tasks, numbers = whole[placements.job], np.cumsum(whole) - 1
    return whole, PlacementArrays(
        placements.model[whole],
        numbers[placements.job[tasks]],
        placements.role[tasks],
        placements.group[tasks],
        placements.number[whole],
    )
