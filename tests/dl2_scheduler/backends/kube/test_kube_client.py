"""What commands ask of the API server, played."""

import json
from pathlib import Path

import pytest
import yaml

from dl2_scheduler.backends.kube.apiserver.object_reading import job_of
from dl2_scheduler.backends.kube.client import KubeClient
from dl2_scheduler.cluster.errors import BadInput, ClusterRefused, NoSuchJob, NotServed
from k8s.foundation.api_server import ApiUnavailable, NotFound, Rejected
from tests.dl2_scheduler.kube_objects import NOW, gang, job, node, pod
from tests.dl2_scheduler.played_kube import JOBS, PlayedApi

PATH = JOBS.format("default")
DOCUMENT = {"apiVersion": "dl2.scheduler/v1alpha1", "kind": "ElasticJob", "metadata": {"name": "one"}, "spec": {}}
HERE = Path()


@pytest.fixture
def api():
    return PlayedApi()


@pytest.fixture
def client(api):
    with KubeClient(api, "default") as made:
        yield made


def found(api, name="one"):
    return job_of(api.objects[f"{PATH}/{name}"])


def test_a_document_goes_to_the_api_server_as_it_is(api, client):
    assert client.submit(yaml.safe_dump(DOCUMENT), HERE) == "one"
    assert api.calls[0][:2] == ("create", PATH)
    with pytest.raises(ClusterRefused, match="one exists already"):
        client.submit(yaml.safe_dump(DOCUMENT), HERE)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "not an ElasticJob document"),
        ("[", "not YAML"),
        ("kind: Pod", "not an ElasticJob document"),
        (yaml.safe_dump({**DOCUMENT, "metadata": {}}), "metadata.name is missing"),
        (yaml.safe_dump({**DOCUMENT, "metadata": {"name": "a", "namespace": "away"}}), "give --namespace away"),
    ],
)
def test_what_is_no_document_is_refused_before_anything_is_asked(api, client, text, words):
    with pytest.raises(BadInput, match=words):
        client.submit(text, HERE)
    assert api.calls == []


def test_what_the_server_refuses_is_bad_input_in_its_words(api, client):
    api.fail = [Rejected('unknown field "spec.wrkers"')]
    with pytest.raises(BadInput, match=r"spec\.wrkers"):
        client.submit(yaml.safe_dump(DOCUMENT), HERE)
    api.fail = [NotFound("the server could not find the requested resource")]
    with pytest.raises(NotServed, match="install the chart"):
        client.submit(yaml.safe_dump(DOCUMENT), HERE)


def test_a_name_that_is_taken_is_told_with_the_command_that_frees_it(api, client):
    api.add(PATH, {**job("one"), "status": {"phase": "Failed"}})
    with pytest.raises(ClusterRefused, match=r"or remove it: kubectl delete elasticjob one --namespace default$"):
        client.submit(yaml.safe_dump(DOCUMENT), HERE)
    api.add(PATH, {**job("one"), "status": {"phase": "Running"}})
    with pytest.raises(ClusterRefused, match=r"or remove it: dl2 stop one --kube$"):
        client.submit(yaml.safe_dump(DOCUMENT), HERE)


def test_a_namespace_that_is_not_there_is_told_as_that(api, client):
    api.fail = [NotFound('namespaces "typo" not found')]
    with pytest.raises(BadInput, match='namespaces "typo" not found: give another --namespace, or make it'):
        client.submit(yaml.safe_dump(DOCUMENT), HERE)


def test_a_date_in_a_document_goes_as_text(api, client):
    """As a date it could not be sent at all."""
    client.submit(f"{yaml.safe_dump(DOCUMENT)}made: 2024-01-02\n", HERE)
    assert json.loads(json.dumps(api.calls[0][2]))["made"] == "2024-01-02"


