"""Pods beside pods: affinity, anti-affinity, spreading, ports; with those that are there, or are placed at once."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.dl2_scheduler.backends.kube.placement.test_binding import decided, reasons, where
from tests.dl2_scheduler.kube_objects import NOW, gang, job, node, pod, template
from tests.sweeps import examples

HOST, ZONE = "kubernetes.io/hostname", "zone"
EXISTS = {"key": "app", "operator": "Exists"}
FOREIGN = {"schedulerName": "default-scheduler"}


def nodes(*zones, cpu="8"):
    return [
        node(f"n{n}", cpu, labels={HOST: f"n{n}", **({ZONE: zone} if zone else {})}) for n, zone in enumerate(zones)
    ]


def labelled(made, **labels):
    made["metadata"]["labels"] |= labels
    return made


def term(key=HOST, labels=None, **more):
    return {"topologyKey": key, "labelSelector": {"matchLabels": labels or {"app": "x"}}, **more}


def near(*terms):
    return {"affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": list(terms)}}}


def apart(*terms):
    return {"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": list(terms)}}}


def spread(key=ZONE, skew=1, labels=None, **more):
    each = {"maxSkew": skew, "topologyKey": key, "whenUnsatisfiable": "DoNotSchedule", **more}
    return {"topologySpreadConstraints": [{**each, "labelSelector": {"matchLabels": labels or {"app": "x"}}}]}


def port(number=80, **more):
    made = template("1")["spec"]["containers"][0]
    return {"containers": [{**made, "ports": [{"containerPort": number, "hostPort": number, **more}]}]}


def allowed(there, spec, on, **labels):
    """Nodes that a pod may go to."""
    found = set()
    for each in on:
        name = each["metadata"]["name"]
        only = [each if other is each else {**other, "spec": {**other["spec"], "unschedulable": True}} for other in on]
        if where(decided(only, [*there, labelled(pod("p", **spec), **labels)])):
            found.add(name)
    return found


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        (term(), {"n0"}),
        (term(ZONE), {"n0", "n1"}),
        (term(ZONE, {"app": "y"}), set()),
        (term(ZONE, namespaces=["away"]), {"n2"}),
        (term(ZONE, namespaceSelector={}), {"n0", "n1", "n2"}),
        ({"topologyKey": ZONE, "labelSelector": {}}, {"n0", "n1"}),
        ({"topologyKey": ZONE}, set()),
        (term(ZONE, {}) | {"labelSelector": {"matchExpressions": [EXISTS]}}, {"n0", "n1"}),
        (term(ZONE, matchLabelKeys=["version"]), set()),
        (term(ZONE, mismatchLabelKeys=["version"]), {"n0", "n1"}),
    ],
)  # fmt: skip
def test_affinity_and_anti_affinity_see_the_same_pods(asked, expected):
    on = nodes("a", "a", "b", "")
    there = [
        labelled(pod("x", node="n0", **FOREIGN), app="x", version="1"),
        labelled(pod("y", node="n2", namespace="away", **FOREIGN), app="x"),
    ]
    assert allowed(there, near(asked), on, version="2") == expected
    assert allowed(there, apart(asked), on, version="2") == {"n0", "n1", "n2", "n3"} - expected


def test_all_terms_of_an_affinity_must_be_met_by_one_pod_in_each_place():
    on = nodes("a", "a", "b")
    there = [labelled(pod("x", node="n0"), app="x"), labelled(pod("y", node="n1"), app="x", kind="y")]
    assert allowed(there, near(term(ZONE), term(HOST, {"kind": "y"})), on) == {"n1"}


def test_the_first_of_those_that_want_to_be_together_may_begin_where_there_are_places():
    on = nodes("", "a", "b")
    assert allowed([], near(term(ZONE)), on, app="x") == {"n1", "n2"}
    assert allowed([], near(term(ZONE)), on, app="y") == set()
    found = decided(on, [labelled(pod(f"p{n}", "3", **near(term(ZONE))), app="x") for n in range(3)])
    assert len(set(where(found).values())) == 1
    assert "3 does not meet the pod's affinity" not in str(reasons(found))
    assert "2 does not meet the pod's affinity to other pods" in next(iter(reasons(found).values()))


def test_a_pod_that_is_there_keeps_others_away():
    on = nodes("a", "a", "b")
    there = [pod("x", node="n0", **FOREIGN, **apart(term(ZONE)))]
    assert allowed(there, {}, on, app="x") == {"n2"}
    assert allowed(there, {}, on, app="y") == {"n0", "n1", "n2"}
    found = decided(on[:2], [*there, labelled(pod("p"), app="x")])
    assert "2 keeps the pod away: a pod of its zone has such an anti-affinity" in reasons(found)["p"]
    selected = [pod("x", node="n0", **FOREIGN, **apart(term(ZONE, namespaceSelector={"matchLabels": {"k": "v"}})))]
    assert allowed(selected, {}, on, app="x") == {"n2"}  # nobody here knows namespaces' labels: it might mean ours


def test_claims_of_devices_are_refused_as_nobody_would_allot_them():
    claims = {"resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "one"}]}
    found = decided(nodes("a"), [pod("p", **claims), pod("q", resourceClaims=[])])
    assert set(where(found)) == {"q"}
    assert "p asks for resourceClaims, which the scheduler dl2 does not know" in reasons(found)["p"]


def test_a_selector_of_namespaces_by_label_is_refused_with_its_field_and_a_way_out():
    asked = near(term(ZONE, namespaceSelector={"matchLabels": {"k": "v"}}))
    text = reasons(decided(nodes("a"), [pod("p", **asked)]))["p"]
    assert "affinity.podAffinity.namespaceSelector" in text
    assert "name another schedulerName" in text


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        (port(80), {"n1"}),
        (port(81), {"n0", "n1"}),
        (port(80, protocol="UDP"), {"n0", "n1"}),
        (port(80, hostIP="10.0.0.1"), {"n1"}),
        (port(90, hostIP="10.0.0.1"), {"n0", "n1"}),
        (port(90, hostIP="10.0.0.2"), {"n1"}),
        ({"hostNetwork": True, "containers": [{**port()["containers"][0], "ports": [{"containerPort": 80}]}]}, {"n1"}),
    ],
)
def test_a_port_of_the_host_is_had_once(asked, expected):
    there = [pod("x", node="n0", **FOREIGN, **port(80)), pod("y", node="n0", **FOREIGN, **port(90, hostIP="10.0.0.2"))]
    assert allowed(there, asked, nodes("", "")) == expected


def test_two_that_want_one_port_do_not_go_to_one_node():
    found = decided(nodes("", ""), [pod(f"p{n}", **port()) for n in range(3)], rule=1)
    assert sorted(where(found).values()) == ["n0", "n1"]
    assert "2 has not the host port 80 free" in reasons(found)["p2"]


def test_spreading_over_zones():
    on = nodes("a", "a", "b", "c", "")
    there = [labelled(pod(f"x{n}", node=name), app="x") for n, name in enumerate(["n0", "n1", "n2"])]
    there.append(labelled(pod("elsewhere", node="n3", namespace="away"), app="x"))  # no pod of its namespace
    assert allowed(there, spread(), on, app="x") == {"n3"}
    assert allowed(there, spread(skew=2), on, app="x") == {"n2", "n3"}
    assert allowed(there, spread(skew=2), on) == {"n0", "n1", "n2", "n3"}  # it is no such pod itself
    everywhere = [
        *there,
        labelled(pod("x3", node="n2"), app="x"),
        *(labelled(pod("x4", node="n3"), app="x") for _ in "12"),
    ]
    assert allowed(everywhere, spread(), on, app="x") == {"n0", "n1", "n2", "n3"}
    assert allowed(everywhere, spread(skew=2, minDomains=4), on, app="x") == set()
    outside = {"nodeSelector": {ZONE: "a"}}
    assert allowed(there, {**spread(), **outside}, on, app="x") == {"n0", "n1"}  # the zones that it may go to count
    assert allowed(there, {**spread(nodeAffinityPolicy="Ignore"), **outside}, on, app="x") == set()


def test_pods_about_to_go_are_not_counted_when_spreading_but_keep_others_away():
    on = nodes("a", "b")
    goes = labelled(pod("x", node="n0", **FOREIGN), app="x")
    goes["metadata"]["deletionTimestamp"] = "2027-01-01T00:00:00Z"
    assert allowed([goes], spread(), on, app="x") == {"n0", "n1"}
    assert allowed([goes], apart(term()), on) == {"n1"}


def test_a_tainted_zone_counts_unless_the_pod_says_otherwise():
    on = [*nodes("a"), node("t", labels={ZONE: "b"}, taints=[{"key": "k", "effect": "NoSchedule"}])]
    there = [labelled(pod("x", node="n0"), app="x")]
    assert allowed(there, spread(), on, app="x") == set()
    assert allowed(there, spread(nodeTaintsPolicy="Honor"), on, app="x") == {"n0"}


def with_template(made, **spec):
    """A job whose pods are of such a template, and its pods."""
    pods, one = made
    for each in pods:
        each["spec"] |= spec
    for role in ("workers", "servers"):
        one["spec"][role]["template"]["spec"] |= spec
    return pods, one


def test_a_gangs_pods_know_of_one_another():
    pods, one = with_template(
        (gang("one", 2, 1), job("one", (2, 4))), **apart(term(HOST, {"dl2.scheduler/job": "one"}))
    )
    assert len(set(where(decided(nodes("", "", "", ""), pods, [one])).values())) == 4
    found = decided(nodes("", "", ""), pods, [one])
    assert not found.bindings
    assert "its worker: 0/3 nodes are available: 3" in reasons(found)["one-worker-0"]
    first = decided(nodes("", "", "", ""), pods[:1], [one])  # its coordinator is there, the others are yet to come
    assert len({*where(first).values(), *(kept.node for kept in first.reservations)}) == 4


def test_a_gang_that_wants_to_be_together_finds_the_place_that_has_room_for_all():
    asks = near(term(ZONE, {"dl2.scheduler/job": "one"}))
    pods, one = with_template((gang("one", 3, 1), job("one", (3, 4))), **asks)
    on = nodes("a", "b", "b", "c", cpu="2200m")
    assert set(where(decided(on, pods, [one])).values()) == {"n1", "n2"}
    assert not decided(on[:1] + on[2:], pods, [one]).bindings


def test_room_is_kept_where_those_that_must_be_apart_will_fit():
    asks = apart(term(HOST, {"dl2.scheduler/job": "big"}))
    pods, big = with_template((gang("big", 1, 1, "2", created=-400), job("big", (1, 1), cpu="2", created=-400)), **asks)
    names = ["runs-coordinator", "runs-server-0", "runs-worker-0"]
    there = gang("runs", 1, 1, "3", nodes=dict(zip(names, ["n0", "n1", "n2"], strict=True)))
    runs = {**job("runs", (1, 1), cpu="3"), "status": {"phase": "Running"}}
    others = [pod("s", "2", created=-1)]
    found = decided(nodes("", "", "", cpu="4"), [*there, *pods, *others], [big, runs], now=NOW)
    assert {kept.node for kept in found.reservations} == {"n0", "n1", "n2"}
    assert where(found) == {"s": "n0"}  # beside its coordinator
    assert all("room on n0, n1, n2 is kept for it" in reasons(found)[pod["metadata"]["name"]] for pod in pods)


APPS = st.sampled_from(["x", "y", "z"])


@settings(max_examples=examples(80), deadline=None)
@given(
    st.lists(st.tuples(APPS, st.none() | APPS, st.sampled_from([HOST, ZONE]), st.booleans()), max_size=12),
    st.lists(st.sampled_from(["a", "b", ""]), min_size=1, max_size=5),
    st.booleans(),
)
def test_whoever_must_be_apart_is_and_nobody_waits_without_need(wishes, zones, ports):
    on, pods = nodes(*zones), []
    for number, (app, avoids, key, ours) in enumerate(wishes):
        spec = (apart(term(key, {"app": avoids})) if avoids else {}) | (port() if ports and avoids == "z" else {})
        there = {} if ours else {**FOREIGN, "node": f"n{number % len(on)}"}
        pods.append((labelled(pod(f"p{number}", "100m", **there, **spec), app=app), avoids, key))
    found = decided(on, [made for made, *_ in pods])
    places, labels = where(found), {each["metadata"]["name"]: each["metadata"]["labels"] for each in on}

    def clash(one, its_node, other, other_node):
        """Whether the first, there, must not be beside the second."""
        made, avoids, key = one
        meets = avoids == other[0]["metadata"]["labels"]["app"] and key in labels[its_node]
        same = meets and labels[its_node].get(key) == labels[other_node].get(key)
        return same or ("ports" in str(made) and "ports" in str(other[0]) and its_node == other_node)

    name = [made["metadata"]["name"] for made, *_ in pods]
    at = [places.get(name[n]) or made["spec"].get("nodeName") for n, (made, *_) in enumerate(pods)]

    def may_be(number, on_node):
        others = [(each, at[n]) for n, each in enumerate(pods) if n != number and at[n]]
        mine = pods[number]
        return not any(clash(mine, on_node, each, its) or clash(each, its, mine, on_node) for each, its in others)

    for number in range(len(pods)):
        if name[number] in places:
            assert may_be(number, at[number])
        elif not at[number]:
            assert not any(may_be(number, each) for each in labels)
