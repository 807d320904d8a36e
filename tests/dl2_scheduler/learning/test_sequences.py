"""Probabilities of whole slots and their gradients, against a slow reference."""

import numpy as np
import pytest
import torch

from dl2_scheduler.cluster.jobs import Job, Node
from dl2_scheduler.cluster.speeds import Speeds
from dl2_scheduler.learning.networks import SharedPolicy
from dl2_scheduler.learning.rollout import Clusters, Episode, roll_out
from dl2_scheduler.learning.sequences import Slots, probabilities
from dl2_scheduler.policies.learnt.actions import ACTIONS, BOTH, SERVER, STOP, WORKER

MODELS = ("a", "b")


@pytest.fixture
def speeds():
    servers, workers = np.mgrid[0:5, 0:5]
    grid = workers * servers / (workers + servers + 1.0)
    return Speeds({"a": grid, "b": 2 * grid})


def episode(seed):
    random = np.random.default_rng(seed)
    jobs = [
        Job(number, 1200.0 * (number // 2), MODELS[number % 2], float(random.integers(50, 99)), 40.0,
            {"cpu": 2, "gpu": 1}, {"cpu": 1}, 4, 4, 1 + number % 2, 1 + number % 3)
        for number in range(6)
    ]  # fmt: skip
    return Episode(jobs, [Node("n0", {"cpu": 8, "gpu": 4}), Node("n1", {"cpu": 7, "gpu": 2})])


@pytest.fixture
def policy():
    torch.manual_seed(3)
    return SharedPolicy(MODELS, hidden=12)


@pytest.fixture
def rollout(policy, speeds):
    clusters = Clusters([episode(1), episode(2)], speeds, MODELS)
    return roll_out(clusters, policy.weights())


def slow(policy, slots: Slots):
    """Log probability of each action, inference by inference."""
    logs = []
    for slot in range(len(slots)):
        jobs = range(slots.first_job[slot], slots.first_job[slot + 1])
        counts = {job: [0, 0] for job in jobs}
        actions = slots.actions[slots.first_action[slot] : slots.first_action[slot + 1]]
        for inference, action in enumerate(actions):
            entries, names = [], []
            for job in jobs:
                at = (torch.tensor([value]) for value in (job, *counts[job]))
                scores = policy(torch.from_numpy(slots.rows), torch.from_numpy(slots.share), *at)[0]
                workers, servers = counts[job]
                for kind in (WORKER, SERVER, BOTH):
                    full = (kind != SERVER and workers == slots.most[job, 0]) or (
                        kind != WORKER and servers == slots.most[job, 1]
                    )
                    first = not workers and kind != BOTH
                    if not full and not first and slots.closed[job, kind] > inference:
                        entries.append(scores[kind])
                        names.append((job - jobs.start) * ACTIONS + kind)
            waits = any(slots.runs[j] and not counts[j][0] and slots.closed[j, BOTH] > inference for j in jobs)
            if not waits:
                entries.append(policy.stops(torch.from_numpy(slots.rows[jobs.start : jobs.start + 1]))[0])
                names.append(STOP)
            log = torch.log_softmax(torch.stack(entries).double(), 0)
            logs.append(log[names.index(action)])
            if action != STOP:
                job = jobs.start + action // ACTIONS
                more = [action % ACTIONS != SERVER, action % ACTIONS != WORKER] if counts[job][0] else slots.least[job]
                counts[job] = [counts[job][0] + more[0], counts[job][1] + more[1]]
    return torch.stack(logs)


def test_probabilities_and_gradients_as_one_by_one(policy, rollout):
    slots = rollout.slots
    assert len(slots.actions) > 30
    weights = torch.from_numpy(np.random.default_rng(1).normal(size=len(slots.actions)))
    results = []
    for found in (probabilities(policy, slots), slow(policy, slots)):
        policy.zero_grad()
        (found @ weights).backward()
        results.append((found, [value.grad.clone() for value in policy.parameters()]))
    assert torch.allclose(results[0][0], results[1][0], atol=1e-5)
    for one, other in zip(results[0][1], results[1][1], strict=True):
        assert torch.allclose(one, other, atol=1e-3, rtol=1e-3)


def test_some_slots_are_as_among_all(policy, rollout):
    slots = rollout.slots
    numbers = np.array([0, 2, 3])
    whole, part = probabilities(policy, slots), probabilities(policy, slots.chosen(numbers))
    slot_of_action = np.repeat(np.arange(len(slots)), np.diff(slots.first_action))
    assert torch.allclose(part, whole[torch.from_numpy(np.isin(slot_of_action, numbers))], atol=1e-6)
    again = Slots.joined([slots.chosen(np.array([number])) for number in range(len(slots))])
    assert torch.allclose(probabilities(policy, again), whole, atol=1e-6)
