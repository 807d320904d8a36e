"""Volumes: pods go where theirs are, one is made where its pod will be, and some are for one pod at a time."""

import threading

import pytest

from dl2_scheduler.backends.kube.apiserver.object_reading import job_of, node_of, pod_of
from dl2_scheduler.backends.kube.apiserver.paced_writes import PacedWriter
from dl2_scheduler.backends.kube.placement.binder import Binder
from dl2_scheduler.backends.kube.placement.binding import decide
from dl2_scheduler.backends.kube.placement.label_expressions import Expression
from dl2_scheduler.backends.kube.placement.volume_claims import VolumeClaimReader
from dl2_scheduler.backends.kube.placement.volumes import ClaimedVolume, bound_volume, claim_of, pending_volume
from dl2_scheduler.cluster.free_resources import NodeRule
from k8s.foundation.api_server import ApiUnavailable
from tests.dl2_scheduler.backends.kube.placement.test_binding import reasons, where
from tests.dl2_scheduler.kube_objects import NOW, gang, job, node, pod
from tests.dl2_scheduler.played_kube import JOBS, PlayedApi, PlayedView

CLAIMS = "/api/v1/namespaces/default/persistentvolumeclaims"
PODS = "/api/v1/namespaces/default/pods"
LATE = {"provisioner": "x", "volumeBindingMode": "WaitForFirstConsumer"}
ON_B = ((Expression("metadata.name", "In", ("b",), is_field=True),),)


def claims(*names):
    return {"volumes": [{"name": name, "persistentVolumeClaim": {"claimName": name}} for name in names]}


def claim(name, phase="Pending", volume="", mode="ReadWriteOnce", chosen=None, storage="late", **more):
    annotations = {"volume.kubernetes.io/selected-node": chosen} if chosen else {}
    metadata = {"name": name, "namespace": "default", "uid": f"claim-{name}", "annotations": annotations, **more}
    return {
        "metadata": metadata,
        "spec": {"accessModes": [mode], "storageClassName": storage, "volumeName": volume},
        "status": {"phase": phase},
    }


def volume(name, on):
    fields = [{"key": "metadata.name", "operator": "In", "values": [on]}]
    required = {"nodeSelectorTerms": [{"matchFields": fields}]}
    return {"metadata": {"name": name, "uid": name}, "spec": {"nodeAffinity": {"required": required}}}


def decided(nodes, pods, volumes, jobs=()):
    keyed = {("default", name): found for name, found in volumes.items()}
    nodes, pods = [node_of(each) for each in nodes], [pod_of(each) for each in pods]
    return decide(nodes, pods, [job_of(each) for each in jobs], NOW, NodeRule.SPREAD, None, keyed)


def test_what_claims_mean():
    on_b = {"spec": {"nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchFields": [vars_of(ON_B)]}]}}}}
    assert bound_volume(claim_of(claim("c", "Bound", "v")), on_b) == ClaimedVolume(terms=ON_B)
    assert bound_volume(claim_of(claim("c", "Bound", "v")), {"spec": {}}) == ClaimedVolume()
    assert bound_volume(claim_of(claim("c", "Bound", mode="ReadWriteOncePod")), {"spec": {}}) == ClaimedVolume(
        alone=True
    )
    pending = claim_of(claim("c"))
    assert pending_volume(pending, LATE) == ClaimedVolume(made=False)
    assert pending_volume(claim_of(claim("c", chosen="b")), LATE) == ClaimedVolume(terms=ON_B, made=False, chosen="b")
    zones = [{"matchLabelExpressions": [{"key": "zone", "values": ["x", "y"]}]}]
    assert pending_volume(pending, {**LATE, "allowedTopologies": zones}).terms == (
        (Expression("zone", "In", ("x", "y")),),
    )
    by_hand = pending_volume(pending, {**LATE, "provisioner": "kubernetes.io/no-provisioner"})
    assert "its class late makes none: name one in its spec.volumeName" in by_hand.refusal
    for storage in (None, {**LATE, "volumeBindingMode": "Immediate"}):
        assert pending_volume(pending, storage).refusal == "its claim c is not bound to a volume yet"


def vars_of(terms):
    ((one,),) = terms
    return {"key": one.key, "operator": one.operator, "values": list(one.values)}


def test_claims_are_read_from_pods():
    ephemeral = {"name": "tmp", "ephemeral": {"volumeClaimTemplate": {"spec": {}}}}
    spec = claims("c")["volumes"] + [ephemeral, {"name": "e", "emptyDir": {}}]
    assert pod_of(pod("p", volumes=spec)).claims == ("c", "p-tmp")


