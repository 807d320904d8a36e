"""The scheduler on a real API server: gangs, leaders, deaths in mid-gang. Fake nodes carry the pods."""

import signal
import time

import pytest
from typer.testing import CliRunner

from dl2_scheduler.cli import app
from k8s.foundation.api_server import job_path
from tests.kube.scheduling import Bench, eventually

pytestmark = pytest.mark.kube


@pytest.fixture
def bench(release, tmp_path):
    """A namespace that no operator looks at, on the cluster of the release, which has the definition of ElasticJobs."""
    assert release.namespace
    with Bench(tmp_path) as made:
        yield made


def test_a_gang_is_bound_whole_or_not_at_all_and_says_why(bench):
    bench.add_node("4")
    bench.serve()
    bench.submit("fits")
    bench.submit("big", workers=9)
    bench.add_pods("fits")
    bench.add_pods("big", workers=9)
    eventually(lambda: len(bench.bound("fits")) == 4, "a gang that fits is bound")
    eventually(lambda: all(pod.waits for pod in bench.pods("big")), "every pod of a gang that does not fit says why")
    text = next(pod.waits for pod in bench.pods("big") if pod.role == "coordinator")
    assert "starts whole (coordinator, 9 workers, 1 server)" in text
    assert "short of cpu" in text
    assert eventually(lambda: bench.events("big-coordinator"), "an event tells it too") == [text]
    assert bench.bound("big") == []
    bench.add_node("16")
    eventually(lambda: len(bench.bound("big")) == 11, "it is bound when there is room")
    assert {pod.node for pod in bench.pods("big")} <= set(bench.nodes)


@pytest.mark.parametrize(("policy", "nodes"), [("best-fit", 1), ("load-balance", 2)])
def test_pods_go_where_the_placement_policy_says_and_the_job_says_why(bench, policy, nodes):
    for _ in range(2):
        bench.add_node("8")
    bench.serve(1, "--placement", policy)
    bench.submit("one")
    bench.add_pods("one")
    eventually(lambda: len(bench.bound("one")) == 4, "the gang is bound")
    tasks = [pod for pod in bench.pods("one") if pod.role in ("worker", "server")]
    assert len({pod.node for pod in tasks}) == nodes
    (why,) = eventually(lambda: bench.events("one"), "an event of the job tells why")
    assert why.endswith(f" by {policy}")
    assert {pod.node for pod in tasks} <= set(why.replace(",", "").split())


def test_a_policy_scales_a_job_and_why_tells(bench):
    bench.add_node("8")
    bench.submit("one", scaling="Scheduler")
    bench.serve()
    given = eventually(lambda: bench.job("one").allotment, "the job is given something")
    assert (given.workers, given.servers) >= (2, 1)
    assert given.reason
    found = bench.api.get(job_path(bench.name, "one"))
    managers = {each["manager"] for each in found["metadata"]["managedFields"] if "f:allocation" in str(each)}
    assert managers == {"dl2-scheduler"}
    version = found["metadata"]["resourceVersion"]
    slot = given.slot
    eventually(lambda: bench.log().count('"message": "slot ') > 3, "some slots pass")
    again = bench.job("one")
    assert (again.version, again.allotment.slot) == (version, slot)  # what has not changed is not written


def test_of_two_schedulers_one_acts_and_the_other_takes_over(bench):
    bench.add_node("8")
    first = bench.serve(1)
    bench.leads(1)
    bench.serve(2)
    eventually(lambda: "holds the lease" in bench.log(2), "the second waits")
    held = bench.holder()
    bench.submit("one")
    bench.add_pods("one")
    eventually(lambda: len(bench.bound("one")) == 4, "the first binds")
    first.kill()
    bench.submit("two")
    bench.add_pods("two")
    eventually(lambda: len(bench.bound("two")) == 4, "the second binds")
    assert bench.holder() != held
    assert "bound to" in bench.log(2)
    assert not any("two-" in line for line in bench.log(1).splitlines())


def test_a_frozen_leader_does_nothing_when_it_wakes(bench):
    bench.add_node("8")
    first = bench.serve(1)
    bench.leads(1)
    first.send_signal(signal.SIGSTOP)
    bench.serve(2)
    bench.leads(2)
    bench.submit("one")
    bench.add_pods("one")
    eventually(lambda: len(bench.bound("one")) == 4, "the second binds")
    first.send_signal(signal.SIGCONT)
    assert first.wait(timeout=60) == 1
    assert "the lease is lost" in bench.log(1)
    assert "bound to" not in bench.log(1)


