"""Compiled episodes of Chic: jobs of one sequence in time that events divide, one phase at each event (section 4.2)."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from dl2_scheduler.cluster.compiled import compiled
from dl2_scheduler.cluster.free_resources import vectors
from dl2_scheduler.cluster.jobs import Job, Node, resource_names
from dl2_scheduler.cluster.speeds import Speeds
from dl2_scheduler.policies.chic.network import Floats, Network
from dl2_scheduler.policies.chic.phase import (
    ABSENT,
    Fines,
    Ints,
    PhaseJobs,
    PhaseRules,
    PhaseSteps,
    PhaseView,
    actions_of,
    decide,
    inputs_of,
)

_DONE = 1e-9  # part of its work that a job may lack by rounding when it ends


class JobSequence(NamedTuple):
    """A `JobSequence` is what arrives in an episode, by arrival.

    Attributes:
        arrival: of each job, in seconds, (jobs,).
        work: epochs of each job, (jobs,).
        jobs: what a phase knows of them.
        capacity: of the pool, (resources,).
    """

    arrival: Floats
    work: Floats
    jobs: PhaseJobs
    capacity: Floats


def sequence_of(
    jobs: Sequence[Job], nodes: Sequence[Node], speeds: Speeds, models: Sequence[str], scale: float
) -> JobSequence:
    """Return the arrays of some jobs, which are in the order of arrival.

    Args:
        jobs: any.
        nodes: taken as one pool.
        speeds: of the models, in samples a second.
        models: types that the network knows.
        scale: epochs that count as 1 in a state.
    """
    names = resource_names(nodes)
    demands = np.stack([vectors([job.worker, job.server], names) for job in jobs])
    rates = np.stack([np.maximum(speeds.grid(job.model), 0.0) / job.samples_per_epoch for job in jobs])
    return JobSequence(
        np.array([job.arrival for job in jobs]),
        np.array([job.epochs for job in jobs]),
        PhaseJobs(
            np.array([models.index(job.model) for job in jobs]),
            demands,
            rates,
            np.array([(job.max_workers, job.max_servers) for job in jobs]),
            np.full(len(jobs), scale),
        ),
        vectors([node.capacity for node in nodes], names).sum(axis=0),
    )


class ChicEpisode(NamedTuple):
    """A `ChicEpisode` is what became of a sequence.

    Attributes:
        times: seconds from each job's arrival to its end, (jobs,); infinity: it does not run with one of each role.
        fines: the sum of r2 and r3.
        steps: the free decisions; empty where they were not asked for.
    """

    times: Floats
    fines: float
    steps: PhaseSteps


@compiled
def look(sequence: JobSequence, left: Floats, now: float, shown: Ints) -> tuple[int, float]:
    """Write which jobs are visible; return how many are there, and when the next one arrives.

    Args:
        sequence: of the episode.
        left: work that each job needs still; 0: it has ended.
        now: in seconds.
        shown: written, (visible,).
    """
    shown[:] = ABSENT
    here = 0
    for job in range(len(left)):
        if sequence.arrival[job] > now:
            return here, sequence.arrival[job]
        if left[job] > 0:
            if here < len(shown):
                shown[here] = job
            here += 1
    return here, np.inf


@compiled
def train(sequence: JobSequence, shown: Ints, counts: Ints, left: Floats, now: float, until: float) -> float:
    """Let the visible jobs train until the first one ends, or until a time; return when that is.

    Args:
        sequence: of the episode.
        shown: the visible jobs.
        counts: workers and servers of them, (visible, 2).
        left: changed; 0 where a job ends.
        now: in seconds.
        until: in seconds; infinity: no arrival ends the phase.
    """
    soonest = until
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
    return soonest


@compiled
def play(
    rules: PhaseRules,
    fines: Fines,
    network: Network,
    sequence: JobSequence,
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
    steps = PhaseSteps(
        np.empty((most_steps, inputs_of(rules))),
        np.empty(most_steps, dtype=np.int64),
        np.empty((most_steps, actions_of(rules)), dtype=np.bool_),
    )
    left, finish = sequence.work.copy(), np.full(len(sequence.work), np.inf)
    shown = np.empty(rules.visible, dtype=np.int64)
    now, at, fined = sequence.arrival[0], 0, 0.0
    while left.max() > 0 and now < np.inf:
        here, arrives = look(sequence, left, now, shown)
        if not here:
            now = arrives
            continue
        view = PhaseView(shown, left, max(0, here - rules.visible), sequence.capacity.copy())
        counts, at, fine = decide(rules, network, sequence.jobs, view, how, random, fines, steps, at)
        fined += fine
        now = train(sequence, shown, counts, left, now, arrives if here < rules.visible else np.inf)
        for place in range(len(shown)):
            if shown[place] != ABSENT and left[shown[place]] == 0:
                finish[shown[place]] = now
    kept = PhaseSteps(steps.states[:at].copy(), steps.actions[:at].copy(), steps.allowed[:at].copy())
    return ChicEpisode(finish - sequence.arrival, fined, kept)
