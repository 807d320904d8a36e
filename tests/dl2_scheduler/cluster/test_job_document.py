"""The ElasticJob document: what is read, and how what is wrong is refused."""

import re

import kubernetes.client as kubernetes
import pytest
import yaml

from dl2_scheduler.cluster.document.job_document import ElasticJob, read_document
from dl2_scheduler.cluster.document.quantities import amount
from dl2_scheduler.cluster.document.template import Container, PodSpec
from dl2_scheduler.cluster.durations import seconds
from dl2_scheduler.cluster.errors import BadInput
from tests.dl2_scheduler.played_cluster import document
from tests.paths import ROOT

CONTAINER = "spec.workers.template.spec.containers.0"


def changed(path, value):
    """The document with one field other; None: without it."""
    whole = yaml.safe_load(document())
    at = whole
    *above, last = (int(part) if part.isdigit() else part for part in path.split("."))
    for part in above:
        at = at[part]
    if value is None:
        del at[last]
    else:
        at[last] = value
    return yaml.safe_dump(whole)


def test_a_job_takes_one_slot_for_each_task():
    job = read_document(document("digits", 40, 4, 2)).job(5.0, 1437.0)
    assert (job.id, job.arrival, job.model, job.epochs, job.samples_per_epoch) == ("digits", 5.0, "digits", 40, 1437)
    assert (job.max_workers, job.max_servers, job.worker, job.server) == (4, 2, {"slots": 1}, {"slots": 1})


def test_resources_type_and_interval_as_given():
    requests = {"requests": {"slots": 2, "cpu": "50m", "memory": "1Gi", "nvidia.com/gpu": 1}}
    read = read_document(changed(f"{CONTAINER}.resources", requests))
    assert read.job(0.0).worker == {"slots": 2}
    assert read.spec.workers.container.resources.requests == {
        "slots": 2.0,
        "cpu": 0.05,
        "memory": 2.0**30,
        "nvidia.com/gpu": 1.0,
    }
    assert [note.split(".requests.")[1].split(" ")[0] for note in read.notes] == ["cpu", "memory", "nvidia.com/gpu"]
    unasked = read_document(changed(f"{CONTAINER}.resources", {"requests": {"cpu": 1}}))
    assert unasked.job(0.0).worker == {"slots": 1}
    assert read_document(changed("spec.checkpoint", {"interval": "5m"})).spec.checkpoint.interval == 300
    (variable,) = read_document(changed(f"{CONTAINER}.env", [{"name": "A", "value": "1"}])).spec.workers.container.env
    assert (variable.name, variable.value) == ("A", "1")
    whole = yaml.safe_load(changed(f"{CONTAINER}.image", "registry/digits:1"))
    del whole["spec"]["modelType"]
    assert read_document(yaml.safe_dump(whole)).job(0.0).model == "registry/digits:1"


