"""The decision phase of Chic (section 4.2), compiled: from no task at all, one action at a time, until it ends.

Acting and learning share it. Where the paper is silent: what does not fit is masked; void ends the phase; a phase in
which nothing runs gives the oldest job a worker and a server.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dl2_scheduler.cluster.compiled import compiled
from dl2_scheduler.cluster.free_resources import SLACK

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Mask = NDArray[np.bool_]

ABSENT = -1
MOST_ACTIONS = 600
"""Of a phase: actions for jobs that are not there change nothing, and might go on for ever."""

_COUNTS = 10.0  # tasks, and waiting jobs, that count as 1 in a state


class Network(NamedTuple):
    """A `Network` has the weights of the layers, (inputs, outputs), and their biases."""

    weight1: Floats
    bias1: Floats
    weight2: Floats
    bias2: Floats
    weight3: Floats
    bias3: Floats
    weight4: Floats
    bias4: Floats


class PhaseRules(NamedTuple):
    """These rules say what a phase is.

    Attributes:
        visible: I, the jobs that the network sees.
        models: types that it knows.
        pairs: Chic-Pair: a worker and a server come together.
        until_no_gain: the phase ends where no job gets faster by one more task (condition 2); False: void ends it.
        void_ends: the network may choose void, which ends the phase; False: void is left to the two conditions.
        present_only: actions for jobs that are not there are masked; False: they cost, as in the paper.
    """

    visible: int
    models: int
    pairs: bool
    until_no_gain: bool
    void_ends: bool
    present_only: bool


class PhaseJobs(NamedTuple):
    """These are the jobs of a phase, in arrays by job.

    Attributes:
        model: number of the type, (jobs,).
        demands: of a worker and of a server, (jobs, 2, resources).
        rates: work a second by servers and workers from 0 on, (jobs, servers + 1, workers + 1).
        most: workers and servers that a job can have, (jobs, 2).
        scale: work that counts as 1 in a state, (jobs,).
    """

    model: Ints
    demands: Floats
    rates: Floats
    most: Ints
    scale: Floats


class PhaseSteps(NamedTuple):
    """These are the free decisions of some phases: those of which the network had the choice.

    Attributes:
        states: what it saw, (steps, inputs).
        actions: what was done, (steps,).
        allowed: what it could have done, (steps, actions).
    """

    states: Floats
    actions: Ints
    allowed: Mask


@compiled
def actions_of(rules: PhaseRules) -> int:
    """Return the number of actions; the last one is void."""
    return (rules.visible if rules.pairs else 2 * rules.visible) + 1


@compiled
def inputs_of(rules: PhaseRules) -> int:
    """Return the width of a state: the type, what is left, the tasks of each visible job, and the backlog."""
    return (rules.models + (2 if rules.pairs else 3)) * rules.visible + 1


@compiled
def write_state(
    rules: PhaseRules, jobs: PhaseJobs, shown: Ints, left: Floats, counts: Ints, backlog: int, state: Floats
) -> None:
    """Write what the network sees.

    Args:
        rules: of the phase.
        jobs: all.
        shown: the visible ones, by index, or ABSENT, (visible,).
        left: work that each job needs still, (jobs,).
        counts: workers and servers of the visible jobs, (visible, 2).
        backlog: jobs that wait and are not visible.
        state: written, (inputs,).
    """
    state[:] = 0.0
    width = rules.models + (2 if rules.pairs else 3)
    for place in range(rules.visible):
        job, at = shown[place], place * width
        if job != ABSENT:
            if jobs.model[job] >= 0:
                state[at + jobs.model[job]] = 1.0
            state[at + rules.models] = left[job] / jobs.scale[job]
            state[at + rules.models + 1] = counts[place, 0] / _COUNTS
            if not rules.pairs:
                state[at + rules.models + 2] = counts[place, 1] / _COUNTS
    state[-1] = backlog / _COUNTS


@compiled
def write_scores(network: Network, state: Floats, scores: Floats) -> None:
    """Write the network's score of each action, before softmax.

    Args:
        network: of three hidden layers.
        state: (inputs,).
        scores: written, (actions,).
    """
    first = np.maximum(state @ network.weight1 + network.bias1, 0.0)
    second = np.maximum(first @ network.weight2 + network.bias2, 0.0)
    third = np.maximum(second @ network.weight3 + network.bias3, 0.0)
    scores[:] = third @ network.weight4 + network.bias4


@compiled
def _fits(demand: Floats, free: Floats) -> bool:
    for resource in range(len(demand)):  # noqa: SIM110  # compiled, a generator would be slower
        if demand[resource] > free[resource] + SLACK:
            return False
    return True


@compiled
def write_allowed(rules: PhaseRules, jobs: PhaseJobs, shown: Ints, counts: Ints, free: Floats, allowed: Mask) -> bool:
    """Write which actions are allowed, and return whether a task of a visible job is.

    Args:
        rules: of the phase.
        jobs: all.
        shown: see `write_state`.
        counts: see `write_state`.
        free: what is left of each resource.
        allowed: written, (actions,).
    """
    some = False
    each = 1 if rules.pairs else 2
    for place in range(rules.visible):
        job = shown[place]
        for role in range(each):
            at = place * each + role
            if job == ABSENT:
                allowed[at] = not rules.present_only
                continue
            workers, servers = counts[place, 0], counts[place, 1]
            more_workers, more_servers = workers < jobs.most[job, 0], servers < jobs.most[job, 1]
            if rules.pairs:
                both = jobs.demands[job, 0] + jobs.demands[job, 1]
                allowed[at] = more_workers and more_servers and _fits(both, free)
            else:
                allowed[at] = (more_servers if role else more_workers) and _fits(jobs.demands[job, role], free)
            some = some or allowed[at]
    allowed[-1] = rules.void_ends
    return some


@compiled
def gains(rules: PhaseRules, jobs: PhaseJobs, shown: Ints, counts: Ints) -> bool:
    """Return whether a visible job lacks a role, or gets faster by one more task (or pair).

    Args:
        rules: of the phase.
        jobs: all.
        shown: see `write_state`.
        counts: see `write_state`.
    """
    for place in range(rules.visible):
        job = shown[place]
        if job == ABSENT:
            continue
        workers, servers = counts[place, 0], counts[place, 1]
        if workers == 0 or servers == 0:
            return True
        rate = jobs.rates[job, servers, workers]
        more_workers, more_servers = workers < jobs.most[job, 0], servers < jobs.most[job, 1]
        if rules.pairs:
            if more_workers and more_servers and jobs.rates[job, servers + 1, workers + 1] > rate:
                return True
            continue
        if more_workers and jobs.rates[job, servers, workers + 1] > rate:
            return True
        if more_servers and jobs.rates[job, servers + 1, workers] > rate:
            return True
    return False


@compiled
def best_of(scores: Floats, allowed: Mask) -> int:
    """Return the allowed action of the highest score."""
    best = -1
    for action in range(len(scores)):
        if allowed[action] and (best < 0 or scores[action] > scores[best]):
            best = action
    return best


@compiled
def drawn(scores: Floats, allowed: Mask, uniform: float) -> int:
    """Return an allowed action, each with its softmax probability.

    Args:
        scores: of the actions; of equal ones all are as likely.
        allowed: of them.
        uniform: a number drawn evenly from [0, 1).
    """
    top = -np.inf
    for action in range(len(scores)):
        if allowed[action]:
            top = max(top, scores[action])
    total = 0.0
    for action in range(len(scores)):
        if allowed[action]:
            total += np.exp(scores[action] - top)
    rest, last = uniform * total, -1
    for action in range(len(scores)):
        if allowed[action]:
            last = action
            rest -= np.exp(scores[action] - top)
            if rest < 0:
                break
    return last


@compiled
def give(rules: PhaseRules, jobs: PhaseJobs, shown: Ints, counts: Ints, free: Floats, action: int) -> None:
    """Give what an action says, if its job is there.

    Args:
        rules: of the phase.
        jobs: all.
        shown: see `write_state`.
        counts: see `write_state`; changed.
        free: what is left of each resource; changed.
        action: not void.
    """
    place, role = (action, 0) if rules.pairs else (action // 2, action % 2)
    job = shown[place]
    if job == ABSENT:
        return
    counts[place, role] += 1
    free -= jobs.demands[job, role]
    if rules.pairs:
        counts[place, 1] += 1
        free -= jobs.demands[job, 1]


@compiled
def ensure_one_runs(shown: Ints, counts: Ints) -> None:
    """Take back a phase in which no job has both roles, and give the oldest one of each."""
    for place in range(len(shown)):
        if counts[place, 0] and counts[place, 1]:
            return
    counts[:] = 0
    counts[0] = 1


@compiled
def decide(
    rules: PhaseRules, network: Network, jobs: PhaseJobs, shown: Ints, left: Floats, backlog: int, free: Floats
) -> Ints:
    """Return workers and servers of the visible jobs, (visible, 2), by the best action each time.

    Args:
        rules: of the phase.
        network: that decides.
        jobs: all.
        shown: see `write_state`; the first is there.
        left: see `write_state`.
        backlog: see `write_state`.
        free: what there is of each resource; changed.
    """
    counts = np.zeros((rules.visible, 2), dtype=np.int64)
    state, scores = np.empty(inputs_of(rules)), np.empty(actions_of(rules))
    allowed = np.empty(actions_of(rules), dtype=np.bool_)
    # else it might not end
    own = PhaseRules(rules.visible, rules.models, rules.pairs, rules.until_no_gain, rules.void_ends, True)
    while write_allowed(own, jobs, shown, counts, free, allowed):
        if rules.until_no_gain and not gains(rules, jobs, shown, counts):
            break
        write_state(rules, jobs, shown, left, counts, backlog, state)
        write_scores(network, state, scores)
        action = best_of(scores, allowed)
        if action == len(scores) - 1:
            break
        give(rules, jobs, shown, counts, free, action)
    ensure_one_runs(shown, counts)
    return counts
