"""What a policy sees of a Kubernetes cluster."""

import pytest

from dl2_scheduler.backends.kube.apiserver.object_reading import job_of, node_of, pod_of
from dl2_scheduler.backends.kube.capacity import TasksAsMade
from dl2_scheduler.backends.kube.views import (
    change_of,
    outcome_of,
    scaled,
    snapshot_of,
    status_of,
)
from dl2_scheduler.cluster.free_resources import FreeResources
from dl2_scheduler.cluster.interfaces import SlotOutcome
from dl2_scheduler.cluster.snapshot import Allocation, Grant
from dl2_scheduler.live.recorded_slots import of_decision, of_outcome, read_slot
from tests.dl2_scheduler.kube_objects import NOW, gang, job, node, pod, stamp, template

COORDINATOR = 0.05  # cores that are kept for one


def seen(nodes, pods=(), jobs=(), epochs_before=None, tasks=None):
    there = [pod_of(each) for each in pods]
    found = (tasks or TasksAsMade()).see(scaled([job_of(each) for each in jobs]), there)
    return snapshot_of(3, 30.0, [node_of(each) for each in nodes], there, found, NOW, {}, epochs_before or {})


def cores(snapshot):
    return {each.name: round(each.capacity["cpu"], 6) for each in snapshot.nodes}


def test_room_is_what_others_leave():
    others = [
        pod("x", "1", node="a", schedulerName="default-scheduler"),
        pod("y", "1500m", node="b", job="held", role="worker"),
    ]
    found = seen([node("a"), node("b")], others, [job("one", allocation=None), job("held", scaling="Manual")])
    assert [state.job.id for state in found.jobs] == ["one"]
    assert cores(found) == {"a": 3 - COORDINATOR, "b": 2.5}


def test_tasks_of_jobs_that_the_policy_decides_about_leave_their_room_to_it_but_not_their_coordinators():
    names = {"one-coordinator": "a", "one-server-0": "a", "one-worker-0": "b"}
    found = seen([node("a"), node("b")], gang("one", nodes=names), [job("one")])
    assert cores(found) == {"a": 3.9, "b": 4}


def test_a_task_takes_what_its_pods_do_where_that_is_more_than_its_template_says():
    """Whoever admits pods may add to them: policies granted what never fitted."""
    pods = gang("one", nodes={"one-coordinator": "a", "one-server-0": "a", "one-worker-0": "b"})
    (made,) = [each for each in pods if each["metadata"]["name"] == "one-worker-0"]
    added = {"name": "proxy", "resources": {"requests": {"cpu": "500m", "example.com/nic": "1"}}}
    made["spec"]["containers"].append(added)
    found = seen([node("a"), node("b")], pods, [job("one"), job("two", allocation=None)])
    one, two = (state.job for state in found.jobs)
    assert one.worker["cpu"] == two.worker["cpu"] + 0.5
    assert one.worker["example.com/nic"] == 1
    assert "example.com/nic" not in two.worker
    assert one.server == two.server


def test_what_was_added_to_a_jobs_pods_counts_when_they_are_gone_and_is_forgotten_with_the_job():
    """It fitted by its template, did not by its pods, and was granted and lost the same for ever."""
    tasks, nodes, one = TasksAsMade(), [node("a"), node("b")], job("one")
    pods = gang("one", nodes={"one-worker-0": "b"})
    pods[2]["spec"]["containers"].append({"name": "proxy", "resources": {"requests": {"cpu": "500m"}}})
    again = {**one, "metadata": {**one["metadata"], "uid": "another", "creationTimestamp": stamp(NOW + 60)}}
    slots = [((), [one]), (pods, [one]), (pods, [one]), ((), [one]), (pods, [again]), ((), []), ((), [one])]
    asked = []
    for there, jobs in slots:
        found = seen(nodes, there, jobs, tasks=tasks)
        asked += [state.job.worker["cpu"] for state in found.jobs]
    assert asked == [1, 1.5, 1.5, 1.5, 1, 1]