@pytest.mark.parametrize(
    ("path", "value", "words"),
    [
        (
            "apiVersion",
            "dl2.scheduler/v9",
            "apiVersion is 'dl2.scheduler/v9': Input should be 'dl2.scheduler/v1alpha1'",
        ),
        ("kind", "Job", "kind is 'Job'"),
        ("metadata.name", "Di_gits", "metadata.name is 'Di_gits': give lower-case letters"),
        ("metadata", "digits", "metadata is 'digits': give fields below it"),
        (
            "spec.epochs",
            None,
            "spec: epochs is missing: give it, so that policies know what remains, or scaling: Manual",
        ),
        ("spec.epochs", 0, "spec.epochs is 0: Input should be greater than 0"),
        ("spec.epochs", "40", "spec.epochs is '40'"),
        ("spec.gangTimeout", "soon", "spec.gangTimeout: soon is no length of time"),
        ("spec.priority", 5, "spec.priority: unknown, or not implemented yet: leave it out"),
        ("spec.scaling", "Automatic", "spec.scaling is 'Automatic': Input should be 'Scheduler' or 'Manual'"),
        ("spec.workers.min", 5, "spec.workers: min is 5 and max is 4: give a max from 5 on"),
        ("spec.workers.replicas", 5, "spec.workers: replicas is 5: give a number from min, 1, to max, 4"),
        (
            "spec.servers",
            {"min": 3, "replicas": 2},
            "spec.servers: replicas is 2: give a number from min, 3, to max, 16",
        ),
        ("spec.retryLimit", -1, "spec.retryLimit is -1"),
        ("spec.blockReplicas", 2, "spec.blockReplicas is 2: Input should be less than or equal to 1"),
        ("spec.blockReplicas", True, "spec.blockReplicas is True"),
        ("spec.sharedMemory", {}, "spec.sharedMemory.hostPath: missing"),
        *(
            (
                "spec.sharedMemory",
                {"hostPath": path},
                "spec.sharedMemory.hostPath: give an absolute path without .., as in",
            )
            for path in ("dl2", "/", "//dl2", "/dev/../etc", "/dev/shm/..")
        ),
        (
            "spec.workers.template.spec.nodeselector",
            {},
            "spec.workers.template.spec: nodeselector is unknown: write nodeSelector",
        ),
        (f"{CONTAINER}.comand", ["x"], f"{CONTAINER}: comand is unknown: write command"),
        (f"{CONTAINER}.colour", "red", f"{CONTAINER}: colour is unknown: leave it out"),
        (f"{CONTAINER}.env", [{"name": "A", "value": "1", "valueFrom": {}}], "env.0: A has value and valueFrom"),
        (f"{CONTAINER}.env", [{"name": "A", "value": ""}] * 2, f"{CONTAINER}: env has A twice"),
        ("spec.workers.max", 0, "spec.workers.max is 0"),
        ("spec.workers.max", 300, "spec.workers.max is 300"),
        ("spec.workers", None, "spec.workers: missing"),
        ("spec.modelType", None, "spec: a job needs modelType, or an image"),
        (f"{CONTAINER}.command", None, "spec: workers need template.spec.containers[0].command"),
        (f"{CONTAINER}.command", "python a.py", f"{CONTAINER}.command is 'python a.py': give a list"),
        (f"{CONTAINER}.args", ["--epochs", 40], f"{CONTAINER}.args.1 is 40: give text; a number that is text"),
        (f"{CONTAINER}.resources", {"requests": {"slots": 0}}, f"{CONTAINER}.resources: requests.slots is 0"),
        (f"{CONTAINER}.resources", {"requests": {"slots": -1}}, f"{CONTAINER}.resources.requests.slots is -1"),
        (f"{CONTAINER}.env", {"A": "1"}, f"{CONTAINER}.env is {{'A': '1'}}: give a list"),
        (f"{CONTAINER}.env", [{"name": "A", "value": 1}], f"{CONTAINER}.env.0.value is 1: give text"),
        (
            f"{CONTAINER}.env",
            [{"name": "A B"}],
            f"{CONTAINER}.env.0.name: 'A B' is no name of a variable: give letters",
        ),
        (f"{CONTAINER}.env", [{"name": "ELASTIC_HOST"}], f"{CONTAINER}.env.0.name: ELASTIC_HOST: names that begin"),
        (f"{CONTAINER}.resources", {"requests": {"memory": "1GiB"}}, "1GiB is no amount: give a number from 0 on"),
        ("spec.checkpoint", {"interval": "soon"}, "spec.checkpoint.interval: soon is no length of time"),
        (
            "spec.servers.template",
            {"spec": {"containers": [{"command": ["x"]}]}},
            "spec: servers run elastic_ps.server",
        ),
    ],
)
def test_what_is_wrong_is_named_with_its_path(path, value, words):
    with pytest.raises(BadInput) as refused:
        read_document(changed(path, value))
    assert words in str(refused.value)


def test_replicas_of_blocks_need_a_second_server():
    assert read_document(document()).spec.block_replicas == 0
    assert read_document(document(servers=2).replace("spec:", "spec:\n  blockReplicas: 1", 1)).spec.block_replicas == 1
    with pytest.raises(BadInput, match="blockReplicas needs a second server: give servers a max from 2 on"):
        read_document(document(servers=1).replace("spec:", "spec:\n  blockReplicas: 1", 1))


def test_how_many_tasks_a_job_has():
    read = read_document(document())
    assert (read.spec.scaling, read.spec.workers.min, read.spec.workers.count, read.spec.suspend) == (
        "Scheduler",
        1,
        1,
        False,
    )
    read = read_document(changed("spec.workers.min", 3))
    assert (read.spec.workers.count, read.job(0.0).min_workers, read.job(0.0).min_servers) == (3, 3, 1)
    whole = yaml.safe_load(changed("spec.scaling", "Manual"))
    whole["spec"]["servers"] |= {"replicas": 2, "max": 2}
    del whole["spec"]["epochs"]
    read = read_document(yaml.safe_dump(whole))
    assert (read.spec.scaling, read.spec.servers.count, read.spec.epochs) == ("Manual", 2, None)
    with pytest.raises(BadInput, match=r"digits has no spec\.epochs, which a policy needs"):
        read.job(0.0)


