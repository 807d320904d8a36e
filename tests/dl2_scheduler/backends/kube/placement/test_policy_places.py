"""A placement policy decides among the nodes that a gang's pods may go to."""

import numpy as np
import pytest

from dl2_scheduler.backends.kube.apiserver.object_reading import job_of, node_of, pod_of
from dl2_scheduler.backends.kube.placement.binding import decide
from dl2_scheduler.backends.kube.placement.expected_pods import ExpectedPod
from dl2_scheduler.cluster.free_resources import NodeRule
from dl2_scheduler.cluster.hardware.view import Places
from dl2_scheduler.cluster.placement.guarded_placement import GuardedPlacement
from dl2_scheduler.policies.placement.registry import NamedPlacement, make_placement, spread_placement
from tests.dl2_scheduler.kube_objects import NOW, gang, given, job, node, pod


def guarded(policy) -> GuardedPlacement:
    named = make_placement(policy) if isinstance(policy, str) else NamedPlacement("mine", policy)
    return GuardedPlacement(named, spread_placement())


def decided(nodes, pods, jobs=(), policy="best-fit", now=NOW, expected=()):
    read = [node_of(each) for each in nodes], [pod_of(each) for each in pods], [job_of(each) for each in jobs]
    return decide(*read, now, NodeRule.SPREAD, policy=guarded(policy), expected=expected)


def where(found):
    return {bind.pod.name: bind.node for bind in found.bindings}


class Watching:
    def __init__(self, answer):
        self.answer, self.views = answer, []

    def place(self, view):
        self.views.append(view)
        return self.answer(view)


def on(node_index):
    """Places all that is missing on one node."""
    return Watching(
        lambda view: Places(
            {
                job: ((node_index,) * row[0], (node_index,) * row[1])
                for job, row in enumerate(view.missing.tolist())
                if any(row)
            }
        )
    )


def waits(_view):
    return Places()


def test_workers_and_servers_go_where_the_policy_says_and_why_is_said():
    nodes = [node("a"), node("b"), node("c")]
    found = decided(nodes, gang("one", 2, 1), [job("one", (2, 4))], on(1))
    assert {name: at for name, at in where(found).items() if "coordinator" not in name} == {
        "one-server-0": "b",
        "one-worker-0": "b",
        "one-worker-1": "b",
    }
    assert found.placed == {("default", "one"): "b by mine"}
    spread = decided(nodes, gang("one", 2, 1), [job("one", (2, 4))], "load-balance")
    assert len({at for name, at in where(spread).items() if "coordinator" not in name}) == 3


def test_a_coordinator_leaves_the_room_that_the_policy_chose():
    """The gang fills node a to the last core, and the rule would put its coordinator there: it is the emptiest."""
    nodes = [node("a", cpu="2"), node("b", cpu="2")]
    found = decided(nodes, [pod("web", cpu="1", node="b"), *gang("one", 1, 1)], [job("one")], on(0))
    assert where(found) == {"one-coordinator": "b", "one-server-0": "a", "one-worker-0": "a"}
    assert found.placed == {("default", "one"): "a by mine"}


def test_what_is_said_of_a_jobs_places_does_not_grow_with_its_pods():
    class InTurn:
        """Puts each further pod on the next node."""

        def __init__(self):
            self.asked = -1

        def place(self, view):
            self.asked += 1
            group = (self.asked % 8,)
            return Places({0: tuple(group * int(count) for count in view.missing[0])})

    nodes = [node(f"n{number}", cpu="9") for number in range(8)]
    found = decided(nodes, gang("one", 20, 1, least="1,1"), [job("one", (1, 30))], InTurn())
    assert len(found.bindings) == 22
    assert found.placed == {("default", "one"): "n0 by mine; n1 by mine; n2 by mine; and 5 more"}


def test_the_policy_sees_who_is_where_and_where_pods_may_go():
    nodes = [node("a", labels={"disk": "ssd"}), node("b", labels={"disk": "ssd"}), node("c"), node("d", cpu="1")]
    there = gang("old", 1, 1, nodes=dict.fromkeys(("old-coordinator", "old-server-0", "old-worker-0"), "a"))
    others = [pod("web", cpu="3", node="b")]
    new = gang("new", 1, 2)
    for each in new:
        each["spec"]["nodeSelector"] = {"disk": "ssd"} if "worker" in each["metadata"]["name"] else {}
    watching = Watching(lambda view: make_placement("best-fit").place(view))
    found = decided(nodes, there + others + new, [job("old", created=-9), job("new", (1, 2), (2, 2))], watching)
    (view,) = watching.views
    assert [state.job.id for state in view.jobs] == ["old", "new"]
    assert view.missing.tolist() == [[0, 0], [1, 2]]
    assert (view.placed.group.tolist(), view.placed.role.tolist()) == ([0, 0], [0, 1])
    assert view.free[:, 0].tolist() == pytest.approx([1.9, 1.0, 4.0, 1.0])
    assert view.allowed[1].tolist() == [[True, True, False, False], [True, True, True, True]]
    assert view.demand[1, :, 0].tolist() == [1.0, 1.0]
    assert where(found)["new-worker-0"] in ("a", "b")
    assert len(where(found)) == 4


