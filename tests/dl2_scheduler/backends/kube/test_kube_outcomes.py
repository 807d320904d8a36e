"""What is told of what has become of jobs of Kubernetes: outcomes, notes, phases and reasons."""

from dataclasses import replace

import pytest

from dl2_scheduler.backends.kube.apiserver.object_reading import job_of, pod_of
from dl2_scheduler.backends.kube.views import (
    note_of,
    outcome_of,
    phase_of,
    reason_of,
    status_of,
)
from dl2_scheduler.cluster.desk import LiveJobPhase
from dl2_scheduler.cluster.snapshot import Grant
from tests.dl2_scheduler.kube_objects import NOW, given, job, pod, stamp


def running(workers=2, servers=1, epoch=3.0, **status):
    told = {"phase": "Running", "workers": workers, "servers": servers, "epoch": epoch, **status}
    return job_of({**job("one"), "status": told})


def test_an_outcome_is_what_happened():
    before, now = running(1, 1, 3.0), running(2, 1, 4.5)
    found = outcome_of(before, now, Grant(3, 1), "plan 4 cancelled", 0.0, NOW - 100, NOW)
    assert (found.workers, found.servers, found.epochs, found.finished) == (2, 1, 1.5, None)
    assert found.note == "plan 4 cancelled"


def test_a_job_trains_with_its_counts_since_its_last_plan_was_committed():
    plans = [
        {"phase": "COMMITTED", "ended": stamp(NOW - 30)},
        {"phase": "COMMITTED", "ended": stamp(NOW - 20)},
        {"phase": "CANCELLED", "ended": stamp(NOW - 10)},
    ]
    before = running(1, 1)
    assert outcome_of(before, running(plans=plans), Grant(2, 1), "", 0.0, NOW - 100, NOW).since == 80.0
    starting = running(0, 0, plans=plans, phase="Starting")
    assert outcome_of(before, starting, Grant(2, 1), "", 0.0, NOW - 100, NOW).since is None
    assert outcome_of(before, running(), Grant(2, 1), "", 0.0, NOW - 100, NOW).since is None


def test_a_job_that_completed_has_trained_all_its_epochs_with_what_it_had():
    now = running(0, 0, 38.0, phase="Completed", completionTime=stamp(NOW + 5))
    found = outcome_of(running(2, 1, 37.0), now, Grant(2, 1), "", 0.0, NOW - 100, NOW + 9)
    assert (found.workers, found.servers, found.epochs, found.finished) == (2, 1, 3.0, 105.0)


@pytest.mark.parametrize(
    ("trained", "had", "note"),
    [(False, (0, 0), "Failed before it trained: w0 died"), (True, (2, 1), "Failed: w0 died")],
)
def test_a_job_that_failed_before_it_trained_had_nothing(trained, had, note):
    before, now = running(0, 0, 0.0), running(0, 0, 0.0, phase="Failed", reason="w0 died", trained=trained)
    grant = Grant(2, 1)
    found = outcome_of(before, now, grant, note_of(before, now, grant, ()), 0.0, NOW - 100, NOW)
    assert ((found.workers, found.servers), found.note) == (had, note)


def test_a_job_that_is_gone_was_deleted():
    found = outcome_of(running(), None, Grant(2, 1), "", 0.0, NOW - 100, NOW)
    assert (found.finished, found.note) == (100.0, "stopped: it was deleted")


@pytest.mark.parametrize(
    ("now", "pods", "expected"),
    [
        (running(3, 1), (), ""),
        (
            running(2, 1, plans=[{"id": 4, "phase": "CANCELLED", "reason": "a node died"}]),
            (),
            "plan 4 cancelled: a node died",
        ),
        (running(2, 1, plans=[{"id": 4, "phase": "COMMITTED"}], reason="one joins"), (), "Running: one joins"),
        (running(2, 1), ("0/2 nodes",), "one-worker-2: 0/2 nodes"),
        (running(0, 0, phase="Failed", reason="no server left", trained=True), (), "Failed: no server left"),
    ],
)
def test_notes_tell_why_a_job_was_other_than_decided(now, pods, expected):
    waiting = [replace(pod_of(pod("one-worker-2", job="one", role="worker")), waits=text) for text in pods]
    assert note_of(running(), now, Grant(3, 1), waiting) == expected


@pytest.mark.parametrize(
    ("spec", "status", "phase", "reason"),
    [
        ({}, {}, LiveJobPhase.WAITING, "the policy's words"),
        ({"suspend": True}, {"phase": "Suspended"}, LiveJobPhase.WAITING, "suspended: spec.suspend is set"),
        ({}, {"phase": "Starting", "reason": "2 pods start"}, LiveJobPhase.STARTING, "the policy's words"),
        ({"scaling": "Manual"}, {"phase": "Starting", "reason": "2 pods start"}, LiveJobPhase.STARTING, "2 pods start"),
        ({}, {"phase": "Running"}, LiveJobPhase.RUNNING, ""),
        ({}, {"phase": "Failed", "reason": "exit 3"}, LiveJobPhase.FAILED, "exit 3"),
        ({}, {"phase": "Completed"}, LiveJobPhase.FINISHED, ""),
    ],
)
def test_phases_and_reasons(spec, status, phase, reason):
    made = given({**job("one", **spec), "status": status}, 0, 0, "the policy's words")
    found = job_of(made)
    assert (phase_of(found), reason_of(found, ())) == (phase, reason)
    assert status_of(found, "one", ()).held is ("scaling" in spec)


def test_a_pod_that_waits_says_why_its_job_does():
    waiting = replace(pod_of(pod("one-worker-2", job="one", role="worker")), waits="0/2 nodes")
    assert reason_of(job_of({**job("one"), "status": {"phase": "Starting"}}), [waiting]) == "0/2 nodes"
