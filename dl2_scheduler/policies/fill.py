"""A slot filled by a network that scores each job by itself: the compiled loop of the learnt policy.

The scores of a job depend on its own counts and on the slot's start only, so that a grant changes the scores of one job
and an inference costs one small forward pass, however many jobs there are.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dl2_scheduler.cluster.compiled import compiled
from dl2_scheduler.cluster.room import NOWHERE, Amounts, fits_on, pick_node, take

F32 = NDArray[np.float32]
Ints = NDArray[np.int64]

WORKER, SERVER, BOTH = 0, 1, 2
ACTIONS = 3
STOP = -1
NOTHING = -2  # there is room for nothing
NEVER = np.iinfo(np.int64).max


class Tasks(NamedTuple):
    """What the jobs of a slot may get.

    Attributes:
        demands: of each kind of task, (kinds, resources).
        kind: of each job's worker, server, and both together, (jobs, 3).
        most: workers and servers of each job, (jobs, 2).
        runs: whether a job had tasks in the slot before.
    """

    demands: Amounts
    kind: Ints
    most: Ints
    runs: NDArray[np.bool_]


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
    """Write a job's three scores to `row`; `first` and `second` are scratch."""
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
    for action in range(ACTIONS):
        row[action] = scores.out_bias[action] + scores.priority[job, action]
    for unit in range(width):
        value = second[unit]
        if value > 0:
            for action in range(ACTIONS):
                row[action] += value * scores.out[unit, action]


@compiled
def grant(counts: Ints, job: int, action: int) -> None:
    """Count what an action gives."""
    counts[job, 0] += action != SERVER
    counts[job, 1] += action != WORKER


