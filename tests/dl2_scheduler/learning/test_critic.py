"""What a critic learns from what jobs did, and what it decides."""

import numpy as np
import pytest
import torch

from dl2_scheduler.cluster.free_resources import FreeResources
from dl2_scheduler.cluster.interfaces import JobOutcome, SlotOutcome
from dl2_scheduler.cluster.snapshot import JobState, Snapshot
from dl2_scheduler.learning.critic import Critic, CriticPolicy, CriticSettings
from dl2_scheduler.learning.experience import Experience, ScalingKind, SlotConfiguration, scaling
from dl2_scheduler.learning.networks import SharedPolicy
from dl2_scheduler.policies.learnt.features import features, of_room
from tests.dl2_scheduler.clusters import job, nodes

MODELS = ("even", "flat")
NODES = nodes({"cpu": 4}, {"cpu": 4})


def at(slot, *states):
    return Snapshot(slot, 10.0, NODES, states)


def rows(snapshot):
    inputs, _ = of_room(FreeResources(snapshot), MODELS)
    return features(inputs, len(MODELS))


def record(experience, snapshot, *outcomes, cluster=0):
    experience.record(cluster, snapshot, rows(snapshot), SlotOutcome(snapshot.slot, outcomes, ()))


def test_speeds_are_means_of_what_was_seen_last():
    experience = Experience(MODELS)
    for epochs in (20.0, 40.0):
        record(experience, at(0, JobState(job(samples_per_epoch=3.0))), JobOutcome(1, 2, 1, epochs, None))
    key = SlotConfiguration(0, ScalingKind.START, 1, 2)
    assert experience.speeds == {key: (9.0, 2)}  # 30 epochs of 3 samples in 10 seconds
    for _ in range(400):
        record(experience, at(0, JobState(job())), JobOutcome(1, 2, 1, 50.0, None))
    assert experience.speeds[key][0] == pytest.approx(5.0)


def test_what_a_slot_cannot_tell_is_left_out():
    experience = Experience(MODELS)
    snapshot = at(0, JobState(job(1)), JobState(job(2)), JobState(job(3, model="unknown")))
    done = JobOutcome(1, 0, 0, 0.0, None), JobOutcome(2, 1, 1, 3.0, 7.0), JobOutcome(3, 1, 1, 1.0, None)
    record(experience, snapshot, *done)
    assert not experience.speeds  # one did not run, one ended in the slot, one is of no known type


def test_a_slot_that_a_restore_took_back_tells_no_speed_and_one_that_does_epochs_again_does():
    experience = Experience(MODELS)
    record(experience, at(0, JobState(job(), 9.0, 1, 1, 1)), JobOutcome(1, 1, 1, 0.0, None, lost=7.0))
    assert not experience.speeds
    record(experience, at(1, JobState(job(), 2.0, 2, 1, 1)), JobOutcome(1, 1, 1, 5.0, None, again=5.0))
    (speed,) = experience.speeds.values()
    assert speed == (pytest.approx(5.0 * job().samples_per_epoch / 10.0), 1)


def test_slots_to_the_end_are_known_when_a_job_has_ended():
    experience = Experience(MODELS)
    for slot, finished in ((3, None), (4, None), (5, 54.0)):
        snapshot = at(slot, JobState(job(1), epochs_done=slot), JobState(job(2)))
        record(experience, snapshot, JobOutcome(1, 1, 1, 1.0, finished), JobOutcome(2, 1, 1, 1.0, None))
    seen, slots = experience.finished()
    assert slots == pytest.approx([2.4, 1.4, 0.4])
    assert seen.shape == (3, len(rows(at(0, JobState(job())))[0]))
    experience.forget(0)
    record(experience, at(6, JobState(job(2))), JobOutcome(2, 1, 1, 1.0, 65.0))
    assert len(experience.finished()[1]) == 4  # of the slots before nobody knows any more that it was this job


def test_jobs_of_two_clusters_are_not_mixed_up():
    experience = Experience(MODELS)
    record(experience, at(0, JobState(job(1))), JobOutcome(1, 1, 1, 1.0, None), cluster="one")
    record(experience, at(4, JobState(job(1))), JobOutcome(1, 1, 1, 1.0, 45.0), cluster="other")
    assert experience.finished()[1] == pytest.approx([0.5])


def test_kinds_of_scaling():
    running = JobState(job(), workers=2, servers=1)
    assert scaling(running, 1, 2) == ScalingKind.NONE
    assert scaling(running, 2, 2) == ScalingKind.CHANGE
    assert scaling(JobState(job()), 1, 2) == ScalingKind.START


@pytest.fixture(scope="module")
def trained():
    """Knows that `even` trains as fast as its smaller count, and `flat` always as fast, and that jobs take 8 slots."""
    torch.manual_seed(0)
    experience = Experience(MODELS)
    for model in MODELS:
        for servers in range(1, 5):
            for workers in range(1, 5):
                speed = float(min(servers, workers)) if model == "even" else 2.0
                snapshot = at(0, JobState(job(model=model)))
                record(experience, snapshot, JobOutcome(1, workers, servers, 10 * speed, None))
                late = at(8, JobState(job(model=model), epochs_done=99.0))
                record(experience, late, JobOutcome(1, 1, 1, 1.0, 81.0))
    critic = Critic(MODELS, CriticSettings(steps=400))
    losses = critic.learn(experience, np.random.default_rng(0))
    return critic, losses


