"""How a job starts, and what the operator does about its coordinator: `reconcile.plan`, without a cluster."""

from dataclasses import replace

import pytest

from elastic_ps.core.configuration import Role
from elastic_ps.core.errors import EXIT_LATER
from k8s.elastic_operator.job.actions import (
    DeletePod,
    Ensure,
    JudgePods,
    SaveJob,
    SetFinalizer,
    StartCoordinator,
    StartNode,
    StopJob,
    WriteEvent,
)
from k8s.elastic_operator.job.model import Counts, timestamp
from k8s.elastic_operator.job.pods import Pod
from k8s.elastic_operator.job.reconciliation import ApiDenial, ObservedJob
from k8s.elastic_operator.job.report import CoordinatorReport, ReportedProtection
from k8s.elastic_operator.job.status import (
    COMPLETED,
    FAILED,
    RUNNING,
    STARTING,
    SUSPENDED,
    SUSPENDING,
    WAITING,
    ElasticJobStatus,
)
from tests.k8s.operator_cases import COORDINATOR, NOW, PODS, TAKEN, decide, job, kinds, server, usual, wanted, worker
from tests.sweeps import sweep

# ---- the start -------------------------------------------------------------------------------------------------------


def test_a_new_job_gets_everything_at_once_so_that_a_gang_can_be_placed():
    done = decide(ObservedJob(verdict=TAKEN), job(finalizer=False))
    assert kinds(done, *PODS) == [
        Ensure(),
        StartCoordinator(1, Counts(2, 1), begins=True),
        StartNode(Role.SERVER, 1),
        StartNode(Role.WORKER, 1),
        StartNode(Role.WORKER, 2),
    ]
    assert kinds(done, SetFinalizer) == [SetFinalizer(True)]
    assert (done.status.phase, done.status.term, done.status.created) == (STARTING, 1, Counts(2, 1))
    assert done.status.selector == "dl2.scheduler/job=digits,dl2.scheduler/role=worker"
    assert done.status.coordinator == "digits-coordinator.ns:7000"


@pytest.mark.parametrize(
    ("spec", "reason"),
    [
        ({"scaling": "Scheduler"}, "the scheduler has granted it nothing yet"),
        (
            {"scaling": "Scheduler", "allocation": {"workers": 0, "servers": 0, "reason": "no room for 2 workers"}},
            "no room for 2 workers",
        ),
        ({"suspend": True}, "spec.suspend is true"),
    ],
)
def test_a_job_that_is_granted_nothing_waits_and_says_why(spec, reason):
    done = decide(ObservedJob(verdict=TAKEN), job(**spec))
    assert (done.status.phase, done.status.reason) == (WAITING, reason)
    assert not kinds(done, *PODS)


def test_a_job_of_the_scheduler_starts_with_what_it_grants():
    done = decide(
        ObservedJob(verdict=TAKEN), job(scaling="Scheduler", allocation={"workers": 3, "servers": 2, "reason": "room"})
    )
    assert kinds(done, StartCoordinator) == [StartCoordinator(1, Counts(3, 2), begins=True)]


@pytest.mark.parametrize("phase", [STARTING, RUNNING])
def test_a_document_that_has_lost_what_the_scheduler_granted_leaves_a_job_with_pods_as_it_was(phase):
    """`kubectl replace` with the file that it was submitted by drops it: the job was suspended."""
    bare, seen = job(scaling="Scheduler"), usual(status={"phase": phase, "workers": 2, "servers": 1})
    for found in (seen, replace(seen, report=None), replace(seen, report=replace(seen.report, wanted=Counts()))):
        done = decide(found, bare)
        assert done.status.phase == (phase if found.report is None else RUNNING)
        assert not kinds(done, SaveJob, StopJob, DeletePod, StartNode)
    nothing = decide(seen, job(scaling="Scheduler", allocation={"workers": 0, "servers": 0}))
    assert kinds(nothing, SaveJob) == [SaveJob(1)]


