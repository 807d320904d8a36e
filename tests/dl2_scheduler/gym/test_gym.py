"""The Gymnasium environment: its checker, the simulator's numbers, seeds, many at once."""

import re

import gymnasium
import numpy as np
import pytest
from gymnasium import error
from gymnasium.utils.env_checker import check_env

import dl2_scheduler.gym as ours
from dl2_scheduler.cluster.errors import BadInput
from dl2_scheduler.cluster.free_resources import NodeRule
from dl2_scheduler.cluster.snapshot import Allocation, Grant
from dl2_scheduler.gym.episode import EpisodeSettings
from dl2_scheduler.policies.learnt.paper.batched import Filling
from dl2_scheduler.sim.simulator import run
from tests.paths import ROOT

SMALL = {"cluster": "3x8cpu,8gpu", "jobs": 5, "places": 3}


def of(**settings):
    return ours.ClusterEnv(**{**SMALL, **settings})


def play(env, random, most=100_000, **reset):
    """A random episode: what was done, what was seen and got."""
    observation, info = env.reset(**reset)
    actions, seen = [], [(observation, 0.0, False, False, info)]
    while not (seen[-1][2] or seen[-1][3]) and len(actions) < most:
        actions.append(random.choice(seen[-1][4]["action_mask"].nonzero()[0]))
        seen.append(env.step(actions[-1]))
        assert env.observation_space.contains(seen[-1][0])
    return actions, seen


def same(one, other):
    np.testing.assert_equal(one, other)
    return True


class Replay:
    """A policy that decides as an environment was told to."""

    def __init__(self, actions, settings):
        self.actions, self.settings = iter(actions), settings

    def allocate(self, snapshot, room):
        filling = Filling(room, self.settings.pace.models, self.settings.places)
        while not filling.done:
            filling.act(int(next(self.actions)))
        given = zip(snapshot.jobs, filling.counts.tolist(), strict=True)
        return Allocation({state.job.id: Grant(*counts) for state, counts in given})


@pytest.mark.slow
@pytest.mark.parametrize("settings", [{}, {"minimum": False}, {"pattern": "poisson", "jobs": 1}])
def test_the_checker_finds_nothing(settings):
    made = gymnasium.make(ours.ID, **{**SMALL, **settings})
    assert isinstance(made.unwrapped, ours.ClusterEnv)
    check_env(made.unwrapped)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_an_episode_is_what_the_simulator_makes_of_its_actions(seed):
    env = of()
    actions, seen = play(env, np.random.default_rng(seed), options={"sequence": seed})
    *_, terminated, truncated, info = seen[-1]
    assert terminated
    assert not truncated
    replay = Replay(actions, env.settings)
    times = run(env.settings.simulated(seed), replay, NodeRule.SPREAD)
    assert info["completion"] == times.mean()
    assert not list(replay.actions)
    rewards = [reward for _, reward, *_ in seen]
    assert sum(rewards) == pytest.approx(SMALL["jobs"]), "each job trains all of its epochs"
    slots = [info["slot"] for *_, info in seen]
    for before, after, reward in zip(slots, slots[1:], rewards[1:], strict=False):
        assert reward == 0 or after > before


@pytest.mark.slow
def test_rows_and_masks_are_the_slots():
    env = of()
    rows, info = env.reset(options={"sequence": 1})
    assert rows.shape == (3, len(env.settings.pace.models) + 5)
    assert info["action_mask"].shape == (10,)
    assert info["action_mask"].dtype == np.int8
    place = info["action_mask"].nonzero()[0][0] // 3
    after, *_ = env.step(3 * place)
    assert after[place, -2] == rows[place, -2] + 1 / 16, "a worker more"


def test_what_is_forbidden_counts_as_stop():
    envs = of(jobs=20), of(jobs=20)
    random = np.random.default_rng(0)
    infos = [env.reset(seed=4)[1] for env in envs]
    refused = 0
    for _ in range(200):
        mask = infos[0]["action_mask"]
        action = random.integers(len(mask))
        refused += not mask[action]
        one, other = envs[0].step(action), envs[1].step(action if mask[action] else len(mask) - 1)
        assert same(one, other)
        infos = [one[4], other[4]]
    assert refused > 10


def test_the_same_seed_the_same_sequences_and_another_each_reset():
    env = of()
    first, second = (env.reset(seed=seed)[0] for seed in (3, None))
    assert (env.reset(seed=3)[0] == first).all()
    assert (env.reset()[0] == second).all()
    drawn = [env.reset()[0].tobytes() for _ in range(5)]
    assert len(set(drawn)) > 1
    actions, seen = play(env, np.random.default_rng(0), most=50, seed=9)
    again = play(of(), np.random.default_rng(0), most=50, seed=9)
    assert same((actions, seen), again)


