"""What is written of a policy's decisions to jobs of Kubernetes."""

import json
from dataclasses import replace

import pytest

from dl2_scheduler.backends.kube.apiserver.object_reading import job_of
from dl2_scheduler.backends.kube.views import (
    MOST_DECISIONS,
    change_of,
    changed,
    decisions_until_now,
)
from dl2_scheduler.cluster.snapshot import Grant
from tests.dl2_scheduler.kube_objects import NOW, given, job


def change(made, grant, reason="why", note=""):
    return change_of(job_of(made), Grant(*grant), reason, 7, NOW, "drf", note)


def test_a_change_is_the_allocation_and_the_decision():
    body = change(job("one", allocation=None), (2, 1))
    assert body["spec"] == {"allocation": {"workers": 2, "servers": 1, "reason": "why", "slot": 7}}
    (entry,) = json.loads(body["metadata"]["annotations"]["dl2.scheduler/decisions"])
    assert entry == {
        "slot": 7, "at": NOW, "policy": "drf", "workers_before": 0, "servers_before": 0, "workers": 2, "servers": 1,
        "reason": "why", "epochs_done": 0.0,
    }  # fmt: skip


def test_a_job_after_its_change_is_what_the_api_server_makes_of_it():
    made = job("one", allocation=None)
    body = change(made, (2, 1))
    metadata = {**made["metadata"], "resourceVersion": "9", "annotations": body["metadata"]["annotations"]}
    written = {**made, "metadata": metadata, "spec": {**made["spec"], **body["spec"]}}
    assert changed(job_of(made), body, "9") == job_of(written)


@pytest.mark.parametrize(
    ("before", "grant", "reason", "written"),
    [
        ((2, 1, "3 of 9 jobs"), (2, 1), "3 of 9 jobs", False),
        ((2, 1, "3 of 9 jobs"), (2, 1), "4 of 17 jobs", False),
        ((2, 1, "3 of 9 jobs"), (2, 1), "all that it can use", True),
        ((2, 1, "3 of 9 jobs"), (3, 1), "3 of 9 jobs", True),
        (None, (0, 0), "", False),
        (None, (0, 0), "waits", True),
    ],
)
def test_only_what_differs_is_written(before, grant, reason, written):
    made = given(job("one"), *before) if before else job("one", allocation=None)
    assert (change(made, grant, reason) is not None) is written


def test_decisions_are_closed_by_the_next_and_the_last_ones_kept():
    made = job("one", allocation=None)
    for number in range(MOST_DECISIONS + 3):
        body = change(made, (number % 2 + 1, 1), note="late")
        made = {**made, "spec": {**made["spec"], **body["spec"]}, "metadata": {**made["metadata"], **body["metadata"]}}
        made["status"] = {"phase": "Running", "workers": number % 2 + 1, "servers": 1, "epoch": float(number)}
    entries = json.loads(made["metadata"]["annotations"]["dl2.scheduler/decisions"])
    assert len(entries) == MOST_DECISIONS
    assert entries[0]["happened"] == {"workers": 2, "servers": 1, "epochs": 1.0, "note": "late"}
    assert "happened" not in entries[-1]


@pytest.mark.parametrize(
    "text", ['[{"epochs_done": "x"}]', '[{"slot": -1}]', '[{"happened": 7}]', "[" * 100_000, "[7]", "7"]
)
def test_what_somebody_else_writes_as_decisions_is_none(text):
    made = replace(job_of(job("one", allocation=None)), decisions=text)
    assert decisions_until_now(made) == []
    body = change_of(made, Grant(2, 1), "why", 7, NOW, "drf", "")
    assert len(json.loads(body["metadata"]["annotations"]["dl2.scheduler/decisions"])) == 1


@pytest.mark.parametrize(("phase", "note"), [("Running", "so far"), ("Completed", "")])
def test_the_last_decision_tells_what_has_become_of_it(phase, note):
    body = change(job("one", allocation=None), (2, 1))
    made = {**job("one"), "status": {"phase": phase, "workers": 2, "servers": 1, "epoch": 40.0}}
    made["metadata"] |= body["metadata"]
    (entry,) = decisions_until_now(job_of(made))
    assert entry["happened"] == {"workers": 2, "servers": 1, "epochs": 40.0, "note": note}
    del made["status"]
    assert "happened" not in decisions_until_now(job_of(made))[0]


def test_an_annotation_of_somebody_else_is_written_over():
    made = job("one", allocation=None)
    made["metadata"]["annotations"] = {"dl2.scheduler/decisions": "{not json"}
    assert change(made, (1, 1)) is not None