@pytest.mark.slow
def test_coordinators_that_could_come_have_their_room():
    jobs = [job(f"j{number}", (1, 2), (1, 2), allocation=None) for number in range(9)]
    found = seen([node("a", "4"), node("b", "2")], (), jobs)
    kept = 6 - sum(cores(found).values())
    assert kept == pytest.approx(2 * COORDINATOR)  # a third job's minimum of two cores has no place beside two others'
    room = FreeResources(found)
    assert [room.give(number, 1, 1) for number in range(3)] == [True, True, False]


def test_a_coordinator_that_fits_exactly_leaves_nothing_and_not_less():
    other = pod("x", "250m", node="a", schedulerName="default-scheduler")
    found = seen([node("a", "300m"), node("b")], [other], [job("one", allocation=None)])  # 0.3 - 0.25 < 0.05 in floats
    assert found.nodes[0].capacity["cpu"] == 0.0


def test_jobs_that_are_not_the_policys_are_left_out():
    jobs = [
        job("held", scaling="Manual"),
        job("suspended", suspend=True),
        {**job("done"), "status": {"phase": "Completed"}},
        job("old", created=-5),
        job("new", created=5, namespace="team"),
    ]
    found = seen([node("a")], (), jobs)
    assert [(state.job.id, state.job.arrival) for state in found.jobs] == [("old", 0.0), ("team/new", 5.0)]


def test_a_jobs_bounds_demands_and_progress():
    status = {
        "phase": "Running",
        "workers": 2,
        "servers": 1,
        "epoch": 2.5,
        "samplesPerEpoch": 70,
        "samplesPerSecond": 9,
    }
    made = {**job("one", (2, 8), (1, 3), cpu="1500m"), "status": status}
    found = seen([node("a")], (), [made])
    state = found.jobs[0]
    assert (state.job.min_workers, state.job.max_workers, state.job.min_servers, state.job.max_servers) == (2, 8, 1, 3)
    assert state.job.worker == {"cpu": 1.5, "pods": 1}
    assert (state.epochs_done, state.workers, state.servers, state.job.samples_per_epoch) == (2.5, 2, 1, 70)
    assert [(told.workers, told.servers, told.samples_per_second) for told in found.reports] == [(2, 1, 9)]
    assert not state.starting
    state.job.check()


@pytest.mark.parametrize(
    ("samples", "before", "stands"),
    [(70, None, False), (70, 2.5, True), (70, 2.25, False), (70, 3.0, False), (0, 2.5, False)],
)
def test_a_job_that_got_no_further_since_the_snapshot_before_stands(samples, before, stands):
    """One with static data never tells how far it is."""
    status = {"phase": "Running", "workers": 2, "servers": 1, "epoch": 2.5, "samplesPerSecond": 9}
    made = {**job("one"), "status": status | {"samplesPerEpoch": samples}}
    epochs = {} if before is None else {made["metadata"]["uid"]: before}
    (report,) = seen([node("a")], (), [made], epochs).reports
    assert report.stands is stands


def test_a_job_whose_gang_may_wait_for_longer_than_any_is_seen_all_the_same():
    (state,) = seen([node("a")], (), [job("one", gangTimeout="1000h")]).jobs
    assert state.job.id == "one"


@pytest.mark.parametrize("asked", [{"epochs": 1e12}, {"cpu": "100E"}])
def test_a_job_that_asks_for_more_than_can_be_does_not_make_the_slot_unreadable(asked):
    found = seen([node("a")], (), [job("one", **asked), job("two")])
    grants = Allocation({state.job.id: Grant(0, 0) for state in found.jobs})
    assert read_slot((NOW, "drf", of_decision(found, grants), None)).snapshot == found


