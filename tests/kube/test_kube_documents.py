"""Bad documents are refused by the API server, with our sentences; good ones taken, as `dl2 submit` does."""

import copy
import json

import pytest
import yaml

from dl2_scheduler.cluster.document.job_document import read_document
from dl2_scheduler.cluster.errors import BadInput
from tests.kube.kube_cluster import ROOT
from tests.kube.kube_release import CHART

WORKERS = {"template": {"spec": {"containers": [{"command": ["python", "x.py"]}]}}}
GOOD = {"modelType": "a", "epochs": 2, "workers": WORKERS}
RING = {**GOOD, "mode": "all-reduce"}


def with_container(**more):
    return {"template": {"spec": {"containers": [{"command": ["python", "x.py"], **more}]}}}


def document(spec, name="refused"):
    return {
        "apiVersion": "dl2.scheduler/v1alpha1",
        "kind": "ElasticJob",
        "metadata": {"name": name},
        "spec": copy.deepcopy(spec),
    }


def dry_run(cluster, release, value):
    words = ("-n", release.namespace, "apply", "--dry-run=server", "-f", "-")
    return cluster.kubectl(*words, text=yaml.safe_dump(value), check=False)


@pytest.mark.parametrize(
    ("spec", "sentence"),
    [
        ({"epochs": 2, "workers": WORKERS}, "a job needs modelType, or an image to name its type by"),
        ({"modelType": "a", "workers": WORKERS}, "epochs is missing: give it, so that policies know what remains"),
        ({**GOOD, "workers": {**WORKERS, "min": 3, "max": 2}}, "min is above max: give a max from min on"),
        ({**GOOD, "workers": {**WORKERS, "replicas": 9, "max": 4}}, "replicas: give a number from min to max"),
        ({**GOOD, "workers": {**WORKERS, "replicas": 0}}, "should be greater than or equal to 1"),
        ({**GOOD, "workers": {**WORKERS, "max": 300}}, "should be less than or equal to 256"),
        ({**GOOD, "workers": {}}, "workers need template.spec.containers[0].command: the training program"),
        ({**GOOD, "servers": WORKERS}, "servers run elastic_ps.server: leave command, args and workingDir"),
        ({**GOOD, "servers": {"max": 1}, "blockReplicas": 1}, "blockReplicas needs a second server: give"),
        ({**RING, "servers": {"max": 1}}, "servers are for jobs with servers, and mode all-reduce has none"),
        ({**RING, "blockReplicas": 1}, "blockReplicas is for jobs with servers, and mode all-reduce has none"),
        ({**GOOD, "mode": "ring"}, 'supported values: "parameter-servers", "all-reduce"'),
        ({**GOOD, "blockReplicas": 2}, "should be less than or equal to 1"),
        ({**GOOD, "checkpoint": {"interval": "soon"}}, "no length of time above 0: give seconds, or a number with"),
        ({**GOOD, "checkpoint": {"interval": "0s"}}, "no length of time above 0: give seconds, or a number with"),
        ({**GOOD, "coordinator": {"volume": {"size": "much"}}}, "no amount of bytes above 0: give one as in 1Gi"),
        ({**GOOD, "coordinator": {"volume": {"size": "-1Gi"}}}, "no amount of bytes above 0: give one as in 1Gi"),
        ({**GOOD, "coordinator": {"volume": {"size": 0}}}, "no amount of bytes above 0: give one as in 1Gi"),
        ({**GOOD, "coordinator": {}}, "spec.coordinator.volume: Required value"),
        ({**GOOD, "epochs": 0}, "should be greater than 0"),
        ({**GOOD, "speed": "fast"}, 'unknown field "spec.speed"'),
        ({**GOOD, "scaling": "Both"}, 'supported values: "Scheduler", "Manual"'),
        ({**GOOD, "workers": with_container(resources={"requests": {"cpu": "lots"}})}, "resources.requests.cpu"),
        ({**GOOD, "workers": with_container(env=[{"name": "ELASTIC_X", "value": "1"}])}, "that begin with ELASTIC_"),
    ],
)  # fmt: skip
def test_what_dl2_submit_refuses_the_api_server_refuses_too(cluster, release, spec, sentence):
    value = document(spec)
    refused = dry_run(cluster, release, value)
    assert refused.returncode != 0
    assert sentence in refused.stderr
    with pytest.raises(BadInput):
        read_document(yaml.safe_dump(value))


@pytest.mark.parametrize("spec", [GOOD, RING])
def test_suspension_needs_a_place_for_the_checkpoint(cluster, release, spec):
    refused = dry_run(cluster, release, document({**spec, "suspend": True}))
    assert "suspend needs checkpoint.url: the job goes on from there" in refused.stderr


@pytest.mark.parametrize("name", ["9digits", "digits-", "Digits", "x" * 51])
def test_names_that_pods_could_not_have_are_refused(cluster, release, name):
    assert dry_run(cluster, release, document(GOOD, name)).returncode != 0


