"""The definition of ElasticJobs in the chart agrees with the document that `dl2 submit` reads."""

import re

import pytest
import yaml

from dl2_scheduler.cluster.document import job_document
from dl2_scheduler.cluster.document.quantities import amount
from dl2_scheduler.cluster.ranges import MOST_EPOCHS
from elastic_ps.core.configuration import MOST_REPLICAS
from elastic_ps.core.job_mode import JobMode
from tests.paths import ROOT

CHART = ROOT / "k8s" / "chart"
SPEC = ("spec",)


@pytest.fixture(scope="module")
def schema():
    lines = (CHART / "templates" / "crd.yaml").read_text().splitlines()
    whole = yaml.safe_load("\n".join(line for line in lines if not line.startswith("{{")))
    (version,) = whole["spec"]["versions"]
    assert (whole["spec"]["group"], version["name"]) == tuple(job_document.API_VERSION.split("/"))
    assert whole["spec"]["names"]["kind"] == job_document.KIND
    return version["schema"]["openAPIV3Schema"]


def described(schema, path=""):
    """Paths of parts that have no description."""
    for name, part in schema.get("properties", {}).items():
        where = f"{path}.{name}"
        if where not in (".metadata",) and "description" not in part:
            yield where
        yield from described(part, where)
    if "items" in schema:
        yield from described(schema["items"], f"{path}[]")


def test_every_field_is_described(schema):
    assert list(described(schema)) == []


def fields(part):
    return {str(field.alias): field for field in part.model_fields.values()}


def test_both_have_the_same_fields(schema):
    spec = schema["properties"]["spec"]["properties"]
    assert set(spec) == set(fields(job_document.Spec)) | {"allocation"}
    for role in ("workers", "servers"):
        assert set(spec[role]["properties"]) == set(fields(job_document.RoleSpec))
    assert set(spec["checkpoint"]["properties"]) == set(fields(job_document.Checkpoint))
    coordinator = spec["coordinator"]["properties"]
    assert set(coordinator) == set(fields(job_document.CoordinatorSpec))
    assert set(coordinator["volume"]["properties"]) == set(fields(job_document.Volume))
    assert set(spec["sharedMemory"]["properties"]) == set(fields(job_document.SharedMemory))


def test_both_have_the_same_defaults(schema):
    spec = schema["properties"]["spec"]["properties"]
    made = job_document.Spec.model_construct()
    assert spec["scaling"]["default"] == made.scaling
    assert spec["scaling"]["enum"] == [str(one) for one in job_document.Scaling]
    assert spec["suspend"]["default"] == made.suspend
    assert job_document.durations.seconds(spec["gangTimeout"]["default"]) == made.gang_timeout
    assert spec["retryLimit"]["default"] == made.retry_limit
    assert spec["blockReplicas"]["default"] == made.block_replicas
    assert "default" not in spec["ttlSecondsAfterFinished"]
    size = spec["coordinator"]["properties"]["volume"]["properties"]["size"]
    assert amount(size["default"]) == job_document.Volume().size
    role = job_document.RoleSpec()
    for name in ("workers", "servers"):
        properties = spec[name]["properties"]
        assert (properties["min"]["default"], properties["max"]["default"]) == (role.min, role.max)
        assert "default" not in properties["replicas"]
    assert "default" not in spec["servers"]  # a job of mode all-reduce has none
    assert spec["mode"]["default"] == made.mode
    assert spec["mode"]["enum"] == [str(one) for one in JobMode]


def test_both_have_the_same_bounds(schema):
    spec = schema["properties"]["spec"]["properties"]
    for name in ("workers", "servers"):
        for count in ("replicas", "min", "max"):
            part = spec[name]["properties"][count]
            assert (part["minimum"], part["maximum"]) == (1, job_document.MOST_TASKS)
    assert (spec["blockReplicas"]["minimum"], spec["blockReplicas"]["maximum"]) == (0, MOST_REPLICAS)
    epochs = spec["epochs"]
    assert (epochs["minimum"], epochs["exclusiveMinimum"], epochs["maximum"]) == (0, True, MOST_EPOCHS)
    for length in (spec["gangTimeout"], spec["checkpoint"]["properties"]["interval"]):
        bound = length["x-kubernetes-validations"][1]["rule"]
        assert f"int(self) <= {job_document.durations.MOST_SECONDS:.0f} " in bound
    assert spec["retryLimit"]["minimum"] == spec["ttlSecondsAfterFinished"]["minimum"] == 0


@pytest.mark.parametrize(("name", "taken"), [("digits", True), ("d1", True), ("1digits", False), ("d-", False)])
def test_a_jobs_name_can_be_its_services(schema, name, taken):
    """`NAME-coordinator`: a service's name begins with a letter, though other objects' may begin with a digit."""
    (allowed,) = re.findall(r"name\.matches\('(.*?)'\)", " ".join(rules(schema)))
    assert bool(re.fullmatch(allowed, name)) is taken


def rules(part):
    """Of the whole document."""
    return [each["rule"] for each in part["x-kubernetes-validations"]]


def sentences(part):
    """Of all rules in a schema."""
    for rule in part.get("x-kubernetes-validations", ()):
        yield rule["message"]
    for inner in part.get("properties", {}).values():
        yield from sentences(inner)


def test_sentences_of_both_are_the_same(schema):
    """Those that `dl2 submit` says too, word by word."""
    said = set(sentences(schema))
    workers = {"template": {"spec": {"containers": [{"command": ["python", "x.py"]}]}}}
    wrong = [
        {"epochs": 1, "workers": workers},
        {"modelType": "a", "workers": workers},
        {"modelType": "a", "epochs": 1, "workers": {}},
        {"modelType": "a", "epochs": 1, "workers": workers, "servers": workers},
        {"modelType": "a", "epochs": 1, "workers": workers, "sharedMemory": {"hostPath": "dl2"}},
        {"modelType": "a", "epochs": 1, "workers": workers, "coordinator": {"volume": {"size": 0}}},
        {"modelType": "a", "epochs": 1, "workers": workers, "servers": {"max": 1}, "blockReplicas": 1},
        {"modelType": "a", "epochs": 1, "workers": workers, "gangTimeout": "1000h"},
        {"modelType": "a", "epochs": 1, "workers": workers, "mode": "all-reduce", "servers": {"max": 1}},
        {"modelType": "a", "epochs": 1, "workers": workers, "mode": "all-reduce", "blockReplicas": 1},
    ]
    for spec in wrong:
        text = {
            "apiVersion": job_document.API_VERSION,
            "kind": job_document.KIND,
            "metadata": {"name": "a"},
            "spec": spec,
        }
        with pytest.raises(job_document.BadInput) as refused:
            job_document.read_document(yaml.safe_dump(text))
        assert any(message in str(refused.value) for message in said), str(refused.value)
