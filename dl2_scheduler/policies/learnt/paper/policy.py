"""The paper's network (DL2, section 4.1), and a slot that it fills: one forward pass of all jobs for each task granted.

Two hidden layers of 2/3 of the input's size, each ReLU and then batch normalisation as in the published code, and a
softmax over what is allowed. For inference the normalisation is folded into the layer that follows it.
"""

from typing import NamedTuple

import numpy as np

from dl2_scheduler.cluster.compiled import compiled, inlined
from dl2_scheduler.cluster.free_resources import FreeResources
from dl2_scheduler.cluster.snapshot import Allocation, Grant, Snapshot
from dl2_scheduler.policies.learnt.actions import ACTIONS, STOP, Ints
from dl2_scheduler.policies.learnt.features import F32
from dl2_scheduler.policies.learnt.paper.batched import (
    CHANGING,
    Mask,
    Slot,
    give,
    slot_of,
    whole,
    write_mask,
    write_row,
)
from dl2_scheduler.policies.learnt.paper.exploration import BEST, Exploration, explore
from dl2_scheduler.policies.learnt.paper.weights import Layers, PaperWeights


class Trail(NamedTuple):
    """The inferences of a slot, in order; only those that had a choice beside stopping.

    Attributes:
        states: what was seen, (inferences, J, row_width).
        masks: what was allowed, (inferences, 3 J + 1).
        actions: what was done.
        jobs: which job of the slot each action was for; STOP: for none.
        batches: which J jobs of the slot were seen.
    """

    states: F32
    masks: Mask
    actions: Ints
    jobs: Ints
    batches: Ints