def test_numbers_of_pods_are_never_used_again():
    seen = ObservedJob(ElasticJobStatus(phase=SUSPENDED, term=4, created=Counts(7, 3), trained=True))
    done = decide(seen, job())
    assert kinds(done, StartCoordinator) == [StartCoordinator(5, Counts(2, 1), restore=True, begins=True)]
    assert kinds(done, StartNode) == [
        StartNode(Role.SERVER, 4),
        StartNode(Role.WORKER, 8),
        StartNode(Role.WORKER, 9),
    ]


def test_pods_of_the_last_run_go_first():
    seen = ObservedJob(ElasticJobStatus(phase=SUSPENDED, term=1), (worker(1, phase="Succeeded"),))
    done = decide(seen, job())
    assert kinds(done, *PODS) == [DeletePod("digits-worker-1")]


def test_a_pod_that_is_not_placed_is_the_reason():
    stuck = worker(1, phase="Pending", node="", trouble="not placed: 0/2 nodes have enough cpu")
    seen = ObservedJob(ElasticJobStatus(phase=STARTING, term=1), (replace(COORDINATOR, phase="Pending"), stuck))
    done = decide(seen, job())
    assert done.status.reason == "digits-worker-1 is not placed: 0/2 nodes have enough cpu"
    assert done.status.conditions["Scheduled"].status == "False"


def test_a_coordinator_that_never_starts_fails_the_job_with_its_words():
    crashed = replace(COORDINATOR, container_restarts=5, trouble="coordinator: cannot read the checkpoint")
    done = decide(ObservedJob(ElasticJobStatus(phase=STARTING, term=1), (crashed,), silent=60.0), job())
    assert done.status.phase == FAILED
    assert "cannot read the checkpoint" in done.status.reason


def test_a_coordinator_that_was_heard_between_its_crashes_fails_no_job():
    """Nor does the operator's own restart, behind which it has heard nobody yet: the crashes of weeks are no row."""
    crashed = replace(COORDINATOR, container_restarts=5, trouble="OOMKilled")
    pods = (worker(1), worker(2), server(1))
    heard = usual()
    done = decide(replace(heard, pods=(crashed, *pods)), job())
    assert (done.status.phase, done.status.coordinator_restarts) == (RUNNING, 5)
    for restarts, phase in ((5, RUNNING), (9, RUNNING), (10, FAILED)):
        silent = replace(crashed, container_restarts=restarts)
        assert decide(ObservedJob(done.status, (silent, *pods), silent=60.0), job()).status.phase == phase
    begun = decide(ObservedJob(done.status, (silent, *pods), silent=0.5), job())
    assert (begun.status.phase, begun.again) == (RUNNING, 9.5), "it may run by now: it is heard first"
    gone = decide(ObservedJob(done.status, pods), job())
    assert gone.status.coordinator_restarts == 0, "of another pod"


def test_a_job_trains_on_while_something_that_may_pass_keeps_its_coordinator_from_running():
    """Its volume is full, or the storage does not answer to one that goes on from its checkpoint.

    One that has not trained is given up: it has nothing to lose.
    """
    said = {"exitCode": EXIT_LATER, "message": "coordinator: cannot write its journal: No space left on device"}
    waits = {"waiting": {"reason": "CrashLoopBackOff"}}
    container = {"name": "main", "restartCount": 7, "state": waits, "lastState": {"terminated": said}}
    body = {"metadata": {"name": "c"}, "status": {"phase": "Running", "containerStatuses": [container]}}
    crashed = replace(Pod.of(body), node="node-1")
    pods = (crashed, worker(1), worker(2), server(1))
    for before, trained, after in (
        (RUNNING, True, RUNNING),
        (STARTING, True, STARTING),
        (STARTING, False, FAILED),
    ):
        done = decide(ObservedJob(ElasticJobStatus(phase=before, term=1, trained=trained), pods, silent=60.0), job())
        assert done.status.phase == after
        assert "its coordinator does not start: coordinator: cannot write its journal: No space" in done.status.reason
    bug = replace(crashed, last_status=1)
    known = ElasticJobStatus(phase=RUNNING, term=1, trained=True)
    done = decide(ObservedJob(known, (bug, *pods[1:]), silent=60.0), job())
    assert done.status.phase == FAILED