def test_jobs_are_listed_by_submission_with_why_they_wait(api, client):
    api.add(PATH, job("b", created=5, allocation=None), job("a", created=9))
    waiting = gang("a")
    waiting[0]["status"]["conditions"] = [{"type": "PodScheduled", "status": "False", "message": "0/2 nodes"}]
    api.add("/api/v1/namespaces/default/pods", *waiting)
    first, second = client.jobs()
    assert (first.name, first.reason, first.submitted) == ("b", "the scheduler has not decided about it yet", NOW + 5)
    assert (second.name, second.phase, second.reason, second.max_workers) == ("a", "waiting", "0/2 nodes", 4)


def test_a_job_that_is_not_there(api, client):
    api.add(PATH, job("one"))
    for ask in (client.status, client.stop, client.hold, client.release, lambda name: client.why(name, 3)):
        with pytest.raises(NoSuchJob, match="no ElasticJob two in the namespace default; there are: one"):
            ask("two")


def test_hold_fixes_the_present_counts_and_release_gives_them_back(api, client):
    api.add(PATH, job("one", allocation=(3, 2)))
    client.hold("one")
    held = found(api)
    assert (held.by_scheduler, held.workers.replicas, held.servers.replicas) == (False, 3, 2)
    assert len([call for call in api.calls if call[0] == "patch"]) == 1
    with pytest.raises(ClusterRefused, match="held already"):
        client.hold("one")
    assert client.scale("one", 4, 0) == (4, 2)
    client.release("one")
    assert found(api).by_scheduler
    with pytest.raises(ClusterRefused, match="is not held"):
        client.release("one")


@pytest.mark.parametrize(
    "more",
    [
        {"initContainers": [{"name": "first", "resources": {"requests": {"cpu": "lots"}}}]},
        {"tolerations": 5},
        {"topologySpreadConstraints": [{}]},
    ],
)
def test_a_job_whose_template_is_none_is_listed_with_the_operators_words_and_others_are_too(api, client, more):
    odd = job("odd")
    odd["spec"]["workers"]["template"]["spec"] |= more
    odd["status"] = {"phase": "Waiting", "reason": "InvalidTemplate: that is none"}
    odd["spec"].pop("allocation")
    odd["spec"]["scaling"] = "Manual"
    api.add(PATH, job("one"), odd)
    assert {found.name: found.reason for found in client.jobs()}["odd"] == "InvalidTemplate: that is none"
    assert client.status("one").name == "one"


def test_a_job_without_servers_is_held_and_scaled_by_its_workers_alone(api, client):
    ring = job("one", allocation=(3, 0), mode="all-reduce")
    del ring["spec"]["servers"]
    api.add(PATH, ring)
    client.hold("one")
    assert client.scale("one", 4, 0) == (4, 0)
    with pytest.raises(ClusterRefused, match="one has no servers, and gets none"):
        client.scale("one", 4, 1)
    spec = api.objects[f"{PATH}/one"]["spec"]
    assert (spec["scaling"], spec["workers"]["replicas"]) == ("Manual", 4)
    assert "servers" not in spec  # the API server refuses a job that has them in this mode


@pytest.mark.parametrize(
    ("spec", "counts", "words"),
    [
        ({}, (2, 0), "held by the scheduler; dl2 hold one --kube first"),
        ({"scaling": "Manual", "suspend": True}, (0, 0), "no counts for one: give --workers N"),
        ({"scaling": "Manual"}, (5, 0), "5 workers: its document allows 1 to 4"),
        ({"scaling": "Manual"}, (0, 9), "9 servers: its document allows 1 to 4"),
    ],
)
def test_counts_that_are_refused(api, client, spec, counts, words):
    api.add(PATH, job("one", **spec))
    with pytest.raises(ClusterRefused, match=words):
        client.scale("one", *counts)
    assert not any(call[0] == "patch" for call in api.calls)