def test_a_pod_goes_where_its_volume_is():
    found = decided(
        [node("a"), node("b", "1")],
        [pod("p", **claims("c")), pod("q", **claims("c"))],
        {"c": ClaimedVolume(terms=ON_B)},
    )
    assert where(found) == {"p": "b"}
    assert "1 does not reach the pod's volume" in reasons(found)["q"]
    assert not decided([node("a")], [pod("p", **claims("c"))], {}).bindings  # nobody knows the claim yet


def test_a_volume_that_is_not_made_yet_gets_a_node_and_its_pod_waits():
    found = decided([node("a"), node("b")], [pod("p", **claims("c")), pod("q")], {"c": ClaimedVolume(made=False)})
    assert [(choice.claim, choice.node) for choice in found.choices] == [("c", "a")]
    assert where(found) == {"q": "b"}  # the room on a is taken
    assert "the volume of its claim c is being made" in reasons(found)["p"]
    chosen = decided(
        [node("a"), node("b")], [pod("p", **claims("c"))], {"c": ClaimedVolume(terms=ON_B, made=False, chosen="b")}
    )
    assert [choice.node for choice in chosen.choices] == ["b"]


def test_a_claim_for_one_pod_at_a_time():
    there = pod("there", node="a", **claims("c"), schedulerName="default-scheduler")
    alone = {"c": ClaimedVolume(alone=True)}
    found = decided([node("a")], [there, pod("p", **claims("c"))], alone)
    assert reasons(found) == {"p": "its claim c is for one pod at a time, and there has it"}
    found = decided([node("a")], [pod("p", **claims("c")), pod("q", **claims("c"))], alone)
    assert where(found) == {"p": "a"}
    assert reasons(found) == {"q": "its claim c is for one pod at a time, and p is to have it"}


def test_a_gang_one_of_whose_volumes_is_missing_does_not_begin():
    pods = gang("one")
    pods[2]["spec"] |= claims("c")
    found = decided([node("a")], pods, {"c": ClaimedVolume("its claim c does not exist")}, [job("one")])
    assert not found.bindings
    assert set(reasons(found).values()) == {
        "one starts whole (coordinator, 1 worker, 1 server); one-worker-0: its claim c does not exist"
    }


class World:
    """A binder with claims on a played server, without its own thread."""

    def __init__(self):
        self.api, self.changed = PlayedApi(), threading.Event()
        self.api.add("/api/v1/nodes", node("a"), node("b"))
        self.now = 0.0
        self.claims = VolumeClaimReader(self.api, self.changed.set, clock=lambda: self.now)
        self.view = PlayedView(self.api)
        writer = PacedWriter(self.api, lambda: True)
        self.binder = Binder(self.view, writer, NodeRule.SPREAD, now=lambda: NOW + 10 + self.now, volumes=self.claims)

    def step(self):
        return self.binder.step()

    def settle(self):
        assert self.changed.wait(10)
        self.changed.clear()

    def sees(self, name):
        """What a claim means, as the watch has told so far; None: nothing yet."""
        return self.claims.of(self.view.pods())[0].get(("default", name))

    def asked(self, verb, words):
        return [path for asked, path, _ in self.api.calls if asked == verb and words in path]

    def node_of(self, name):
        return self.api.objects[f"{PODS}/{name}"]["spec"].get("nodeName")


@pytest.fixture
def world():
    made = World()
    yield made
    made.binder.stop()
    made.claims.stop()
    made.api.end_watches()


def test_nothing_is_asked_about_volumes_where_no_pod_names_one(world):
    world.api.add(PODS, pod("p"), pod("other", schedulerName="default-scheduler", **claims("c")))
    world.step()
    assert not world.asked("get", "persistent")
    assert world.node_of("p")


def test_a_volume_is_made_and_then_its_pod_is_bound(world):
    world.api.add(JOBS.format("default"), job("one"))
    world.api.add(PODS, *[{**each, "spec": {**each["spec"], **claims("c")}} for each in gang("one")])
    world.api.add(CLAIMS, claim("c"))
    world.api.put("/apis/storage.k8s.io/v1/storageclasses/late", {"metadata": {"name": "late"}, **LATE})
    world.step()  # this one begins to watch claims, and may be done with the list or not
    world.api.until(lambda: world.sees("c"))
    world.step()
    (path,) = world.asked("patch", "persistentvolumeclaims")
    chosen = world.api.objects[path]["metadata"]["annotations"]["volume.kubernetes.io/selected-node"]
    world.api.until(lambda: world.sees("c").chosen)
    world.step()
    assert len(world.asked("patch", "persistentvolumeclaims")) == 1
    assert not world.asked("create", "/binding")
    world.api.put("/api/v1/persistentvolumes/v", volume("v", chosen))
    world.api.put(path, claim("c", "Bound", "v", chosen=chosen))
    world.api.until(lambda: world.sees("c").made)
    world.step()
    assert {world.node_of(each["metadata"]["name"]) for each in gang("one")} == {chosen}