# ---- the coordinator -------------------------------------------------------------------------------------------------


def test_a_lost_coordinator_comes_back_in_a_higher_term_and_asks_its_nodes():
    seen = ObservedJob(ElasticJobStatus(phase=RUNNING, term=2, trained=True), (worker(1), worker(2), server(1)))
    done = decide(seen, job())
    assert kinds(done, *PODS) == [Ensure(), StartCoordinator(3, Counts(2, 1))]


def test_a_lost_coordinator_is_told_of_once_until_another_one_is_heard():
    pods = (worker(1), worker(2), server(1))
    first = decide(replace(usual(), report=None, pods=pods), job())
    assert [one.reason for one in kinds(first, WriteEvent)] == ["CoordinatorLost"]
    again = decide(ObservedJob(first.status, pods), job())
    assert (again.status.term, kinds(again, WriteEvent)) == (3, [])
    heard = decide(usual(status=vars(again.status)), job())
    assert [one.reason for one in kinds(decide(ObservedJob(heard.status, pods), job()), WriteEvent)] == [
        "CoordinatorLost"
    ]


def test_its_term_is_above_those_that_it_took_by_itself():
    first = decide(usual(report={"term": 6}), job())
    done = decide(ObservedJob(first.status, (worker(1), server(1))), job())
    assert kinds(done, StartCoordinator) == [StartCoordinator(7, Counts(2, 1))]


def test_the_object_of_a_coordinator_on_a_lost_node_makes_way():
    lost = replace(COORDINATOR, deleting=True, lost=True)
    done = decide(
        ObservedJob(ElasticJobStatus(phase=RUNNING, term=1, trained=True), (lost, worker(1), server(1))), job()
    )
    assert kinds(done, *PODS) == [DeletePod("digits-coordinator", at_once=True)]


def test_one_that_its_node_would_not_take_is_tried_again_after_a_while():
    known = ElasticJobStatus(phase=RUNNING, term=1, trained=True)
    refused = replace(COORDINATOR, phase="Failed", unstarted=True, created=NOW - 4, trouble="OutOfcpu: too much")
    seen = ObservedJob(known, (refused, worker(1), server(1)))
    done = decide(seen, job())
    assert not kinds(done, *PODS)
    assert done.again == 6.0
    assert done.status.reason == (
        "digits-coordinator was not taken by node-1: OutOfcpu: too much; another one is tried in 6 s"
    )
    assert kinds(decide(seen, job(), NOW + 6), *PODS) == [DeletePod("digits-coordinator", at_once=True)]


@pytest.mark.parametrize("change", [{"created": NOW + 300}, {"lost": True, "deleting": True}], ids=["clock", "lost"])
def test_it_is_tried_again_at_once_where_the_clock_is_behind_or_it_is_lost(change):
    known = ElasticJobStatus(phase=RUNNING, term=1, trained=True)
    refused = replace(COORDINATOR, phase="Failed", unstarted=True, **{"created": NOW - 4, **change})
    done = decide(ObservedJob(known, (refused, worker(1), server(1))), job())
    assert kinds(done, *PODS) == [DeletePod("digits-coordinator", at_once=True)]


def test_a_refused_one_makes_way_at_once_where_no_node_waits_for_it():
    known = ElasticJobStatus(phase=RUNNING, term=1, trained=True)
    refused = replace(COORDINATOR, phase="Failed", unstarted=True, created=NOW - 4)
    assert kinds(decide(ObservedJob(known, (refused,)), job()), DeletePod)


def test_one_that_somebody_deletes_is_waited_for():
    going = replace(COORDINATOR, deleting=True, phase="Failed")
    done = decide(
        ObservedJob(ElasticJobStatus(phase=RUNNING, term=1, trained=True), (going, worker(1), server(1))), job()
    )
    assert not kinds(done, *PODS)


