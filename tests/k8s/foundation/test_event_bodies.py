"""Events, as the API server takes them."""

import re

import pytest

from k8s.foundation.event_bodies import event_body, job_reference


def test_an_event_is_about_its_object_and_not_too_long():
    about = job_reference("ns", "digits", "uid-1")
    body = event_body(about, "Saved", "x" * 2000, "dl2-operator", warning=False)
    assert body["involvedObject"] == about
    assert (about["apiVersion"], about["kind"], about["name"]) == ("dl2.scheduler/v1alpha1", "ElasticJob", "digits")
    assert body["metadata"]["namespace"] == "ns"
    assert (body["type"], len(body["message"])) == ("Normal", 1024)
    other = event_body(about, "Saved", "x", "dl2-operator", instance="a1")
    assert (other["type"], other["reportingInstance"]) == ("Warning", "a1")
    assert other["metadata"]["name"] != body["metadata"]["name"]


@pytest.mark.parametrize("name", ["digits", "x" * 253, "x" * 235 + "-" + "y" * 17, "x.y" * 84])
def test_an_event_of_an_object_with_the_longest_name_has_one_that_is_taken(name):
    about = {"kind": "Pod", "name": name, "namespace": "ns"}
    body = event_body(about, "FailedScheduling", "why", "dl2")
    assert re.fullmatch(r"[a-z0-9]([a-z0-9.-]*[a-z0-9])?", body["metadata"]["name"])
    assert len(body["metadata"]["name"]) <= 253
    assert not re.search(r"[-.][.]", body["metadata"]["name"])
    assert body["involvedObject"]["name"] == name