@compiled
def fill(
    tasks: Tasks,
    scores: Scores,
    capacity: Amounts,
    rule: int,
    draws: NDArray[np.float64],
    forced: Ints,
    actions: Ints,
    closed: Ints,
    counts: Ints,
) -> int:
    """Grant until the network stops or nothing fits; the number of inferences.

    Args:
        tasks: what may be granted.
        scores: the network.
        capacity: of the nodes, (nodes, resources).
        rule: a `NodeRule`.
        draws: uniform random numbers by which actions are drawn; none: the highest score is taken.
        forced: actions of a teacher, the last of them STOP, which are taken instead, those for which there is no room
            left out; none: the network decides.
        actions: written: of each inference, job * 3 + action, or STOP.
        closed: written: the inference from which on a job's action has no room, (jobs, 3).
        counts: written: workers and servers of each job, (jobs, 2).
    """
    jobs, width = scores.base.shape
    kinds = len(tasks.demands)
    free = capacity.copy()
    used = np.zeros(len(free))
    last = NOWHERE
    logits = np.empty((jobs, ACTIONS), dtype=np.float32)
    first, second = np.empty(width, dtype=np.float32), np.empty(width, dtype=np.float32)
    somewhere = np.empty(kinds, dtype=np.int64)  # the first node where a kind of task fits
    for kind in range(kinds):
        somewhere[kind] = _next_fit(free, tasks.demands[kind], 0)
    counts[:] = 0
    closed[:] = NEVER
    for job in range(jobs):
        score(scores, job, 0, 0, first, second, logits[job])
    inference = 0
    cursor = 0  # in what is forced
    recheck = True
    while inference < len(actions):
        if recheck:
            recheck = _close(free, tasks, somewhere, inference, closed)
        choice = _choose(logits, tasks, counts, closed, scores.stop, draws, inference)
        if len(forced) > 0 and choice != NOTHING:
            choice = STOP
            while cursor < len(forced) and choice == STOP:
                wanted = forced[cursor]
                if wanted == STOP:
                    break
                if allowed(tasks, counts, closed, inference, wanted // ACTIONS, wanted % ACTIONS):
                    choice = wanted
                cursor += 1
        if choice == NOTHING:
            return inference
        actions[inference] = choice
        if choice == STOP:
            return inference + 1
        job, action = choice // ACTIONS, choice % ACTIONS
        placed = _place(free, used, capacity, tasks, rule, last, job, action)
        if placed == NOWHERE:  # there is room for both, but not where the rule puts them
            closed[job, action] = inference
            continue
        last = placed
        inference += 1
        grant(counts, job, action)
        score(scores, job, counts[job, 0], counts[job, 1], first, second, logits[job])
        for kind in range(kinds):
            if somewhere[kind] != NOWHERE:
                somewhere[kind] = _next_fit(free, tasks.demands[kind], somewhere[kind])
                recheck = recheck or somewhere[kind] == NOWHERE
    return inference


@compiled
def _next_fit(free: Amounts, demand: Amounts, start: int) -> int:
    """The first node from `start` on where a task fits; those before do not come back while a slot is filled."""
    for node in range(start, len(free)):
        if fits_on(free, node, demand):
            return node
    return NOWHERE


@compiled
def _close(free: Amounts, tasks: Tasks, somewhere: Ints, inference: int, closed: Ints) -> bool:
    """Close what has no room any more; True: room for both roles of a job hangs on two nodes, so it may go any time."""
    hangs = False
    for job in range(len(closed)):
        worker, server = tasks.kind[job, WORKER], tasks.kind[job, SERVER]
        for action in range(ACTIONS):
            if closed[job, action] != NEVER:
                continue
            open_now = somewhere[tasks.kind[job, action]] != NOWHERE
            if action == BOTH and not open_now and somewhere[worker] != NOWHERE and somewhere[server] != NOWHERE:
                open_now = somewhere[worker] != somewhere[server] or (
                    _next_fit(free, tasks.demands[worker], somewhere[worker] + 1) != NOWHERE
                    or _next_fit(free, tasks.demands[server], somewhere[server] + 1) != NOWHERE
                )
                hangs = hangs or open_now
            if not open_now:
                closed[job, action] = inference
    return hangs


@compiled
def allowed(tasks: Tasks, counts: Ints, closed: Ints, inference: int, job: int, action: int) -> bool:
    """Whether a job may be granted this: its first grant is both roles, and it has maxima."""
    if closed[job, action] <= inference:
        return False
    if counts[job, 0] == 0:
        return action == BOTH
    return (action == SERVER or counts[job, 0] < tasks.most[job, 0]) and (
        action == WORKER or counts[job, 1] < tasks.most[job, 1]
    )


@compiled
def may_stop(tasks: Tasks, counts: Ints, closed: Ints, inference: int) -> bool:
    """Not while there is room for a job that runs and has been given nothing yet."""
    for job in range(len(counts)):
        if tasks.runs[job] and counts[job, 0] == 0 and closed[job, BOTH] > inference:
            return False
    return True


@compiled
def _choose(
    logits: F32, tasks: Tasks, counts: Ints, closed: Ints, stop: float, draws: NDArray[np.float64], inference: int
) -> int:
    """The action with the highest score, or one drawn by the softmax of those that are allowed."""
    best, best_logit = NOTHING, -np.inf
    for job in range(len(counts)):
        for action in range(ACTIONS):
            if logits[job, action] > best_logit and allowed(tasks, counts, closed, inference, job, action):
                best, best_logit = job * ACTIONS + action, logits[job, action]
    if best == NOTHING:
        return NOTHING
    stops = may_stop(tasks, counts, closed, inference)
    if len(draws) == 0:
        return STOP if stops and stop > best_logit else best
    top = max(best_logit, stop)
    total = np.exp(stop - top) if stops else 0.0
    for job in range(len(counts)):
        for action in range(ACTIONS):
            if allowed(tasks, counts, closed, inference, job, action):
                total += np.exp(logits[job, action] - top)
    left = draws[inference] * total - (np.exp(stop - top) if stops else 0.0)
    if left < 0:
        return STOP
    for job in range(len(counts)):
        for action in range(ACTIONS):
            if allowed(tasks, counts, closed, inference, job, action):
                left -= np.exp(logits[job, action] - top)
                if left < 0:
                    return job * ACTIONS + action
    return best


@compiled
def _place(
    free: Amounts, used: Amounts, capacity: Amounts, tasks: Tasks, rule: int, last: int, job: int, action: int
) -> int:
    """Claim nodes for what was granted; the node that was taken last, or NOWHERE and nothing is claimed."""
    if action != BOTH:
        demand = tasks.demands[tasks.kind[job, action]]
        node = pick_node(free, used, demand, rule, last)
        if node != NOWHERE:
            take(free, used, capacity, node, demand)
        return node
    for order in range(2):  # where the one takes the last place of the other, the other way round
        one = tasks.demands[tasks.kind[job, order]]
        other = tasks.demands[tasks.kind[job, 1 - order]]
        node = pick_node(free, used, one, rule, last)
        if node == NOWHERE:
            return NOWHERE
        take(free, used, capacity, node, one)
        second = pick_node(free, used, other, rule, node)
        if second != NOWHERE:
            take(free, used, capacity, second, other)
            return second
        take(free, used, capacity, node, -one)
    return NOWHERE


class Filled(NamedTuple):
    """A slot as it was filled; see `fill`."""

    actions: Ints
    closed: Ints
    counts: Ints


NO_DRAWS, NOT_FORCED = np.zeros(0), np.zeros(0, dtype=np.int64)


def filled(
    tasks: Tasks,
    scores: Scores,
    capacity: Amounts,
    rule: int,
    draws: NDArray[np.float64] = NO_DRAWS,
    forced: Ints = NOT_FORCED,
) -> Filled:
    """`fill`, with memory for what it writes."""
    jobs = len(tasks.kind)
    actions = np.empty(most_inferences(tasks), dtype=np.int64)
    closed, counts = np.empty((jobs, ACTIONS), dtype=np.int64), np.empty((jobs, 2), dtype=np.int64)
    length = fill(tasks, scores, capacity, rule, draws, forced, actions, closed, counts)
    return Filled(actions[:length], closed, counts)


def most_inferences(tasks: Tasks) -> int:
    """Of a slot: one for each task, and one that stops."""
    return int(tasks.most.sum()) + 1
