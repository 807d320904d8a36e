"""The learnt policy's network as inference needs it: the scores of one job at a time."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dl2_scheduler.cluster.compiled import compiled

F32 = NDArray[np.float32]


class Scores(NamedTuple):
    """A network, split where counts come in.

    Attributes:
        base: of each job, its part of the first layer, (jobs, hidden).
        by_workers: what a count of workers adds to it, (most + 1, hidden).
        by_servers: the same of servers.
        by_share: what the logarithm of 1 + its dominant share of the cluster times the jobs adds, (hidden,).
        share: dominant share of each job's worker and server, times the number of jobs, (jobs, 2).
        hidden: second layer, (hidden, hidden).
        hidden_bias: its bias.
        out: last layer, (hidden, 3).
        out_bias: its bias.
        priority: what is added to each job's scores in this slot, (jobs, 3).
        stop: score of stopping.
    """

    base: F32
    by_workers: F32
    by_servers: F32
    by_share: F32
    share: F32
    hidden: F32
    hidden_bias: F32
    out: F32
    out_bias: F32
    priority: F32
    stop: float


@compiled
def score(scores: Scores, job: int, workers: int, servers: int, first: F32, second: F32, row: F32) -> None:
    """Write a job's three scores to `row`.

    Args:
        scores: the network of the slot.
        job: its index.
        workers: it would begin with.
        servers: it would begin with.
        first: scratch for the first hidden layer, (hidden,).
        second: scratch for the second hidden layer, (hidden,).
        row: of the scores of WORKER, SERVER and BOTH, (3,).
    """
    width = first.shape[0]
    log_share = np.float32(np.log1p(max(workers * scores.share[job, 0], servers * scores.share[job, 1])))
    for unit in range(width):
        value = scores.base[job, unit] + scores.by_workers[workers, unit] + scores.by_servers[servers, unit]
        first[unit] = max(value + log_share * scores.by_share[unit], np.float32(0))
        second[unit] = scores.hidden_bias[unit]
    for source in range(width):
        value = first[source]
        if value > 0:
            for unit in range(width):
                second[unit] += value * scores.hidden[source, unit]
    for action in range(len(row)):
        row[action] = scores.out_bias[action] + scores.priority[job, action]
    for unit in range(width):
        value = second[unit]
        if value > 0:
            for action in range(len(row)):
                row[action] += value * scores.out[unit, action]
