"""Events, as the API server takes them."""

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