def test_a_policy_that_lets_a_gang_wait_is_obeyed_until_it_has_waited_too_long():
    one = job("one", gangTimeout="30s")
    early = decided([node("a")], gang("one"), [one], Watching(waits))
    assert not early.bindings
    assert {wait.reason for wait in early.waits} == {"one fits, and the placement policy mine lets it wait"}
    late = decided([node("a")], gang("one"), [one], Watching(waits), now=NOW + 60)
    assert len(late.bindings) == 3
    assert late.placed == {("default", "one"): "placed without mine: it would let it wait"}
    half = gang("one", nodes={"one-coordinator": "a"})
    assert len(decided([node("a")], half, [one], Watching(waits)).bindings) == 2


def test_a_choice_that_other_resources_do_not_allow_is_left_for_the_rule():
    nodes = [node("a", cpu="8", pods="2"), node("b", cpu="8"), node("c", cpu="8")]
    found = decided(nodes, gang("one", 3, 1), [job("one", (3, 4))], on(0))
    assert len(where(found)) == 5
    assert sum(at == "a" for at in where(found).values()) <= 2
    assert found.placed == {
        ("default", "one"): "placed without mine: its choice does not fit what else the pods ask for"
    }


def test_a_policy_that_fails_binds_by_the_fallback_and_says_so():
    def broken(_view):
        raise RuntimeError("no luck")

    found = decided([node("a")], gang("one"), [job("one")], Watching(broken))
    assert len(found.bindings) == 3
    assert found.placed[("default", "one")].endswith(
        "spread placed it, as mine failed: it raised RuntimeError: no luck"
    )
    refused = decided([node("a"), node("b", cpu="0.5")], gang("one"), [job("one")], on(1))
    assert "its tasks may not go to group 1" in refused.placed[("default", "one")]


def test_pods_beyond_the_minimum_are_placed_one_by_one():
    nodes = [node("a"), node("b")]
    there = gang("one", 1, 1, nodes=dict.fromkeys(("one-coordinator", "one-server-0", "one-worker-0"), "a"))
    more = [pod(f"one-worker-{n}", job="one", role="worker", gang="1,1") for n in (1, 2)]
    found = decided(nodes, there + more, [job("one", allocation=(3, 1))], on(1))
    assert where(found) == {"one-worker-1": "b", "one-worker-2": "b"}
    assert found.placed == {("default", "one"): "b by mine"}
    web = decided(nodes, [pod("web", cpu="1")], (), Watching(waits))  # no job's: the rule decides
    assert where(web) == {"web": "a"}


def test_room_that_a_task_beyond_the_minimum_moves_to_is_kept_and_others_hear_for_whom():
    """Its job has two of three workers; a pod of nobody, which is older, would fill the target."""
    there = ("one-coordinator", "one-server-0", "one-worker-0", "one-worker-1")
    pods = gang("one", 2, 1, least="1,1", nodes=dict.fromkeys(there, "a"))
    nodes, jobs = [node("a", cpu="3.1"), node("b", cpu="1")], [job("one", allocation=(3, 1))]
    uid = jobs[0]["metadata"]["uid"]
    expected = [ExpectedPod(("default", "one"), uid, "worker", "b", "uid of one that went", NOW + 60)]
    web = pod("web", created=-9)
    early = decided(nodes, [*pods, web], jobs, on(0), expected=expected)
    assert not early.bindings
    assert "room on b is kept for one, of which a worker moves there" in early.waits[0].reason
    late = decided(nodes, [*pods, web, pod("one-worker-2", job="one", role="worker")], jobs, on(0), expected=expected)
    assert where(late) == {"one-worker-2": "b"}
    assert late.placed == {("default", "one"): "b, where it was moved to"}
    assert where(decided(nodes, [*pods, web], [given(jobs[0], 2, 1, "")], expected=expected)) == {"web": "b"}
    assert where(decided(nodes, [*pods, web], expected=expected)) == {"web": "b"}


def test_gpus_are_told_from_cpus():
    nodes = [node("a", **{"nvidia.com/gpu": "2"}), node("b")]
    pods = gang("one")
    for each in pods:
        if "worker" in each["metadata"]["name"]:
            each["spec"]["containers"][0]["resources"]["requests"]["nvidia.com/gpu"] = "1"
    watching = on(0)
    found = decided(nodes, pods, [job("one")], watching)
    assert watching.views[0].free.tolist() == pytest.approx(np.array([[3.9, 2.0], [4.0, 0.0]])) or (
        watching.views[0].free[:, 1].tolist() == [2.0, 0.0]
    )
    assert watching.views[0].demand[0].tolist() == [[1.0, 1.0], [1.0, 0.0]]
    assert where(found)["one-worker-0"] == "a"


def test_gpus_that_nobody_asks_for_are_free():
    nodes = [node("a", **{"nvidia.com/gpu": "2"}), node("b")]
    watching = on(0)
    decided(nodes, gang("one"), [job("one")], watching)
    assert watching.views[0].free[:, 1].tolist() == watching.views[0].machines.capacity[:, 1].tolist() == [2.0, 0.0]