@pytest.mark.slow
def test_it_learns_both(trained):
    critic, losses = trained
    assert critic.ready
    assert set(losses) == {"critic/progress", "critic/remaining"}
    room = FreeResources(at(0, JobState(job(epochs=1000.0))))
    (value,) = critic.values(room.snapshot, room, optimistic=False)
    assert value.shape == (5, 5)
    assert not value[0].any()
    assert not value[:, 0].any()
    assert np.diag(value)[1:] == pytest.approx(value[1, 1] * np.arange(1, 5), rel=0.1)
    assert value[1, 3] == pytest.approx(value[1, 1], rel=0.1)


@pytest.mark.slow
def test_its_decisions_follow(trained):
    critic, _ = trained
    room = FreeResources(at(0, JobState(job(1, epochs=1000.0)), JobState(job(2, model="flat", epochs=1000.0))))
    grants = CriticPolicy(critic).allocate(room.snapshot, room).grants
    assert (grants[1].workers, grants[1].servers) == (3, 3)
    assert (grants[2].workers, grants[2].servers) == (1, 1)
    empty = FreeResources(at(0))
    assert not CriticPolicy(critic).allocate(empty.snapshot, empty).grants


@pytest.mark.slow
def test_a_job_that_ends_in_the_slot_is_worth_the_rest_of_it_too(trained):
    critic, _ = trained
    room = FreeResources(at(0, JobState(job(1, epochs=5.0)), JobState(job(2, epochs=1000.0))))
    short, long = critic.values(room.snapshot, room, optimistic=False)
    assert short[1, 1] > 0.5 > long[1, 1]  # half of the slot, and what it would have taken after it
    assert short[2, 2] - short[1, 1] == pytest.approx(0.25, rel=0.2)


@pytest.mark.slow
def test_optimism_is_for_what_was_not_tried():
    torch.manual_seed(0)
    experience = Experience(MODELS)
    for count in (1, 2):
        record(experience, at(0, JobState(job())), JobOutcome(1, count, count, 10.0 * count, None))
    record(experience, at(1, JobState(job())), JobOutcome(1, 1, 1, 10.0, 15.0))
    critic = Critic(MODELS, CriticSettings(steps=300))
    critic.learn(experience, np.random.default_rng(0))
    room = FreeResources(at(0, JobState(job(epochs=1000.0))))
    (plain,), (hopeful,) = (critic.values(room.snapshot, room, optimistic) for optimistic in (False, True))
    ratio = hopeful[1:, 1:] / plain[1:, 1:]
    assert ratio.min() >= 1 - 1e-6
    assert ratio[0, 0] < 1.05 < ratio[3, 3]


@pytest.mark.slow
def test_a_type_that_it_does_not_know_is_hoped_to_train_faster_than_jobs_usually_do(trained):
    critic, _ = trained
    room = FreeResources(at(0, JobState(job(1, model="unknown", epochs=5e4)), JobState(job(2, epochs=5e4))))
    unknown, usual = critic.values(room.snapshot, room, optimistic=False)
    assert not unknown[0].any()
    assert not unknown[:, 0].any()
    assert unknown.max() == unknown[3:, 3:].max(), "as for those that are known, all in all, more is better"
    assert 1.0 < unknown.max() < 2.0, "two slots of waiting less, discounted, where it trains as fast as it can"
    assert unknown.max() > usual.max()


def test_it_is_not_ready_before_it_has_seen_jobs_train_and_end():
    critic, experience, random = Critic(MODELS, CriticSettings(steps=1)), Experience(MODELS), np.random.default_rng(0)
    assert critic.learn(experience, random) == {}
    record(experience, at(0, JobState(job())), JobOutcome(1, 1, 1, 1.0, None))
    assert set(critic.learn(experience, random)) == {"critic/progress"}
    assert not critic.ready
    record(experience, at(1, JobState(job())), JobOutcome(1, 1, 1, 1.0, 15.0))
    critic.learn(experience, random)
    assert critic.ready


@pytest.mark.slow
def test_its_state_goes_on(trained):
    critic, _ = trained
    again = Critic(MODELS, CriticSettings(steps=400))
    again.load_state(critic.state())
    room = FreeResources(at(0, JobState(job())))
    first, second = (each.values(room.snapshot, room, optimistic=True)[0] for each in (critic, again))
    assert np.array_equal(first, second)


def test_a_policy_that_is_softened_decides_the_same():
    torch.manual_seed(1)
    policy = SharedPolicy(MODELS, hidden=8)
    torch.nn.init.normal_(policy.priority.weight)
    given = torch.from_numpy(rows(at(0, JobState(job()), JobState(job(2, model="flat")))))
    count = torch.zeros(2, dtype=torch.int64)
    before = policy(given, torch.ones(2, 2), torch.arange(2), count, count), policy.stops(given)
    policy.soften(0.25)
    after = policy(given, torch.ones(2, 2), torch.arange(2), count, count), policy.stops(given)
    for one, other in zip(before, after, strict=True):
        assert torch.allclose(one * 0.25, other, atol=1e-6)