def test_holding_a_job_that_has_nothing_keeps_it_so_where_that_can_be(api, client):
    api.add(PATH, job("one", allocation=(0, 0)), job("two", allocation=(0, 0), checkpoint={"url": "s3://x"}))
    with pytest.raises(ClusterRefused, match="one has nothing now"):
        client.hold("one")
    client.hold("two")
    assert (found(api, "two").suspend, found(api, "two").by_scheduler) == (True, False)
    assert client.scale("two", 2, 2) == (2, 2)
    assert not found(api, "two").suspend


def test_a_write_in_between_is_read_first(api, client):
    api.add(PATH, job("one", allocation=(3, 2)))

    def meanwhile(path):
        api.before_write = lambda path: None
        api.put(path, {**api.objects[path], "spec": {**api.objects[path]["spec"], "scaling": "Manual"}})

    api.before_write = meanwhile
    with pytest.raises(ClusterRefused, match="held already"):
        client.hold("one")


def test_stop_deletes_what_has_not_ended(api, client):
    api.add(PATH, job("one"), {**job("done"), "status": {"phase": "Completed"}})
    client.stop("one")
    assert f"{PATH}/one" not in api.objects
    with pytest.raises(ClusterRefused, match="has ended"):
        client.stop("done")


def test_why_tells_the_last_decisions(api, client):
    entry = {
        "slot": 4,
        "at": NOW,
        "policy": "drf",
        "workers_before": 0,
        "servers_before": 0,
        "workers": 2,
        "servers": 1,
    }
    entries = [{**entry, "reason": f"r{number}", "epochs_done": 0.0} for number in range(3)]
    entries[1]["happened"] = {"workers": 2, "servers": 1, "epochs": 0.5, "note": ""}
    made = job("one")
    made["metadata"]["annotations"] = {"dl2.scheduler/decisions": yaml.safe_dump(entries, default_flow_style=True)}
    api.add(PATH, made)
    assert client.why("one", 9) == []  # it is no JSON: somebody else wrote it
    made["metadata"]["annotations"]["dl2.scheduler/decisions"] = str(entries).replace("'", '"')
    api.add(PATH, made)
    decisions = client.why("one", 2)
    assert [(decision.reason, decision.HasField("happened")) for decision in decisions] == [("r1", True), ("r2", False)]
    assert decisions[0].happened.epochs == 0.5


def test_logs_are_of_the_first_worker_or_of_the_pod_that_is_named(api, client):
    api.add(PATH, job("one"))
    with pytest.raises(ClusterRefused, match="has no pods now"):
        next(client.logs("one", "", False, None))
    api.add("/api/v1/namespaces/default/pods", *gang("one", 2, 1))
    assert b"".join(client.logs("one", "", True, 5)) == b"first\nsecond\n"
    query = {"container": "main", "follow": "true", "tailLines": 5}
    assert api.calls[-1][1:] == ("/api/v1/namespaces/default/pods/one-worker-0/log", query)
    list(client.logs("one", "server-0", False, None))
    assert "one-server-0" in api.calls[-1][1]
    with pytest.raises(ClusterRefused, match="worker-0, worker-1, "):
        next(client.logs("one", "worker-7", False, None))


@pytest.mark.parametrize(
    "no_usage", [NotFound("no metrics.k8s.io"), ApiUnavailable("the server is currently unable to handle the request")]
)
def test_top_tells_what_is_claimed_and_what_is_used_where_somebody_measures(api, client, no_usage):
    api.add("/api/v1/nodes", node("a"), node("b"))
    there = gang("one", nodes={"one-coordinator": "a", "one-worker-0": "b"})
    api.add("/api/v1/namespaces/default/pods", *there, pod("x", "2", node="a", schedulerName="default-scheduler"))
    api.fail = [None, None, no_usage]
    load = client.top()
    assert {node.name: (node.capacity["cpu"], node.used["cpu"]) for node in load.nodes} == {"a": (4, 2.1), "b": (4, 1)}
    assert [(task.job, task.task, task.node) for task in load.tasks] == [
        ("one", "coordinator", "a"),
        ("one", "worker-0", "b"),
    ]
    assert "no metrics server" in load.isolation
