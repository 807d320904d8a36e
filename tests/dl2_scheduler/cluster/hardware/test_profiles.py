"""Profiles give back the speeds that their figures were derived from, and machines count their groups."""

import numpy as np
import pytest

from dl2_scheduler.cluster.hardware.machines import GRAPH, HARMONY, Machines, named
from dl2_scheduler.cluster.hardware.placements import SERVER, WORKER, PlacementArrays
from dl2_scheduler.cluster.hardware.profiles import HARMONY_MODELS, PUBLISHED

# samples a second of one worker and one server: on two nodes, on one node
MEASURED = {
    "resnet-50": (20.5, 40.9),
    "vgg-16": (11.0, 17.5),
    "resnext-110": (374.0, 381.0),
    "inception-bn": (116.0, 150.0),
    "seq2seq": (169.0, 232.0),
    "ctc": (51.0, 68.0),
    "dssm": (405.0, 389.0),
    "wlm": (80.0, 161.0),
}


@pytest.mark.parametrize("model", MEASURED)
def test_a_profile_gives_the_measured_speeds(model):
    profile = PUBLISHED[model]
    steps = (profile.alone_s + profile.size_mb / mbps for mbps in (profile.apart_mbps, profile.together_mbps))
    assert [profile.batch / step for step in steps] == pytest.approx(MEASURED[model], rel=0.005)


def test_the_papers_models_are_profiled():
    assert set(HARMONY_MODELS) < set(PUBLISHED) == set(MEASURED)


def test_groups_are_numbered_through_the_nodes():
    machines = Machines((GRAPH, HARMONY))
    assert machines.node_of.tolist() == [0, 0, 1]
    assert machines.capacity.tolist() == [[16.0, 2.0], [16.0, 2.0], [16.0, 2.0]]
    assert [dict(node.capacity) for node in named(machines)] == [{"cpu": 32, "gpu": 4}, {"cpu": 16, "gpu": 2}]


def test_tasks_are_counted_by_role():
    zeros = np.zeros(3, dtype=np.int64)
    tasks = PlacementArrays(np.array([0, 1, 2]), np.array([0, 0, 2]), np.array([WORKER, SERVER, WORKER]), zeros, zeros)
    assert (tasks.counts(WORKER).tolist(), tasks.counts(SERVER).tolist()) == ([1, 0, 1], [1, 0, 0])
