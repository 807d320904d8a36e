"""A scaling of pods in its parts: what watches and the coordinator tell, folded."""

import pytest

from benchmarks.cluster_pods import AFTER, PARTS, WatchEvent, marks, new_pod, split
from dl2_scheduler.backends.trial import ScalingResult
from protos import elastic_pb2 as pb

BEGAN = 100.0


def job(at, workers, servers, *plans):
    spec = {"workers": {"replicas": workers}, "servers": {"replicas": servers}}
    status = {"plans": [{"id": plan} for plan in plans]} if plans else {}
    return WatchEvent(
        at, "MODIFIED", {"kind": "ElasticJob", "metadata": {"name": "digits"}, "spec": spec, "status": status}
    )


def pod(at, kind, name, node=""):
    spec = {"nodeName": node} if node else {}
    return WatchEvent(at, kind, {"kind": "Pod", "metadata": {"name": name}, "spec": spec})


def scaling(seen, steps=(2500, 20, 110, 10), **plan):
    return ScalingResult(pb.Plan(id=7, started=100.5, ended=103.15, steps_ms=steps, **plan), {}, seen)


COMES = [
    job(100.1, 1, 1, 6),  # how far training has come
    job(100.4, 2, 1, 6),
    pod(100.6, "MODIFIED", "digits-worker-1", "node-1"),  # another one
    pod(100.7, "ADDED", "digits-worker-2"),
    job(100.8, 2, 1, 6),
    pod(100.8, "MODIFIED", "digits-worker-2"),
    pod(100.9, "MODIFIED", "digits-worker-2", "node-2"),
    pod(101.9, "MODIFIED", "digits-worker-2", "node-2"),
    job(103.4, 2, 1, 6, 7),
]
GOES = [
    job(100.4, 1, 1, 6),
    job(103.4, 1, 1, 6, 7),
    pod(103.5, "MODIFIED", "digits-worker-2", "node-2"),
    pod(103.9, "DELETED", "digits-worker-2", "node-2"),
]


def test_each_part_of_a_worker_that_comes_ends_where_it_was_first_told():
    found = marks(COMES, (2, 1), scaling({"w1": 102.9}))
    told = {"command": 100.4, "operator": 100.5, "pod": 100.7, "binding": 100.9, "process start": 102.9}
    steps = {"registration": 103.0, "assignment": 103.02, "migration": 103.13, "worker update": 103.14}
    assert found == pytest.approx({**told, **steps, "status": 103.4})


def test_parts_that_follow_one_another_add_up_to_the_last_step():
    born = {"container": 101.3, "launcher": 101.5}
    done = split("one worker more", BEGAN, {**marks(COMES, (2, 1), scaling({"w1": 102.9})), **born}, 103.15)
    assert [name for name in done.parts if name in PARTS] == list(PARTS)
    assert done.parts["container"] == pytest.approx(400)
    assert done.parts["process start"] == pytest.approx(1400)
    assert sum(done.parts[name] for name in PARTS) == pytest.approx(3140)
    assert done.whole == pytest.approx(3150)
    assert {name: done.parts[name] for name in AFTER if name in done.parts} == pytest.approx({"status": 250})


def test_a_worker_that_goes_has_no_pod_to_wait_for_and_is_gone_after_the_commit():
    found = marks(GOES, (1, 1), scaling({}, steps=(0, 20, 110, 10)))
    assert not {"pod", "binding", "process start"} & found.keys()
    done = split("one worker less", BEGAN, found, 100.65)
    assert done.parts["registration"] == pytest.approx(0)
    assert done.parts["pod gone"] == pytest.approx(3250)


def test_a_look_that_came_after_the_assignment_does_not_make_registration_less_than_nothing():
    found = marks(COMES, (2, 1), scaling({"w1": 103.05}))
    assert found["process start"] == found["registration"] == pytest.approx(103.0)


@pytest.mark.parametrize("told", range(len(COMES)))
def test_what_is_not_yet_told_is_missing(told):
    found = marks(COMES[:told], (2, 1), scaling({"w1": 102.9}))
    assert ("command" in found, "binding" in found, "status" in found) == (told > 1, told > 6, told > 8)


def test_the_new_pod_is_the_one_that_was_added():
    assert new_pod(COMES) == "digits-worker-2"
    assert new_pod(GOES) is None
