"""This module says how fast workers and servers exchange parameters, given where they lie.

In a step a worker sends gradients to each server of its job and gets parameters back: the same volume in both
directions of the same full-duplex links, so that one flow stands for both. A flow runs on the links between the two
nodes, and on one thread of each of the two tasks, which several flows of a task share.
"""

from dataclasses import dataclass

import numpy as np

from dl2_scheduler.cluster.compiled import compiled
from dl2_scheduler.cluster.hardware.machines import Floats, Ints
from dl2_scheduler.cluster.hardware.placements import SERVER, WORKER, PlacementArrays

_TWO_THREADS = 1.7
"""What a task with two flows or more sends, over what it sends with one (9.7 and 5.7 Gb/s were measured)."""


@dataclass(frozen=True)
class Pairs:
    """`Pairs` are each worker with each server of its job, job by job, worker by worker.

    Attributes:
        start: the first pair of each worker, by the order of workers among the tasks, (workers + 1,).
        workers: tasks that are workers, (workers,).
        worker: index of the worker's task, (pairs,).
        server: index of the server's task, (pairs,).
        rank: of the server among those of its job: the first one holds what cannot be split, (pairs,).
    """

    start: Ints
    workers: Ints
    worker: Ints
    server: Ints
    rank: Ints


def pairs_of(placements: PlacementArrays) -> Pairs:
    """Return the pairs of all jobs."""
    servers = np.flatnonzero(placements.role == SERVER)
    servers = servers[np.argsort(placements.job[servers], kind="stable")]
    counts = placements.counts(SERVER)
    first = np.concatenate([[0], np.cumsum(counts)])
    workers = np.flatnonzero(placements.role == WORKER)
    each = counts[placements.job[workers]]
    start = np.concatenate([[0], np.cumsum(each)])
    rank = np.arange(start[-1]) - np.repeat(start[:-1], each)
    server = servers[np.repeat(first[placements.job[workers]], each) + rank]
    return Pairs(start, workers, np.repeat(workers, each), server, rank)


def shares(rank: Ints, servers: Ints, hottest: Floats) -> Floats:
    """Return the part of the parameters that servers hold.

    Args:
        rank: of the server in its job, (pairs,).
        servers: of the job, (pairs,).
        hottest: part that one server has all of, because it cannot be split, (pairs,).
    """
    even = (1.0 - hottest) / servers
    return np.where(rank == 0, hottest + even, even)


def threads(pairs: Pairs, apart: Ints, wire: Floats, tasks: int) -> Floats:
    """Return what each task can send and receive, in the unit of `wire`, (tasks,).

    Args:
        pairs: of which some run between nodes.
        apart: indices of those.
        wire: what one flow of a task can get, (tasks,).
        tasks: how many there are.
    """
    flows = np.bincount(pairs.worker[apart], minlength=tasks) + np.bincount(pairs.server[apart], minlength=tasks)
    found: Floats = wire * np.where(flows > 1, _TWO_THREADS, 1.0)
    return found


@compiled
def slowest(start: Ints, times: Floats) -> Floats:
    """Return the longest time of each worker's pairs, (workers,).

    Args:
        start: see `Pairs`.
        times: of each pair, (pairs,).
    """
    found = np.zeros(len(start) - 1)
    for worker in range(len(found)):
        for pair in range(start[worker], start[worker + 1]):
            found[worker] = max(found[worker], times[pair])
    return found