def new_trail(slot: Slot, places: int, keep: bool) -> Trail:
    """Return memory for the inferences of a slot.

    Args:
        slot: at its start.
        places: J.
        keep: False: actions alone, states and masks are not kept.
    """
    jobs = len(slot.counts)
    batches = -(-jobs // places)
    most = int(slot.most.sum()) + batches
    kept = most if keep else 0
    width = slot.fixed.shape[1] + CHANGING
    return Trail(
        np.empty((kept, places, width), dtype=np.float32),
        np.empty((kept, places * ACTIONS + 1), dtype=np.bool_),
        *(np.empty(most, dtype=np.int64) for _ in range(3)),
    )


@compiled
def _next_forced(forced: Ints, cursor: int, low: int, high: int, mask: Mask) -> int:
    """Return the index, from `cursor` on, of the next teacher's action that this batch allows, or their count."""
    while cursor < len(forced):
        job = forced[cursor] // ACTIONS
        if low <= job < high and mask[forced[cursor] - low * ACTIONS]:
            break
        cursor += 1
    return cursor


class _View(NamedTuple):
    """A `_View` is what the network sees of one batch, and its scratch.

    Attributes:
        state: the rows, (J, row_width).
        row: scratch of one.
        mask: what is allowed, (3 J + 1,).
        first: what the first layer adds up to, kept up to date as rows change, (hidden,).
        second: scratch, (hidden,).
        logits: scores, (3 J + 1,).
    """

    state: F32
    row: F32
    mask: Mask
    first: F32
    second: F32
    logits: F32


@compiled
def fill(slot: Slot, layers: Layers, explored: Exploration, teacher: bool, forced: Ints, trail: Trail) -> int:
    """Fill a slot, batch by batch; the number of inferences.

    Args:
        slot: at its start.
        layers: of the network.
        explored: see there.
        teacher: whether the teacher decides.
        forced: its actions, job * 3 + action; those for which there is no room are left out, and then it stops.
        trail: written.
    """
    actions, units, width = len(layers.out_bias), len(layers.first_bias), slot.fixed.shape[1] + CHANGING
    places = (actions - 1) // ACTIONS
    view = _View(
        np.zeros((places, width), dtype=np.float32),
        np.zeros(width, dtype=np.float32),
        np.zeros(actions, dtype=np.bool_),
        np.zeros(units, dtype=np.float32),
        np.zeros(units, dtype=np.float32),
        np.zeros(actions, dtype=np.float32),
    )
    count = 0
    for low in range(0, len(slot.counts), places):
        count = _fill_batch(slot, layers, low, view, explored, teacher, forced, trail, count)
    return count


@compiled
def _fill_batch(
    slot: Slot,
    layers: Layers,
    low: int,
    view: _View,
    explored: Exploration,
    teacher: bool,
    forced: Ints,
    trail: Trail,
    count: int,
) -> int:
    """See `fill`: the jobs from `low` on; the number of inferences with those of the batches before."""
    places, stop = len(view.state), len(view.mask) - 1
    high = min(low + places, len(slot.counts))
    view.state[:] = 0.0
    view.first[:] = layers.first_bias
    for job in range(low, high):
        _renew(slot, layers, job, job - low, view)
    cursor, action = 0, 0
    while action != stop and write_mask(slot, low, high, view.mask):
        if teacher:
            cursor = _next_forced(forced, cursor, low, high, view.mask)
            action = forced[cursor] - low * ACTIONS if cursor < len(forced) else stop
            cursor += 1
        else:
            _forward(layers, view)
            action = explore(slot, low, high, view.mask, view.logits, explored, count)
        _note(trail, count, view, low, action)
        if action == stop:
            count += 1
        elif give(slot, low + action // ACTIONS, action % ACTIONS):
            count += 1
            _renew(slot, layers, low + action // ACTIONS, action // ACTIONS, view)
    return count


@inlined
def _note(trail: Trail, count: int, view: _View, low: int, action: int) -> None:
    """Write what was seen and done in an inference of the batch whose first job is `low`."""
    trail.actions[count] = action
    trail.batches[count] = low // len(view.state)
    trail.jobs[count] = low + action // ACTIONS if action != len(view.mask) - 1 else STOP
    if len(trail.states) > 0:
        trail.states[count] = view.state
        trail.masks[count] = view.mask


@compiled
def _renew(slot: Slot, layers: Layers, job: int, place: int, view: _View) -> None:
    """Bring a job's row, and what the first layer adds up to, up to date."""
    places, width = view.state.shape
    write_row(slot, job, places, view.row)
    for column in range(width):
        change = view.row[column] - view.state[place, column]
        if change != 0:
            source = place * width + column
            for unit in range(len(view.first)):
                view.first[unit] += change * layers.first[source, unit]
    view.state[place] = view.row


@compiled
def _forward(layers: Layers, view: _View) -> None:
    """Compute the scores of all actions."""
    view.second[:] = layers.second_bias
    for unit in range(len(view.first)):
        value = view.first[unit]
        if value > 0:
            for target in range(len(view.second)):
                view.second[target] += value * layers.second[unit, target]
    view.logits[:] = layers.out_bias
    for unit in range(len(view.second)):
        value = view.second[unit]
        if value > 0:
            for target in range(len(view.logits)):
                view.logits[target] += value * layers.out[unit, target]


def first_of(trail: Trail, count: int) -> Trail:
    """Return the first inferences of a trail; states and masks only where they were kept."""
    return Trail(
        trail.states[:count], trail.masks[:count], trail.actions[:count], trail.jobs[:count], trail.batches[:count]
    )


NOT_FORCED = np.zeros(0, dtype=np.int64)


def filled(
    room: FreeResources, weights: PaperWeights, random: np.random.Generator | None = None, epsilon: float = 0.0
) -> tuple[Slot, Trail]:
    """Return a slot as the network fills it, and its inferences.

    Args:
        room: of the slot, empty; it is not changed.
        weights: of the network.
        random: draws actions; None: the best are taken, and states and masks are not kept.
        epsilon: see `Exploration`.
    """
    slot = slot_of(room, weights.models, weights.minimum)
    trail = new_trail(slot, weights.places, random is not None)
    explored = BEST if random is None else Exploration(random.random((len(trail.actions), 2)), epsilon, False)
    count = fill(slot, weights.layers, explored, False, NOT_FORCED, trail)
    return slot, first_of(trail, count)


class PaperDl2:
    """See `AllocationPolicy`: the paper's network decides, the best action each time (DL2, section 3.2).

    Args:
        weights: of the network.

    Attributes:
        inferences: of the last slot.
    """

    def __init__(self, weights: PaperWeights):
        self.inferences = 0
        self._weights = weights

    def allocate(self, snapshot: Snapshot, room: FreeResources) -> Allocation:
        """See `AllocationPolicy.allocate`."""
        slot, trail = filled(room, self._weights)
        self.inferences = len(trail.actions)
        return allocation(snapshot, slot)


def allocation(snapshot: Snapshot, slot: Slot) -> Allocation:
    """Return what a filled slot gives; a job that lacks a role gets nothing."""
    given = zip(snapshot.jobs, whole(slot.counts).tolist(), strict=True)
    return Allocation({state.job.id: Grant(workers, servers) for state, (workers, servers) in given})
