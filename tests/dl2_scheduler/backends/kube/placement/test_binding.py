"""Which pods go where: gangs whole or not at all, other people's pods respected, and why one waits."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dl2_scheduler.backends.kube.apiserver.object_reading import job_of, node_of, pod_of
from dl2_scheduler.backends.kube.placement.binding import decide
from dl2_scheduler.cluster.free_resources import NodeRule
from tests.dl2_scheduler.kube_objects import NOW, gang, job, node, pod, template
from tests.sweeps import examples


def decided(nodes, pods, jobs=(), now=NOW, rule=NodeRule.SPREAD, namespaces=None):
    return decide(
        [node_of(each) for each in nodes],
        [pod_of(each) for each in pods],
        [job_of(each) for each in jobs],
        now,
        rule,
        namespaces,
    )


def where(found):
    return {bind.pod.name: bind.node for bind in found.bindings}


def reasons(found):
    return {wait.pod.name: wait.reason for wait in found.waits}


def test_a_gang_is_bound_whole_in_order_coordinator_servers_workers():
    found = decided([node("a"), node("b")], gang("one", 2, 2), [job("one", (2, 4), (2, 4))])
    assert [bind.pod.role for bind in found.bindings] == ["coordinator", "server", "server", "worker", "worker"]
    assert not found.waits
    assert set(where(found).values()) == {"a", "b"}


@pytest.mark.parametrize("written", ["999999999,1", "1,257", "9" * 5000 + ",1", "\u00b2,1", "-1,1", "1", "", "a,b"])
def test_what_no_gang_can_be_is_none_whoever_wrote_it_on_a_pod(written):
    """The scheduler makes a task of each that is missing: one annotation would take all of its memory."""
    assert pod_of(pod("p", job="one", role="worker", gang=written)).gang is None


def test_a_gang_that_does_not_fit_whole_binds_nothing_and_says_which_task_lacks_what():
    found = decided([node("a", "2"), node("b", "2")], gang("one", 3, 1), [job("one", (3, 4))])
    assert not found.bindings
    assert set(reasons(found)) == {"one-coordinator", "one-server-0", *(f"one-worker-{n}" for n in range(3))}
    text = reasons(found)["one-coordinator"]
    assert "one starts whole (coordinator, 3 workers, 1 server)" in text
    assert "its worker: 0/2 nodes are available: 2 short of cpu: it takes 1, at most 0.9 free" in text


def test_what_a_gang_could_not_have_is_free_for_the_next():
    small, big = gang("small"), gang("big", 8, 1)
    found = decided([node("a", "4")], big + small, [job("big", (8, 8), created=-9), job("small")])
    assert set(where(found)) == {"small-coordinator", "small-server-0", "small-worker-0"}
    assert "big-coordinator" in reasons(found)


def test_gangs_go_by_the_creation_of_their_jobs():
    pods = gang("late", 2, 1, created=-5) + gang("early", 2, 1)
    found = decided([node("a", "4")], pods, [job("late", (2, 2), created=5), job("early", (2, 2), created=-5)])
    assert {bind.pod.job for bind in found.bindings} == {"early"}


def test_a_gang_bound_in_part_is_completed_before_an_older_one_begins():
    half = gang("half", 2, 1, nodes={"half-coordinator": "a", "half-server-0": "a"})
    found = decided([node("a", "4")], gang("old", 2, 1) + half, [job("old", (2, 2), created=-99), job("half", (2, 2))])
    assert set(where(found)) == {"half-worker-0", "half-worker-1"}
    assert "old-worker-1" in reasons(found)


def test_room_is_kept_for_pods_of_a_gang_that_are_yet_to_come():
    first = gang("half", 2, 1)[:1]  # its coordinator's pod alone is there
    found = decided([node("a", "4")], first + gang("next"), [job("half", (2, 2), created=-9), job("next")])
    assert where(found) == {"half-coordinator": "a"}
    assert sorted(kept.role for kept in found.reservations) == ["server", "worker", "worker"]
    assert all(kept.job == "half" for kept in found.reservations)
    # and also when nothing of it is pending any more, as after a restart of the scheduler
    bound = gang("half", 2, 1, nodes={"half-coordinator": "a"})[:1]
    again = decided([node("a", "4")], bound + gang("next"), [job("half", (2, 2), created=-9), job("next")])
    assert not again.bindings
    assert len(again.reservations) == 3


def test_a_gang_without_its_coordinators_pod_does_not_begin():
    found = decided([node("a")], gang("one")[1:], [job("one")])
    assert not found.bindings
    assert "its coordinator has no pod yet" in reasons(found)["one-worker-0"]


def test_pods_beyond_the_minimum_come_after_all_gangs_and_one_by_one():
    grown = gang(
        "grown", 4, 1, least="1,1", nodes={"grown-coordinator": "a", "grown-server-0": "a", "grown-worker-0": "a"}
    )
    found = decided([node("a", "6")], grown + gang("new"), [job("grown", created=-9), job("new")])
    assert [bind.pod.name for bind in found.bindings] == [
        "new-coordinator",
        "new-server-0",
        "new-worker-0",
        "grown-worker-1",
    ]
    assert set(reasons(found)) == {"grown-worker-2", "grown-worker-3"}


def test_a_gang_not_whole_in_time_gives_back_what_is_bound():
    half = gang("half", 2, 1, nodes={"half-coordinator": "a", "half-server-0": "a"}, bound=-400, created=-400)
    jobs = [job("half", (2, 2), gangTimeout="5m")]
    others = [pod("other", "3", node="a", schedulerName="default-scheduler")]
    found = decided([node("a", "4")], half + others, jobs)
    assert sorted(gone.pod.name for gone in found.returns) == ["half-coordinator", "half-server-0"]
    assert "within its gangTimeout of 300 s" in found.returns[0].reason
    assert not found.bindings
    early = decided([node("a", "4")], half + others, jobs, now=NOW - 150)
    assert (early.returns, early.again_at) == ([], NOW - 100)


def test_a_gang_that_was_whole_has_time_for_the_pod_in_the_place_of_one_that_died():
    """A job that takes long to begin to train was thrown away as a whole, though the other pod fits."""
    nodes = {"one-coordinator": "a", "one-server-0": "a", "one-worker-0": "a"}
    old = [
        each
        for each in gang("one", 2, 1, nodes=nodes, bound=-400, created=-400)
        if each["metadata"]["name"] != "one-worker-1"
    ]
    jobs = [{**job("one", (2, 2)), "status": {"phase": "Starting"}}]
    new = pod("one-worker-2", job="one", role="worker", gang="2,1", created=-1)
    found = decided([node("a", "8")], [*old, new], jobs)
    assert (found.returns, where(found)) == ([], {"one-worker-2": "a"})
    full = decided([node("a", "2500m")], [*old, new], jobs)
    assert (full.returns, full.bindings, full.again_at) == ([], [], NOW - 1 + 300)
    alone = decided([node("a", "8")], old, jobs)  # its operator has not made another yet
    assert (alone.returns, [kept.role for kept in alone.reservations]) == ([], ["worker"])


def test_a_gang_that_has_waited_too_long_is_not_thrown_away_where_the_rest_fits_now():
    half = gang("half", 2, 1, nodes={"half-coordinator": "a", "half-server-0": "a"}, bound=-400, created=-400)
    found = decided([node("a", "4")], half, [job("half", (2, 2))])
    assert (found.returns, set(where(found))) == ([], {"half-worker-0", "half-worker-1"})


@pytest.mark.parametrize("status", [{"phase": "Running"}, {"phase": "Starting", "trained": True}])
def test_a_gang_that_has_trained_gives_nothing_back(status):
    half = gang("half", 2, 1, nodes={"half-coordinator": "a", "half-server-0": "a"}, bound=-400, created=-400)
    found = decided([node("a", "1")], half, [{**job("half", (2, 2)), "status": status}])
    assert (found.returns, found.again_at) == ([], None)
    assert set(reasons(found)) == {"half-worker-0", "half-worker-1"}


def test_room_is_what_is_bound_by_anybody_leaves():
    others = [pod(f"x{n}", "1500m", node=name, schedulerName="default-scheduler") for n, name in enumerate("ab")]
    found = decided([node("a", "2"), node("b", "4")], [*others, *gang("one", 1, 1)], [job("one")])
    assert set(where(found).values()) == {"b"}


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({}, {"plain"}),
        ({"nodeSelector": {"kind": "gpu"}}, set()),
        ({"tolerations": [{"key": "gpu", "operator": "Exists"}]}, {"plain", "gpu"}),
        ({"tolerations": [{"key": "gpu", "value": "yes", "effect": "NoSchedule"}]}, {"plain", "gpu"}),
        ({"tolerations": [{"key": "gpu", "value": "no"}]}, {"plain"}),
        ({"tolerations": [{"operator": "Exists"}], "nodeSelector": {"kind": "gpu"}}, {"gpu"}),
        ({"tolerations": [{"operator": "Exists", "effect": "NoExecute"}]}, {"plain"}),
    ],
)
def test_taints_and_selectors(spec, expected):
    nodes = [
        node("plain", "8"),
        node("gpu", "8", labels={"kind": "gpu"}, taints=[{"key": "gpu", "value": "yes", "effect": "NoSchedule"}]),
    ]
    found = decided(nodes, [pod(f"p{number}", **spec) for number in range(4)])
    assert set(where(found).values()) == expected
    if not expected:
        assert "1 has the taint gpu=yes:NoSchedule, which the pod does not tolerate" in reasons(found)["p0"]
        assert "1 has not the labels of the pod's nodeSelector" in reasons(found)["p0"]


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ({"key": "zone", "operator": "In", "values": ["x", "y"]}, {"a"}),
        ({"key": "zone", "operator": "NotIn", "values": ["x"]}, {"b", "c"}),
        ({"key": "zone", "operator": "Exists"}, {"a", "b"}),
        ({"key": "zone", "operator": "DoesNotExist"}, {"c"}),
        ({"key": "cores", "operator": "Gt", "values": ["8"]}, {"b"}),
        ({"key": "cores", "operator": "Lt", "values": ["8"]}, {"a"}),
    ],
)
def test_required_node_affinity(expression, expected):
    nodes = [
        node("a", labels={"zone": "x", "cores": "4"}),
        node("b", labels={"zone": "z", "cores": "16"}),
        node("c", labels={"cores": "many"}),
    ]
    affinity = {
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {
                "nodeSelectorTerms": [{"matchExpressions": [expression]}]
            }
        }
    }
    found = decided(nodes, [pod(f"p{number}", affinity=affinity) for number in range(3)])
    assert set(where(found).values()) == expected


def test_node_affinity_by_name():
    fields = [{"key": "metadata.name", "operator": "In", "values": ["b"]}]
    terms = {"nodeSelectorTerms": [{"matchFields": fields}]}
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
    assert where(decided([node("a"), node("b")], [pod("p", affinity=affinity)])) == {"p": "b"}


def test_nodes_that_are_cordoned_or_not_ready_get_nothing():
    found = decided([node("a", unschedulable=True), node("b", ready=False)], [pod("p")])
    assert not found.bindings
    assert "1 is cordoned" in reasons(found)["p"]
    assert "1 is not ready" in reasons(found)["p"]


def test_a_gang_is_packed_where_it_does_not_fit_spread():
    """Servers of 3, spread over 6.1 and 4, leave no node room for two workers of 2; 0.1 is the coordinator's."""
    pods = gang("one", 2, 2, "2")
    for each in pods:
        if "server" in each["metadata"]["name"]:
            each["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "3"
    for order in (("a", "b"), ("b", "a")):
        nodes = [node(name, {"a": "6100m", "b": "4"}[name]) for name in order]
        found = decided(nodes, pods, [job("one", (2, 4), (2, 4))])
        assert {name.split("-")[1]: at for name, at in where(found).items() if "coordinator" not in name} == {
            "server": "a",
            "worker": "b",
        }
        assert not found.waits


def test_extended_resources():
    asks = template("1")["spec"]["containers"][0]
    asks["resources"] = {"limits": {"nvidia.com/gpu": "2"}}
    found = decided(
        [node("a"), node("b", **{"nvidia.com/gpu": "3"})], [pod("p", containers=[asks]), pod("q", containers=[asks])]
    )
    assert where(found) == {"p": "b"}
    assert "nvidia.com/gpu: it takes 2, at most 1 free" in reasons(found)["q"]


def test_spread_and_pack():
    nodes = [node("a"), node("b")]
    pods = [pod("there", node="a"), pod("p"), pod("q")]
    assert where(decided(nodes, pods)) == {"p": "b", "q": "a"}
    assert where(decided(nodes, pods, rule=NodeRule.PACK)) == {"p": "a", "q": "a"}


def test_pods_of_others_of_unknown_jobs_and_of_other_namespaces_are_left():
    foreign = pod("foreign", schedulerName="default-scheduler")
    elsewhere = pod("elsewhere", namespace="away")
    gated = pod("gated", schedulingGates=[{"name": "x"}])
    orphan = pod("orphan", job="gone", role="worker")
    found = decided([node("a")], [foreign, elsewhere, gated, orphan], namespaces={"default"})
    assert not found.bindings
    assert reasons(found) == {"orphan": "there is no ElasticJob gone in default (yet)"}


def test_what_only_carries_a_jobs_labels_is_none_of_its_pods():
    """Anybody may label pods: with a gang that gives its room back they were deleted, and they made it whole."""
    strangers = [pod("stranger", job="one", role="worker", node="b"), pod("asks", job="one", role="worker")]
    for each, owners in zip(
        strangers, ([], [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "one"}]), strict=True
    ):
        each["metadata"]["ownerReferences"] = owners
    half = gang("one", 1, 1, nodes={"one-coordinator": "a"}, bound=-1000.0, created=-1000.0)
    full = decided([node("a", "1"), node("b", "2")], [*half, *strangers], [job("one")])
    assert [each.pod.name for each in full.returns] == ["one-coordinator"]
    assert where(full) == {"asks": "b"}
    lone = [pod_of(each) for each in strangers]
    assert [(each.job, each.role) for each in lone] == [("", "")] * 2