def test_variables_that_kubernetes_alone_knows_are_noted():
    env = [{"name": "SEED", "value": "3"}, {"name": "KEY", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}]
    read = read_document(changed(f"{CONTAINER}.env", env))
    assert read.notes == [f"{CONTAINER}.env.1.valueFrom is for Kubernetes; here the variable is empty"]


def test_what_only_kubernetes_acts_on_is_taken_and_noted():
    assert read_document(document()).notes == []
    whole = yaml.safe_load(document())
    whole["metadata"] |= {"namespace": "lab", "labels": {"team": "vision"}}
    whole["spec"] |= {
        "gangTimeout": "2m",
        "sharedMemory": {"hostPath": "/dev/shm/x"},
        "coordinator": {"volume": {"size": "2Gi", "storageClassName": "fast"}},
    }
    template = whole["spec"]["workers"]["template"]
    template["metadata"] = {"annotations": {"a": "b"}}
    template["spec"] |= {"nodeSelector": {"zone": "a"}, "tolerations": [{"key": "gpu"}]}
    template["spec"]["containers"][0] |= {"image": "digits:1", "volumeMounts": [{"name": "data", "mountPath": "/data"}]}
    read = read_document(yaml.safe_dump(whole))
    assert [note.split(" is for Kubernetes; here ")[0] for note in read.notes] == [
        "metadata.labels",
        "metadata.namespace",
        "spec.coordinator.volume",
        "spec.gangTimeout",
        "spec.sharedMemory.hostPath",
        "spec.workers.template.metadata.annotations",
        f"{CONTAINER}.image",
        f"{CONTAINER}.volumeMounts",
        "spec.workers.template.spec.nodeSelector",
        "spec.workers.template.spec.tolerations",
    ]
    again = ElasticJob.model_validate_json(read.model_dump_json(by_alias=True, exclude_none=True))
    assert again == read
    assert again.spec.workers.template.spec.model_extra["nodeSelector"] == {"zone": "a"}


def test_every_field_of_a_pod_that_kubernetes_has_is_known():
    for part, theirs in ((PodSpec, kubernetes.V1PodSpec), (Container, kubernetes.V1Container)):
        ours = {*part.kubernetes.split(), *(field.alias for field in part.model_fields.values())}
        assert set(theirs.attribute_map.values()) - ours <= {"ephemeralContainers"}  # which no template may have


def test_all_that_is_wrong_is_named_at_once():
    with pytest.raises(BadInput, match=r"spec\.workers\.max .*; spec\.servers\.max "):
        read_document(document(workers=0, servers=0))


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("day: !!timestamp 2026-01-02", "line 16: !!timestamp, which JSON has not"),
        ("number: 0b_", "not YAML: a number cannot be read"),
        ("number: " + "9" * 5000, "not YAML: a number cannot be read"),
        ("a: {b: 1, c: 2, b: 3}", "line 16: b is there twice: leave one out"),
        ("kind: ElasticJob", "line 16: kind is there twice"),
        ("a: &a [*a]", "line 16: more than 50 levels deep"),
        ("a: " + "[" * 60 + "]" * 60, "line 16: more than 50 levels deep"),
        pytest.param("a: " + "[" * 3000, "more than 50 levels deep", marks=pytest.mark.slow),
        ("a: &a [[]]\n" + "\n".join(f"a{n}: &a{n} [*a{n - 1 if n else ''}]" for n in range(60)), "50 levels deep"),
        (
            "a: &a [1]\n" + "\n".join(f"a{n}: &a{n} [{f'*a{n - 1 if n else str()},' * 20}]" for n in range(6)),
            "more than 100,000 values",
        ),
        ('a: "\\0"', "line 16: text with \\0, which no program can be given"),
        ('a: "\\ud83d"', "line 16: text with half a character"),
        ("a: !!binary aGk=", "line 16: !!binary, which JSON has not"),
        ("a: " + "x" * (1 << 20), "longer than 1,048,576 characters"),
        ("1: 2", "1 is 1: give a field's name"),
    ],
)
def test_text_that_cannot_be_read_in_one_way_only(line, words):
    with pytest.raises(BadInput) as refused:
        read_document(f"{document().strip()}\n{line}\n")
    assert words in str(refused.value)


def test_an_alias_stands_for_what_it_names():
    text = f"{document().strip()}\n    template:\n      metadata: {{labels: &l {{a: b}}, annotations: *l}}\n"
    read = read_document(text + "      spec: {containers: [{env: [{name: A, value: ☃}]}]}\n")
    assert read.spec.servers.template.metadata.annotations == {"a": "b"}
    assert read.spec.servers.container.env[0].value == "☃"