def test_where_nothing_is_left_the_job_goes_back_to_its_checkpoint():
    first = decide(ObservedJob(ElasticJobStatus(phase=RUNNING, term=1, trained=True, created=Counts(2, 1))), job())
    done = decide(ObservedJob(first.status), job())
    assert kinds(done, StartCoordinator) == [StartCoordinator(2, Counts(2, 1), restore=True, begins=True)]


@pytest.mark.parametrize(
    ("pods", "phase"),
    [
        ((worker(1, phase="Succeeded"), server(1, phase="Succeeded")), COMPLETED),
        ((worker(1, phase="Succeeded"), worker(2, phase="Failed")), COMPLETED),
        ((worker(1, phase="Succeeded", deleting=True),), SUSPENDED),
        ((worker(1, phase="Succeeded"), worker(2, lost=True), server(1, lost=True)), SUSPENDED),
    ],
)
def test_where_no_node_stays_its_workers_tell_whether_it_has_finished(pods, phase):
    """Who was let go by a scaling has ended well, too: that alone is no end of the job."""
    done = decide(ObservedJob(ElasticJobStatus(phase=RUNNING, term=1, trained=True, created=Counts(2, 1)), pods), job())
    assert done.status.phase == phase


def test_where_nothing_is_left_and_there_is_no_checkpoint_it_has_failed():
    done = decide(ObservedJob(ElasticJobStatus(phase=RUNNING, term=1, trained=True)), job(without=["checkpoint"]))
    assert done.status.phase == FAILED
    assert "no checkpoint" in done.status.reason


def test_a_silent_coordinator_changes_nothing():
    seen = replace(usual(), report=None)
    done = decide(seen, wanted(4, 1))
    assert not done.actions
    assert (done.status.phase, done.status.reason) == (RUNNING, "its coordinator does not answer")


# ---- all of them -----------------------------------------------------------------------------------------------------


REPORTS = [
    None,
    CoordinatorReport(),
    CoordinatorReport(phase="finished"),
    CoordinatorReport(phase="failed", reason="x"),
]
DOCUMENTS = [job(), job(deleting=True), job(suspend=True), job(without=["checkpoint"])]


@pytest.mark.parametrize("report", sweep(REPORTS, 2))
@pytest.mark.parametrize("phase", ["", WAITING, STARTING, RUNNING, SUSPENDING, SUSPENDED, COMPLETED, FAILED])
@pytest.mark.parametrize("pods", [(), (COORDINATOR,), (COORDINATOR, worker(1), server(1)), (worker(1),)])
@pytest.mark.parametrize("document", sweep(DOCUMENTS, 2))
def test_whatever_is_seen_is_answered_and_asked_again_only_until_it_is_done(report, phase, pods, document):
    status = ElasticJobStatus(phase=phase, term=int(phase != ""), completion_time=timestamp(NOW))
    first = decide(ObservedJob(status, pods, report), document)
    again = decide(ObservedJob(status, pods, report), document)
    assert first == again
    assert ElasticJobStatus.of({"status": first.status.to_dict()}) == replace(
        first.status, created=first.status.created if first.status.term else Counts()
    )


def test_a_job_that_could_not_be_saved_is_said_before_it_is_needed():
    bad = decide(usual(report={"unsaved": "cannot write s3://no-such/version-1: no such bucket"}), job())
    assert bad.status.conditions["Checkpointed"].status == "False"
    assert [one.reason for one in kinds(bad, WriteEvent)] == ["NotSaved"]
    again = decide(usual(report={"unsaved": "cannot write s3://no-such/version-2"}, status=vars(bad.status)), job())
    assert not kinds(again, WriteEvent)
    good = decide(usual(report={"checkpoint": "/ckpt/version-3"}, status=vars(again.status)), job())
    assert good.status.conditions["Checkpointed"].message == "/ckpt/version-3"
    assert good.status.condition("Checkpointed")


