"""What learns in mixes: experience and critic of jobs without servers, and checkpoints from before there were any."""

import numpy as np
import pytest
import torch

from dl2_scheduler.cluster.free_resources import FreeResources
from dl2_scheduler.cluster.interfaces import JobOutcome
from dl2_scheduler.cluster.snapshot import JobState
from dl2_scheduler.learning.critic import Critic, CriticPolicy, CriticSettings
from dl2_scheduler.learning.experience import Experience, ScalingKind, SlotConfiguration
from dl2_scheduler.learning.lessons import Lessons
from dl2_scheduler.learning.networks import new_policy
from dl2_scheduler.learning.rollout import Clusters, roll_out, taught_by
from dl2_scheduler.learning.sequences import probabilities
from dl2_scheduler.learning.teacher import PolicyTeacher
from dl2_scheduler.policies.rules.drf import Drf
from dl2_scheduler.sim.shipped import shipped_speeds
from dl2_scheduler.sim.trace import parse_cluster
from tests.dl2_scheduler.clusters import job, serverless
from tests.dl2_scheduler.learning.test_critic import MODELS, at, record

pytestmark = pytest.mark.timeout(300)


def test_experience_of_workers_alone_is_kept_and_read_back():
    experience = Experience(MODELS)
    done = JobOutcome(1, 2, 0, 40.0, None), JobOutcome(2, 2, 0, 40.0, None)
    record(experience, at(0, JobState(serverless(1)), JobState(job(2))), *done)
    assert experience.speeds == {SlotConfiguration(0, ScalingKind.START, 0, 2): (4.0, 1)}  # a job with servers had none
    again = Experience(MODELS)
    again.load_state(experience.state())
    assert again.speeds == experience.speeds


def trained(servers):
    """A critic that has seen jobs train with as many servers as workers, or with none."""
    torch.manual_seed(0)
    experience, kind = Experience(MODELS), job if servers else serverless
    for slot in range(3):
        for workers in (1, 2, 4):
            now = at(slot, JobState(kind(1, epochs=1000.0), 0.0, 1, workers, workers * servers))
            record(experience, now, JobOutcome(1, workers, workers * servers, 10.0 * workers, None), cluster=workers)
    for workers in (1, 2, 4):
        now = at(3, JobState(kind(1, epochs=1000.0), 0.0, 1, workers, workers * servers))
        record(experience, now, JobOutcome(1, workers, workers * servers, 10.0, 35.0), cluster=workers)
    critic = Critic(MODELS, CriticSettings(steps=60))
    critic.learn(experience, np.random.default_rng(0))
    return critic


def test_the_critic_values_workers_of_a_job_without_servers():
    critic = trained(servers=0)
    now = at(9, JobState(serverless(1, epochs=1000.0)), JobState(job(2, epochs=1000.0)))
    ring, other = critic.values(now, FreeResources(now), optimistic=False)
    assert ring.shape == (1, 5)
    assert ring[0, 0] == 0
    assert (ring[0, 1:] > 0).all()
    assert not other[0].any()
    grants = CriticPolicy(critic).allocate(now, FreeResources(now)).grants
    assert (grants[1].workers > 0, grants[1].servers) == (True, 0)


def test_it_reads_what_it_wrote_before_there_were_such_jobs():
    critic = trained(servers=1)
    before = critic.state()
    assert not before["seen_without_servers"].any()
    del before["seen_without_servers"]
    again = Critic(MODELS, CriticSettings())
    again.load_state(before)
    now = at(9, JobState(job(1, epochs=1000.0)))
    found, expected = (each.values(now, FreeResources(now), False)[0] for each in (again, critic))
    assert (found == expected).all()


@pytest.mark.slow
def test_episodes_of_mixes_can_be_played_and_learnt_from():
    speeds = shipped_speeds()
    lessons = Lessons((parse_cluster("8x8cpu,8gpu"),), jobs=6, without_servers=0.5)
    (episode,) = lessons.episodes(0, 1)
    assert {one.has_servers for one in episode.jobs} == {True, False}
    policy = new_policy(speeds.models, 0)
    clusters = Clusters([episode], speeds, speeds.models)
    played = roll_out(clusters, policy.weights(), taught_by(PolicyTeacher(Drf())), most_slots=30)
    played.slots.check()
    logs = probabilities(policy, played.slots)
    assert torch.isfinite(logs).all(), "every action of the teacher may be learnt"
    logs.sum().backward()
