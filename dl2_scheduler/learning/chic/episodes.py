"""Compiled episodes of Chic: jobs of one sequence in time that events divide, one phase at each event (section 4.2)."""

from typing import NamedTuple

import numpy as np

from dl2_scheduler.cluster.compiled import compiled
from dl2_scheduler.policies.chic.phase import (
    ABSENT,
    MOST_ACTIONS,
    Floats,
    Ints,
    Network,
    PhaseJobs,
    PhaseRules,
    PhaseSteps,
    actions_of,
    best_of,
    drawn,
    ensure_one_runs,
    gains,
    give,
    inputs_of,
    write_allowed,
    write_scores,
    write_state,
)

BEST, SAMPLED, UNIFORM = 0, 1, 2
"""How actions are chosen: the best one, by the network's probabilities, or all as likely."""

_DONE = 1e-9  # part of its work that a job may lack by rounding when it ends


class Sequence(NamedTuple):
    """A `Sequence` is what arrives in an episode, by arrival.

    Attributes:
        arrival: of each job, in seconds, (jobs,).
        work: of each job, (jobs,).
        jobs: what a phase knows of them.
        capacity: of the pool, (resources,).
    """

    arrival: Floats
    work: Floats
    jobs: PhaseJobs
    capacity: Floats


class Fines(NamedTuple):
    """These are the costs of unreasonable actions (section 4.2), in units of the reward.

    Attributes:
        absent: p1, of a task for a job that is not there.
        half: p2, of a job's first task; it is given back when the job has both roles.
    """

    absent: float
    half: float


class ChicEpisode(NamedTuple):
    """An `ChicEpisode` is what became of a sequence.

    Attributes:
        times: seconds from each job's arrival to its end, (jobs,).
        fines: the sum of r2 and r3.
        steps: the free decisions; empty where they were not asked for.
    """

    times: Floats
    fines: float
    steps: PhaseSteps


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
def _phase(
    rules: PhaseRules,
    fines: Fines,
    network: Network,
    sequence: Sequence,
    shown: Ints,
    left: Floats,
    backlog: int,
    how: int,
    random: np.random.Generator,
    counts: Ints,
    steps: PhaseSteps,
    at: int,
) -> tuple[int, float]:
    """Decide for the visible jobs; return where the next step is written, and the fines.

    Args:
        rules: of the phase.
        fines: of actions.
        network: that decides.
        sequence: of the episode.
        shown: the visible jobs.
        left: of each job.
        backlog: jobs that wait.
        how: BEST, SAMPLED or UNIFORM.
        random: of the draws.
        counts: written, (visible, 2).
        steps: free decisions are written there, while there is room.
        at: where the next one is written.
    """
    jobs, free = sequence.jobs, sequence.capacity.copy()
    counts[:] = 0
    total = 0.0
    scores, void = np.zeros(actions_of(rules)), actions_of(rules) - 1
    state, allowed = np.empty(inputs_of(rules)), np.empty(actions_of(rules), dtype=np.bool_)
    for _ in range(MOST_ACTIONS):
        if not write_allowed(rules, jobs, shown, counts, free, allowed):
            break
        if rules.until_no_gain and not gains(rules, jobs, shown, counts):
            break
        write_state(rules, jobs, shown, left, counts, backlog, state)
        if how != UNIFORM:
            write_scores(network, state, scores)
        action = best_of(scores, allowed) if how == BEST else drawn(scores, allowed, random.random())
        if at < len(steps.actions):
            steps.states[at], steps.actions[at], steps.allowed[at] = state, action, allowed
            at += 1
        if action == void:
            break
        total += _fine(rules, fines, shown, counts, action)
        give(rules, jobs, shown, counts, free, action)
    ensure_one_runs(shown, counts)
    return at, total


@compiled
def _advance(
    sequence: Sequence, shown: Ints, counts: Ints, left: Floats, finish: Floats, now: float, arrives: float
) -> float:
    """Let the visible jobs train until the first one ends or another arrives; return when that is.

    Args:
        sequence: of the episode.
        shown: the visible jobs.
        counts: of them.
        left: changed.
        finish: written where jobs end.
        now: in seconds.
        arrives: when the next job does, if that ends the phase; else infinity.
    """
    soonest = arrives
    rates = np.zeros(len(shown))
    for place in range(len(shown)):
        job = shown[place]
        if job != ABSENT:
            rates[place] = sequence.jobs.rates[job, counts[place, 1], counts[place, 0]]
            if rates[place] > 0:
                soonest = min(soonest, now + left[job] / rates[place])
    for place in range(len(shown)):
        job = shown[place]
        if job != ABSENT and rates[place] > 0:
            left[job] -= rates[place] * (soonest - now)
            if left[job] <= _DONE * sequence.work[job]:
                left[job] = 0.0
                finish[job] = soonest
    return soonest


@compiled
def play(
    rules: PhaseRules,
    fines: Fines,
    network: Network,
    sequence: Sequence,
    how: int,
    random: np.random.Generator,
    most_steps: int,
) -> ChicEpisode:
    """Play an episode until all its jobs have ended.

    Args:
        rules: of phases.
        fines: of actions.
        network: that decides.
        sequence: of jobs.
        how: BEST, SAMPLED or UNIFORM.
        random: of the draws.
        most_steps: that are kept; 0: none.
    """
    jobs = len(sequence.work)
    steps = PhaseSteps(
        np.empty((most_steps, inputs_of(rules))),
        np.empty(most_steps, dtype=np.int64),
        np.empty((most_steps, actions_of(rules)), dtype=np.bool_),
    )
    left, finish = sequence.work.copy(), np.full(jobs, np.nan)
    shown, counts = np.empty(rules.visible, dtype=np.int64), np.empty((rules.visible, 2), dtype=np.int64)
    now, at, total, ended = sequence.arrival[0], 0, 0.0, 0
    while ended < jobs:
        shown[:] = ABSENT
        here, come = 0, 0
        for job in range(jobs):
            if sequence.arrival[job] <= now:
                come += 1
                if np.isnan(finish[job]):
                    if here < rules.visible:
                        shown[here] = job
                    here += 1
        arrives = sequence.arrival[come] if come < jobs else np.inf
        if not here:
            now = arrives
            continue
        at, fined = _phase(
            rules, fines, network, sequence, shown, left, max(0, here - rules.visible), how, random, counts, steps, at
        )
        total += fined
        now = _advance(sequence, shown, counts, left, finish, now, arrives if here < rules.visible else np.inf)
        ended = jobs - int(np.isnan(finish).sum())
    return ChicEpisode(
        finish - sequence.arrival, total, PhaseSteps(steps.states[:at], steps.actions[:at], steps.allowed[:at])
    )
