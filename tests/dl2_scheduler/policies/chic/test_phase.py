"""The decision phase of Chic, by hand: states, masks, ends, void, and a phase in which nothing would run."""

import itertools

import numpy as np
import pytest

from dl2_scheduler.policies.chic.network import BEST, SAMPLED, UNIFORM, Network, drawn, write_scores
from dl2_scheduler.policies.chic.phase import (
    ABSENT,
    Fines,
    PhaseJobs,
    PhaseRules,
    PhaseSteps,
    PhaseView,
    actions_of,
    decide,
    ensure_one_runs,
    gains,
    inputs_of,
    write_allowed,
    write_state,
)

RULES = PhaseRules(visible=2, models=2, pairs=False, until_no_gain=False, void_ends=True, present_only=True)
FINES = Fines(5.0, 1.0)
PAIRS = RULES._replace(pairs=True)
JOBS = PhaseJobs(
    model=np.array([1, 0]),
    demands=np.array([[[1.0, 1.0], [0.0, 2.0]], [[1.0, 1.0], [0.0, 1.0]]]),  # gpu, cpu of a worker; of a server
    rates=np.tile(np.minimum.outer([0, 1, 2, 2.0], [0, 1, 2, 2.0]), (2, 1, 1)),
    most=np.array([[3, 3], [3, 3]]),
    scale=np.array([200.0, 200.0]),
)


def _constant(rules: PhaseRules, scores: list[float]) -> Network:
    """A network that scores always so."""
    sizes = [inputs_of(rules), 3, 3, 3]
    hidden = [part for a, b in itertools.pairwise(sizes) for part in (np.zeros((a, b)), np.zeros(b))]
    return Network(*hidden, np.zeros((3, len(scores))), np.array(scores, dtype=float))


def _view(shown: list[int], free: list[float], backlog: int = 0) -> PhaseView:
    return PhaseView(np.array(shown), np.array([100.0, 300.0]), backlog, np.array(free, dtype=float))


def _decide(rules: PhaseRules, scores: list[float], view: PhaseView, how: int = BEST, fines: Fines = FINES):
    width, actions = inputs_of(rules), actions_of(rules)
    steps = PhaseSteps(np.zeros((99, width)), np.zeros(99, dtype=np.int64), np.zeros((99, actions), dtype=bool))
    random = np.random.default_rng(1)
    counts, at, fined = decide(rules, _constant(rules, scores), JOBS, view, how, random, fines, steps, 0)
    return counts.tolist(), steps.actions[:at].tolist(), fined


def test_the_state_has_each_visible_job_and_the_backlog():
    state = np.full(inputs_of(RULES), 9.0)
    write_state(RULES, JOBS, _view([1, ABSENT], [4, 9], 3), np.array([[2, 1], [0, 0]]), state)
    assert state.tolist() == pytest.approx([1, 0, 1.5, 0.2, 0.1, 0, 0, 0, 0, 0, 0.3])
    state = np.full(inputs_of(PAIRS), 9.0)
    write_state(PAIRS, JOBS, _view([0, 1], [4, 9]), np.array([[2, 2], [1, 1]]), state)
    assert state.tolist() == pytest.approx([0, 1, 0.5, 0.2, 1, 0, 1.5, 0.1, 0])


def test_the_sizes_are_the_papers():
    for visible in (2, 3, 4):
        rules = PhaseRules(visible, 3, False, True, False, False)
        assert (inputs_of(rules), actions_of(rules)) == (6 * visible + 1, 2 * visible + 1)
        pairs = rules._replace(pairs=True)
        assert (inputs_of(pairs), actions_of(pairs)) == (5 * visible + 1, visible + 1)


def test_what_does_not_fit_is_masked_and_a_job_that_is_not_there_only_where_it_shall_be():
    allowed = np.empty(5, dtype=bool)
    none = np.zeros((2, 2), dtype=np.int64)
    assert write_allowed(RULES, JOBS, np.array([0, ABSENT]), none, np.array([1.0, 1.0]), allowed)
    assert allowed.tolist() == [True, False, False, False, True]
    costs = RULES._replace(present_only=False, void_ends=False)
    assert not write_allowed(costs, JOBS, np.array([0, ABSENT]), none, np.array([0.0, 0.0]), allowed)
    assert allowed.tolist() == [False, False, True, True, False]
    assert write_allowed(RULES, JOBS, np.array([0, 1]), np.array([[3, 0], [0, 3]]), np.array([9.0, 9.0]), allowed)
    assert allowed.tolist() == [False, True, True, False, True]