def test_job_with_replicas_says_whether_a_server_may_die():
    whole = ReportedProtection("", "100% (8 of 8 blocks)")
    first = decide(usual(report={"protection": whole}), job())
    assert first.status.condition("Protected")
    assert [one.message for one in kinds(first, WriteEvent)] == ["protected 100% (8 of 8 blocks)"]
    again = decide(usual(report={"protection": whole}, status=vars(first.status)), job())
    assert not kinds(again, WriteEvent)
    alone = ReportedProtection("OneServer", "0% (0 of 8 blocks): nobody can follow the only server")
    lost = decide(usual(report={"protection": alone}, status=vars(again.status)), job())
    told = lost.status.conditions["Protected"]
    assert (told.status, told.reason, told.message) == ("False", "OneServer", alone.text)
    assert [(one.reason, one.warning) for one in kinds(lost, WriteEvent)] == [("Unprotected", True)]
    filling = ReportedProtection("MakingFollowers", "0% (0 of 8 blocks): no block has a follower; plan 5 makes them")
    later = decide(usual(report={"protection": filling}, status=vars(lost.status)), job())
    assert later.status.conditions["Protected"].reason == "MakingFollowers"
    assert not kinds(later, WriteEvent), "it has been told that it is lost"
    back = decide(usual(report={"protection": whole}, status=vars(later.status)), job())
    assert [one.reason for one in kinds(back, WriteEvent)] == ["Protected"]


def test_job_that_asks_for_no_replicas_or_begins_anew_has_no_such_condition():
    assert "Protected" not in decide(usual(), job()).status.conditions
    protected = decide(usual(report={"protection": ReportedProtection("", "100% (8 of 8 blocks)")}), job()).status
    assert "Protected" not in decide(usual(status=vars(protected)), job()).status.conditions
    waiting = replace(protected, phase=WAITING)
    assert "Protected" not in decide(ObservedJob(waiting, verdict=TAKEN), job()).status.conditions


DENIED = ApiDenial('pods "digits-worker-3" is forbidden: exceeded quota: few', (StartNode(Role.WORKER, 3),), again=4.0)


def test_what_is_seen_of_a_refused_pod_changes_nothing_until_it_is_tried_again():
    """A status that differs each time is written each time, which wakes the keeper: for ever."""
    said = {"wanted": Counts(3, 1), "starting": Counts(1, 0)}
    seen = usual(report=said, denied=DENIED)
    first = decide(seen, wanted(3, 1))
    assert first.status.reason == f"quota: {DENIED.message}"
    assert first.again == 4.0
    assert not kinds(first, *PODS)
    again = decide(replace(seen, status=first.status), wanted(3, 1), NOW + 2)
    assert again.status == first.status
    tried = decide(replace(seen, status=first.status, denied=replace(DENIED, again=0.0)), wanted(3, 1), NOW + 4)
    assert kinds(tried, *PODS) == [StartNode(Role.WORKER, 3)]
    assert tried.status.created == first.status.created, "its number is the one that it had"


def test_a_job_that_waits_is_judged_anew_for_each_document_and_warned_of_once():
    bare = job(without=["checkpoint"], scaling="Scheduler")
    asked = decide(ObservedJob(), bare)
    assert kinds(asked, JudgePods) == [JudgePods()]
    first = decide(ObservedJob(asked.status, verdict=TAKEN), bare)
    assert [one.reason for one in kinds(first, WriteEvent)] == ["NoCheckpoint"]
    replicated = job(without=["checkpoint"], scaling="Scheduler", blockReplicas=1)
    (other,) = kinds(decide(ObservedJob(asked.status, verdict=TAKEN), replicated), WriteEvent)
    assert "if two servers are lost at once, or one while blocks have no follower, the job fails" in other.message
    granted = replace(bare, generation=4)
    anew = decide(ObservedJob(first.status, verdict=TAKEN), granted)
    assert kinds(anew, JudgePods) == [JudgePods()]
    assert anew.status.condition("Accepted")
    last = decide(ObservedJob(anew.status, verdict=replace(TAKEN, generation=4)), granted)
    assert not kinds(last, JudgePods, WriteEvent)
