"""What sharing a socket costs, by hand and by properties; and the anchors of published testbeds."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dl2_scheduler.cluster.hardware.machines import HARMONY, Hardware, Machines, Socket
from dl2_scheduler.cluster.hardware.profiles import HARMONY_MODELS, PUBLISHED
from dl2_scheduler.cluster.hardware.topologies.flat import flat_of
from dl2_scheduler.sim.placed.calibrate import anchors, count_errors, placed
from dl2_scheduler.sim.placed.contention import Contention, fair_level, throughput
from dl2_scheduler.sim.placed.placed_speed import Mechanistic
from dl2_scheduler.sim.placed.traits import TRAITS, Needs
from dl2_scheduler.sim.shipped import shipped_speeds

MODELS = tuple(sorted(PUBLISHED))
MACHINES = Machines.alike(HARMONY, 8)
WORLD = Mechanistic(MACHINES, flat_of(MACHINES), PUBLISHED)

amounts = st.lists(st.floats(0.01, 100), min_size=1, max_size=9)
jobs = st.lists(
    st.tuples(
        st.sampled_from(MODELS),
        st.lists(st.integers(0, 2), min_size=1, max_size=3),
        st.lists(st.integers(0, 2), min_size=1, max_size=3),
    ),
    min_size=1,
    max_size=5,
)


def test_small_needs_are_met_and_large_ones_share_alike():
    assert fair_level(np.array([1.0, 5.0, 9.0]), 9.0) == 4.0
    assert fair_level(np.array([1.0, 5.0, 3.0]), 9.0) == np.inf


@given(amounts, st.floats(0.1, 200))
def test_a_level_divides_all_that_there_is(needs, capacity):
    given_out = np.minimum(needs, fair_level(np.array(needs), capacity)).sum()
    assert given_out == pytest.approx(min(sum(needs), capacity))


def test_second_threads_of_cores_add_little():
    assert [throughput(wanted, 8, 16) for wanted in (4.0, 8.0, 12.0, 16.0, 40.0)] == pytest.approx(
        [4, 8, 9.2, 10.4, 10.4]
    )


@pytest.mark.parametrize("model", MODELS)
def test_a_job_alone_has_its_profiles_speeds(model):
    profile = PUBLISHED[model]
    for server, mbps in ((1, profile.apart_mbps), (0, profile.together_mbps)):
        where = placed(MODELS, [(model, [0], [server])])
        assert not WORLD.contention.slowdown(where).any()
        assert WORLD.rates(where) == pytest.approx(profile.batch / (profile.alone_s + profile.size_mb / mbps))


@given(jobs, jobs)
def test_another_job_never_makes_tasks_compute_faster(some, more):
    before = WORLD.contention.slowdowns(placed(MODELS, some))
    after = WORLD.contention.slowdowns(placed(MODELS, some + more))[:, : before.shape[1]]
    assert (before >= 0).all()
    assert (after >= before - 1e-12).all()


@given(jobs, st.randoms(use_true_random=False))
def test_the_order_of_jobs_and_nodes_does_not_matter(some, random):
    order = random.sample(range(len(some)), len(some))
    nodes = random.sample(range(8), 8)
    moved = [(some[n][0], [nodes[g] for g in some[n][1]], [nodes[g] for g in some[n][2]]) for n in order]
    rates = WORLD.rates(placed(MODELS, moved))
    assert rates == pytest.approx(WORLD.rates(placed(MODELS, some))[order], rel=1e-9)


def test_a_job_without_a_role_does_not_run():
    assert WORLD.rates(placed(MODELS, [("ctc", [0], []), ("ctc", [], [1]), ("ctc", [2], [2])])).tolist()[:2] == [0, 0]


def test_a_strength_of_nothing_is_no_interference():
    alone = Mechanistic(MACHINES, flat_of(MACHINES), PUBLISHED, strength=0.0)
    crowd = placed(MODELS, [("ctc", [0], [0])] * 4)
    assert alone.rates(crowd) == pytest.approx([PUBLISHED["ctc"].batch / (0.585 + 24 / 159.6)] * 4)
    assert (WORLD.rates(crowd) < 0.5 * alone.rates(crowd)).all()


def test_pcie_is_shared_within_a_socket():
    """A worker of VGG moves 2 x 553.4 MB in 1.83 s; two of them have 0.5 GB/s."""
    narrow = Machines.alike(Hardware((Socket(cores=8, gpus=2, pcie_gbps=4.0),) * 2), 1)
    contention = Contention(narrow, Needs.of(PUBLISHED, TRAITS))
    moving = contention.slowdowns(placed(MODELS, [("vgg-16", [0], [0]), ("vgg-16", [0], [0]), ("ctc", [0], [1])]))[1]
    wanted = 2 * 0.5534 / (0.535 + 553.4 / 427.8)
    assert moving == pytest.approx([wanted / 0.25 - 1, 0, wanted / 0.25 - 1, 0, 0, 0])


def test_the_world_holds_the_published_anchors():
    found = anchors({model: PUBLISHED[model] for model in HARMONY_MODELS})
    assert found.mean_loss == pytest.approx(0.33, abs=0.005)
    assert 1 / (1 - found.losses["resnext-110"]) == pytest.approx(2.0, abs=0.1)
    mildest = sorted(found.pairs, key=lambda pair: found.pairs[pair])[:3]
    assert {("resnet-50", "wlm"), ("resnet-50", "seq2seq")} < set(mildest)
    assert sum(found.packed["vgg-16"]) > sum(found.spread["vgg-16"])
    assert sum(found.packed["resnext-110"]) < sum(found.spread["resnext-110"])
    for beside in found.beside_ctc.values():
        assert list(beside) == sorted(beside, reverse=True)
    assert found.beside_ctc["resnext-110"][1] < found.beside_ctc["vgg-16"][1]


def test_counts_change_speeds_about_as_they_were_measured():
    errors = count_errors(WORLD, MODELS, shipped_speeds())
    assert set(errors) == set(MODELS)
    assert np.mean(list(errors.values())) < 0.15  # 0.13; the worst, inception-bn, 0.37