def test_it_is_cut_off():
    env = of(most_slots=4)
    actions, seen = play(env, np.random.default_rng(0), seed=1)
    rows, _, terminated, truncated, info = seen[-1]
    assert (terminated, truncated, info["slot"]) == (False, True, 4)
    longer = of(most_slots=5)
    longer.reset(seed=1)
    assert rows.any()
    assert (rows == [longer.step(action) for action in actions][-1][0]).all(), "the state, of which learners ask more"
    assert info["action_mask"].nonzero()[0].tolist() == [9]
    assert "completion" not in info
    with pytest.raises(error.ResetNeeded):
        env.step(9)


@pytest.mark.slow
@pytest.mark.parametrize("settings", [{}, {"most_slots": 3}, {"cluster": "3x2cpu+1x8cpu,8gpu", "minimum": False}])
def test_many_at_once_have_the_numbers_of_single_ones(settings):
    options = {**SMALL, "jobs": 2, **settings}
    vector, single = (
        gymnasium.make_vec(ours.ID, num_envs=4, vectorization_mode=mode, **options)
        for mode in ("vector_entry_point", "sync")
    )
    assert isinstance(vector, ours.ClusterVectorEnv)
    assert (vector.observation_space, vector.action_space) == (single.observation_space, single.action_space)
    random = np.random.default_rng(0)
    one = vector.reset(seed=5)
    assert same(one, single.reset(seed=5))
    ended = 0
    for _ in range(400):
        mask = one[-1]["action_mask"]
        actions = (random.random(mask.shape) * mask).argmax(axis=1)
        one = vector.step(actions)
        assert same(one, single.step(actions))
        ended += (one[2] | one[3]).sum()
    assert ended > 3, "episodes that began by themselves"


def test_seeds_of_each():
    vector = ours.ClusterVectorEnv(3, **SMALL)
    assert same(vector.reset(seed=7), vector.reset(seed=[7, 8, 9]))
    rows = vector.reset(seed=[5, 5, 5])[0]
    assert (rows == rows[0]).all()
    with pytest.raises(BadInput, match="2 seeds for 3"):
        vector.reset(seed=[1, 2])


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"jobs": 0}, "jobs is 0"),
        ({"places": 0}, "places is 0"),
        ({"most_slots": -1}, "most_slots is -1"),
        ({"pattern": "weekly"}, "no pattern 'weekly': give one of google, poisson, uniform"),
        ({"cluster": "3xcpu"}, "3xcpu"),
        ({"cluster": "3x1cpu"}, "job "),
    ],
)
def test_wrong_settings_are_told(settings, text):
    with pytest.raises(BadInput, match=text):
        EpisodeSettings(**{**SMALL, **settings})


def test_wrong_calls_are_told():
    env, vector = of(), ours.ClusterVectorEnv(2, **SMALL)
    for fresh in (env, vector):
        with pytest.raises(error.ResetNeeded):
            fresh.step(0)
        with pytest.raises(BadInput, match="'sequenz'"):
            fresh.reset(options={"sequenz": 1})
        with pytest.raises(BadInput, match="seed -1"):
            fresh.reset(options={"sequence": -1})
        for wrong in ("first", 1.5, True, [1]):
            with pytest.raises(BadInput, match="give a whole number"):
                fresh.reset(options={"sequence": wrong})
        fresh.reset(seed=0)
        with pytest.raises(error.InvalidAction, match="from 0 to 9"):
            fresh.step(np.array([10, 0]) if fresh is vector else 10)
    with pytest.raises(error.InvalidAction):
        vector.step(np.array([1]))
    with pytest.raises(error.InvalidAction):
        vector.step(np.array([0.5, np.nan]))
    with pytest.raises(BadInput, match="num_envs is 0"):
        ours.ClusterVectorEnv(0)


@pytest.mark.slow
def test_the_example_of_the_docs_runs(capsys):
    page = (ROOT / "docs" / "reference" / "gym.md").read_text()
    example = re.search(r"^```python\n(.*?)^```", page, re.M | re.S)
    names: dict = {}
    exec(compile(example[1], "gym.md", "exec"), names)
    assert capsys.readouterr().out.startswith("10.0 jobs trained, completion ")
    assert names["rewards"].shape == (8,)
