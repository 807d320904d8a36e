"""What others' speeds say of one's own cluster."""

import math

import numpy as np
import pytest

from dl2_scheduler.cluster.jobs import Job
from dl2_scheduler.learning.federated.borrowed_speeds import borrowed_speeds
from tests.dl2_scheduler.learning.federated.clusters import IDS, SPEEDS, knowledge

ONE = {"slots": 1.0}


def job(model, most=4):
    return Job(f"{model}0", 0.0, model, 8.0, 200.0, ONE, ONE, most, most)


JOBS = [job(model) for model in "ab"]


def times(factor, of):
    return {at: (count, factor * mean) for at, (count, mean) in of.items()}


def test_a_cluster_without_reports_expects_what_the_other_saw():
    found = borrowed_speeds({}, [knowledge()], JOBS)
    assert {
        model: {at: speed.samples_per_second for at, speed in of.items()} for model, of in found.speeds.items()
    } == {model: {at: pytest.approx(mean) for at, (_, mean) in of.items()} for model, of in SPEEDS.items()}
    assert math.isnan(found.off)
    assert all(0.2 < speed.spread < 0.3 for of in found.speeds.values() for speed in of.values())


def test_only_types_and_counts_that_jobs_may_have_here_are_borrowed():
    found = borrowed_speeds({}, [knowledge()], [job("a", most=2), job("c")])
    assert {model: set(of) for model, of in found.speeds.items()} == {"a": {(1, 1), (2, 2)}}
    assert borrowed_speeds({}, [knowledge()], []).count == 0


def test_jobs_without_servers_borrow_what_such_jobs_told():
    told = knowledge(speeds={"a": {(0, 2): (3, 50.0), (1, 1): (3, 20.0)}})
    for jobs, found in (
        ([job("a")], {(1, 1)}),
        ([job("a").without_servers()], {(0, 2)}),
        ([job("a"), job("a").without_servers()], {(0, 2), (1, 1)}),
    ):
        assert set(borrowed_speeds({}, [told], jobs).speeds["a"]) == found


def test_what_is_slower_here_is_scaled_the_more_surely_the_more_was_compared():
    spreads = []
    for common in ([(1, 1)], [(1, 1), (2, 2)]):
        own = {"a": times(0.5, {at: SPEEDS["a"][at] for at in common})}
        found = borrowed_speeds(own, [knowledge()], JOBS)
        assert not set(common) & set(found.speeds["a"]), "one's own reports need no others"
        assert found.speeds["a"][4, 2].samples_per_second == pytest.approx(0.5 * 25.5)
        assert found.speeds["b"][3, 1].samples_per_second == pytest.approx(0.5 * 2.0), "other types are scaled alike"
        assert found.off == pytest.approx(0.0)
        spreads.append(found.speeds["a"][4, 2].spread)
        assert spreads[-1] < found.speeds["b"][3, 1].spread
    assert spreads[1] < spreads[0]


def test_where_nothing_is_common_what_is_fitted_to_the_others_tells_the_scale():
    found = borrowed_speeds({"a": {(3, 3): (1, 200.0)}}, [knowledge()], JOBS)
    assert 4.0 < found.speeds["a"][1, 1].samples_per_second / 10.0 < 12.0
    assert len(found.missed) == 1


def test_what_disagrees_is_less_sure_and_what_is_far_off_is_not_believed():
    wide = {"a": {(at, at): (1, 10.0 * at) for at in range(1, 5)}}
    spreads = []
    for error in (0.0, 0.3, 2.0):
        own = {"a": {at: (1, mean * math.exp(error * (-1) ** at[0])) for at, (_, mean) in wide["a"].items()}}
        found = borrowed_speeds(own, [knowledge(speeds=wide | {"b": SPEEDS["b"]})], JOBS)
        assert found.off == pytest.approx(error)
        spreads.append(found.speeds["b"][1, 1].spread if found.speeds else math.inf)
        assert found.far == (error == 2.0)
    assert spreads[0] < spreads[1] < spreads[2] == math.inf


def test_several_clusters_are_surer_than_one_and_the_surer_counts_more():
    one = borrowed_speeds({}, [knowledge()], JOBS)
    two = borrowed_speeds({}, [knowledge(), knowledge(IDS[1])], JOBS)
    assert two.speeds["a"][1, 1].spread == pytest.approx(one.speeds["a"][1, 1].spread / math.sqrt(2))
    assert two.speeds["a"][1, 1].samples_per_second == pytest.approx(10.0)
    own = {"b": SPEEDS["b"]}  # only the first cluster can be compared with
    other = knowledge(IDS[1], speeds={"a": {(4, 2): (1, 50.0)}})
    found = borrowed_speeds(own, [knowledge(), other], JOBS).speeds["a"][4, 2].samples_per_second
    assert 25.5 < found < 0.95 * math.sqrt(25.5 * 50.0)


def test_of_many_configurations_the_most_measured_are_taken():
    many = {"a": {(servers, workers): (servers * workers, 1.0) for servers in range(1, 33) for workers in range(1, 33)}}
    found = borrowed_speeds({}, [knowledge(speeds=many)], [job("a", most=40)])
    assert found.count == 256
    assert (32, 32) in found.speeds["a"]
    assert (1, 1) not in found.speeds["a"]
    assert np.isfinite([speed.spread for speed in found.speeds["a"].values()]).all()