def test_documents_of_our_examples_are_taken(cluster, release):
    found = [path for path in (ROOT / "examples").rglob("*.yaml") if "kind: ElasticJob" in path.read_text()]
    assert found
    for path in found:
        taken = cluster.kubectl("-n", release.namespace, "apply", "--dry-run=server", "-f", path, check=False)
        assert taken.returncode == 0, f"{path}: {taken.stderr}"


def test_a_job_that_can_be_lost_is_warned_of_when_it_is_applied(cluster, release):
    taken = dry_run(cluster, release, document(GOOD))
    assert taken.returncode == 0
    if release.owns_definition:  # else the warnings are those of who brought it
        assert "spec.checkpoint.url is missing: if a server is lost the job fails" in taken.stderr
        replicated = dry_run(cluster, release, document({**GOOD, "blockReplicas": 1}))
        assert "spec.checkpoint.url is missing: if two servers are lost at once the job fails" in replicated.stderr
        assert "if a server is lost" not in replicated.stderr
        ring = dry_run(cluster, release, document(RING))
        assert "spec.checkpoint.url is missing: if all workers are lost at once the job fails" in ring.stderr
        assert "server" not in ring.stderr
    for spec in (GOOD, RING):
        saved = dry_run(cluster, release, document({**spec, "checkpoint": {"url": "/x"}}))
        assert saved.returncode == 0
        assert "checkpoint.url" not in saved.stderr


@pytest.mark.parametrize(
    ("value", "place"),
    [
        ("operator.replica=3", "/operator"),
        ("operator.replicas=two", "/operator/replicas"),
        ("scheduler.placement=bogus", "/scheduler/placement"),
        ("scheduler.learn=notabool", "/scheduler/learn"),
        ("scheduler.slot=soon", "/scheduler/slot"),
        ("namespaces=one", "/namespaces"),
        ("metrics.annotations=x", "/metrics/annotations"),
        ("operator.resources.requests.cpu=lots", "/operator/resources/requests/cpu"),
    ],
)
def test_values_of_the_chart_that_it_cannot_use_are_refused_with_their_place(cluster, value, place):
    refused = cluster.helm("template", "dl2", CHART, "--kube-version", "1.34", "--set", value, check=False)
    assert refused.returncode != 0
    assert f"at '{place}'" in refused.stderr


def test_two_releases_have_no_namespace_in_common(cluster, release):
    """Their operators would undo each other's work."""

    def second(namespaces):
        words = ("--dry-run=server", "--set-json", f"definition=false,namespaces={json.dumps(namespaces)}")
        return cluster.helm("install", "other", CHART, "-n", "other", *words, check=False)

    assert second(["team-b"]).returncode == 0
    for namespaces in ([], ["team-b", release.namespace]):
        refused = second(namespaces)
        assert refused.returncode != 0
        assert f"the release in the namespace {release.namespace} keeps jobs that this one would keep" in refused.stderr


def test_no_annotations_at_all_are_fine(cluster):
    words = ("--kube-version", "1.34", "--set", "metrics.annotations=null")
    rendered = cluster.helm("template", "dl2", CHART, *words).stdout
    assert all(yaml.safe_load_all(rendered))
    assert "prometheus.io/scrape" not in rendered


@pytest.mark.parametrize("volume", [{}, {"size": 1 << 30}, {"size": "1.5Gi", "storageClassName": ""}])
def test_volumes_of_any_size_are_taken(cluster, release, volume):
    value = document({**GOOD, "coordinator": {"volume": volume}})
    taken = dry_run(cluster, release, value)
    assert taken.returncode == 0, taken.stderr
    assert read_document(yaml.safe_dump(value)).spec.coordinator.volume.size >= 1 << 30


def test_what_may_not_change_later_is_refused_with_the_way_to_do_it(make_job):
    job = make_job("fixed", ["x.py"], scaling="Scheduler", epochs=2, coordinator={"volume": {}})
    job.document["spec"]["workers"].pop("replicas")
    job.document["spec"]["servers"].pop("replicas")
    job.apply()
    for changed, sentence in [
        ({"workers": {"replicas": 2}}, "held by the scheduler; dl2 hold JOB --kube first"),
        ({"modelType": "b"}, "modelType cannot change"),
        (
            {"coordinator": {"volume": {"size": "2Gi"}}},
            "coordinator cannot change: the job's journal lies on the volume",
        ),
        ({"coordinator": None}, "coordinator cannot change: the job's journal lies on the volume"),
    ]:
        refused = job.kubectl(
            "patch", "ej", job.name, "--type=merge", "-p", yaml.safe_dump({"spec": changed}), check=False
        )
        assert sentence in refused.stderr
    refused = job.kubectl("scale", f"elasticjob/{job.name}", "--replicas=2", check=False)
    assert "held by the scheduler; dl2 hold JOB --kube first" in refused.stderr
    job.patch(scaling="Manual", workers={"replicas": 1}, servers={"replicas": 1})
