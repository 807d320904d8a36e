"""Who feels a change is rated anew, and nobody else: the rates are those of rating all."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dl2_scheduler.cluster.hardware.machines import GRAPH, Machines
from dl2_scheduler.cluster.hardware.placements import ChangingSpeed
from dl2_scheduler.cluster.hardware.profiles import PUBLISHED
from dl2_scheduler.cluster.hardware.topologies.bcube import bcube
from dl2_scheduler.cluster.hardware.topologies.fat_tree import fat_tree
from dl2_scheduler.cluster.hardware.topologies.flat import flat
from dl2_scheduler.cluster.hardware.topologies.vl2 import vl2
from dl2_scheduler.sim.placed.calibrate import placed
from dl2_scheduler.sim.placed.formula.world import Formula
from dl2_scheduler.sim.placed.placed_speed import Mechanistic

MODELS = tuple(sorted(PUBLISHED))
TOPOLOGIES = [flat([2.0] * 9), fat_tree(4, (2.0, 4.0, 8.0)), fat_tree(4, oversubscription=8), vl2(4, 3), bcube(3)]
CLUSTERS = [(Machines.alike(GRAPH, len(topology.partition_of)), topology, PUBLISHED) for topology in TOPOLOGIES]
WORLDS = [Mechanistic(*cluster) for cluster in CLUSTERS] + [Formula.drawn(*cluster, seed=1) for cluster in CLUSTERS]
WIDE = WORLDS[1]


@st.composite
def jobs_of(draw, groups):
    """Draw jobs on a few crowded groups, some of them without tasks; and other places for some of them."""
    few = st.lists(st.integers(0, groups - 1), min_size=6, max_size=6, unique=True)
    places = st.lists(st.sampled_from(draw(few)), max_size=3)
    job = st.tuples(st.sampled_from(MODELS), places, places)
    before = draw(st.lists(job, min_size=4, max_size=12))
    changed = draw(st.sets(st.integers(0, len(before) - 1), max_size=2))
    after = [(job[0], draw(places), draw(places)) if n in changed else job for n, job in enumerate(before)]
    return before, after, np.array(sorted(changed), dtype=np.int64)


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(st.sampled_from(WORLDS), st.data())
def test_rates_after_a_change_are_those_of_rating_all(world, data):
    assert isinstance(world, ChangingSpeed)
    before, after, changed = data.draw(jobs_of(len(world.machines.sockets)))
    was, now = placed(MODELS, before), placed(MODELS, after)
    rated = world.delta(world.rated(was), now, changed)
    assert rated.rates == pytest.approx(world.rates(now), rel=1e-12)
    back = world.delta(rated, was, changed)  # what was found is as good a beginning
    assert back.rates == pytest.approx(world.rates(was), rel=1e-12)


def test_tasks_of_some_jobs_are_replaced():
    was = placed(MODELS, [("ctc", [0], [1]), ("wlm", [2, 3], [4])])
    new = placed(MODELS, [("ctc", [7], [8, 9]), ("wlm", [], [])])
    found = was.replaced(np.array([0]), new)
    assert found.job.tolist() == [1, 1, 1, 0, 0, 0]
    assert found.role.tolist() == [0, 0, 1, 0, 1, 1]
    assert found.group.tolist() == [2, 3, 4, 7, 8, 9]
    assert found.model.tolist() == was.model.tolist()


class Counting(Mechanistic):
    """Counts the jobs that it rates."""

    def _rates(self, placements, slowed):
        self.__dict__["counted"] = len(np.unique(placements.job))
        return super()._rates(placements, slowed)


@pytest.mark.parametrize(
    ("model", "others", "rated"),
    [
        ("wlm", [("ctc", [20], [21])], 1),
        ("wlm", [("ctc", [0], [21])], 2),  # beside a task of the job
        ("wlm", [("ctc", [1], [21])], 1),  # on the other socket, by a link with room
        ("wlm", [("vgg-16", [1], [21])], 2),  # by a tight link
        ("wlm", [("vgg-16", [1], [20]), ("vgg-16", [20], [30]), ("vgg-16", [10], [12])], 3),  # by a link of a link
        ("resnet-50", [("resnet-50", [1], [21])], 2),  # by a link that is tight with both
    ],
)
def test_jobs_that_feel_nothing_are_not_rated(model, others, rated):
    """A job comes, or goes, whose server lies on node 0, sockets 0 and 1.

    Links have 2 Gb/s; a flow of WLM wants 0.15, one of ResNet 1.05, one of VGG 4.1.
    """
    world = Counting(WIDE.machines, WIDE.topology, PUBLISHED)
    without, with_it = (placed(MODELS, [(model, *where), *others]) for where in (([], []), ([4], [0])))
    world.delta(world.rated(without), with_it, np.array([0]))
    assert world.counted == rated
    world.delta(world.rated(with_it), without, np.array([0]))
    assert world.counted == rated - 1


@pytest.mark.parametrize("world", [Mechanistic(*CLUSTERS[2]), Formula.drawn(*CLUSTERS[2], seed=1)])
def test_jobs_that_share_a_link_alone_feel_each_other(world):
    """Jobs exchange between the same two racks, on nodes of their own, over two links up, each by its hash."""
    others = [("vgg-16", [2 + n], [6 + n]) for n in (0, 1)] + [("vgg-16", [3], [7])]
    without, with_it = (placed(MODELS, [("vgg-16", *where), *others]) for where in (([], []), ([0, 1], [4, 4])))
    for was, now in ((without, with_it), (with_it, without)):
        found = world.delta(world.rated(was), now, np.array([0])).rates
        assert found == pytest.approx(world.rates(now), rel=1e-12)
        assert (found[1:] != world.rates(was)[1:]).any()


def test_jobs_feel_what_overflows_from_the_other_processor():
    """Eight tasks of DSSM want more cores than their processor has, and none of them exchanges over a link."""
    others = [("ctc", [0], [0]), ("dssm", [1, 1, 1], [1])]
    without, with_it = (placed(MODELS, [("dssm", *where), *others]) for where in (([], []), ([1, 1, 1], [1])))
    world = Formula.drawn(*CLUSTERS[2], seed=1)
    found = world.delta(world.rated(without), with_it, np.array([0])).rates
    assert found == pytest.approx(world.rates(with_it), rel=1e-12)
    assert found[1] < world.rates(without)[1]
