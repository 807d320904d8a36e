"""This module turns what a planner decides into decisions of Chic: job by job, a worker and a server in turn."""

from collections.abc import Iterator, Sequence

import numpy as np

from dl2_scheduler.cluster.free_resources import FreeResources
from dl2_scheduler.cluster.interfaces import AllocationPolicy
from dl2_scheduler.cluster.jobs import Job, Node
from dl2_scheduler.cluster.snapshot import JobState, Snapshot
from dl2_scheduler.learning.chic.episodes import JobSequence, look, train
from dl2_scheduler.policies.chic.network import Floats, Mask
from dl2_scheduler.policies.chic.phase import (
    ABSENT,
    Ints,
    PhaseRules,
    PhaseSteps,
    PhaseView,
    actions_of,
    ensure_one_runs,
    give,
    inputs_of,
    write_allowed,
    write_state,
)

_Step = tuple[Floats, int, Mask]


def lessons_of(
    planner: AllocationPolicy,
    jobs: Sequence[Sequence[Job]],
    sequences: Sequence[JobSequence],
    nodes: tuple[Node, ...],
    rules: PhaseRules,
) -> PhaseSteps:
    """Return the decisions by which the network would do as a planner does, that sees the visible jobs alone.

    Args:
        planner: decides.
        jobs: of each sequence.
        sequences: the same, in arrays.
        nodes: machines.
        rules: of phases.
    """
    steps = [
        step
        for some, sequence in zip(jobs, sequences, strict=True)
        for view, counts in _phases(planner, some, sequence, nodes, rules)
        for step in _steps(rules, sequence, view, counts)
    ]
    states, actions, allowed = zip(*steps, strict=True)
    return PhaseSteps(np.array(states), np.array(actions), np.array(allowed))


def _phases(
    planner: AllocationPolicy, jobs: Sequence[Job], sequence: JobSequence, nodes: tuple[Node, ...], rules: PhaseRules
) -> Iterator[tuple[PhaseView, Ints]]:
    """Play a sequence by the planner, and yield what each phase began with and what it decided."""
    left, shown, now = sequence.work.copy(), np.empty(rules.visible, dtype=np.int64), float(sequence.arrival[0])
    while left.max() > 0:
        here, arrives = look(sequence, left, now, shown)
        if not here:
            now = arrives
            continue
        visible = shown[shown != ABSENT].tolist()
        states = tuple(JobState(jobs[job], float(sequence.work[job] - left[job])) for job in visible)
        snapshot = Snapshot(0, 1.0, nodes, states)
        found = planner.allocate(snapshot, FreeResources(snapshot))
        counts = np.zeros((rules.visible, 2), dtype=np.int64)
        for place, job in enumerate(visible):
            grant = found.of(jobs[job].id)
            counts[place] = grant.workers, grant.servers
        ensure_one_runs(sequence.jobs, shown, counts)
        yield PhaseView(shown.copy(), left.copy(), max(0, here - rules.visible), sequence.capacity.copy()), counts
        now = train(sequence, shown, counts, left, now, arrives if here < rules.visible else np.inf)


def _steps(rules: PhaseRules, sequence: JobSequence, view: PhaseView, wanted: Ints) -> Iterator[_Step]:
    """Yield the state, action and mask of each step that leads to these counts."""
    counts, allowed = np.zeros_like(wanted), np.empty(actions_of(rules), dtype=np.bool_)
    for action in [*_actions(rules, wanted), actions_of(rules) - 1]:
        if not write_allowed(rules, sequence.jobs, view.shown, counts, view.free, allowed):
            return
        if not allowed[action]:
            return  # void where the conditions end the phase: no decision
        state = np.empty(inputs_of(rules))
        write_state(rules, sequence.jobs, view, counts, state)
        yield state, action, allowed.copy()
        if action < len(allowed) - 1:
            give(rules, sequence.jobs, view.shown, counts, view.free, action)


def _actions(rules: PhaseRules, wanted: Ints) -> Iterator[int]:
    """Yield the actions but void: job by job, workers and servers in turn."""
    for place, (workers, servers) in enumerate(wanted.tolist()):
        if rules.pairs:
            yield from [place] * min(workers, servers)
            continue
        for number in range(max(workers, servers)):
            if number < workers:
                yield 2 * place
            if number < servers:
                yield 2 * place + 1
