"""Models of speeds: what they read, that ours knows no order, and that they learn."""

import numpy as np
import pytest
import torch

from dl2_scheduler.cluster.errors import BadInput
from dl2_scheduler.cluster.hardware.machines import Hardware, Machines, Socket
from dl2_scheduler.cluster.hardware.placements import PlacementArrays
from dl2_scheduler.learning.placement.harmony.flattened_speed import FitSettings, fit_flattened, flattened
from dl2_scheduler.learning.placement.reward_model import PooledNet, fit_pooled, joined, relative_errors
from dl2_scheduler.policies.learnt.pooled_network import pooled_inputs
from dl2_scheduler.policies.learnt.pooled_speed import PooledSpeed, base_speeds
from dl2_scheduler.sim.placed.calibrate import placed
from dl2_scheduler.sim.placed.samples import draw_samples
from dl2_scheduler.sim.placed.scenario import Scenario

SCENARIO = Scenario.harmony(3.0)
GROUPS = len(SCENARIO.machines.sockets)
MODELS = sorted(SCENARIO.profiles)
BASE = base_speeds(SCENARIO.profiles)
SAMPLES = draw_samples(SCENARIO.machines, SCENARIO.profiles, SCENARIO.world, 400, seed=0)

JOBS = [("ctc", [0, 1], [0]), ("vgg-16", [1], [1, 2]), ("wlm", [0, 0, 2], [2])]


def untrained() -> tuple[PooledNet, PooledSpeed]:
    torch.manual_seed(0)
    net = PooledNet(len(MODELS))
    return net, PooledSpeed({name: value.detach().numpy() for name, value in net.state_dict().items()}, BASE)


def test_inputs_count_tasks_and_pairs():
    inputs = pooled_inputs(placed(MODELS, JOBS))
    assert inputs.first.tolist() == [2, 4, 9]
    # ctc: 2 workers, 1 server on two groups, one pair of two apart; wlm: 3 workers, 1 server, two of three pairs apart
    assert np.exp(inputs.counts[:, :4]) == pytest.approx(np.array([[2, 1, 2, 2], [1, 2, 0.5, 2], [3, 1, 3, 2]]))
    assert inputs.counts[:, 4] == pytest.approx([1 / 2, 1 / 2, 2 / 3])


def test_the_policys_numbers_are_the_networks():
    net, speeds = untrained()
    where = placed(MODELS, JOBS)
    expected = np.exp(net(pooled_inputs(where)).detach().numpy()) * BASE[where.model]
    assert speeds.rates(where) == pytest.approx(expected, rel=1e-5)


def test_the_order_of_jobs_and_groups_does_not_matter():
    _, speeds = untrained()
    order, groups = [2, 0, 1], [4, 0, 3]
    moved = [(JOBS[n][0], [groups[g] for g in JOBS[n][1]], [groups[g] for g in JOBS[n][2]]) for n in order]
    assert speeds.rates(placed(MODELS, moved)) == pytest.approx(speeds.rates(placed(MODELS, JOBS))[order], rel=1e-5)


def test_jobs_without_a_role_have_no_speed_and_others_keep_theirs():
    _, speeds = untrained()
    alone = speeds.rates(placed(MODELS, [("ctc", [0], [1])]))
    rates = speeds.rates(placed(MODELS, [("wlm", [3], []), ("ctc", [0], [1]), ("wlm", [], [4])]))
    assert rates == pytest.approx([0, alone[0], 0])


def test_clusters_are_joined_side_by_side():
    _, speeds = untrained()
    clusters = list(SAMPLES.clusters[:5])
    apart = np.concatenate([speeds.rates(each) for each in clusters])
    assert speeds.rates(joined(clusters, GROUPS)) == pytest.approx(apart, rel=1e-5)


def test_the_flattened_input_is_the_papers():
    row = flattened(placed(MODELS, JOBS), len(MODELS), GROUPS)
    kinds, counts, where = np.split(row, [16 * 6, 16 * 6 + 2 * 16])
    assert kinds.reshape(16, 6).argmax(axis=1).tolist()[:3] == [MODELS.index(job[0]) for job in JOBS]
    assert kinds.sum() == 3
    assert counts.reshape(2, 16)[:, :3].tolist() == [[2, 1, 3], [1, 2, 1]]
    assert where.reshape(GROUPS, 32)[:, :6].tolist() == [
        [1, 1, 0, 0, 2, 0], [1, 0, 1, 1, 0, 0], [0, 0, 0, 1, 1, 1], *[[0] * 6] * 3
    ]  # fmt: skip
    assert len(row) == 96 + 32 + 192


@pytest.mark.slow
def test_fits_learn_and_a_seed_gives_the_same():
    fitted, test = SAMPLES.split(0.9, seed=1)
    few = FitSettings(epochs=30, batch=32)
    where = fitted, SCENARIO.profiles, GROUPS
    ours, again = fit_pooled(*where, few), fit_pooled(*where, few)
    paper = fit_flattened(*where, few)
    guess = untrained()[1]
    errors = [
        relative_errors([speeds.rates(each) for each in test.clusters], list(test.rates)).mean()
        for speeds in (ours, again, paper, guess)
    ]
    assert errors[0] == errors[1] < 0.12
    assert errors[0] < errors[2] < errors[3]


def test_samples_fill_clusters_within_capacity():
    demand = {MODELS.index(model): SCENARIO.profiles[model] for model in MODELS}
    for cluster in SAMPLES.clusters[:100]:
        used = np.zeros((GROUPS, 2))
        for job, role, group in zip(cluster.job, cluster.role, cluster.group, strict=True):
            profile = demand[int(cluster.model[job])]
            taken = profile.server if role else profile.worker
            used[group] += [taken["cpu"], taken["gpu"]]
        assert (used <= SCENARIO.machines.capacity).all()
        assert isinstance(cluster, PlacementArrays)
        assert (cluster.counts(0) > 0).all()
        assert (cluster.counts(1) > 0).all()
    assert (np.concatenate(SAMPLES.rates) > 0).all()


def test_samples_of_a_cluster_that_no_job_fits_are_refused():
    tiny = Machines.alike(Hardware((Socket(cores=1, gpus=0),)), 2)
    with pytest.raises(BadInput, match="no job of any model fits"):
        draw_samples(tiny, SCENARIO.profiles, SCENARIO.world, 1, 0)


def test_a_last_batch_of_one_sample_is_left_out():
    samples = draw_samples(SCENARIO.machines, SCENARIO.profiles, SCENARIO.world, 40, 0)
    several = samples.part(np.flatnonzero([1 < len(each.model) <= 16 for each in samples.clusters])[:9])
    fitted = fit_flattened(several, SCENARIO.profiles, len(SCENARIO.machines.sockets), FitSettings(epochs=1, batch=8))
    assert (fitted.rates(several.clusters[0]) >= 0).all()


def test_harmonys_model_gives_no_speed_to_half_a_job_and_refuses_more_jobs_than_it_has_rows():
    speeds = fit_flattened(SAMPLES.part(np.arange(40)), SCENARIO.profiles, GROUPS, FitSettings(epochs=1, batch=32))
    rates = speeds.rates(placed(MODELS, [("wlm", [3], []), ("ctc", [0], [1])]))
    assert rates[0] == 0
    assert rates[1] > 0
    with pytest.raises(BadInput, match="17 jobs: Harmony's model of speeds knows 16"):
        speeds.rates(placed(MODELS, [("ctc", [0], [1])] * 17))