@pytest.mark.parametrize("day", ["2024-01-02", "2026-99-99", "2024-01-02T03:04:05Z"])
def test_a_date_is_text_as_it_is_to_kubectl(day):
    env = f"env: [{{name: SINCE, value: {day}}}]"
    text = document().replace("command:", f"{env}\n            command:")
    assert read_document(text).spec.workers.container.env[0].value == day


def test_what_is_shown_of_a_wrong_value_is_short():
    with pytest.raises(BadInput) as refused:
        read_document(changed("spec.workers.max", "x" * 10_000))
    assert len(str(refused.value)) < 200


@pytest.mark.parametrize("text", ["", "- a", "a: [", "\x00"])
def test_no_document(text):
    with pytest.raises(BadInput, match=r"not YAML|not an ElasticJob document"):
        read_document(text)


def test_an_amount_that_no_number_holds_is_none():
    with pytest.raises(BadInput, match="1e999 is no amount"):
        amount("1e999")


def test_lengths_of_time():
    assert [seconds(text) for text in ("30", "30s", "5m", "2h", "500ms", 1.5)] == [30, 30, 300, 7200, 0.5, 1.5]
    for wrong in ("", "0", "-1", "s", "1 h", "1d", "nan", "inf"):
        with pytest.raises(BadInput, match="no length of time"):
            seconds(wrong)
    with pytest.raises(BadInput, match="721h is longer than 720h: give less"):
        seconds("721h")


def test_amounts_as_kubernetes_writes_them():
    assert [amount(text) for text in ("0", "2", "50m", "1.5", ".5", "1k", "1Ki", "2Gi", "1e3", "1E2", 4)] == [
        0,
        2,
        0.05,
        1.5,
        0.5,
        1000,
        1024,
        2**31,
        1000,
        100,
        4,
    ]
    for wrong in ("", "-1", "1GiB", "Gi", "1 Gi", "1mm", "nan", "1ee3"):
        with pytest.raises(BadInput, match="no amount"):
            amount(wrong)


def test_documents_of_our_examples_can_be_submitted() -> None:
    found = [path for path in (ROOT / "examples").rglob("*.yaml") if "kind: ElasticJob" in path.read_text()]
    kinds = set()
    for path in found:
        one = read_document(path.read_text()).job(0.0)
        one.check()
        kinds.add(one.has_servers)
    assert kinds == {True, False}


ALL_REDUCE = """
apiVersion: dl2.scheduler/v1alpha1
kind: ElasticJob
metadata: {name: ring}
spec:
  modelType: ring
  epochs: 10
  mode: all-reduce
  workers: {max: 4, template: {spec: {containers: [{command: [python, x.py]}]}}}
"""


def test_a_job_without_servers() -> None:
    read = read_document(ALL_REDUCE)
    assert read.spec.all_reduces
    assert (read.spec.servers.min, read.spec.servers.max, read.spec.servers.count) == (0, 0, 0)
    one = read.job(0.0)
    one.check()
    assert (one.has_servers, one.max_servers, one.min_servers, one.server) == (False, 0, 0, {})
    assert read_document(read.model_dump_json(by_alias=True, exclude_none=True)) == read
    usual = read_document(ALL_REDUCE.replace("mode: all-reduce", "mode: parameter-servers"))
    assert (usual.spec.servers.max, usual.job(0.0).has_servers) == (16, True)
    assert (read.words(2, 0), usual.words(2, 1)) == ("2 workers", "2 workers and 1 servers")


def test_a_job_without_servers_is_saved_as_others_are() -> None:
    read = read_document(f"{ALL_REDUCE}  checkpoint: {{url: /c, interval: 5m}}\n")
    assert (read.spec.checkpoint.url, read.spec.checkpoint.interval) == ("/c", 300.0)


@pytest.mark.parametrize(
    ("field", "words"),
    [
        ("servers: {max: 2}", "servers are for jobs with servers, and mode all-reduce has none: leave them out"),
        ("servers: {}", "servers are for jobs with servers"),
        ("blockReplicas: 1", "blockReplicas is for jobs with servers, and mode all-reduce has none: leave it out"),
        ("mode: ring", "spec.mode is 'ring': Input should be 'parameter-servers' or 'all-reduce'"),
    ],
)
def test_what_does_not_go_without_servers(field: str, words: str) -> None:
    text = ALL_REDUCE.replace("  mode: all-reduce\n", "") if field.startswith("mode") else ALL_REDUCE
    with pytest.raises(BadInput, match=re.escape(words)):
        read_document(f"{text}  {field}\n")
