"""A slot being filled, inference by inference, by a policy that sees a fixed number of jobs at once (DL2, section 4.1).

Jobs stand in order of arrival. A policy that has J places sees the first J, and grants until it stops or nothing more
can be granted; then it sees the next J (section 6.4). What it sees of each job is a row:

    type, one-hot   1 at the job's model, all 0 for a model that the policy does not know
    slots so far    log(1 + slots in which it ran) / 4
    remaining       part of its epochs that it needs still, as far as is known
    share           dominant share of the cluster that it has been given in this slot, times J
    workers         given in this slot, / 16
    servers         given in this slot, / 16

A place without a job is a row of zeros. Action 3 j + 0 gives the job at place j a worker, 3 j + 1 a server, 3 j + 2 one
of each; action 3 J stops.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dl2_scheduler.cluster.compiled import compiled
from dl2_scheduler.cluster.free_resources import NOWHERE, Amounts, FreeResources, fits_on, pick_node, take
from dl2_scheduler.cluster.snapshot import JobState
from dl2_scheduler.policies.learnt.actions import ACTIONS, BOTH, SERVER, WORKER, Ints
from dl2_scheduler.policies.learnt.features import F32, kinds
from dl2_scheduler.policies.rules.minima import refuse_minima

Mask = NDArray[np.bool_]

_OWN = 5  # columns of a row beside the type
CHANGING = 3
"""The last columns of a row, which a grant changes."""

_TASKS = 16.0  # counts of this size are 1 in a row


class Slot(NamedTuple):
    """A slot that is being filled; `give` changes the last six.

    Attributes:
        fixed: columns of the rows that grants do not change, (jobs, types + 2).
        demands: of each kind of task, (kinds, resources).
        kind: of each job's worker, server, and both together, (jobs, 3).
        most: workers and servers that each job can have, (jobs, 2).
        total: of each resource, in the whole cluster.
        capacity: of the nodes, (nodes, resources).
        rule: a `NodeRule`.
        free: of the nodes, (nodes, resources).
        used: see `pick_node`, (nodes,).
        counts: workers and servers given, (jobs, 2).
        closed: what cannot be given any more, (jobs, 3).
        first: the first node where each kind of task fits, or NOWHERE; a slot only gets fuller.
        last: the node that the last task went to, (1,).
    """

    fixed: F32
    demands: Amounts
    kind: Ints
    most: Ints
    total: Amounts
    capacity: Amounts
    rule: int
    free: Amounts
    used: Amounts
    counts: Ints
    closed: Mask
    first: Ints
    last: Ints


def row_width(models: int) -> int:
    """Return how many columns a job's row has.

    Args:
        models: types that the policy knows.
    """
    return models + _OWN


def slot_of(room: FreeResources, models: Sequence[str], minimum: bool = True) -> Slot:
    """Return a slot at its start, before anything has been given.

    Args:
        room: of the slot, empty; it is not changed.
        models: types that the policy knows.
        minimum: give each job one worker and one server first, by arrival, as far as there is room; a job that gets
            none is given nothing later. Otherwise jobs begin with nothing, and may end with one role only.

    Raises:
        BadInput: a job needs more than that to run.
    """
    refuse_minima(room.snapshot)
    states = room.snapshot.jobs
    jobs = len(states)
    resources = room.capacity.shape[1]
    demand = np.array([*zip(*room.demands, strict=True)]).reshape(jobs, 2, resources)
    demands, kind = kinds(demand)
    slot = Slot(
        _fixed_features(states, models),
        demands,
        kind,
        np.array([(state.job.max_workers, state.job.max_servers) for state in states]).reshape(jobs, 2),
        np.maximum(room.capacity.sum(axis=0), 1e-12),
        room.capacity,
        int(room.rule),
        room.capacity.copy(),
        np.zeros(len(room.capacity)),
        np.zeros((jobs, 2), dtype=np.int64),
        np.zeros((jobs, ACTIONS), dtype=np.bool_),
        np.zeros(len(demands), dtype=np.int64),
        np.full(1, NOWHERE),
    )
    _begin(slot, minimum)
    return slot


def _fixed_features(states: Sequence[JobState], models: Sequence[str]) -> F32:
    """Return what a slot's grants do not change in the jobs' rows."""
    number = {model: index for index, model in enumerate(models)}
    fixed = np.zeros((len(states), len(models) + _OWN - CHANGING), dtype=np.float32)
    for row, state in zip(fixed, states, strict=True):
        if state.job.model in number:
            row[number[state.job.model]] = 1.0
        row[-2] = np.log1p(state.slots_run) / 4.0
        row[-1] = state.remaining_epochs / state.job.estimate
    return fixed


@compiled
def _begin(slot: Slot, minimum: bool) -> None:
    _advance(slot)
    if minimum:
        for job in range(len(slot.counts)):
            if not give(slot, job, BOTH):
                slot.closed[job] = True


@compiled
def _advance(slot: Slot) -> None:
    """Move on to the first node where each kind of task fits."""
    for kind in range(len(slot.first)):
        slot.first[kind] = _next_fit(slot.free, slot.demands[kind], slot.first[kind])


@compiled
def _next_fit(free: Amounts, demand: Amounts, start: int) -> int:
    """Return the first node from `start` on where a task fits, or NOWHERE."""
    if start == NOWHERE:
        return NOWHERE
    for node in range(start, len(free)):
        if fits_on(free, node, demand):
            return node
    return NOWHERE


@compiled
def give(slot: Slot, job: int, action: int) -> bool:
    """Give a job one task or one of each role; return False where the rule finds no node for it.

    It never will in this slot.

    Args:
        slot: that is being filled; it is changed.
        job: its index.
        action: WORKER, SERVER or BOTH, of which the job has not its maximum.
    """
    role = SERVER if action == SERVER else WORKER
    if not _place(slot, slot.kind[job, role], slot.kind[job, 1 - role], action == BOTH) and not (
        action == BOTH and _place(slot, slot.kind[job, SERVER], slot.kind[job, WORKER], True)
    ):  # where the one takes the last place of the other, the other way round
        slot.closed[job, action] = True
        return False
    slot.counts[job, 0] += action != SERVER
    slot.counts[job, 1] += action != WORKER
    _advance(slot)
    return True


@compiled
def _place(slot: Slot, kind: int, other: int, both: bool) -> bool:
    """Claim nodes for a task, or for two: all or none."""
    demand = slot.demands[kind]
    node = pick_node(slot.free, slot.used, demand, slot.rule, slot.last[0])
    if node == NOWHERE:
        return False
    take(slot.free, slot.used, slot.capacity, node, demand)
    if both:
        second = pick_node(slot.free, slot.used, slot.demands[other], slot.rule, node)
        if second == NOWHERE:
            take(slot.free, slot.used, slot.capacity, node, -demand)
            return False
        take(slot.free, slot.used, slot.capacity, second, slot.demands[other])
        node = second
    slot.last[0] = node
    return True


@compiled
def share_of(slot: Slot, job: int) -> float:
    """Return the dominant share of the cluster that a job has been given."""
    worker, server = slot.demands[slot.kind[job, WORKER]], slot.demands[slot.kind[job, SERVER]]
    most = 0.0
    for resource in range(len(slot.total)):
        given = slot.counts[job, 0] * worker[resource] + slot.counts[job, 1] * server[resource]
        most = max(most, given / slot.total[resource])
    return most


@compiled
def write_row(slot: Slot, job: int, places: int, row: F32) -> None:
    """See the module.

    Args:
        slot: that is being filled.
        job: its number in the slot.
        places: J.
        row: written, (`row_width`,).
    """
    width = slot.fixed.shape[1]
    row[:width] = slot.fixed[job]
    row[width] = share_of(slot, job) * places
    row[width + 1] = slot.counts[job, 0] / _TASKS
    row[width + 2] = slot.counts[job, 1] / _TASKS


@compiled
def write_mask(slot: Slot, low: int, high: int, mask: Mask) -> bool:
    """Write which actions there are for the jobs from `low` to `high`; False: none, but to stop.

    Args:
        slot: that is being filled.
        low: number of the job at the first place.
        high: behind the last.
        mask: written, (3 J + 1,).
    """
    counts, most, kind, first, closed = slot.counts, slot.most, slot.kind, slot.first, slot.closed
    mask[:] = False
    mask[-1] = True
    some = False
    for job in range(low, high):
        at = (job - low) * ACTIONS
        worker = counts[job, 0] < most[job, 0] and not closed[job, WORKER] and first[kind[job, WORKER]] != NOWHERE
        server = counts[job, 1] < most[job, 1] and not closed[job, SERVER] and first[kind[job, SERVER]] != NOWHERE
        mask[at + WORKER], mask[at + SERVER] = worker, server
        if worker and server and not closed[job, BOTH]:
            mask[at + BOTH] = first[kind[job, BOTH]] != NOWHERE or _fit_on_two(slot, job)
        some = some or worker or server
    return some


@compiled
def _fit_on_two(slot: Slot, job: int) -> bool:
    """Return whether a worker and a server, each of which fits somewhere, fit on two different nodes."""
    worker, server = slot.kind[job, WORKER], slot.kind[job, SERVER]
    return slot.first[worker] != slot.first[server] or (
        _next_fit(slot.free, slot.demands[worker], slot.first[worker] + 1) != NOWHERE
        or _next_fit(slot.free, slot.demands[server], slot.first[server] + 1) != NOWHERE
    )


@compiled
def _give_and_see(slot: Slot, low: int, high: int, job: int, action: int, rows: F32, mask: Mask) -> bool:
    """Call `give`, `write_row` and `write_mask` at once, since to hand over a slot takes longer than they do."""
    give(slot, job, action)
    write_row(slot, job, len(rows), rows[job - low])
    return write_mask(slot, low, high, mask)


class Filling:
    """The decisions of one slot, one after the other; places are J, as in the module.

    Args:
        room: of the slot, empty; it is not changed.
        models: types that the policy knows.
        places: J.
        minimum: see `slot_of`.

    Attributes:
        slot: as it is now.
        done: whether there is nothing left to decide; `observation` and `mask` are of no use then.
        observation: the rows, (places, `row_width`).
        mask: which actions there are, (3 * places + 1,).
    """

    def __init__(self, room: FreeResources, models: Sequence[str], places: int = 20, minimum: bool = True):
        self.slot = slot_of(room, models, minimum)
        self.done = False
        self.observation = np.zeros((places, row_width(len(models))), dtype=np.float32)
        self.mask = np.zeros(places * ACTIONS + 1, dtype=np.bool_)
        self._places = places
        self._low = -places
        self._next_batch()

    def act(self, action: int) -> None:
        """Take an action that the mask has.

        Raises:
            ValueError: the mask does not have it, or all is decided.
        """
        if self.done or not self.mask[action]:
            raise ValueError(f"action {action} cannot be taken now")
        if action == len(self.mask) - 1:
            self._next_batch()
            return
        job = self._low + action // ACTIONS
        if not _give_and_see(self.slot, self._low, self._high, job, action % ACTIONS, self.observation, self.mask):
            self._next_batch()

    @property
    def counts(self) -> Ints:
        """Workers and servers of each job of the snapshot, (jobs, 2): both, or none."""
        return whole(self.slot.counts)

    @property
    def _high(self) -> int:
        return min(self._low + self._places, len(self.slot.counts))

    def _next_batch(self) -> None:
        """Go on to the next jobs that something can be given to."""
        self._low += self._places
        while self._low < len(self.slot.counts) and not write_mask(self.slot, self._low, self._high, self.mask):
            self._low += self._places
        self.done = self._low >= len(self.slot.counts)
        self.observation[:] = 0.0
        for job in range(self._low, self._high):
            write_row(self.slot, job, self._places, self.observation[job - self._low])


def whole(counts: Ints) -> Ints:
    """Return the counts with 0 for jobs that lack a role, since these do not run."""
    found: Ints = np.where((counts > 0).all(axis=1, keepdims=True), counts, 0)
    return found
