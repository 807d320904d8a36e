"""The decision phase of Chic (section 4.2), compiled: from no task at all, one action at a time, until it ends.

Acting and learning share it. Where the paper is silent: what does not fit is masked; void ends the phase; a phase in
which nothing runs gives the oldest job a worker and a server.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dl2_scheduler.cluster.compiled import compiled
from dl2_scheduler.cluster.free_resources import SLACK
from dl2_scheduler.policies.chic.network import BEST, UNIFORM, Floats, Mask, Network, chosen, write_scores

Ints = NDArray[np.int64]

ABSENT = -1
MOST_ACTIONS = 600
"""Of a phase: actions for jobs that are not there change nothing, and might go on for ever."""

_COUNTS = 10.0  # tasks, and waiting jobs, that count as 1 in a state


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


class Fines(NamedTuple):
    """These are the costs of unreasonable actions (section 4.2), in units of the reward.

    Attributes:
        absent: p1, of a task for a job that is not there.
        half: p2, of a job's first task; it is given back when the job has both roles.
    """

    absent: float
    half: float


NO_FINES = Fines(0.0, 0.0)


class PhaseView(NamedTuple):
    """A `PhaseView` is what a phase begins with.

    Attributes:
        shown: the visible jobs, by index, or ABSENT, (visible,); the first is there.
        left: work that each job needs still, (jobs,).
        backlog: jobs that wait and are not visible.
        free: what there is of each resource; the phase changes it.
    """

    shown: Ints
    left: Floats
    backlog: int
    free: Floats


@compiled
def actions_of(rules: PhaseRules) -> int:
    """Return the number of actions; the last one is void."""
    return (rules.visible if rules.pairs else 2 * rules.visible) + 1


@compiled
def inputs_of(rules: PhaseRules) -> int:
    """Return the width of a state: the type, what is left, the tasks of each visible job, and the backlog."""
    return (rules.models + (2 if rules.pairs else 3)) * rules.visible + 1


@compiled
def write_state(rules: PhaseRules, jobs: PhaseJobs, view: PhaseView, counts: Ints, state: Floats) -> None:
    """Write what the network sees.

    Args:
        rules: of the phase.
        jobs: all.
        view: what the phase began with.
        counts: workers and servers of the visible jobs, (visible, 2).
        state: written, (inputs,).
    """
    state[:] = 0.0
    width = rules.models + (2 if rules.pairs else 3)
    for place in range(rules.visible):
        job, at = view.shown[place], place * width
        if job != ABSENT:
            if jobs.model[job] >= 0:
                state[at + jobs.model[job]] = 1.0
            state[at + rules.models] = view.left[job] / jobs.scale[job]
            state[at + rules.models + 1] = counts[place, 0] / _COUNTS
            if not rules.pairs:
                state[at + rules.models + 2] = counts[place, 1] / _COUNTS
    state[-1] = view.backlog / _COUNTS


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
        shown: see `PhaseView`.
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
        shown: see `PhaseView`.
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
def give(rules: PhaseRules, jobs: PhaseJobs, shown: Ints, counts: Ints, free: Floats, action: int) -> None:
    """Give what an action says, if its job is there.

    Args:
        rules: of the phase.
        jobs: all.
        shown: see `PhaseView`.
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
def ensure_one_runs(jobs: PhaseJobs, shown: Ints, counts: Ints) -> None:
    """Take back a phase in which no job would run, and give the oldest a worker and a server.

    Args:
        jobs: all.
        shown: see `PhaseView`.
        counts: see `write_state`; changed.
    """
    for place in range(len(counts)):
        if shown[place] != ABSENT and jobs.rates[shown[place], counts[place, 1], counts[place, 0]] > 0:
            return
    counts[:] = 0
    counts[0] = 1


@compiled
def _fine(rules: PhaseRules, fines: Fines, shown: Ints, counts: Ints, action: int) -> float:
    """Return r2 + r3 of an action, before it is carried out."""
    place, role = (action, 0) if rules.pairs else (action // 2, action % 2)
    if shown[place] == ABSENT:
        return -fines.absent
    if rules.pairs or counts[place, role]:
        return 0.0
    return fines.half if counts[place, 1 - role] else -fines.half


@compiled
def decide(
    rules: PhaseRules,
    network: Network,
    jobs: PhaseJobs,
    view: PhaseView,
    how: int,
    random: np.random.Generator,
    fines: Fines,
    steps: PhaseSteps,
    at: int,
) -> tuple[Ints, int, float]:
    """Go through a phase; return workers and servers of the visible jobs, the steps there are then, and the fines.

    Args:
        rules: of the phase.
        network: that decides.
        jobs: all.
        view: what the phase begins with.
        how: BEST, SAMPLED or UNIFORM.
        random: of the draws.
        fines: of actions.
        steps: free decisions are written there, while there is room.
        at: where the next one is written.
    """
    counts = np.zeros((rules.visible, 2), dtype=np.int64)
    state, scores = np.empty(inputs_of(rules)), np.zeros(actions_of(rules))
    allowed = np.empty(actions_of(rules), dtype=np.bool_)
    own = _present_only(rules) if how == BEST else rules  # the best action for a job that is not there stays the best
    fined = 0.0
    for _ in range(MOST_ACTIONS):
        if not write_allowed(own, jobs, view.shown, counts, view.free, allowed):
            break
        if rules.until_no_gain and not gains(rules, jobs, view.shown, counts):
            break
        write_state(rules, jobs, view, counts, state)
        if how != UNIFORM:
            write_scores(network, state, scores)
        action = chosen(scores, allowed, how, random)
        if at < len(steps.actions):
            steps.states[at], steps.actions[at], steps.allowed[at] = state, action, allowed
            at += 1
        if action == len(scores) - 1:
            break
        fined += _fine(rules, fines, view.shown, counts, action)
        give(rules, jobs, view.shown, counts, view.free, action)
    ensure_one_runs(jobs, view.shown, counts)
    return counts, at, fined


@compiled
def _present_only(rules: PhaseRules) -> PhaseRules:
    return PhaseRules(rules.visible, rules.models, rules.pairs, rules.until_no_gain, rules.void_ends, True)
