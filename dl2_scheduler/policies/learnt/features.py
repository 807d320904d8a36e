"""The learnt policy sees these arrays of a slot's start: of one cluster, or of many simulated ones at once."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dl2_scheduler.cluster.free_resources import FreeResources, dominant_shares
from dl2_scheduler.policies.learnt.actions import Ints, Tasks

Floats = NDArray[np.float64]
F32 = NDArray[np.float32]

_OWN = 8  # features of a job, beside its type
SLOT_FEATURES = 3
"""The last of a job's: those of its slot."""

_NO_SERVERS = -1.0
"""A sixteenth of the servers before, of a job that never has any. Others have 0 or more there, so that networks which
were saved before there were such jobs decide about the others as they did."""

KNOTS = np.array([*range(17), 24, 32, 64], dtype=float)
"""Counts between which the network interpolates; it knows no difference beyond the last."""


@dataclass(frozen=True)
class SlotInputs:
    """Jobs at the start of a slot, of one or more lanes, each lane's together; arrays are by job.

    Attributes:
        lane: number of each job's lane, ascending.
        model: number of its type; -1: a type that the network does not know.
        remaining: epochs it needs still, as far as is known.
        total: epochs it needs in all, as far as is known.
        samples: of an epoch.
        slots_run: slots that it has run.
        before: workers and servers of the slot before, (jobs, 2).
        has_servers: whether it is a job with servers, (jobs,).
        share: dominant share of its lane's cluster of a worker and of a server, (jobs, 2).
        load: of each lane, the sum of its jobs' shares.
    """

    lane: Ints
    model: Ints
    remaining: Floats
    total: Floats
    samples: Floats
    slots_run: Floats
    before: Ints
    has_servers: NDArray[np.bool_]
    share: Floats
    load: Floats


def width(models: int) -> int:
    """Return how many features a job has."""
    return models + _OWN + SLOT_FEATURES


def features(inputs: SlotInputs, models: int) -> F32:
    """Return the features of each job, (jobs, `width(models)`), float32: of its type, of itself, and of its slot.

    In the place of a server's share of the cluster stands the worker's where a job has no servers: the logarithm of
    nothing would be far outside of what networks see otherwise.

    Args:
        inputs: see there.
        models: types that the network knows.
    """
    jobs = np.bincount(inputs.lane, minlength=len(inputs.load)).astype(float)
    found = np.zeros((len(inputs.lane), width(models)), dtype=np.float32)
    known = inputs.model >= 0
    found[known.nonzero()[0], inputs.model[known]] = 1.0
    work = inputs.remaining * inputs.samples
    count = jobs[inputs.lane]
    servers, server_share = inputs.before[:, 1] / 16.0, inputs.share[:, 1]
    own = [
        (np.log(work) - 12.0) / 3.0,
        inputs.remaining / inputs.total,
        np.log1p(inputs.slots_run) / 4.0,
        inputs.before[:, 0] / 16.0,
        np.where(inputs.has_servers, servers, _NO_SERVERS),
        np.log(np.maximum(inputs.share[:, 0] * count, 1e-6)),
        np.log(np.maximum(np.where(inputs.has_servers, server_share, inputs.share[:, 0]) * count, 1e-6)),
        _ranks(inputs.lane, work) / count,
    ]
    slot = [np.log(count) / 4.0, np.log(np.maximum(inputs.load, 1e-6))[inputs.lane], 1.0 / count]
    found[:, models:] = np.stack([*own, *slot], axis=1)
    return found


def _ranks(lane: Ints, values: Floats) -> Floats:
    """Return the rank of each value among those of its lane, from 0 on."""
    order = np.lexsort((values, lane))
    first = np.searchsorted(lane, lane)
    ranks = np.empty(len(values))
    ranks[order] = np.arange(len(values)) - first[order]
    return ranks


def count_basis(most: int) -> F32:
    """Return how near each count from 0 to `most` is to the knots, (most + 1, knots): two knots, or one, share 1."""
    counts = np.minimum(np.arange(most + 1), KNOTS[-1])
    basis = np.zeros((most + 1, len(KNOTS)), dtype=np.float32)
    after = np.searchsorted(KNOTS, counts)
    before = np.maximum(after - 1, 0)
    gap = np.maximum(KNOTS[after] - KNOTS[before], 1.0)
    near = (counts - KNOTS[before]) / gap
    rows = np.arange(most + 1)
    basis[rows, before] = 1.0 - near
    basis[rows, after] = np.where(after == before, 1.0, near)
    return basis


def kinds(demands: Floats) -> tuple[Floats, Ints]:
    """Return the different tasks among jobs, and which of them are a job's: see `Tasks.demands` and `Tasks.kind`.

    Args:
        demands: of each job's worker and server, (jobs, 2, resources).
    """
    all_three = np.concatenate([demands, demands.sum(axis=1, keepdims=True)], axis=1)
    found, where = np.unique(all_three.reshape(-1, demands.shape[-1]), axis=0, return_inverse=True)
    return found, where.reshape(-1, all_three.shape[1])


def of_room(room: FreeResources, models: Sequence[str]) -> tuple[SlotInputs, Tasks]:
    """Return the inputs of a live cluster's slot, and what its jobs may get.

    Args:
        room: of the slot.
        models: types that the network knows.
    """
    states = room.snapshot.jobs
    number = {model: index for index, model in enumerate(models)}
    demand = np.stack([np.array(of_role) for of_role in room.demands], axis=1)
    share = dominant_shares(demand, room.capacity.sum(axis=0))
    inputs = SlotInputs(
        np.zeros(len(states), dtype=np.int64),
        np.array([number.get(state.job.model, -1) for state in states]),
        np.array([state.remaining_epochs for state in states]),
        np.array([state.job.estimate for state in states]),
        np.array([state.job.samples_per_epoch for state in states]),
        np.array([float(state.slots_run) for state in states]),
        np.array([(state.workers, state.servers) for state in states]),
        np.array([state.job.has_servers for state in states]),
        share,
        share.sum(keepdims=True).reshape(1),
    )
    least = np.array(room.least)
    most = np.array([(state.job.max_workers, state.job.max_servers) for state in states])
    runs = np.array([state.workers > 0 for state in states])
    return inputs, Tasks(*kinds(demand), least, most, runs)
