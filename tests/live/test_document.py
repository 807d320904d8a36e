"""The ElasticJob document: what is read, and how what is wrong is refused."""

import pytest
import yaml
from played_cluster import document

from dl2_scheduler.cluster.document import read_document
from dl2_scheduler.cluster.durations import seconds
from dl2_scheduler.cluster.errors import BadInput

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
    requests = {"requests": {"slots": 2, "gpu": 0.5}}
    read = read_document(changed(f"{CONTAINER}.resources", requests))
    assert read.job(0.0).worker == {"slots": 2, "gpu": 0.5}
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
        ("spec.epochs", None, "spec.epochs: missing: give it"),
        ("spec.epochs", 0, "spec.epochs is 0: Input should be greater than 0"),
        ("spec.epochs", "40", "spec.epochs is '40'"),
        ("spec.gangTimeout", 5, "spec.gangTimeout: unknown, or not implemented yet: leave it out"),
        ("spec.workers.min", 2, "spec.workers.min: unknown, or not implemented yet"),
        ("spec.workers.max", 0, "spec.workers.max is 0"),
        ("spec.workers.max", 300, "spec.workers.max is 300"),
        ("spec.workers", None, "spec.workers: missing"),
        ("spec.modelType", None, "spec: a job needs modelType, or an image"),
        (f"{CONTAINER}.command", None, "spec: workers need template.spec.containers[0].command"),
        (f"{CONTAINER}.command", "python a.py", f"{CONTAINER}.command is 'python a.py': give a list"),
        (f"{CONTAINER}.args", ["--epochs", 40], f"{CONTAINER}.args.1 is 40: give text; a number that is text"),
        (f"{CONTAINER}.resources", {"requests": {"slots": 0}}, "worker takes nothing"),
        (f"{CONTAINER}.resources", {"requests": {"slots": -1}}, f"{CONTAINER}.resources.requests.slots is -1"),
        (f"{CONTAINER}.env", {"A": "1"}, f"{CONTAINER}.env is {{'A': '1'}}: give a list"),
        (f"{CONTAINER}.env", [{"name": "A", "value": 1}], f"{CONTAINER}.env.0.value is 1: give text"),
        (f"{CONTAINER}.env", [{"name": "A B"}], f"{CONTAINER}.env.0.name: 'A B': give letters"),
        (f"{CONTAINER}.env", [{"name": "ELASTIC_HOST"}], f"{CONTAINER}.env.0.name: ELASTIC_HOST: names that begin"),
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


def test_all_that_is_wrong_is_named_at_once():
    with pytest.raises(BadInput, match=r"spec\.workers\.max .*; spec\.servers\.max "):
        read_document(document(workers=0, servers=0))


@pytest.mark.parametrize("text", ["", "- a", "a: [", "\x00"])
def test_no_document(text):
    with pytest.raises(BadInput, match=r"not YAML|not an ElasticJob document"):
        read_document(text)


def test_lengths_of_time():
    assert [seconds(text) for text in ("30", "30s", "5m", "2h", "500ms", 1.5)] == [30, 30, 300, 7200, 0.5, 1.5]
    for wrong in ("", "0", "-1", "s", "1 h", "1d", "nan", "inf"):
        with pytest.raises(BadInput, match="no length of time"):
            seconds(wrong)
    with pytest.raises(BadInput, match="721h is longer than 720h: give less"):
        seconds("721h")
