"""The modified cross-entropy method: by hand, on a bandit, and beside the best of all plans."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from dl2_scheduler.cluster.jobs import Job
from dl2_scheduler.cluster.speeds import Speeds
from dl2_scheduler.learning.chic.cross_entropy import (
    bound_of,
    cumulative_return,
    learn_chic,
    mean_time,
    ranked,
    smooth,
)
from dl2_scheduler.learning.chic.episodes import JobSequence, play, sequence_of
from dl2_scheduler.learning.chic.network import ChicNet, minus_log_likelihood
from dl2_scheduler.learning.chic.settings import MENDED, PAPER, TAUGHT, ChicSettings
from dl2_scheduler.learning.chic.teacher import lessons_of
from dl2_scheduler.policies.chic.network import BEST, SAMPLED, UNIFORM
from dl2_scheduler.policies.chic.policy import Chic
from dl2_scheduler.policies.chic.weights import ChicForm, ChicWeights
from dl2_scheduler.policies.pool.roll_out import RollOut
from dl2_scheduler.policies.rules.estimates import TrueSpeeds
from dl2_scheduler.sim.events.cluster import completion_times
from dl2_scheduler.sim.events.worlds import MODELS, PoolWorld, formula
from tests.dl2_scheduler.clusters import job, nodes
from tests.dl2_scheduler.policies.pool.enumeration import best_plan

WORLD = formula()
ONE_PAIR = nodes({"cpu": 2})
LINEAR = Speeds({"even": np.array([[0.0, 0.0], [0.0, 1.0]])})


def _form(settings: ChicSettings) -> ChicForm:
    switches = settings.until_no_gain, settings.void_ends, settings.present_only, settings.sampled
    return ChicForm(tuple(MODELS), 200.0, settings.visible, settings.pairs, *switches)


def _sequences(jobs: list[list[Job]], world: PoolWorld = WORLD) -> list[JobSequence]:
    return [sequence_of(some, world.nodes, world.speeds, tuple(MODELS), 200.0) for some in jobs]


def test_the_bound_is_the_return_of_that_place():
    returns = np.array([5.0, 1.0, 4.0, 2.0, 3.0, 6.0])  # N = 5, and the one played at random
    assert bound_of(returns, 5, 0.3) == 3.0  # floor(0.7 x 5) = 3
    assert bound_of(returns, 5, 0.7) == 1.0  # floor(1.5)
    assert bound_of(np.arange(36.0), 35, 0.3) == 23.0  # R_(24), so that 13 of 36 are the elite
    assert bound_of(np.array([2.0, 1.0]), 1, 1.0) == 1.0


def test_episodes_are_ranked_beside_those_of_the_same_sequence():
    places = ranked(np.array([-9.0, -100.0, -8.0, -90.0, -7.0]), [4, 1, 4, 1, 4])
    assert places.tolist() == [0, 0, 0.5, 1, 1]
    assert ranked(np.array([1.0]), [3]).tolist() == [0.5]


def test_the_likelihood_is_the_logarithm_of_what_is_allowed():
    net = ChicNet(_form(MENDED).rules, MENDED)
    states, actions = torch.zeros(2, 19), torch.tensor([0, 2])
    allowed = torch.tensor([[True] * 7, [True, False, True, False, False, False, False]])
    scores = net(states).detach().double().numpy()
    by_hand = [
        scores[0, 0] - np.log(np.exp(scores[0]).sum()),
        scores[1, 2] - np.log(np.exp(scores[1, [0, 2]]).sum()),
    ]
    assert float(minus_log_likelihood(net, states, actions, allowed).detach()) == pytest.approx(
        -np.mean(by_hand), rel=1e-5
    )


def test_smoothing_takes_a_part_of_the_new_weights():
    net = ChicNet(_form(PAPER).rules, PAPER)
    before = [torch.ones_like(value) for value in net.parameters()]
    fitted = [value.detach().clone() for value in net.parameters()]
    smooth(net, before, 0.25)
    for now, new in zip(net.parameters(), fitted, strict=True):
        assert torch.allclose(now, 0.25 * new + 0.75)


def test_the_network_for_acting_is_the_one_that_was_fitted():
    net = ChicNet(_form(PAPER).rules, PAPER).eval()
    state = np.random.default_rng(0).normal(size=19)
    found = state
    for number in range(4):
        found = found @ net.network()[2 * number] + net.network()[2 * number + 1]
        found = found if number == 3 else np.maximum(found, 0)
    assert net(torch.from_numpy(state).float()).detach().numpy() == pytest.approx(found, abs=1e-5)


def _short_and_long(first: float, second: float) -> JobSequence:
    jobs = [job(1, epochs=first, max_workers=1, max_servers=1), job(2, epochs=second, max_workers=1, max_servers=1)]
    return sequence_of(jobs, ONE_PAIR, LINEAR, ("even",), 200.0)


@pytest.mark.slow
def test_a_bandit_is_solved_in_less_than_twenty_iterations():
    """One pair, two jobs: the shorter one first, whichever place it has."""
    form = ChicForm(("even",), 200.0, 2, pairs=True, until_no_gain=False, void_ends=True, sampled=False)
    settings = replace(MENDED, pairs=True, visible=2, episodes=23, sequences=2, iterations=19, learning_rate=0.01)
    sequences = [_short_and_long(20.0, 200.0), _short_and_long(200.0, 20.0)]
    run = learn_chic(form, settings, sequences, sequences, seed=1)
    assert mean_time(form, run.weights.network, sequences, settings) == pytest.approx((20 + 220) / 2)
    assert run.curve[0].act > 125 or run.curve[0].act == pytest.approx(120)


def test_the_return_is_minus_the_time_in_the_system_and_the_fines():
    sequence = _short_and_long(20.0, 200.0)
    form = ChicForm(("even",), 200.0, 2)
    net = ChicNet(form.rules, PAPER).eval()
    found = play(form.rules, PAPER.fines, net.network(), sequence, UNIFORM, np.random.default_rng(3), 1000)
    assert cumulative_return(found) == pytest.approx(-found.times.sum() / 1200 + found.fines)
    assert found.times.sum() in (pytest.approx(240), pytest.approx(420))


@pytest.mark.parametrize("pairs", [False, True])
@pytest.mark.parametrize("visible", [1, 3])
def test_an_episode_is_the_policy_in_the_cluster_of_events(pairs: bool, visible: int):
    """Fractions of iterations are carried over, and only arrivals that are seen end a phase."""
    form = ChicForm(tuple(MODELS), 200.0, visible, pairs, True, False, True, False)
    weights = ChicWeights(form, ChicNet(form.rules, MENDED).eval().network())
    for seed in range(3):
        jobs = WORLD.jobs(seed, 2.7, 12)
        sequence = _sequences([jobs])[0]
        found = play(form.rules, PAPER.fines, weights.network, sequence, BEST, np.random.default_rng(0), 0)
        policy = Chic(weights, TrueSpeeds(WORLD.speeds))
        assert found.times == pytest.approx(completion_times(jobs, WORLD.nodes, WORLD.speeds, policy))


def test_a_seed_gives_the_same_again():
    settings = replace(MENDED, episodes=5, sequences=2, iterations=2)
    sequences = _sequences([WORLD.jobs(seed, 1.8, 4) for seed in range(3)])
    first, second = (learn_chic(_form(settings), settings, sequences, sequences, seed=5) for _ in range(2))
    assert first.curve == second.curve
    for one, other in zip(first.weights.network, second.weights.network, strict=True):
        assert (one == other).all()


def test_the_papers_way_runs_and_judges_every_second_iteration():
    settings = replace(PAPER, episodes=4, iterations=3, smoothing=0.7)
    sequences = _sequences([WORLD.jobs(seed, 1.8, 3) for seed in range(3)])
    run = learn_chic(_form(settings), settings, sequences, sequences, seed=0)
    assert [each.act is not None for each in run.curve] == [True, False, True, False]


def test_lessons_lead_to_what_the_planner_has():
    form = _form(TAUGHT)
    jobs = [WORLD.jobs(1, 2.7, 4)]
    planner = RollOut(TrueSpeeds(WORLD.speeds))
    lessons = lessons_of(planner, jobs, _sequences(jobs), WORLD.nodes, form.rules)
    assert (lessons.allowed[np.arange(len(lessons.actions)), lessons.actions]).all()
    first = lessons.states[: int((lessons.states[:, 4] == 0).argmin())]  # until the first job has a worker
    assert len(first) == 1
    assert lessons.actions[:4].tolist() == [0, 1, 0, 1]
    assert (lessons.actions == 16).sum() > 0  # void, where something would fit


@pytest.mark.slow
def test_within_five_percent_of_the_best_plan_of_three_jobs():
    """Exact enumeration: all splits of ten GPUs over three jobs that are there from the start."""
    settings = replace(TAUGHT, visible=3, iterations=4, lessons=12, episodes=23, sequences=3)
    form = _form(settings)
    jobs = [WORLD.jobs(100 + seed, 1e9, 3) for seed in range(200)]
    training = _sequences(jobs)
    lessons = lessons_of(RollOut(TrueSpeeds(WORLD.speeds)), jobs, training, WORLD.nodes, form.rules)
    run = learn_chic(form, settings, training, training[:20], 0, lessons)
    over = []
    for seed in range(3):
        some = WORLD.jobs(seed, 1e9, 3)
        sequence = _sequences([some])[0]
        found = play(form.rules, settings.fines, run.weights.network, sequence, BEST, np.random.default_rng(0), 0)
        curves = np.array([WORLD.speeds.grid(each.model).max(axis=0) for each in some])
        best = best_plan(np.array([each.epochs * 32 for each in some]), curves, 10)
        over.append(found.times.sum() / best - 1)
    assert max(over) < 0.05


def test_what_is_sampled_differs_from_seed_to_seed():
    form = _form(MENDED)
    net = ChicNet(form.rules, MENDED).eval().network()
    sequence = _sequences([WORLD.jobs(0, 1.8, 5)])[0]
    times = [
        play(form.rules, PAPER.fines, net, sequence, SAMPLED, np.random.default_rng(seed), 0).times.sum()
        for seed in (0, 0, 1)
    ]
    assert times[0] == times[1] != times[2]