def test_a_job_that_is_to_have_nothing_keeps_no_room_but_its_coordinator_is_bound():
    suspended = job("one", (4, 4), suspend=True)
    found = decided([node("a", "2")], [gang("one")[0], *gang("next")], [suspended, job("next", cpu="900m")])
    assert "one-coordinator" in where(found)
    assert not found.reservations


@settings(max_examples=examples(60), deadline=None)
@given(
    st.lists(st.integers(1, 6), min_size=1, max_size=5),
    st.lists(st.tuples(st.integers(1, 4), st.integers(1, 3), st.sampled_from(["500m", "1", "2"])), max_size=6),
    st.sampled_from([NodeRule.SPREAD, NodeRule.PACK, NodeRule.ROUND_ROBIN]),
)
def test_no_node_gets_more_than_it_has_and_no_gang_is_halved(nodes, gangs, rule):
    pods, jobs, size = [], [], {}
    for number, (workers, servers, cpu) in enumerate(gangs):
        pods += gang(f"j{number}", workers, servers, cpu)
        jobs.append(job(f"j{number}", (workers, 8), (servers, 8), cpu))
        size[f"j{number}"] = workers + servers + 1
    found = decided([node(f"n{number}", str(cpu)) for number, cpu in enumerate(nodes)], pods, jobs, rule=rule)
    taken = {}
    for bind in found.bindings:
        taken[bind.node] = taken.get(bind.node, 0.0) + bind.pod.requests["cpu"]
        size[bind.pod.job] -= 1
    assert all(cpu <= nodes[int(name[1:])] + 1e-9 for name, cpu in taken.items())
    whole = {f"j{number}": workers + servers + 1 for number, (workers, servers, _) in enumerate(gangs)}
    assert all(left in (0, whole[name]) for name, left in size.items())
    assert len(found.bindings) + len(found.waits) == len(pods)
