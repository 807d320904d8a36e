"""The policies see what the simulator hands to policies, here by small stand-ins."""

from types import SimpleNamespace

import numpy as np
import pytest

from benchmarks.sia_simulator.choice import ChoiceSettings
from benchmarks.sia_simulator.length_aware import GPU, LengthAwareChoice, model_of
from benchmarks.sia_simulator.model_history import ModelHistory
from benchmarks.sia_simulator.play import set_restart
from benchmarks.sia_simulator.policy_classes import length_aware_policy, length_aware_sia
from tests.benchmarks.sia_simulator.stand_ins import Speedup

SETTINGS = ChoiceSettings()
ALL = [("slow", 1, 1), ("slow", 1, 2), ("slow", 1, 4), ("fast", 1, 1), ("fast", 1, 2), ("fast", 1, 4), ("fast", 2, 8)]
NODES = {
    "slow": {0: SimpleNamespace(resources={GPU: 4})},
    "fast": {n: SimpleNamespace(resources={GPU: 4}) for n in (0, 1)},
}


def job(speedups=None, most=1, **more):
    """Return what the simulator tells policies of a job."""
    values = {
        "speedup_fn": {"slow": None, "fast": None, **(speedups or {})},
        "max_replicas": {"slow": most, "fast": most},
        "used_gpu_seconds": 0.0,
        "wasted_gpu_seconds": 0.0,
        "cluster_throughputs": {"slow": 1.0, "fast": 3.0},
        "cluster_throughput_ratios": {"slow": {"fast": 1 / 3}, "fast": {"slow": 3.0}},
        "scaling_underway": False,
    }
    return SimpleNamespace(**{**values, **more})


@pytest.fixture
def policy():
    return LengthAwareChoice(ALL, {"slow": 4, "fast": 8}, lambda _: 30.0, SETTINGS)


class TestLengthAwareChoice:
    def test_a_new_job_starts_on_one_gpu_of_the_better_type_and_may_grow_no_faster_than_it_is_told(self, policy):
        assert policy.optimize({"net-0": job()}, NODES, {}) == {"net-0": ("fast", [0])}
        grown = job({"fast": Speedup(3.0)}, most=2, used_gpu_seconds=30.0, wasted_gpu_seconds=30.0)
        assert policy.optimize({"net-0": grown}, NODES, {"net-0": ("fast", [0])}) == {"net-0": ("fast", [0, 0])}

    def test_a_job_that_restarts_keeps_its_gpus(self, policy):
        busy = job({"fast": Speedup(3.0)}, most=8, scaling_underway=True)
        before = {"net-0": ("slow", [0, 0])}
        assert policy.optimize({"net-0": busy}, NODES, before) == before

    def test_it_learns_lengths_from_jobs_that_ended_and_nobody_tells_it(self, policy):
        for used in (0.0, 100.0):
            running = job({"fast": Speedup(3.0)}, used_gpu_seconds=used)
            policy.optimize({"net-0": running}, NODES, {"net-0": ("fast", [0])} if used else {})
        policy.optimize({"net-1": job()}, NODES, {})  # the first has ended
        assert policy._models["net"].totals == [3.0 * 100 + 30 * 3.0]

    def test_restarts_are_measured(self, policy):
        known = {"fast": Speedup(3.0)}
        for used, wasted in ((0.0, 0.0), (0.0, 120.0), (40.0, 200.0)):
            tuned = job(known, used_gpu_seconds=used, wasted_gpu_seconds=wasted)
            policy.optimize({"net-0": tuned}, NODES, {"net-0": ("fast", [0, 0])} if wasted else {})
        assert policy._models["net"].restart_seconds == 100

    def test_a_new_job_is_as_fast_as_those_before_and_gains_from_gpus_when_they_did(self, policy):
        """The first gains nothing from further GPUs in its first half, and all that there is in its second."""
        halves = {60.0: (1.0, 0.0), 120.0: (0.0, 1.0)}
        for used, noise in halves.items():
            running = job({"fast": Speedup(3.0, noise)}, 8, used_gpu_seconds=used)
            policy.optimize({"net-0": running}, NODES, {"net-0": ("fast", [0])})
        (fresh,) = policy.outlooks({"net-1": job(most=4)}, {})
        course = policy._course(job(), policy._models["net"], policy._jobs["net-1"])
        assert course.total == policy._models["net"].totals[0] == 180 + 180 + 90
        assert course.speeds[:, 3:] == pytest.approx(np.array([[3, 3, 3, 3], [3, 6, 12, 24]]))
        assert course.speeds[:, :3] == pytest.approx(course.speeds[:, 3:6] / 3)  # as the simulator's ratio says
        assert fresh.remaining == 450
        assert fresh.alone == pytest.approx(150)
        assert fresh.speeds[3] < fresh.speeds[5]
        assert fresh.speeds[6] == 0  # more than it may have

    def test_names_have_a_model(self):
        assert model_of("cifar10-12") == "cifar10"


class SiaPolicy:
    """Sia as the simulator has it: its private solver gets a weight for each job."""

    def __init__(self, speed):
        self.speed = speed

    def populate_valid_configs(self, nodes, per_node, most):
        self.idx_to_config_map = dict(enumerate(ALL))
        self.cluster_total_gpus = {"slow": 4, "fast": 8}

    def optimize(self, jobs, nodes, before):
        rigid, adaptive = ["net-1"], [name for name in jobs if name != "net-1"]
        return self.__solve_mip_rescaled({"rigid": (rigid, 0), "adaptive": (adaptive, 0)}, {}, np.ones((1, 2)), {})

    def __solve_mip_rescaled(self, problem, gpus, weights, pinned):
        return weights


def made(maker):
    policy = maker(SiaPolicy, lambda _: 1.0, SETTINGS)(speed=7)
    policy.populate_valid_configs({}, {}, {})
    assert isinstance(policy, SiaPolicy)
    assert policy.speed == 7
    return policy


def test_ours_is_a_policy_of_the_simulator_s_class():
    assert made(length_aware_policy).optimize({"net-0": job()}, NODES, {}) == {"net-0": ("fast", [0])}


def test_sia_with_lengths_solves_its_own_problem_with_our_weights():
    policy = made(length_aware_sia)
    policy._choice._models.update({"long": ModelHistory([1e6]), "net": ModelHistory([1e3])})
    weights = policy.optimize({"net-1": job(), "long-0": job()}, NODES, {})
    assert weights == pytest.approx(np.array([[1 / np.sqrt(3), 1]]))  # adaptive ones first; the rigid one is shorter


def test_a_restart_of_another_length_is_known_to_the_simulator_and_to_its_policies():
    application, told = SimpleNamespace(rescale_time=250), SimpleNamespace(get_restart_penalty=lambda _: 250)
    set_restart(1.0, {"fast": {"net": application}}, told)
    assert (application.rescale_time, told.get_restart_penalty("net-3")) == (1.0, 1.0)