def test_a_job_that_asked_for_more_epochs_than_can_be_and_completes_leaves_the_slot_readable():
    now = {"status": {"phase": "Completed", "epoch": 7.0, "completionTime": stamp(NOW + 5)}}
    before, after = (job_of({**job("one", epochs=1e12), **status}) for status in ({}, now))
    found, grant = seen([node("a")], (), [job("one", epochs=1e12)]), Grant(1, 1)
    done = outcome_of(before, after, grant, "", 0.0, NOW, NOW + 9)
    row = of_decision(found, Allocation({before.id: grant})), of_outcome(SlotOutcome(3, (done,), ()))
    (read,) = read_slot((NOW, "drf", *row)).outcome.jobs
    assert read.epochs == found.jobs[0].job.epochs == 1e9


@pytest.mark.parametrize("speed", [1e308, 1e-308, -1.0])
def test_a_job_that_tells_what_cannot_be_tells_nothing(speed):
    lies = {"epoch": 1e300, "samplesPerEpoch": 1e300, "samplesPerSecond": speed}
    found = seen([node("a")], (), [{**job("one"), "status": {"phase": "Running", "workers": 1, "servers": 1, **lies}}])
    assert (found.jobs[0].epochs_done, found.jobs[0].job.samples_known, found.reports) == (0.0, False, ())
    found.jobs[0].job.check()


def test_a_job_whose_pods_start_says_so():
    found = seen([node("a")], (), [{**job("one"), "status": {"phase": "Starting"}}])
    assert found.jobs[0].starting


def test_extended_resources_are_seen_where_a_job_asks_for_them():
    asks = {"resources": {"limits": {"nvidia.com/gpu": "1"}}, "image": "i", "command": ["python"]}
    role = {"max": 4, "template": template(containers=[asks])}
    found = seen(
        [node("a", **{"nvidia.com/gpu": "3", "other/thing": "9"})], (), [job("one", workers=role, allocation=None)]
    )
    assert found.nodes[0].capacity.keys() == {"cpu", "memory", "pods", "nvidia.com/gpu"}
    room = FreeResources(found)
    assert [room.give(0, 3, 1), room.give(0, 1, 0)] == [True, False]


def test_slots_are_asked_of_virtual_nodes_alone():
    """The operator makes pods without them: a job that asked for some, as on a cluster of a machine, never began."""
    asks = template()
    asks["spec"]["containers"][0]["resources"]["requests"]["slots"] = 2
    role = {"min": 1, "max": 4, "template": asks}
    found = seen([node("a")], (), [job("one", workers=role, servers=role, allocation=None)])
    assert found.jobs[0].job.worker == found.jobs[0].job.server == {"cpu": 1, "pods": 1}
    assert FreeResources(found).give(0, 1, 1)


def test_what_servers_and_coordinator_inherit_of_the_workers_template_counts_and_what_they_do_not_does_not():
    fetch = {"name": "fetch", "resources": {"requests": {"cpu": "2"}}}
    asks = template("4", initContainers=[fetch], resources={"requests": {"cpu": "6"}})
    made = job("one", workers={"min": 1, "max": 2, "template": asks}, servers={"min": 1, "max": 2}, allocation=None)
    found = seen([node("a", "16")], (), [made])
    state = found.jobs[0]
    assert (state.job.worker, state.job.server) == ({"cpu": 6, "pods": 1}, {"cpu": 2, "pods": 1})
    assert cores(found) == {"a": 14}, "its coordinator begins as a server does"


def test_nodes_where_nobody_may_go_are_left_out_and_tasks_there_stay():
    taint = {"key": "gpu", "effect": "NoSchedule"}
    nodes = [
        node("a"),
        node("tainted", taints=[taint]),
        node("cordoned", unschedulable=True),
        node("dead", ready=False),
    ]
    there = {"one-coordinator": "a", "one-server-0": "cordoned", "one-worker-0": "dead"}
    found = seen(nodes, gang("one", nodes=there), [job("one")])
    assert cores(found) == {"a": 3.9, "cordoned": 1}