def test_a_gang_that_a_killed_scheduler_left_in_part_is_completed_before_older_ones(bench):
    bench.add_node("4")
    bench.submit("older", workers=3)
    bench.submit("half", workers=2)
    bench.add_pods("half", workers=2)
    for name in ("half-coordinator", "half-server-0"):  # as a scheduler does that dies in mid-gang
        target = {"apiVersion": "v1", "kind": "Node", "name": bench.nodes[0]}
        body = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name}, "target": target}
        bench.api.create(f"{bench.pods_path}/{name}/binding", body)
    bench.add_pods("older", workers=3)
    bench.serve()
    eventually(lambda: len(bench.bound("half")) == 4, "the half-bound gang is completed")
    eventually(lambda: all(pod.waits for pod in bench.pods("older")), "the older one waits")
    assert bench.bound("older") == []


def test_room_of_a_gang_whose_pods_are_yet_to_come_is_kept_over_a_restart(bench):
    bench.add_node("5")
    bench.submit("slow", workers=3)
    bench.submit("quick", workers=1)
    bench.add_pods("slow", workers=0, servers=0, gang="3,1")  # its coordinator's pod alone
    first = bench.serve()
    eventually(lambda: len(bench.bound("slow")) == 1, "the coordinator is bound")
    first.kill()
    first.wait()
    bench.add_pods("quick", workers=1)
    bench.serve()
    eventually(lambda: all(pod.waits for pod in bench.pods("quick")), "the other one waits")
    assert bench.bound("quick") == []
    bench.add_pods("slow", workers=3, gang="3,1", coordinator=False)
    eventually(lambda: len(bench.bound("slow")) == 5, "its room was kept")


def test_a_gang_not_whole_in_time_gives_its_room_back(bench):
    bench.add_node("3")
    bench.submit("half", workers=4, gangTimeout="5s")
    bench.add_pods("half", workers=4)
    target = {"apiVersion": "v1", "kind": "Node", "name": bench.nodes[0]}
    for name in ("half-coordinator", "half-worker-0"):
        body = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name}, "target": target}
        bench.api.create(f"{bench.pods_path}/{name}/binding", body)
    bench.submit("next", workers=1)
    bench.add_pods("next", workers=1)
    bench.serve()
    eventually(lambda: not bench.bound("half"), "what was bound is given back")
    eventually(lambda: len(bench.bound("next")) == 3, "the next one has the room")
    assert any("gangTimeout of 5 s" in text for text in bench.events("half"))


def test_a_gang_that_has_waited_too_long_is_not_passed_any_more(bench):
    bench.add_node("6")
    bench.serve()
    bench.submit("runs")
    bench.add_pods("runs")
    eventually(lambda: len(bench.bound("runs")) == 4, "one runs")
    bench.submit("big", workers=4, gangTimeout="5s")
    bench.add_pods("big", workers=4)
    (since, *_) = (pod.created for pod in bench.pods("big"))
    eventually(lambda: time.time() - since > 6, "a large one has waited too long")
    bench.submit("small", workers=1)
    bench.add_pods("small", workers=1)
    eventually(lambda: all(pod.waits for pod in bench.pods("small")), "a small one is told why it waits")
    assert all(f"room on {bench.nodes[0]} is kept for {bench.name}/big" in pod.waits for pod in bench.pods("small"))
    assert bench.bound("small") == []  # 2.9 cores are free, and it takes 2.1
    for pod in bench.pods("runs"):
        bench.api.delete(f"{bench.pods_path}/{pod.name}", {"gracePeriodSeconds": 0})
    eventually(lambda: len(bench.bound("big")) == 6, "the large one starts when the other has ended")
    assert bench.bound("small") == []


def test_pods_that_must_be_apart_are_and_wait_until_they_can_be(bench):
    term = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"dl2.scheduler/job": "one"}}}
    apart = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    for _ in range(3):
        bench.add_node("4")
    bench.serve()
    bench.submit("one")
    bench.add_pods("one", affinity=apart)
    eventually(lambda: all(pod.waits for pod in bench.pods("one")), "of four pods one has no node of its own")
    assert "the pod's anti-affinity keeps it from" in bench.pods("one")[0].waits
    assert bench.bound("one") == []
    bench.add_node("4")
    eventually(lambda: len(bench.bound("one")) == 4, "there is a node for each")
    assert sorted(pod.node for pod in bench.pods("one")) == sorted(bench.nodes)


