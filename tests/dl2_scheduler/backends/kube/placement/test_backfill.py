"""A gang that has waited too long is not passed for ever: room is kept for it, and for it alone."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.dl2_scheduler.backends.kube.placement.test_binding import decided, reasons, where
from tests.dl2_scheduler.kube_objects import NOW, gang, job, node, pod

LONG = -400.0  # seconds: longer than a gangTimeout of 5 minutes


def running(name, on, cpu="1", workers=1, **more):
    """A job that trains, whole, on one node: its pods, and itself."""
    names = [f"{name}-coordinator", f"{name}-server-0", *(f"{name}-worker-{n}" for n in range(workers))]
    pods = gang(name, workers, 1, cpu, nodes=dict.fromkeys(names, on), created=-900, **more)
    return pods, {**job(name, (workers, workers), cpu=cpu, created=-900), "status": {"phase": "Running"}}


def waits(name, workers, cpu="1", created=LONG, **more):
    return gang(name, workers, 1, cpu, created=created), job(name, (workers, workers), cpu=cpu, created=created, **more)


def test_room_that_falls_free_is_kept_for_the_one_that_has_waited_too_long():
    there, runs = running("runs", "a", workers=2)
    big, wants = waits("big", 4)
    small, later = waits("small", 1, created=-1)
    pods, jobs = [*there, *big, *small, pod("single", created=-1)], [runs, wants, later]
    young = decided([node("a", "6")], pods, jobs, now=NOW + LONG + 299)
    assert set(where(young)) == {"small-coordinator", "small-server-0", "small-worker-0"}
    found = decided([node("a", "6")], pods, jobs)
    assert not found.bindings
    assert {kept.job for kept in found.reservations} == {"big"}
    assert "room on a is kept for big, which has waited 7 min" in reasons(found)["small-worker-0"]
    assert "room on a is kept for big, which has waited 7 min" in reasons(found)["single"]
    assert "it has waited 7 min: room on a is kept for it" in reasons(found)["big-worker-0"]
    ended = decided([node("a", "6")], [*big, *small], [wants, later])
    assert {bind.pod.job for bind in ended.bindings} == {"big"}


def test_only_what_it_cannot_use_goes_to_others():
    there, runs = running("runs", "a", workers=2)
    big, wants = waits("big", 1, cpu="3")
    pods = [*there, *big, pod("first", "900m", created=-2), pod("second", "900m", created=-1)]
    found = decided([node("a", "4"), node("b", "4")], pods, [runs, wants])  # 0.9 and 4 are free, and it needs 6.1
    assert {kept.node for kept in found.reservations} == {"a", "b"}
    assert where(found) == {"first": "b"}
    assert "room on a, b is kept for big" in reasons(found)["second"]
    elsewhere = decided([node("a", "4"), node("b", "4"), node("c", "1")], pods, [runs, wants])
    assert set(where(elsewhere).values()) == {"b", "c"}


def test_the_room_is_kept_where_the_least_has_to_end():
    on_a, runs = running("full", "a", cpu="2", workers=2)
    on_b, ends = running("slack", "b", workers=1)
    big, wants = waits("big", 3, cpu="2")
    found = decided([node("a", "6100m"), node("b", "8200m")], [*on_a, *on_b, *big], [runs, ends, wants])
    assert {kept.node for kept in found.reservations} == {"b"}
    assert [kept.role for kept in found.reservations] == ["coordinator", "server", "worker", "worker", "worker"]


@pytest.mark.parametrize(
    ("nodes", "more"),
    [
        ([node("a", "4")], {}),  # larger than all nodes
        ([node("a", "40", taints=[{"key": "k", "effect": "NoSchedule"}]), node("b", "4")], {}),
        ([node("a", "40", ready=False), node("b", "4")], {}),
        ([node("b", "4")], {"nodeSelector": {"kind": "gpu"}}),  # no node is such
    ],
)
def test_one_that_never_fits_keeps_nothing_and_says_so(nodes, more):
    big, wants = waits("big", 9)
    for each in big:
        each["spec"] |= more
    small, later = waits("small", 1, created=-1)
    found = decided(nodes, [*big, *small], [wants, later])
    assert {bind.pod.job for bind in found.bindings} == {"small"}
    assert not found.reservations
    assert "would not fit if all other jobs ended, so nothing is kept for it" in reasons(found)["big-worker-0"]


def test_pods_of_others_and_of_no_job_may_never_end():
    foreign = [pod("x", "3", node="a", schedulerName="default-scheduler"), pod("y", "3", node="a")]
    big, wants = waits("big", 5)
    small, later = waits("small", 1, created=-1)
    found = decided([node("a", "10")], [*foreign, *big, *small], [wants, later])
    assert {bind.pod.job for bind in found.bindings} == {"small"}
    gone = [{**each, "metadata": {**each["metadata"], "deletionTimestamp": "2027-01-01T00:00:00Z"}} for each in foreign]
    found = decided([node("a", "10")], [*gone, *big, *small], [wants, later])
    assert not found.bindings  # they go


def test_one_keeps_room_at_a_time_the_one_that_has_waited_longest():
    there, runs = running("runs", "a", workers=3)
    first, one = waits("first", 5, created=-900)
    second, two = waits("second", 4, created=-500)
    found = decided([node("a", "7")], [*there, *first, *second], [runs, one, two])
    assert {kept.job for kept in found.reservations} == {"first"}
    assert "is kept for first" in reasons(found)["second-worker-0"]
    never, large = waits("never", 50, created=-1000)
    found = decided([node("a", "7")], [*never, *there, *first, *second], [large, runs, one, two])
    assert {kept.job for kept in found.reservations} == {"first"}


def test_its_own_patience_counts():
    there, runs = running("runs", "a", workers=3)
    big, wants = waits("big", 5, created=-20, gangTimeout="10s")
    small, later = waits("small", 1, created=-5)
    found = decided([node("a", "7.1")], [*there, *big, *small], [runs, wants, later])
    assert not found.bindings
    assert "big, which has waited 20 s" in reasons(found)["small-worker-0"]


def test_a_training_jobs_missing_minimum_and_who_has_to_save_itself_pass():
    hurt, runs = running("hurt", "a", workers=3)
    hurt[-1]["spec"].pop("nodeName")
    big, wants = waits("big", 6)
    suspended = {**job("leaves", suspend=True), "status": {"phase": "Suspending"}}
    pods = [*hurt, *big, *gang("leaves")[:1], pod("single", created=-1)]
    found = decided([node("a", "8")], pods, [runs, wants, suspended])
    assert set(where(found)) == {"hurt-worker-2", "leaves-coordinator"}
    assert {kept.job for kept in found.reservations} == {"big"}


def test_a_replacement_that_smaller_ones_would_pass_for_ever_keeps_room_too():
    pods, runs = running("hurt", "a", cpu="4", workers=2)
    pods[-1]["spec"].pop("nodeName")
    pods[-1]["metadata"]["creationTimestamp"] = pods[0]["metadata"]["creationTimestamp"]  # 15 min ago
    there, other = running("other", "b")
    found = decided([node("a", "8.5"), node("b", "5")], [*pods, *there, pod("single", created=-1)], [runs, other])
    assert [(kept.job, kept.role, kept.node) for kept in found.reservations] == [("hurt", "worker", "b")]
    assert "is kept for hurt" in reasons(found)["single"]


@pytest.mark.slow
@settings(max_examples=30, deadline=None)
@given(
    st.lists(st.integers(2, 8), min_size=1, max_size=3),
    st.lists(st.tuples(st.integers(1, 3), st.sampled_from(["500m", "1", "2"])), min_size=1, max_size=4),
    st.tuples(st.integers(2, 7), st.sampled_from(["1", "2", "4"])),
    st.integers(1, 3),
)
def test_it_starts_when_all_that_was_there_has_ended_though_others_come_all_the_time(nodes, kinds, big, ends):
    nodes = [node(f"n{number}", str(cpu)) for number, cpu in enumerate(nodes)]
    pods, wants = waits("big", *big)
    jobs, bound, waiting = {}, {}, {}
    for number in range(24):
        name = f"s{number}"
        waiting[name], jobs[name] = waits(name, *kinds[number % len(kinds)], created=number / 100)
        if number == 6:  # it comes when the place is full
            waiting["big"], jobs["big"] = pods, wants
        found = decided(
            nodes, [each for some in (bound, waiting) for made in some.values() for each in made], list(jobs.values())
        )
        places = where(found)
        for key in dict.fromkeys(bind.pod.job for bind in found.bindings):
            bound[key] = waiting.pop(key)
            for each in bound[key]:
                each["spec"]["nodeName"] = places[each["metadata"]["name"]]
        if number >= 6:
            for ended in list(bound)[:ends]:  # those that have been there longest
                if ended != "big":
                    del bound[ended], jobs[ended]
        for left in list(waiting)[:-4]:
            if left != "big":
                del waiting[left], jobs[left]
    alone = decided(nodes, waits("big", *big)[0], [wants])
    assert ("big" in bound) is bool(alone.bindings)