def test_what_jobs_ask_of_nodes_has_the_same_name_in_each_slot():
    """Histories keep what a job's tasks take, and dreams put it on nodes of later slots."""

    def asks(kind):
        return {"max": 4, "template": template("1", nodeSelector={"kind": kind})}

    nodes = [node(kind, labels={"kind": kind}) for kind in ("big", "small", "odd")]
    first = seen(nodes, (), [job("one", workers=asks("big"))])
    others = [job(kind, workers=asks(kind), created=-5) for kind in ("odd", "small")]
    later = seen([*nodes, node("more", labels={"kind": "big"})], (), [*others, job("one", workers=asks("big"))])
    (one,) = [state.job for state in later.jobs if state.job.id == "one"]
    (name,) = [name for name in one.worker if name.startswith("allowed-")]
    assert one.worker == first.jobs[0].job.worker
    assert {each.name for each in later.nodes if each.capacity[name]} == {"big", "more"}


def test_tasks_go_only_where_they_may_though_policies_know_no_constraints():
    role = {"max": 4, "template": template("1", nodeSelector={"kind": "big"})}
    jobs = [job("picky", workers=role, allocation=None), job("any", created=1, allocation=None)]
    found = seen([node("a", "8"), node("b", "3", labels={"kind": "big"})], (), jobs)
    room = FreeResources(found)
    assert room.give(0, 2, 1)
    assert not room.give(0, 2, 0)  # of its two places one is taken, wherever its server went
    assert room.give(1, 4, 4) is False
    assert room.give(1, 4, 2)


def all_reduce(name, gpus="1", **more):
    """A job without servers, a worker of which takes a core and GPUs, as a limit."""
    asks = {"resources": {"requests": {"cpu": "1"}, "limits": {"nvidia.com/gpu": gpus}}, "image": "i"}
    workers = {"min": 1, "max": 4, "template": template(containers=[{**asks, "command": ["python"]}])}
    written = job(name, workers=workers, **more)
    del written["spec"]["servers"]
    written["spec"]["mode"] = "all-reduce"
    return written


def test_a_job_without_servers_has_workers_only_and_their_gpus_count():
    status = {"phase": "Running", "workers": 2, "epoch": 1.0, "samplesPerSecond": 9.0, "samplesPerEpoch": 70}
    found = seen([node("a", **{"nvidia.com/gpu": "2"})], (), [{**all_reduce("one"), "status": status}])
    (state,) = found.jobs
    assert (state.job.min_servers, state.job.max_servers, state.job.server, state.servers) == (0, 0, {}, 0)
    assert state.job.worker["nvidia.com/gpu"] == 1.0
    assert [(told.workers, told.servers) for told in found.reports] == [(2, 0)]
    state.job.check()
    room = FreeResources(found)
    assert [room.give(0, 2, 0), room.give(0, 1, 0), room.give(0, 0, 1)] == [True, False, False]
    one = job_of(all_reduce("one"))
    assert (one.servers.max, one.servers.requests, status_of(one, "one", ()).max_servers) == (0, {}, 0)


@pytest.mark.parametrize("make", [all_reduce, job])
def test_a_policy_sees_which_jobs_can_be_saved(make):
    """It needs a URL: an interval alone names no place."""
    found = seen(
        [node("a")],
        (),
        [make("x"), make("y", checkpoint={"interval": "5m"}), make("z", checkpoint={"url": "/ckpt"})],
    )
    assert [(state.job.id, state.saves) for state in found.jobs] == [("x", False), ("y", False), ("z", True)]


def test_its_minimum_is_a_gang_of_workers():
    written = all_reduce("one", allocation=(2, 0))
    found = seen([node("a", cpu="4", **{"nvidia.com/gpu": "4"})], (), [written])
    assert cores(found)["a"] == pytest.approx(4 - COORDINATOR)
    assert change_of(job_of(written), Grant(2, 0), "", 3, 0.0, "drf", "") is None
