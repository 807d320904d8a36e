"""The chart, as far as it can be looked at without helm: what it may not have, and that its values have a schema."""

import json
import re
import subprocess
from dataclasses import fields

import pytest
import yaml
from typer.main import get_command

from dl2_scheduler.cli import app
from dl2_scheduler.commands.cluster.serving.serve_options import Caution, Learning
from dl2_scheduler.policies.placement.node_rules import NODE_RULES
from dl2_scheduler.policies.placement.registry import PLACEMENT_NAMES
from k8s.elastic_operator.job.manifests import COORDINATOR_RESOURCES
from tests.paths import ROOT

CHART = ROOT / "k8s" / "chart"
TEMPLATES = {path.name: path.read_text() for path in (CHART / "templates").glob("*.yaml")}
FREE = {"resources", "nodeSelector", "annotations", "requests"}
"""Whose keys are the user's."""


def places(value, path=()):
    """Paths of all values but those of users' own keys."""
    yield path
    if isinstance(value, dict) and not (path and path[-1] in FREE):
        for name, part in value.items():
            yield from places(part, (*path, name))


def known(schema, path=()):
    """Paths that a schema allows."""
    yield path
    for name, part in schema.get("properties", {}).items():
        if name not in {"limits", "claims", "global"} and not (path and path[-1] in FREE):
            yield from known(part, (*path, name))


def test_every_value_of_the_chart_has_its_place_in_the_schema_and_no_other_is_allowed():
    schema = json.loads((CHART / "values.schema.json").read_text())
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    assert set(known(schema)) == set(places(values))
    for part in (schema, schema["properties"]["operator"], schema["properties"]["scheduler"]):
        assert part["additionalProperties"] is False


def test_the_chart_renders_no_secret():
    """Rendered again, as GitOps does, it would be another one, and running jobs be cut off."""
    assert not [name for name, text in TEMPLATES.items() if "kind: Secret\n" in text or "randAlphaNum" in text]


def test_manifests_without_an_image_of_their_users_own_are_refused():
    """They had one that nobody publishes."""
    made = subprocess.run(["make", "manifests", "IMAGE="], cwd=ROOT, capture_output=True, text=True, timeout=30)
    assert made.returncode
    assert made.stderr.startswith("manifests: needs IMAGE=HOST/dl2/runtime:0.1.0")


def test_the_definition_is_kept():
    assert "helm.sh/resource-policy: keep" in TEMPLATES["crd.yaml"].split("spec:")[0]


def test_two_operators_stand_on_two_nodes_and_are_drained_one_after_the_other():
    assert yaml.safe_load((CHART / "values.yaml").read_text())["operator"]["replicas"] == 2
    assert "podAntiAffinity:" in TEMPLATES["operator.yaml"]
    assert "kind: PodDisruptionBudget" in TEMPLATES["operator.yaml"]


def rules(who, part):
    """Rules that a template of the chart has by a name, by the resource that they are about."""
    text = TEMPLATES[f"{who}-rbac.yaml"].split(f'{{{{- define "dl2.{who}.{part}" }}}}')[1].split("{{- end }}")[0]
    return {resource: set(rule["verbs"]) for rule in yaml.safe_load(text) for resource in rule["resources"]}


@pytest.mark.parametrize("who", ["operator", "scheduler"])
def test_what_is_watched_may_be_read_where_one_of_the_namespaces_is_gone(who):
    """The rights in a namespace go with it, and a watch that is refused ended the process, for all other ones."""
    parts = TEMPLATES[f"{who}-rbac.yaml"].split("---")
    (cluster,) = [part for part in parts if "\nkind: ClusterRole\n" in part.split("rules:")[0]]
    always = cluster.split("rules:")[1].split("{{- if $all }}")[0]
    assert f'include "dl2.{who}.reads"' in always
    reads, writes = rules(who, "reads"), rules(who, "rules")
    assert {"get", "list", "watch"} == reads["elasticjobs"] == reads["pods"]
    assert set().union(*reads.values()) == {"get", "list", "watch"}
    assert not any(verbs & {"list", "watch"} for verbs in writes.values())
    assert "secrets" not in reads


@pytest.mark.parametrize("who", ["operator", "scheduler"])
def test_a_lease_that_somebody_has_deleted_may_be_made_again(who):
    """Else all replicas waited for it, and said that they are ready."""
    named = f"kind: Role\nmetadata:\n  name: dl2-{who}-lease\n"
    (role,) = [part for part in TEMPLATES[f"{who}-rbac.yaml"].split("---") if named in part]
    assert "resources: [leases], verbs: [create]" in role
    assert f"resourceNames: [dl2-{who}], verbs: [get, update]" in role


def test_coordinators_resources_are_the_operators_own_where_nobody_says_otherwise():
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    assert values["coordinator"]["resources"] == COORDINATOR_RESOURCES
    said = 'printf "--coordinator-resources=%s" (toJson .) | quote'
    before, _ = TEMPLATES["operator.yaml"].split(said)
    assert "{{- with (.Values.coordinator).resources }}" in before.splitlines()[-2], (
        "an older release's values have none"
    )


