"""A slot filled by a network that scores each job by itself: the compiled loop of the learnt policy.

The scores of a job depend on its own counts and on the slot's start only, so that a grant changes the scores of one job
and an inference costs one small forward pass, however many jobs there are.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dl2_scheduler.cluster.compiled import compiled, inlined
from dl2_scheduler.cluster.free_resources import NOWHERE, Amounts
from dl2_scheduler.policies.learnt.actions import (
    ACTIONS,
    BOTH,
    NEVER,
    NOTHING,
    SERVER,
    STOP,
    WORKER,
    Ints,
    Tasks,
    allowed,
    grant,
    next_waiting,
)
from dl2_scheduler.policies.learnt.scores import F32, Scores, score
from dl2_scheduler.policies.rules.node_filling import (
    Nodes,
    advance,
    claim,
    claim_all,
    claim_both,
    fit_on_two,
    nodes_of,
    would_fit,
)
from dl2_scheduler.policies.rules.ranking import Ranking, changed, first_of, ranking


class _Alike(NamedTuple):
    """Jobs by their kinds of tasks, since what has room for one has room for all that are like it.

    Attributes:
        number: of each job's likes, (jobs,).
        example: the first job of each number, (numbers,).
        shut: what there is no room for, (numbers, 3).
    """

    number: Ints
    example: Ints
    shut: NDArray[np.bool_]


class _Offers(NamedTuple):
    """The offers say which action is each job's best.

    Attributes:
        logits: present scores, (jobs, 3).
        action: with the highest score of those that are allowed, (jobs,).
        keys: the negative of that score; infinity where nothing is allowed, (jobs,).
        ranks: of the jobs by key: one question.
        hidden: scratch of the network's two layers, (2, hidden).
    """

    logits: F32
    action: Ints
    keys: Amounts
    ranks: Ranking
    hidden: F32


class Filled(NamedTuple):
    """A slot as it was filled.

    Attributes:
        actions: of each inference, job * 3 + action, or STOP.
        closed: the inference from which on a job's action has no room, or NEVER, (jobs, 3).
        counts: workers and servers of each job, (jobs, 2).
    """

    actions: Ints
    closed: Ints
    counts: Ints


NOT_FORCED = np.zeros(0, dtype=np.int64)


def filled(tasks: Tasks, scores: Scores, capacity: Amounts, rule: int, forced: Ints = NOT_FORCED) -> Filled:
    """Grant until the network stops or nothing fits.

    Args:
        tasks: what may be granted.
        scores: the network.
        capacity: of the nodes, (nodes, resources).
        rule: a `NodeRule`.
        forced: actions of a teacher, the last of them STOP, which are taken instead, those for which there is no room
            left out; none: the network decides, the highest score each time. A stop that the network may not make is
            not among the actions: it could not be learnt.
    """
    jobs = len(tasks.kind)
    actions = np.empty(int(tasks.most.sum()) + 1, dtype=np.int64)  # each task, and to stop
    closed, counts = np.full((jobs, ACTIONS), NEVER), np.zeros((jobs, 2), dtype=np.int64)
    slot = Filled(actions, closed, counts)
    length = _fill(tasks, scores, capacity, rule, forced, slot)
    return slot._replace(actions=actions[:length])


@compiled
def _fill(tasks: Tasks, scores: Scores, capacity: Amounts, rule: int, forced: Ints, slot: Filled) -> int:
    """Write the slot; return the number of inferences."""
    actions, closed, counts = slot
    nodes, alike = nodes_of(tasks.demands, capacity, rule), _alike(tasks.kind)
    offers = _offers(scores, tasks, counts, closed)
    # Of a literal number Numba knows the value, and compiles all that takes it for that value, too.
    last, recheck = int(np.int64(NOWHERE)), True  # last: the node that was taken
    inference = cursor = waiting = int(np.int64(0))  # cursor: in what is forced; waiting: see `next_waiting`
    while inference < len(actions):
        if recheck:
            recheck = _close(nodes, alike, offers, tasks, counts, closed, inference)
        best = _best(offers)
        if best == NOTHING:
            return inference
        waiting = next_waiting(tasks, counts, closed, inference, waiting)
        choice = STOP if scores.stop > -offers.keys[best // ACTIONS] else best
        if len(forced) > 0:
            choice, cursor = _next_forced(forced, cursor, tasks, counts, closed, inference)
        if choice == STOP and waiting < len(counts):
            if not _has_room(nodes, tasks, last, waiting):
                closed[waiting, BOTH] = inference
                _offer(offers, tasks, counts, closed, waiting)
                continue
            if len(forced) > 0:
                return inference
            choice = best
        actions[inference] = choice
        if choice == STOP:
            return inference + 1
        job, action = choice // ACTIONS, choice % ACTIONS
        placed = _place(nodes, tasks, counts, last, job, action)
        if placed == NOWHERE:  # there is room for both, but not where the rule puts them
            closed[job, action] = inference
        else:
            last, inference = placed, inference + 1
            grant(counts, tasks.least, job, action)
            _rescore(offers, scores, counts, job)
            recheck = advance(nodes) or recheck
        _offer(offers, tasks, counts, closed, job)
    return inference


@inlined
def _offers(scores: Scores, tasks: Tasks, counts: Ints, closed: Ints) -> _Offers:
    jobs, width = scores.base.shape
    logits, action = np.empty((jobs, ACTIONS), dtype=np.float32), np.empty(jobs, dtype=np.int64)
    hidden = np.empty((2, width), dtype=np.float32)
    offers = _Offers(logits, action, np.empty(jobs), ranking(1, jobs), hidden)
    for job in range(jobs):
        _rescore(offers, scores, counts, job)
        _offer(offers, tasks, counts, closed, job)
    return offers


@inlined
def _rescore(offers: _Offers, scores: Scores, counts: Ints, job: int) -> None:
    """Ask the network about a job again: its counts are others."""
    score(scores, job, counts[job, 0], counts[job, 1], offers.hidden[0], offers.hidden[1], offers.logits[job])


@inlined
def _alike(kind: Ints) -> _Alike:
    numbers, example = np.empty(len(kind), dtype=np.int64), np.empty(len(kind), dtype=np.int64)
    found = 0
    for job in range(len(kind)):
        number = 0
        while number < found and not _same(kind, example[number], job):
            number += 1
        if number == found:
            example[found] = job
            found += 1
        numbers[job] = number
    return _Alike(numbers, example[:found], np.zeros((found, ACTIONS), dtype=np.bool_))


@inlined
def _same(kind: Ints, job: int, other: int) -> bool:
    for action in range(ACTIONS):  # noqa: SIM110  # compiled, a generator would be slower
        if kind[job, action] != kind[other, action]:
            return False
    return True


@inlined
def _place(nodes: Nodes, tasks: Tasks, counts: Ints, last: int, job: int, action: int) -> int:
    """Claim nodes for what was granted; the node that was taken last, or NOWHERE."""
    if counts[job, 0] == 0 and _is_gang(tasks, job):
        workers, servers = tasks.least[job, 0], tasks.least[job, 1]
        return claim_all(nodes, tasks.kind[job, WORKER], workers, tasks.kind[job, SERVER], servers, last)
    if action == BOTH:
        return claim_both(nodes, tasks.kind[job, WORKER], tasks.kind[job, SERVER], last)
    return claim(nodes, tasks.kind[job, action], last)


@inlined
def _is_gang(tasks: Tasks, job: int) -> bool:
    """Return whether a job needs other tasks to run than one worker and one server."""
    return bool(tasks.least[job, 0] != 1 or tasks.least[job, 1] != 1)


@inlined
def _has_room(nodes: Nodes, tasks: Tasks, last: int, job: int) -> bool:
    """Return whether a gang that has nothing yet fits; of other jobs it is known without a trial."""
    if not _is_gang(tasks, job):
        return True
    workers, servers = tasks.least[job, 0], tasks.least[job, 1]
    return would_fit(nodes, tasks.kind[job, WORKER], workers, tasks.kind[job, SERVER], servers, last)


@inlined
def _close(
    nodes: Nodes, alike: _Alike, offers: _Offers, tasks: Tasks, counts: Ints, closed: Ints, inference: int
) -> bool:
    """Close what has no room any more; True: room for both roles of a job hangs on two nodes, so it may go any time."""
    hangs = shuts = False
    for number, example in enumerate(alike.example):
        for action in range(ACTIONS):
            if alike.shut[number, action] or nodes.first[tasks.kind[example, action]] != NOWHERE:
                continue
            if action == BOTH and fit_on_two(nodes, tasks.kind[example, WORKER], tasks.kind[example, SERVER]):
                hangs = True
            else:
                alike.shut[number, action] = shuts = True
    if shuts:
        for job, number in enumerate(alike.number):
            for action in range(ACTIONS):
                if alike.shut[number, action] and closed[job, action] == NEVER:
                    closed[job, action] = inference
            _offer(offers, tasks, counts, closed, job)
    return hangs


@inlined
def _offer(offers: _Offers, tasks: Tasks, counts: Ints, closed: Ints, job: int) -> None:
    """Find a job's best action anew: its scores, its counts or what is closed to it changed."""
    best = -np.inf
    for action in range(ACTIONS):
        logit = offers.logits[job, action]
        if logit > best and allowed(tasks, counts, closed, NEVER - 1, job, action):
            best = logit
            offers.action[job] = action
    offers.keys[job] = -best
    changed(offers.ranks, job)


@inlined
def _best(offers: _Offers) -> int:
    """Return the allowed action with the highest score, or NOTHING."""
    nothing_needed = offers.keys[:0]
    job = first_of(offers.ranks, 0, offers.keys, 1.0, offers.keys.reshape(-1, 1), nothing_needed)
    return NOTHING if job == NOWHERE else job * ACTIONS + offers.action[job]


@inlined
def _next_forced(
    forced: Ints, cursor: int, tasks: Tasks, counts: Ints, closed: Ints, inference: int
) -> tuple[int, int]:
    """Return the next forced action that is allowed, or STOP, and the cursor behind it."""
    while cursor < len(forced) and forced[cursor] != STOP:
        wanted = forced[cursor]
        cursor += 1
        if allowed(tasks, counts, closed, inference, wanted // ACTIONS, wanted % ACTIONS):
            return wanted, cursor
    return STOP, cursor