def test_a_pair_fits_whole_or_not_at_all():
    allowed = np.empty(3, dtype=bool)
    none = np.zeros((2, 2), dtype=np.int64)
    assert write_allowed(PAIRS, JOBS, np.array([0, 1]), none, np.array([1.0, 2.0]), allowed)
    assert allowed.tolist() == [False, True, True]


def test_a_phase_ends_where_nothing_fits_any_more():
    # the best is the first job's server, its worker, the second's server; void is the worst
    counts, actions, _ = _decide(RULES, [3, 4, 1, 2, 0], _view([0, 1], [2, 9]))
    assert actions == [1, 1, 1, 0, 0, 3]
    assert counts == [[2, 3], [0, 1]]


def test_a_phase_ends_where_no_job_gets_faster_by_one_more_task():
    rules = RULES._replace(until_no_gain=True)
    assert gains(rules, JOBS, np.array([0, 1]), np.array([[2, 2], [1, 0]]))  # it lacks a role
    assert gains(rules._replace(pairs=True), JOBS, np.array([0, 1]), np.array([[2, 2], [1, 1]]))  # a pair is a gain
    assert not gains(rules, JOBS, np.array([0, 1]), np.array([[2, 2], [1, 1]]))  # one task alone is none: min(w, s)
    assert not gains(rules, JOBS, np.array([0, ABSENT]), np.array([[2, 2], [0, 0]]))
    counts, actions, _ = _decide(rules, [3, 2, 1, 0, 9], _view([0, ABSENT], [9, 99]))
    assert actions == [4]  # void, where it may be chosen
    counts, actions, _ = _decide(rules._replace(void_ends=False), [3, 2, 1, 0, 9], _view([0, ABSENT], [9, 99]))
    assert actions == [0, 0, 0, 1, 1]
    assert counts == [[3, 2], [0, 0]]


def test_void_ends_a_phase_and_then_the_oldest_job_runs_all_the_same():
    counts, actions, _ = _decide(RULES, [0, 0, 0, 0, 1], _view([0, 1], [9, 9]))
    assert actions == [4]
    assert counts == [[1, 1], [0, 0]]
    counts, _, _ = _decide(RULES, [9, -9, -9, -9, 0], _view([0, 1], [9, 9]))  # three workers and no server
    assert counts == [[1, 1], [0, 0]]


def test_a_phase_in_which_no_job_gets_anywhere_gives_the_oldest_one_of_each():
    jobs = JOBS._replace(rates=JOBS.rates.copy())
    jobs.rates[0, 1, 2] = 0.0  # with two workers and a server it does not run
    counts = np.array([[2, 1], [1, 0]])
    ensure_one_runs(jobs, np.array([0, 1]), counts)
    assert counts.tolist() == [[1, 1], [0, 0]]


def test_fines_are_for_jobs_that_are_not_there_and_for_halves():
    rules = RULES._replace(present_only=False, void_ends=False)
    view = _view([0, ABSENT], [1, 3])
    counts, actions, fined = _decide(rules, [0, 0, 0, 0, 0], view, UNIFORM)
    assert counts == [[1, 1], [0, 0]]
    missing = sum(action in (2, 3) for action in actions)
    assert missing > 0
    assert fined == -5.0 * missing  # the half of the present job was given back
    _, _, fined = _decide(RULES, [1, 0, 0, 0, 0.5], _view([0, 1], [1, 1]))
    assert fined == -1.0  # a worker and then void: half a job


def test_actions_are_drawn_by_the_softmax_of_what_is_allowed():
    scores, allowed = np.log([1.0, 5.0, 3.0]), np.array([True, False, True])
    found = [drawn(scores, allowed, uniform) for uniform in np.linspace(0, 0.999, 1000)]
    assert found.count(0) == pytest.approx(250, abs=1)
    assert found.count(1) == 0
    assert (
        _decide(RULES, [0, 0, 0, 0, 0], _view([0, 1], [3, 9]), SAMPLED)[1]
        != _decide(RULES, [9, 0, 0, 0, 0], _view([0, 1], [3, 9]), SAMPLED)[1]
    )


def test_the_scores_are_those_of_four_layers():
    random = np.random.default_rng(0)
    layers = [random.normal(size=size) for size in ((3, 4), (4,), (4, 2), (2,), (2, 2), (2,), (2, 3), (3,))]
    state, scores = random.normal(size=3), np.empty(3)
    write_scores(Network(*layers), state, scores)
    found = state
    for number in range(4):
        found = found @ layers[2 * number] + layers[2 * number + 1]
        found = found if number == 3 else np.maximum(found, 0)
    assert scores == pytest.approx(found)
