"""This module rates one job at a time by our fitted model of speeds, compiled: see `PooledSpeed`, which says the same.

The first layer of a task is linear in what lies around it, so that a group's counts times a table give it.
"""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dl2_scheduler.cluster.compiled import compiled
from dl2_scheduler.cluster.hardware.machines import Floats, Ints
from dl2_scheduler.cluster.hardware.placements import SERVER, WORKER
from dl2_scheduler.policies.learnt.pooled_network import COUNTS, F32
from dl2_scheduler.policies.learnt.pooled_speed import PooledSpeed


class SpeedTables(NamedTuple):
    """These `SpeedTables` are a fitted model, rearranged; matrices have a row for each input.

    Attributes:
        alone: what a task's first layer gets from its kind, (kinds, task units).
        own: from each task of its job in its group, by kind, (kinds, task units).
        around: from each task in its group, by kind, (kinds, task units).
        second: a task's second layer, (task units, task units).
        second_bias: of it, (task units,).
        counts: a job's first layer from its counts, (COUNTS, job units).
        model: from its model, bias included, (models, job units).
        pooled: from its first server, and from the mean and the most of its workers and of its servers,
            (5, task units, job units).
        hidden: a job's second layer, (job units, job units).
        hidden_bias: of it, (job units,).
        out: its last layer, and its bias behind it, (job units + 1,).
        base: see `PooledSpeed`, (models,).
    """

    alone: F32
    own: F32
    around: F32
    second: F32
    second_bias: F32
    counts: F32
    model: F32
    pooled: F32
    hidden: F32
    hidden_bias: F32
    out: F32
    base: Floats


def speed_tables(speeds: PooledSpeed) -> SpeedTables:
    """Return a fitted model for compiled code."""
    given = {name: np.asarray(array, dtype=np.float32) for name, array in speeds.arrays.items()}
    kinds, models = given["kind.weight"], given["model.weight"]
    embedded, units = kinds.shape[1], len(given["task.0.bias"])
    itself, beside, others = (
        kinds @ given["task.0.weight"][:, start : start + embedded].T for start in range(0, 3 * embedded, embedded)
    )
    job = np.ascontiguousarray(given["job.0.weight"].T)
    pooled = job[COUNTS + embedded :].reshape(5, units, -1)
    return SpeedTables(
        itself - beside + given["task.0.bias"],
        beside - others,
        others,
        np.ascontiguousarray(given["task.2.weight"].T),
        given["task.2.bias"],
        job[:COUNTS].copy(),
        models @ job[COUNTS : COUNTS + embedded] + given["job.0.bias"],
        pooled.copy(),
        np.ascontiguousarray(given["job.2.weight"].T),
        given["job.2.bias"],
        np.append(given["job.4.weight"][0], given["job.4.bias"]).astype(np.float32),
        speeds.base.astype(float),
    )


@compiled
def rate_job(tables: SpeedTables, kinds: NDArray[np.int64], own: Ints, model: int, first: int) -> float:
    """Return the samples a second of a job that has both roles.

    Args:
        tables: of the model of speeds.
        kinds: tasks of each group by kind, its own among them, (groups, kinds).
        own: its workers and servers in each group, (groups, 2).
        model: of the job.
        first: group of its first server.
    """
    units = len(tables.second_bias)
    pooled = np.zeros((5, units), dtype=np.float32)
    spread = 0
    together = 0
    workers, servers = own[:, WORKER].sum(), own[:, SERVER].sum()
    for group in range(len(own)):
        if own[group, WORKER] + own[group, SERVER] == 0:
            continue
        spread += 1
        together += own[group, WORKER] * own[group, SERVER]
        around = np.zeros(units, dtype=np.float32)
        for kind in range(kinds.shape[1]):
            if kinds[group, kind]:
                around += np.float32(kinds[group, kind]) * tables.around[kind]
        for role in (WORKER, SERVER):
            around += np.float32(own[group, role]) * tables.own[2 * model + role]
        for role in (WORKER, SERVER):
            if own[group, role] == 0:
                continue
            task = tables.second_bias.copy()
            _add_layer(task, around + tables.alone[2 * model + role], tables.second)
            for unit in range(units):
                value = max(task[unit], np.float32(0.0))
                pooled[1 + 2 * role, unit] += value * np.float32(own[group, role])
                pooled[2 + 2 * role, unit] = max(pooled[2 + 2 * role, unit], value)
                if role == SERVER and group == first:
                    pooled[0, unit] = value
    pooled[1] /= np.float32(workers)
    pooled[3] /= np.float32(servers)
    counts = (
        math.log(workers),
        math.log(servers),
        math.log(workers / servers),
        math.log(spread),
        1.0 - together / (workers * servers),
    )
    return _of_job(tables, model, counts, pooled)


@compiled
def _of_job(tables: SpeedTables, model: int, counts: tuple[float, float, float, float, float], pooled: F32) -> float:
    """Return the samples a second of a job from its counts and its tasks, (5, task units)."""
    first = tables.model[model].copy()
    for index in range(5):
        first += np.float32(counts[index]) * tables.counts[index]
    for part in range(5):
        _add_layer(first, pooled[part], tables.pooled[part])
    second = tables.hidden_bias.copy()
    _add_layer(second, first, tables.hidden)
    logarithm = float(tables.out[-1])
    for unit in range(len(second)):
        logarithm += float(max(second[unit], np.float32(0.0)) * tables.out[unit])
    return math.exp(logarithm) * float(tables.base[model])


@compiled
def _add_layer(found: F32, values: F32, weights: F32) -> None:
    """Add a layer of what is positive of some values to what there is of the next ones.

    Args:
        found: (next units,).
        values: (units,).
        weights: (units, next units).
    """
    positive = np.flatnonzero(values > 0)
    whole = len(positive) // 4 * 4
    for start in range(0, whole, 4):  # four at a time: three times as fast
        a, b, c, d = positive[start], positive[start + 1], positive[start + 2], positive[start + 3]
        for unit in range(len(found)):
            found[unit] += (values[a] * weights[a, unit] + values[b] * weights[b, unit]) + (
                values[c] * weights[c, unit] + values[d] * weights[d, unit]
            )
    for each in positive[whole:]:
        for unit in range(len(found)):
            found[unit] += values[each] * weights[each, unit]