@pytest.fixture
def storage(bench):
    """A class whose volumes are made when a node has been chosen, by the test; returns what makes one, of a claim."""
    name, paths = bench.name, []
    claims, volumes = f"/api/v1/namespaces/{name}/persistentvolumeclaims", "/api/v1/persistentvolumes"
    classes = "/apis/storage.k8s.io/v1/storageclasses"
    made = {"provisioner": "test.dl2/by-hand", "volumeBindingMode": "WaitForFirstConsumer", "reclaimPolicy": "Retain"}
    bench.api.create(classes, {"metadata": {"name": name}, **made})
    paths.append(f"{classes}/{name}")
    size = {"storage": "1Gi"}
    bench.api.create(
        claims,
        {
            "metadata": {"name": "data"},
            "spec": {"storageClassName": name, "accessModes": ["ReadWriteOnce"], "resources": {"requests": size}},
        },
    )

    def chosen():
        annotations = bench.api.get(f"{claims}/data")["metadata"].get("annotations", {})
        return annotations.get("volume.kubernetes.io/selected-node")

    def make(node):
        fields = [{"key": "metadata.name", "operator": "In", "values": [node]}]
        spec = {
            "capacity": size,
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": name,
            "local": {"path": "/nowhere"},
            "claimRef": {"namespace": name, "name": "data", "apiVersion": "v1", "kind": "PersistentVolumeClaim"},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchFields": fields}]}},
        }
        bench.api.create(volumes, {"metadata": {"name": name}, "spec": spec})
        paths.append(f"{volumes}/{name}")

    yield chosen, make
    for path in paths:
        bench.api.delete(path)


def test_a_volume_is_made_where_its_pod_will_be_and_the_pod_goes_to_its_volume(bench, storage):
    chosen, make = storage
    for _ in range(3):
        bench.add_node("4")
    bench.serve()
    bench.submit("one", workers=1)
    bench.add_pods("one", workers=1, volumes=[{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}])
    node = eventually(chosen, "a node is chosen for the volume")
    assert node in bench.nodes
    assert bench.bound("one") == []
    make(node)
    eventually(lambda: len(bench.bound("one")) == 3, "the gang starts when there is its volume")
    assert {pod.node for pod in bench.pods("one")} == {node}


def test_commands_ask_the_api_server(bench):
    def dl2(*words, status=0):
        found = CliRunner().invoke(app, [*words, "--kube", "--namespace", bench.name])
        assert found.exit_code == status, found.output
        return found.output

    document = bench.folder / "bad.yaml"
    document.write_text(
        "apiVersion: dl2.scheduler/v1alpha1\nkind: ElasticJob\nmetadata: {name: bad}\nspec: {epochs: 1, wrkers: {}}\n"
    )
    assert "wrkers" in dl2("submit", str(document), status=2)
    bench.submit("bare", scaling="Scheduler")
    assert "bare has nothing now" in dl2("hold", "bare", status=1)
    dl2("stop", "bare")
    bench.submit("one", scaling="Scheduler", checkpoint={"url": "file:///x"})
    assert "the scheduler has not decided about it yet" in dl2("status", "one")
    assert "held by the scheduler; dl2 hold one --kube first" in dl2("scale", "one", "--workers", "3", status=1)
    dl2("hold", "one")
    assert bench.job("one").suspend  # it had nothing, and goes on having nothing
    assert "3 workers and 1 server" in dl2("scale", "one", "--workers", "3")
    assert "allows 2 to 4" in dl2("scale", "one", "--workers", "9", status=1)
    held = bench.job("one")
    assert (held.by_scheduler, held.suspend, held.workers.replicas) == (False, False, 3)
    assert "one" in dl2("jobs")
    dl2("release", "one")
    assert bench.job("one").by_scheduler
    assert "there are: one" in dl2("status", "two", status=1)
    assert "isolation: Kubernetes" in dl2("top")
    dl2("stop", "one")
    eventually(lambda: not bench.api.get(job_path(bench.name, "")[:-1])["items"], "it is gone")
