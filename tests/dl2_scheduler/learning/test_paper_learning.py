"""The paper's learning: its parts, against slow, plain ones."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from dl2_scheduler.cluster.free_resources import FreeResources
from dl2_scheduler.cluster.interfaces import JobOutcome
from dl2_scheduler.cluster.jobs import Job, Node
from dl2_scheduler.cluster.snapshot import JobState, Snapshot
from dl2_scheduler.learning.lessons import Lessons
from dl2_scheduler.learning.paper.agent import Agent, progress_of
from dl2_scheduler.learning.paper.bootstrap import observed
from dl2_scheduler.learning.paper.experience import PaperExperience, Replay
from dl2_scheduler.learning.paper.imitation import (
    ImitationLoss,
    TeacherDecisions,
    beyond_minimum,
    decisions,
    imitate,
    shuffled,
)
from dl2_scheduler.learning.paper.networks import PaperPolicy, PaperValue
from dl2_scheduler.learning.paper.policy_gradient import Networks, PaperLearner, losses
from dl2_scheduler.learning.paper.settings import PaperSettings
from dl2_scheduler.policies.learnt.actions import ACTIONS, BOTH, SERVER, WORKER
from dl2_scheduler.policies.learnt.paper.batched import row_width
from dl2_scheduler.policies.rules.drf import Drf
from dl2_scheduler.sim.shipped import shipped_speeds
from dl2_scheduler.sim.simulator import SimulatedCluster

SPEEDS = shipped_speeds()
NODES = tuple(Node(f"n{number}", {"cpu": 8, "gpu": 8}) for number in range(6))
LESSONS = Lessons((NODES,), jobs=8, seed=5)
MODELS = SPEEDS.models
PLACES = 4
WIDTH = row_width(len(MODELS))
OUTPUTS = PLACES * ACTIONS + 1


def samples_of(count: int, seed: int = 0) -> PaperExperience:
    random = np.random.default_rng(seed)
    masks = random.random((count, OUTPUTS)) < 0.5
    masks[:, -1] = True
    return PaperExperience(
        random.standard_normal((count, PLACES, WIDTH)).astype(np.float32),
        masks,
        np.array([random.choice(np.flatnonzero(mask)) for mask in masks]),
        random.random(count),
        random.standard_normal((count, PLACES, WIDTH)).astype(np.float32),
        random.random(count) < 0.3,
    )


def networks_of(seed: int = 0) -> Networks:
    """Whose normalisation does something."""
    torch.manual_seed(seed)
    policy, value = PaperPolicy(MODELS, PLACES), PaperValue(len(MODELS), PLACES)
    for network in (policy, value):
        for norm in (network.first_norm, network.second_norm):
            norm.running_mean.uniform_(-0.2, 0.2)
            norm.running_var.uniform_(0.5, 2.0)
            torch.nn.init.uniform_(norm.weight, 0.5, 1.5)
            torch.nn.init.uniform_(norm.bias, -0.5, 0.5)
    return Networks(policy, value)


# ---- parts -----------------------------------------------------------------------------------------------------------


def test_weights_for_inference_are_the_network() -> None:
    policy, samples = networks_of().policy, samples_of(3)
    layers = policy.weights().layers
    with torch.no_grad():
        wanted = policy(torch.from_numpy(samples.states)).numpy()
    first = np.maximum(samples.states.reshape(3, -1) @ layers.first + layers.first_bias, 0)
    second = np.maximum(first @ layers.second + layers.second_bias, 0)
    assert second @ layers.out + layers.out_bias == pytest.approx(wanted, abs=1e-4)
    assert layers.first.shape == (PLACES * WIDTH, PLACES * WIDTH * 2 // 3)


@torch.no_grad()
def plain_losses(
    samples: PaperExperience, corrections: np.ndarray, networks: Networks, settings: PaperSettings, average: float
) -> tuple[float, float]:
    """Sample by sample, in words of section 4.3."""
    policy_loss = value_loss = 0.0
    for number in range(len(samples.actions)):
        state, following = (
            torch.from_numpy(part[number][None]).double() for part in (samples.states, samples.following)
        )
        value = float(networks.value(state)) if settings.value_network else average
        target = float(samples.rewards[number])
        if settings.value_network and not samples.final[number]:
            target += settings.discount * float(networks.value(following))
        scores = networks.policy(state)[0].detach().numpy()
        allowed = np.flatnonzero(samples.masks[number])
        chances = np.exp(scores[allowed]) / np.exp(scores[allowed]).sum()
        entropy = -float((chances * np.log(chances)).sum()) / OUTPUTS
        chance = chances[allowed.tolist().index(samples.actions[number])]
        policy_loss -= np.log(chance) * (target - value) * corrections[number] + settings.entropy * entropy
        value_loss += (value - target) ** 2
    return policy_loss / len(samples.actions), value_loss / len(samples.actions)


@pytest.mark.parametrize("value_network", [True, False])
def test_losses_and_gradients_are_the_plain_ones(value_network: bool) -> None:
    settings = PaperSettings(value_network=value_network, entropy=0.7)
    networks, samples = networks_of(), samples_of(6)
    networks.policy.double()
    networks.value.double()
    exact = samples._replace(states=samples.states.astype(float), following=samples.following.astype(float))
    corrections = np.linspace(0.3, 1.0, 6)
    policy_loss, value_loss, numbers = losses(exact, corrections, networks, settings, 0.4)
    wanted = plain_losses(samples, corrections, networks, settings, 0.4)
    assert (float(policy_loss.detach()), float(value_loss.detach())) == pytest.approx(wanted, rel=1e-6)
    assert numbers["entropy"] > 0
    gradient = torch.autograd.grad(policy_loss, [networks.policy.out.bias, networks.policy.first.weight])
    for parameter, slope in ((networks.policy.out.bias, gradient[0]), (networks.policy.first.weight, gradient[1])):
        at = int(slope.abs().argmax())
        ends = []
        for step in (1e-4, -1e-4):
            with torch.no_grad():
                parameter.view(-1)[at] += step
                ends.append(plain_losses(samples, corrections, networks, settings, 0.4)[0])
                parameter.view(-1)[at] -= step
        assert float(slope.view(-1)[at]) == pytest.approx((ends[0] - ends[1]) / 2e-4, rel=1e-3)


def test_an_update_makes_what_paid_more_probable() -> None:
    learner = PaperLearner(networks_of(), PaperSettings(learning_rate=1e-3, value_network=False, entropy=0.0))
    samples = samples_of(2)._replace(rewards=np.array([1.0, 0.0]))
    states, masks = torch.from_numpy(samples.states), torch.from_numpy(samples.masks)

    def logs() -> list[float]:
        with torch.no_grad():
            found = learner.networks.policy.logs(states, masks)
        return found.gather(1, torch.from_numpy(samples.actions)[:, None]).squeeze(1).tolist()

    before = logs()
    learner.reward(0.5)
    for _ in range(3):
        learner.update(samples, np.ones(2), learner.networks)
    assert logs()[0] > before[0]
    assert logs()[1] < before[1]


def test_the_moving_average_of_rewards() -> None:
    learner = PaperLearner(networks_of(), PaperSettings())
    for reward in (2.0, 2.0, 3.0):
        learner.reward(reward)
    assert learner.average == pytest.approx(2.01)


def numbered(*rewards: float) -> PaperExperience:
    whole = samples_of(len(rewards))
    return whole._replace(actions=np.arange(len(rewards)), rewards=np.array(rewards))


def test_the_replay_keeps_the_latest() -> None:
    replay = Replay(5)
    replay.add(numbered(1, 1, 1))
    assert len(replay) == 3
    replay.add(numbered(5, 6, 7))
    assert len(replay) == 5
    assert set(replay.draw(100, np.random.default_rng(0))[0].rewards) == {1, 5, 6, 7}
    replay.add(numbered(*range(10, 17)))
    assert set(replay.draw(100, np.random.default_rng(0))[0].rewards) == {12, 13, 14, 15, 16}


def test_the_replay_draws_by_reward_and_corrects_for_it() -> None:
    replay = Replay(4)
    replay.add(numbered(0.0, 1.0, 1.0, 6.0))
    drawn, corrections = replay.draw(6000, np.random.default_rng(0))
    parts = np.bincount(drawn.actions, minlength=4) / 6000
    assert parts == pytest.approx([1 / 6, 1 / 6, 1 / 6, 1 / 2], abs=0.03)
    assert set(corrections.round(6)) == {1.0, round(3**-0.1, 6)}
    replay._draws = 10**6
    corrections = replay.draw(50, np.random.default_rng(0))[1]
    assert set(corrections.round(6)) == {1.0, round(1 / 3, 6)}


@pytest.mark.parametrize("job_reward", [False, True])
def test_every_inference_of_a_slot_gets_its_reward(job_reward: bool) -> None:
    jobs = [
        Job(number, 0.0, "dssm", 9900.0, 349.0, {"cpu": 2}, {"cpu": 2}, epochs_estimate=5000.0) for number in range(6)
    ]
    cluster = SimulatedCluster(jobs, NODES, SPEEDS)
    weights = networks_of().policy.weights()
    agent = Agent(cluster)
    for _ in range(3):
        before = cluster.lanes.done[0].copy()
        samples, reward = agent.step(weights, np.random.default_rng(1), 0.4, job_reward)
        gained = (cluster.lanes.done[0] - before) / 5000.0
        assert reward == pytest.approx(gained.sum())
        batch = np.cumsum(np.append(0, samples.actions[:-1] == OUTPUTS - 1)) * PLACES
        wanted = [
            gained.sum() if not job_reward else gained.mean() if action == OUTPUTS - 1 else gained[first + action // 3]
            for first, action in zip(batch, samples.actions, strict=True)
        ]
        assert samples.rewards == pytest.approx(wanted)
        assert not samples.final.any()
        begun = agent.begin(weights)
        assert begun is not None
        assert samples.following[0, 0, -1] == pytest.approx(begun[1].counts[0, 0] / 16)


def test_guided_exploration_gives_twice_as_many_servers_as_workers() -> None:
    jobs = [Job(number, 0.0, "dssm", 9900.0, 349.0, {"cpu": 2}, {"cpu": 2}) for number in range(3)]
    policy = networks_of().policy
    policy.begin_small()
    counts = {}
    for guided in (False, True):
        samples = Agent(SimulatedCluster(jobs, NODES, SPEEDS)).step(
            policy.weights(), np.random.default_rng(1), 0.0, False, guided
        )[0]
        kinds = samples.actions[samples.actions < OUTPUTS - 1] % ACTIONS
        counts[guided] = (kinds == WORKER).sum(), (kinds == SERVER).sum()
    assert counts[True][1] >= 2 * counts[True][0]
    assert counts[False][1] < 2 * counts[False][0]


def test_small_weights_make_all_actions_alike() -> None:
    policy, samples = PaperPolicy(MODELS, PLACES), samples_of(5)
    spread = []
    for _ in range(2):
        with torch.no_grad():
            scores = policy.eval()(torch.from_numpy(samples.states))
        spread.append(float(scores.std()))
        policy.begin_small()
    assert spread[1] < 0.02 < spread[0]


def test_what_follows_is_the_next_slot_or_nothing() -> None:
    early = Job(1, 0.0, "dssm", 300.0, 349.0, {"cpu": 2}, {"cpu": 2})
    cluster = SimulatedCluster([early, replace(early, id=2, arrival=1200.0 * 9)], NODES, SPEEDS)
    weights = networks_of().policy.weights()
    agent = Agent(cluster)
    samples = agent.step(weights, np.random.default_rng(1), 0.0, False)[0]
    assert cluster.lanes.slot == 9, "slots without jobs are passed over"
    assert not samples.final.any()
    assert samples.following[:, 1:].sum() == 0
    samples = agent.step(weights, np.random.default_rng(1), 0.0, False)[0]
    assert samples.final.all()
    assert agent.begin(weights) is None


def test_a_cluster_without_jobs_is_left_alone() -> None:
    cluster = SimulatedCluster([Job(1, 2400.0, "dssm", 9.0, 9.0, {"cpu": 2}, {"cpu": 2})], NODES, SPEEDS)
    assert cluster.snapshot().jobs == ()
    begun = Agent(cluster).begin(networks_of().policy.weights())
    assert begun is not None
    assert begun[0].slot == 2


# ---- imitation -------------------------------------------------------------------------------------------------------


def test_the_minimum_is_no_decision() -> None:
    actions = np.array([BOTH, 3 + WORKER, BOTH, 3 + WORKER, 3 + BOTH, SERVER])
    assert beyond_minimum(actions, 2).tolist() == [BOTH, 3 + WORKER, 3 + WORKER, SERVER]


def test_shuffled_jobs_are_decided_alike() -> None:
    samples = samples_of(20)
    taught = TeacherDecisions(samples.states, samples.masks, samples.actions)
    moved = shuffled(taught, np.random.default_rng(3))
    assert not np.array_equal(moved.states, taught.states)
    for number in range(20):
        whose = [int((moved.states[number, place] == taught.states[number]).all(axis=1).argmax()) for place in range(4)]
        assert sorted(whose) == [0, 1, 2, 3]
        by_job = {job: moved.masks[number, 3 * place : 3 * place + 3] for place, job in enumerate(whose)}
        assert np.concatenate([by_job[job] for job in range(4)]).tolist() == taught.masks[number, :-1].tolist()
        action, was = moved.actions[number], taught.actions[number]
        assert (action == was == 12) or (whose[action // 3] == was // 3 and action % 3 == was % 3)


@pytest.mark.parametrize("loss", ImitationLoss)
def test_every_loss_learns(loss: ImitationLoss) -> None:
    samples = samples_of(64)
    taught = TeacherDecisions(samples.states, samples.masks, np.full(64, OUTPUTS - 1))
    policy = networks_of().policy
    found = list(imitate(policy, taught, 40, 0, loss))
    assert found[-1] < found[0]
    with torch.no_grad():
        stop = policy.logs(torch.from_numpy(samples.states), torch.from_numpy(samples.masks))[:, -1].exp()
    assert float(stop.mean()) > 0.6


def test_a_teachers_slots() -> None:
    episode = LESSONS.episodes(0, 1)[0]
    taught = list(observed(Drf(), SimulatedCluster(episode.jobs, episode.nodes, SPEEDS)))
    weights = networks_of().policy.weights()
    some = decisions(taught[:3], weights, 5, np.random.default_rng(0))
    assert 10 < len(some.actions) <= 15
    assert some.masks[np.arange(len(some.actions)), some.actions].all()
    now, actions = taught[0]
    room = FreeResources(now)
    Drf().allocate(now, room)
    assert len(actions) == sum(max(workers, servers) for _, workers, servers in room.grants)


def test_epochs_that_a_job_does_again_are_no_reward():
    job = Job("a", 0.0, MODELS[0], 10.0, 1.0, {"cpu": 1}, {"cpu": 1}, max_workers=1, max_servers=1)
    now = Snapshot(0, 20.0, NODES, (JobState(job, 2.0),))
    assert progress_of(now, [JobOutcome("a", 1, 1, 5.0, None, again=4.0)]) == pytest.approx([0.1])
    assert progress_of(now, [JobOutcome("a", 1, 1, 0.0, None, lost=2.0)]) == [0.0]