@pytest.mark.parametrize(("role", "kinds"), [("view", "view edit admin"), ("edit", "edit admin")])
def test_users_have_for_jobs_what_they_have_for_all_else(role, kinds):
    (text,) = [part for part in TEMPLATES["user-roles.yaml"].split("---") if f"dl2-elasticjobs-{role}-" in part]
    found = {line.split("aggregate-to-")[1].split(":")[0] for line in text.splitlines() if "aggregate-to-" in line}
    assert found == set(kinds.split())


def place(schema, path):
    """Return what a schema says of the value at a path."""
    for name in path.split("."):
        schema = schema["properties"][name]
    return schema


@pytest.mark.parametrize(
    ("path", "told"),
    [
        ("operator.replicas", {"type": "integer"}),
        ("scheduler.placement", {"type": "string"}),
        ("scheduler.moveTasks", {"type": "integer", "minimum": 0}),
        ("scheduler.learn", {"type": "boolean"}),
        ("scheduler.explore", {"type": "string"}),
        ("scheduler.learnCores", {"type": "integer", "minimum": 0, "maximum": 1}),
        ("scheduler.mostChanges", {"type": "integer", "minimum": 2}),
        ("scheduler.guardSlots", {"type": "integer", "minimum": 0}),
        ("scheduler.guardMargin", {"type": ["number", "string"], "minimum": 0}),
        ("scheduler.refit", {"type": "boolean"}),
        ("metrics.annotations", {"type": ["object", "null"]}),
        ("namespaces", {"type": "array"}),
    ],
)
def test_values_of_another_type_are_refused(path, told):
    assert told.items() <= place(json.loads((CHART / "values.schema.json").read_text()), path).items()


ELSEWHERE = {
    "--slots": "of a cluster of this machine",
    "--isolation": "of a cluster of this machine",
    "--context": "of a kubeconfig: a pod has its service account",
}
"""Options of `dl2 serve` that the chart does not give, and why."""


def test_each_option_of_the_scheduler_is_in_the_chart():
    """Pages say that a policy is guarded, learns and is limited on Kubernetes as on a machine."""
    options = {each.opts[0] for each in get_command(app).commands["serve"].params}
    given = set(re.findall(r"--[a-z]+(?:-[a-z]+)*", TEMPLATES["scheduler.yaml"]))
    assert options - given == ELSEWHERE.keys()
    assert given <= options


def test_the_scheduler_of_a_chart_that_was_told_nothing_is_as_one_without_options():
    """Each default stands in two places."""
    values, own = yaml.safe_load((CHART / "values.yaml").read_text())["scheduler"], (Caution(), Learning())
    for part in own:
        for option in fields(part):
            value = values[re.sub("_(.)", lambda found: found[1].upper(), option.name)]
            assert (value or None) == (getattr(part, option.name) or None), option.name


def test_the_chart_takes_each_name_of_a_placement_and_no_other():
    pattern = place(json.loads((CHART / "values.schema.json").read_text()), "scheduler.placement")["pattern"]
    named = [name.replace("MODULE:CLASS", "mine.places:First") for name in PLACEMENT_NAMES]
    assert all(re.fullmatch(pattern, name) for name in (*named, *NODE_RULES, "learnt:/var/lib/dl2/run"))
    assert not any(re.fullmatch(pattern, name) for name in ("", "bogus", "learnt:", "learnt", "spread-shortest"))


def test_annotations_that_are_null_leave_whole_services():
    for name in ("operator.yaml", "scheduler.yaml"):
        assert "annotations: {{" not in TEMPLATES[name], "null would stand where more follows"


@pytest.mark.parametrize("amount", ["1", "500m", "2Gi", ".5", "1e3", "+2", "0.25"])
def test_quantities_match_the_definition(amount):
    assert re.fullmatch(quantities(), amount)


@pytest.mark.parametrize("amount", ["lots", "", "1 Gi", "-1", "2GiB", "1e", "0x10"])
def test_what_is_no_quantity_does_not(amount):
    assert not re.fullmatch(quantities(), amount)


def quantities():
    """Return the pattern of the amounts that a container may ask for."""
    requests = TEMPLATES["crd.yaml"].split("requests: &amounts")[1]
    return re.search(r"pattern: '(.*)'", requests)[1]


def test_variables_of_the_runtimes_own_are_refused_by_the_definition():
    assert "!self.startsWith('ELASTIC_')" in TEMPLATES["crd.yaml"]


_WHOLE = re.compile(r"(?:: |- |\[|^ *)\{\{ ((?:\$?\.|printf )[^}]*) \}\}")
"""An expression that is a whole scalar, and so a number or a truth to YAML where it looks like one."""


@pytest.mark.parametrize("name", sorted(TEMPLATES))
def test_what_people_name_stays_text_whatever_it_looks_like(name):
    """A namespace may be 12345, and a release `on`."""
    own = {"replicas", "imagePullPolicy", "metricsPort"}  # the schema says what these may be
    found = [each for line in TEMPLATES[name].splitlines() for each in _WHOLE.findall(line)]
    bare = [each for each in found if not re.search(r"\| (quote|indent|nindent)", each)]
    assert [each for each in bare if each.rpartition(".")[2] not in own] == []