def test_a_node_is_chosen_again_where_no_volume_could_be_made_near_the_first(world):
    """Who makes volumes takes the choice back, often sooner than the binder believes its watch to have shown it."""
    world.api.add(PODS, pod("p", **claims("c")))
    world.api.add(CLAIMS, claim("c"))
    world.api.put("/apis/storage.k8s.io/v1/storageclasses/late", {"metadata": {"name": "late"}, **LATE})
    world.step()
    world.api.until(lambda: world.sees("c"))
    world.step()
    (path,) = world.asked("patch", "persistentvolumeclaims")
    world.api.until(lambda: world.sees("c").chosen)
    world.api.put(path, claim("c"))
    world.api.until(lambda: not world.sees("c").chosen)
    assert world.step() == 10.0, "nothing else would wake it"
    world.now += 10.0
    world.step()
    assert len(world.asked("patch", "persistentvolumeclaims")) == 2


def test_a_volume_that_cannot_be_read_is_tried_again(world):
    world.api.add(PODS, pod("p", **claims("c")))
    world.api.add(CLAIMS, claim("c", "Bound", "v"))
    world.step()
    world.settle()
    world.api.fail = [ApiUnavailable("too busy")]
    assert world.step() == 1.0
    assert world.node_of("p") is None
    world.api.put("/api/v1/persistentvolumes/v", volume("v", "b"))
    world.step()
    assert world.node_of("p") == "b"


def test_a_class_that_was_mended_is_seen(world):
    """Its fields cannot be changed: who mends one deletes it, and makes another of the same name."""
    world.api.add(PODS, pod("p", **claims("c")))
    world.api.add(CLAIMS, claim("c"))
    late = "/apis/storage.k8s.io/v1/storageclasses/late"
    world.api.put(late, {"metadata": {"name": "late"}, **LATE, "provisioner": "kubernetes.io/no-provisioner"})
    world.step()
    world.settle()
    assert world.step() == 30.0, "nothing would wake it, and until then it would read nothing anew"
    assert "its class late makes none" in world.sees("c").refusal
    world.api.put(late, {"metadata": {"name": "late"}, **LATE})
    world.now += 30.0
    world.step()
    assert world.asked("patch", "persistentvolumeclaims")


@pytest.mark.parametrize(
    ("made", "words"),
    [
        (None, "its claim c does not exist"),
        (claim("c", "Lost"), "its claim c is lost"),
        (claim("c", "Bound", "v", deletionTimestamp="2027-01-01T00:00:00Z"), "its claim c is about to go"),
    ],
)
def test_claims_that_are_no_use(world, made, words):
    world.api.add(PODS, pod("p", **claims("c")))
    world.api.add(CLAIMS, made or claim("other"))
    world.step()
    world.settle()
    world.step()
    assert world.node_of("p") is None
    found, _ = world.claims.of([pod_of(world.api.objects[f"{PODS}/p"])])
    assert found["default", "c"].refusal == words


# ---- a coordinator's, of its journal ---------------------------------------------------------------------------------

ALONE = claim("j", mode="ReadWriteOncePod")


def test_a_coordinator_waits_for_its_volume_and_goes_where_that_is_made():
    pods = gang("one")
    pods[0]["spec"] |= claims("j")
    nodes, jobs = [node("a"), node("b")], [job("one")]
    unmade = pending_volume(claim_of(ALONE), LATE)
    found = decided(nodes, pods, {"j": unmade}, jobs)
    ((choice,), others) = found.choices, where(found)
    assert (choice.claim, others.keys()) == ("j", {"one-server-0", "one-worker-0"}), "its own room is kept"
    pods[1:] = gang("one", nodes=others, bound=NOW)[1:]
    made = bound_volume(claim_of(claim("j", "Bound", "v", "ReadWriteOncePod")), volume("v", "b"))
    found = decided(nodes, pods, {"j": made}, jobs)
    assert where(found) == {"one-coordinator": "b"}


def test_a_coordinator_that_comes_back_goes_to_its_volume_and_not_while_another_has_it():
    pods = gang("one", nodes={"one-server-0": "a", "one-worker-0": "a"}, bound=NOW)
    pods[0]["spec"] |= claims("j")
    made = bound_volume(claim_of(claim("j", "Bound", "v", "ReadWriteOncePod")), volume("v", "b"))
    nodes, jobs = [node("a"), node("b")], [job("one")]
    assert where(decided(nodes, pods, {"j": made}, jobs)) == {"one-coordinator": "b"}
    away = decided(nodes[:1], pods, {"j": made}, jobs)
    assert "does not reach the pod's volume" in reasons(away)["one-coordinator"]
    other = pod("other", node="b", **claims("j"))
    kept = decided(nodes, [*pods, other], {"j": made}, jobs)
    assert "its claim j is for one pod at a time, and other has it" in reasons(kept)["one-coordinator"]
