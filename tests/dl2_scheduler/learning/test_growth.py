"""Types that come later: what is known stays as it is, and what is not is tried."""

import copy

import numpy as np
import pytest
import torch

from dl2_scheduler.cluster.free_resources import FreeResources
from dl2_scheduler.cluster.interfaces import JobOutcome, SlotOutcome
from dl2_scheduler.cluster.snapshot import JobState
from dl2_scheduler.learning.actor import Actor, ActorSettings
from dl2_scheduler.learning.critic import Critic, CriticPolicy, CriticSettings
from dl2_scheduler.learning.experience import Experience
from dl2_scheduler.learning.growth import grown
from dl2_scheduler.learning.networks import SharedPolicy
from dl2_scheduler.learning.recorded import slot_of
from dl2_scheduler.learning.teacher import of_grants
from dl2_scheduler.policies.learnt.dl2 import Dl2
from dl2_scheduler.policies.learnt.features import features, of_room
from tests.dl2_scheduler.clusters import counts, job, nodes, snapshot

MODELS = ("even", "flat")
SETTINGS = CriticSettings(steps=5)
NODES = nodes({"cpu": 16}, {"cpu": 16})


def cluster(seed, models=MODELS):
    """A slot with jobs of some types, some of which run."""
    random = np.random.default_rng(seed)
    states = []
    for number in range(5):
        before = ((0, 0), (2, 1))[random.integers(2)]
        each = job(number, model=models[random.integers(len(models))], epochs=float(random.uniform(200, 5000)))
        states.append(JobState(each, float(random.uniform(0, 50)), int(random.integers(20)), *before))
    return snapshot(states, NODES)


def learnt():
    """A checkpoint of a run that has learnt a little, with all that it has."""
    torch.manual_seed(1)
    random = np.random.default_rng(2)
    policy = SharedPolicy(MODELS)
    torch.nn.init.normal_(policy.priority.weight)
    actor, critic, experience = Actor(policy, ActorSettings(batch=4)), Critic(MODELS, SETTINGS), Experience(MODELS)
    for seed in range(6):
        now = cluster(seed)
        inputs, _ = of_room(FreeResources(now), MODELS)
        done = [
            JobOutcome(state.job.id, 2, 1, 3.0, 900.0 if number == seed % 5 else None)
            for number, state in enumerate(now.jobs)
        ]
        experience.record("here", now, features(inputs, len(MODELS)), SlotOutcome(0, done, ()))
        critic.learn(experience, random)
        actions = np.array(of_grants([(0, 2, 3), (1, 1, 1)], [(1, 1)] * 5))
        actor.learn(slot_of(FreeResources(now), actions, actor.weights()), random)
    state = {**actor.state(), "critic": critic.state(), "experience": experience.state(), "models": MODELS}
    return copy.deepcopy({**state, "updates": 6})


def restored(state):
    models = state["models"]
    actor, critic = Actor(SharedPolicy(models), ActorSettings(batch=4)), Critic(models, SETTINGS)
    experience = Experience(models)
    actor.load_state(state)
    critic.load_state(state["critic"])
    experience.load_state(state["experience"])
    return actor, critic, experience


@pytest.fixture(scope="module")
def checkpoint():
    return learnt()


def test_decisions_about_known_types_stay(checkpoint):
    actor, critic, _ = restored(checkpoint)
    wider, wider_critic, _ = restored(grown(checkpoint, ["new", "even", "newer"]))
    assert wider.models == ("even", "flat", "new", "newer")
    for seed in range(40):
        now = cluster(seed)
        before, after = (Dl2(each.weights()).allocate(now, FreeResources(now)) for each in (actor, wider))
        assert counts(before) == counts(after)
        pair = (each.values(now, FreeResources(now), False) for each in (critic, wider_critic))
        for value, again in zip(*pair, strict=True):
            np.testing.assert_allclose(value, again, rtol=1e-5, atol=1e-7)


def test_weights_of_known_types_stay_to_the_bit(checkpoint):
    old, new = checkpoint["average"], grown(checkpoint, ["new"])["average"]
    assert old.keys() == new.keys()
    widened = [name for name in old if old[name].shape != new[name].shape]
    assert widened == ["module.base.weight", "module.rank.weight"]
    for name in old:
        kept = np.delete(new[name].numpy(), 2, axis=1) if name in widened else new[name].numpy()
        assert (kept == old[name].numpy()).all()
    for name in widened:
        assert torch.equal(new[name][:, 2], old[name][:, :2].mean(dim=1))


def test_a_new_type_is_decided_about_as_jobs_usually_are(checkpoint):
    actor, _, _ = restored(grown(checkpoint, ["new"]))
    alike = [snapshot([job(1, model=model)], NODES) for model in ("even", "flat", "new")]
    bases = []
    for now in alike:
        inputs, _ = of_room(FreeResources(now), actor.models)
        bases.append(actor.weights().scores(features(inputs, 3), np.zeros((1, 2), np.float32), 4).base[0])
    np.testing.assert_allclose(bases[2], (bases[0] + bases[1]) / 2, rtol=1e-5, atol=1e-6)


def test_a_run_learns_on_with_more_types(checkpoint):
    actor, critic, experience = restored(grown(checkpoint, ["new"]))
    now = cluster(3, ("even", "flat", "new"))
    inputs, _ = of_room(FreeResources(now), actor.models)
    done = [JobOutcome(state.job.id, 2, 1, 3.0, None) for state in now.jobs]
    experience.record("here", now, features(inputs, 3), SlotOutcome(0, done, ()))
    before = actor.weights().arrays["base.weight"].copy()
    numbers = critic.learn(experience, np.random.default_rng(1))
    assert np.isfinite(list(numbers.values())).all()
    actions = np.array(of_grants([(number, 1, 1) for number in range(5)], [(1, 1)] * 5))
    assert np.isfinite(actor.learn(slot_of(FreeResources(now), actions, actor.weights()), np.random.default_rng(1)))
    assert (actor.weights().arrays["base.weight"][:, 2] != before[:, 2]).any()
    assert {key.model for key in experience.speeds} == {0, 1, 2}


def test_what_it_knows_already_changes_nothing(checkpoint):
    assert grown(checkpoint, ["flat", "even"]) == checkpoint


@pytest.mark.parametrize("widened", [False, True])
def test_a_type_that_was_never_seen_is_worth_a_try(checkpoint, widened):
    _, critic, _ = restored(grown(checkpoint, ["new"]) if widened else checkpoint)
    strangers = snapshot([job(1, model="new", epochs=900.0), job(2, epochs=900.0)], nodes({"cpu": 4}))
    worth, usual = critic.values(strangers, FreeResources(strangers), False)
    assert worth.max() > usual.max() > 0
    assert worth[0].max() == worth[:, 0].max() == 0.0
    found = counts(CriticPolicy(critic).allocate(strangers, FreeResources(strangers)))
    assert min(found[1]) > 0
