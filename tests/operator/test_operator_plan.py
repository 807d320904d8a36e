"""What the operator does about a job, case by case: `reconcile.plan`, without a cluster."""

from dataclasses import replace

import pytest
from operator_cases import (
    COORDINATOR,
    NOW,
    job,
    kinds,
    members,
    running,
    server,
    usual,
    wanted,
    worker,
)

from elastic_ps.core.configuration import Role
from k8s.elastic_operator.actions import (
    DeleteJob,
    DeletePod,
    Ensure,
    LabelPod,
    Save,
    Scale,
    SetFinalizer,
    StartCoordinator,
    StartNode,
    Stop,
    Tell,
    TellExit,
)
from k8s.elastic_operator.model import CAUSE, Counts, Pod, timestamp
from k8s.elastic_operator.reconcile import plan
from k8s.elastic_operator.report import Report
from k8s.elastic_operator.status import COMPLETED, FAILED, RUNNING, STARTING, SUSPENDED, SUSPENDING, WAITING, Status
from k8s.elastic_operator.turn import Observed, Saving

PODS = (Ensure, StartCoordinator, StartNode, DeletePod)


def decide(seen, desired, now=NOW):
    return plan(seen, desired, now)


# ---- the start ------------------------------------------------------------------------------------------------------


def test_a_new_job_gets_everything_at_once_so_that_a_gang_can_be_placed():
    done = decide(Observed(), job(finalizer=False))
    assert kinds(done, *PODS) == [
        Ensure(),
        StartCoordinator(1, Counts(2, 1)),
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
    done = decide(Observed(), job(**spec))
    assert (done.status.phase, done.status.reason) == (WAITING, reason)
    assert not kinds(done, *PODS)


def test_a_job_of_the_scheduler_starts_with_what_it_grants():
    done = decide(Observed(), job(scaling="Scheduler", allocation={"workers": 3, "servers": 2, "reason": "room"}))
    assert kinds(done, StartCoordinator) == [StartCoordinator(1, Counts(3, 2))]


def test_numbers_of_pods_are_never_used_again():
    seen = Observed(Status(phase=SUSPENDED, term=4, created=Counts(7, 3), trained=True))
    done = decide(seen, job())
    assert kinds(done, StartCoordinator) == [StartCoordinator(5, Counts(2, 1), restore=True)]
    assert kinds(done, StartNode) == [
        StartNode(Role.SERVER, 4),
        StartNode(Role.WORKER, 8),
        StartNode(Role.WORKER, 9),
    ]


def test_pods_of_the_last_run_go_first():
    seen = Observed(Status(phase=SUSPENDED, term=1), (worker(1, phase="Succeeded"),))
    done = decide(seen, job())
    assert kinds(done, *PODS) == [DeletePod("digits-worker-1")]


def test_a_pod_that_is_not_placed_is_the_reason():
    stuck = worker(1, phase="Pending", node="", trouble="not placed: 0/2 nodes have enough cpu")
    seen = Observed(Status(phase=STARTING, term=1), (replace(COORDINATOR, phase="Pending"), stuck))
    done = decide(seen, job())
    assert done.status.reason == "digits-worker-1 is not placed: 0/2 nodes have enough cpu"
    assert done.status.conditions["Scheduled"].status == "False"


def test_a_coordinator_that_never_starts_fails_the_job_with_its_words():
    crashed = replace(COORDINATOR, container_restarts=5, trouble="coordinator: cannot read the checkpoint")
    done = decide(Observed(Status(phase=STARTING, term=1), (crashed,)), job())
    assert done.status.phase == FAILED
    assert "cannot read the checkpoint" in done.status.reason


# ---- scaling --------------------------------------------------------------------------------------------------------


def test_a_job_as_it_is_wanted_is_left_alone():
    first = decide(usual(), wanted(2, 1))
    assert not first.actions
    again = decide(replace(usual(), status=first.status), wanted(2, 1))
    assert again.status == first.status
    assert first.status.condition("Scaled")


def test_other_numbers_are_asked_of_the_coordinator():
    done = decide(usual(), wanted(4, 2))
    assert kinds(done, Scale, StartNode) == [Scale(Counts(4, 2), f"{CAUSE}: replicas")]


def test_the_scheduler_is_the_cause_of_its_own():
    done = decide(usual(), job(scaling="Scheduler", allocation={"workers": 1, "servers": 1, "reason": "others wait"}))
    assert kinds(done, Scale) == [Scale(Counts(1, 1), f"{CAUSE}: scheduler: others wait")]


def test_pods_are_started_as_the_coordinator_wants_them_beyond_those_that_are_on_their_way():
    on_its_way = worker(3, member="")
    said = {"wanted": Counts(4, 1), "starting": Counts(2, 0), "members": members(worker(1), worker(2), server(1))}
    seen = running(worker(1), worker(2), server(1), on_its_way, report=said, status={"created": Counts(3, 1)})
    done = decide(seen, wanted(4, 1))
    assert kinds(done, *PODS) == [StartNode(Role.WORKER, 4)]
    assert done.status.created == Counts(4, 1)


def test_pods_on_their_way_that_are_not_wanted_any_more_go_the_newest_first():
    said = {"wanted": Counts(3, 1), "starting": Counts(1, 0), "members": members(worker(1), worker(2), server(1))}
    seen = running(worker(1), worker(2), server(1), worker(3, member=""), worker(10, member=""), report=said)
    assert kinds(decide(seen, wanted(3, 1)), *PODS) == [DeletePod("digits-worker-10")]


def test_what_the_coordinator_refuses_is_not_asked_again_at_once():
    done = decide(usual(refused=(Counts(4, 1), "its script draws its own batches")), wanted(4, 1))
    assert not kinds(done, Scale)
    assert done.status.conditions["Scaled"].reason == "Refused"
    assert done.status.conditions["Scaled"].message == "its script draws its own batches"


def test_a_node_that_has_drained_loses_its_pod_and_one_that_has_finished_keeps_it():
    drained, finished = worker(2, phase="Succeeded"), worker(3, phase="Succeeded")
    said = {"wanted": Counts(1, 1), "left": frozenset({"w1"}), "members": members(worker(1), server(1))}
    done = decide(running(worker(1), server(1), drained, finished, report=said), wanted(1, 1))
    assert kinds(done, *PODS) == [DeletePod("digits-worker-2")]


def test_a_pod_that_joins_is_labelled_with_its_node():
    seen = running(worker(1), server(1), replace(worker(2), member=""), report={"members": {"digits-worker-2.1": "w9"}})
    said = replace(seen.report, members={**members(worker(1), server(1)), "digits-worker-2.1": "w9"})
    assert kinds(decide(replace(seen, report=said), wanted(2, 1)), LabelPod) == [LabelPod("digits-worker-2", "w9")]


def test_an_ended_plan_is_an_event_with_its_cause_and_its_time_once():
    ended = {
        "id": 2, "phase": "COMMITTED", "cause": f"{CAUSE}: replicas", "reason": "", "joined": ["w1"], "left": [],
        "seconds": 1.5, "steps": {}, "suspension": 0.01, "bytesMoved": 7, "ended": timestamp(NOW),
    }  # fmt: skip
    first = decide(usual(report={"plans": (ended,)}), wanted(2, 1))
    said = "plan 2 (operator-controller: replicas) committed after 1.50 s: +w1; suspension 0.010 s"
    assert kinds(first, Tell) == [Tell("PlanCommitted", said)]
    again = decide(usual(report={"plans": (ended,)}, status={"plans": first.status.plans}), wanted(2, 1))
    assert not kinds(again, Tell)


# ---- deaths ---------------------------------------------------------------------------------------------------------


def test_a_pod_that_failed_is_counted_and_the_coordinator_told_once():
    failed = worker(2, phase="Failed", exit_status=1)
    seen = running(worker(1), failed, server(1), report={"wanted": Counts(2, 1)})
    first = decide(seen, wanted(2, 1))
    assert kinds(first, TellExit) == [TellExit("digits-worker-2.1", "w1")]
    assert (first.status.restarts, first.status.failures, first.status.counted) == (1, 1, ("digits-worker-2",))
    assert kinds(first, Tell) == [Tell("NodeDied", "digits-worker-2: exit status 1", warning=True)]
    again = decide(replace(seen, status=first.status), wanted(2, 1))
    assert again.status.restarts == 1
    assert not kinds(again, Tell)


def test_a_dead_worker_is_replaced_when_the_coordinator_wants_one():
    failed = worker(2, phase="Failed", exit_status=1)
    said = {"wanted": Counts(2, 1), "starting": Counts(1, 0), "members": members(worker(1), server(1))}
    done = decide(running(worker(1), failed, server(1), report=said), wanted(2, 1))
    assert kinds(done, *PODS) == [StartNode(Role.WORKER, 3)]


def test_pods_of_a_job_that_goes_back_to_its_checkpoint_stay_and_the_dead_is_replaced():
    dead = server(1, phase="Failed", exit_status=137)
    said = {"phase": "restoring", "wanted": Counts(2, 1), "starting": Counts(2, 1), "roster": Counts()}
    seen = running(worker(1), worker(2), dead, report={**said, "members": members(worker(1), worker(2), dead)})
    assert kinds(decide(seen, wanted(2, 1)), *PODS) == [StartNode(Role.SERVER, 2)]
    later = replace(seen, report=replace(seen.report, members={}))
    assert kinds(decide(later, wanted(2, 1)), *PODS) == [StartNode(Role.SERVER, 2)]


def test_a_coordinator_that_asks_its_nodes_who_they_are_is_not_disturbed():
    done = decide(usual(report={"phase": "rebuilding", "members": {}, "starting": Counts(2, 1)}), wanted(4, 1))
    assert not kinds(done, Scale, *PODS)


def test_a_pod_that_vanished_is_a_death():
    said = {"members": members(worker(1), worker(2), server(1)), "wanted": Counts(2, 1)}
    done = decide(running(worker(1), server(1), report=said), wanted(2, 1))
    assert kinds(done, TellExit) == [TellExit("digits-worker-2.1", "w1")]
    assert (done.status.restarts, done.status.failures) == (1, 0)


def test_a_pod_on_a_node_that_does_not_answer_is_not_waited_for():
    lost = worker(2, deleting=True, lost=True)
    said = {"wanted": Counts(2, 1), "starting": Counts(1, 0), "members": members(worker(1), server(1))}
    done = decide(running(worker(1), lost, server(1), report=said), wanted(2, 1))
    assert kinds(done, DeletePod) == [DeletePod("digits-worker-2", at_once=True)]
    assert kinds(done, StartNode) == [StartNode(Role.WORKER, 3)]


def test_a_pod_that_somebody_deletes_drains_and_is_no_death():
    said = {"wanted": Counts(1, 1), "members": members(worker(1), worker(2), server(1))}
    done = decide(running(worker(1), worker(2, deleting=True), server(1), report=said), wanted(2, 1))
    assert done.status.restarts == 0
    assert kinds(done, Scale) == [Scale(Counts(2, 1), f"{CAUSE}: replicas")]


def test_more_deaths_than_may_be_mended_fail_the_job_with_the_last():
    failed = worker(2, phase="Failed", exit_status=1, trouble="ValueError: no data")
    seen = running(worker(1), failed, server(1), status={"failures": 3, "counted": ("digits-worker-9",)})
    done = decide(seen, wanted(2, 1))
    assert done.status.phase == FAILED
    assert done.status.reason == "digits-worker-2: exit status 1: ValueError: no data; retryLimit 3 has been used up"
    assert kinds(done, Stop)


@pytest.mark.parametrize("how", [{"disrupted": True, "phase": "Failed"}, {"lost": True, "deleting": True}])
def test_what_the_cluster_takes_is_replaced_as_often_as_it_happens(how):
    said = {"wanted": Counts(2, 1), "starting": Counts(1, 0), "members": members(worker(1), server(1))}
    seen = running(worker(1), worker(2, **how), server(1), report=said, status={"failures": 3, "restarts": 9})
    done = decide(seen, wanted(2, 1))
    assert (done.status.phase, done.status.restarts, done.status.failures) == (RUNNING, 10, 3)
    assert kinds(done, StartNode) == [StartNode(Role.WORKER, 3)]


def test_a_script_that_never_joins_is_a_death():
    seen = running(worker(1, phase="Succeeded", member=""), server(1), report={"version": 0}, status={"trained": False})
    done = decide(replace(seen, report=replace(seen.report, members=members(server(1)))), wanted(1, 1))
    assert done.status.restarts == 1
    assert "does the script call elastic_ps.init()?" in kinds(done, Tell)[0].message


def test_a_job_that_begins_to_train_or_goes_back_says_so_once():
    begins = usual(status={"phase": STARTING})
    (told,) = kinds(decide(begins, job()), Tell)
    assert (told.reason, told.message) == ("Running", "2 workers and 1 servers train")
    back = {"phase": "restoring", "reason": "s0 died"}
    done = decide(usual(report=back), job())
    assert [(one.reason, one.message) for one in kinds(done, Tell)] == [("Restoring", "s0 died")]
    assert kinds(decide(usual(), job()), Tell) == []
    assert kinds(decide(usual(report=back, status={"phase": done.status.phase}), job()), Tell) == []


# ---- the coordinator ------------------------------------------------------------------------------------------------


def test_a_lost_coordinator_comes_back_in_a_higher_term_and_asks_its_nodes():
    seen = Observed(Status(phase=RUNNING, term=2, trained=True), (worker(1), worker(2), server(1)))
    done = decide(seen, job())
    assert kinds(done, *PODS) == [Ensure(), StartCoordinator(3, Counts(2, 1))]


def test_its_term_is_above_those_that_it_took_by_itself():
    first = decide(usual(report={"term": 6}), job())
    done = decide(Observed(first.status, (worker(1), server(1))), job())
    assert kinds(done, StartCoordinator) == [StartCoordinator(7, Counts(2, 1))]


def test_the_object_of_a_coordinator_on_a_lost_node_makes_way():
    lost = replace(COORDINATOR, deleting=True, lost=True)
    done = decide(Observed(Status(phase=RUNNING, term=1, trained=True), (lost, worker(1), server(1))), job())
    assert kinds(done, *PODS) == [DeletePod("digits-coordinator", at_once=True)]


def test_one_that_somebody_deletes_is_waited_for():
    going = replace(COORDINATOR, deleting=True, phase="Failed")
    done = decide(Observed(Status(phase=RUNNING, term=1, trained=True), (going, worker(1), server(1))), job())
    assert not kinds(done, *PODS)


def test_where_nothing_is_left_the_job_goes_back_to_its_checkpoint():
    first = decide(Observed(Status(phase=RUNNING, term=1, trained=True, created=Counts(2, 1))), job())
    done = decide(Observed(first.status), job())
    assert kinds(done, StartCoordinator) == [StartCoordinator(2, Counts(2, 1), restore=True)]


def test_where_nothing_is_left_and_there_is_no_checkpoint_it_has_failed():
    done = decide(Observed(Status(phase=RUNNING, term=1, trained=True)), job(without=["checkpoint"]))
    assert done.status.phase == FAILED
    assert "no checkpoint" in done.status.reason


def test_a_silent_coordinator_changes_nothing():
    seen = replace(usual(), report=None)
    done = decide(seen, wanted(4, 1))
    assert not done.actions
    assert (done.status.phase, done.status.reason) == (RUNNING, "its coordinator does not answer")


# ---- suspension -----------------------------------------------------------------------------------------------------


def test_suspension_saves_then_stops_then_ends_pods():
    paused = job(suspend=True)
    first = decide(usual(), paused)
    assert first.status.phase == SUSPENDING
    assert kinds(first, Save, Stop, DeletePod) == [Save()]
    assert not kinds(decide(replace(usual(saving=Saving()), status=first.status), paused), Save, Stop, DeletePod)
    second = decide(replace(usual(saving=Saving(url="/ckpt/v9")), status=first.status), paused)
    assert kinds(second, Save, Stop, DeletePod) == [Stop(f"{CAUSE}: suspended")]
    assert second.status.checkpoint == "/ckpt/v9"
    stopped = {"phase": "finished", "reason": f"{CAUSE}: suspended"}
    third = decide(replace(usual(report=stopped), status=second.status), paused)
    assert len(kinds(third, DeletePod)) == 4
    fourth = decide(Observed(third.status), paused)
    assert (fourth.status.phase, fourth.status.workers) == (SUSPENDED, 0)
    back = decide(Observed(fourth.status), job())
    assert kinds(back, StartCoordinator) == [StartCoordinator(2, Counts(2, 1), restore=True)]


def test_a_job_that_cannot_be_saved_goes_on():
    done = decide(usual(saving=Saving(error="disk full")), job(suspend=True))
    assert not kinds(done, Stop, DeletePod)
    assert (done.status.phase, done.status.reason) == (RUNNING, "it goes on, as it could not be saved: disk full")


def test_a_job_without_a_place_for_checkpoints_keeps_what_it_has():
    done = decide(usual(), job(scaling="Scheduler", allocation={"workers": 0, "servers": 0}, without=["checkpoint"]))
    assert not kinds(done, Save, Stop, DeletePod, Scale)
    assert done.status.conditions["Suspended"].reason == "NoCheckpoint"


def test_a_job_that_has_trained_nothing_is_suspended_at_once():
    seen = usual(report={"version": 0}, status={"trained": False})
    done = decide(seen, job(suspend=True))
    assert not kinds(done, Save)
    assert len(kinds(done, DeletePod)) == 4


def test_an_end_beats_a_suspension():
    done = decide(usual(report={"phase": "finished", "reason": "finished"}), job(suspend=True))
    assert done.status.phase == COMPLETED


# ---- the end --------------------------------------------------------------------------------------------------------


def test_a_finished_job_is_completed_with_its_last_numbers():
    report = {"phase": "finished", "reason": "finished", "metrics": {"accuracy": 0.98}}
    first = decide(usual(report=report), job())
    assert first.status.phase == COMPLETED
    assert first.status.metrics == {"accuracy": 0.98}
    assert first.status.condition("Completed")
    ended = (COORDINATOR, worker(1, phase="Succeeded"), worker(2, phase="Succeeded"), server(1, phase="Succeeded"))
    second = decide(replace(usual(report=report), pods=ended, status=first.status), job())
    assert kinds(second, DeletePod) == [DeletePod("digits-coordinator")]
    third = decide(Observed(second.status, ended[1:]), job())
    assert kinds(third, DeletePod, SetFinalizer) == [SetFinalizer(False)]


def test_nodes_of_a_job_that_is_over_may_end_by_themselves_for_a_while():
    report = {"phase": "finished", "reason": "finished"}
    status = {"phase": COMPLETED, "completion_time": timestamp(NOW - 10)}
    early = decide(usual(report=report, status=status), job())
    assert not kinds(early, DeletePod)
    assert early.again == pytest.approx(50)
    late = decide(usual(report=report, status=status), job(), NOW + 60)
    assert len(kinds(late, DeletePod)) == 4


def test_a_failed_job_says_why():
    done = decide(usual(report={"phase": "failed", "reason": "s0 died, and the job has no checkpoint"}), job())
    assert (done.status.phase, done.status.reason) == (FAILED, "s0 died, and the job has no checkpoint")
    assert kinds(done, Tell) == [Tell("Failed", "s0 died, and the job has no checkpoint", warning=True)]


def test_an_ended_job_goes_after_its_time():
    over = Observed(Status(phase=COMPLETED, term=1, completion_time=timestamp(NOW - 100)))
    assert decide(over, job(finalizer=False, ttlSecondsAfterFinished=160)).again == pytest.approx(60)
    assert kinds(decide(over, job(finalizer=False, ttlSecondsAfterFinished=100)), DeleteJob) == [DeleteJob()]
    assert not decide(over, job(finalizer=False)).actions


def test_workers_that_ended_well_beside_a_lost_coordinator_have_finished():
    pods = (worker(1, phase="Succeeded"), worker(2, phase="Succeeded"), server(1, phase="Succeeded"))
    done = decide(Observed(Status(phase=RUNNING, term=1, trained=True), pods), job())
    assert done.status.phase == COMPLETED


def test_a_deleted_job_is_saved_stopped_and_taken_away():
    going = job(deleting=True)
    first = decide(usual(), going)
    assert kinds(first, Save, Stop, DeletePod, SetFinalizer) == [Save()]
    second = decide(usual(saving=Saving(url="/ckpt/v9")), going)
    assert kinds(second, Save, Stop, DeletePod, SetFinalizer) == [Stop(f"{CAUSE}: deleted")]
    third = decide(usual(report={"phase": "finished", "reason": f"{CAUSE}: deleted"}), going)
    assert len(kinds(third, DeletePod)) == 4
    ending = tuple(replace(pod, deleting=True) for pod in usual().pods)
    assert kinds(decide(replace(usual(), pods=ending), going), SetFinalizer) == [SetFinalizer(False)]


def test_a_deleted_job_that_cannot_be_saved_ends_all_the_same():
    done = decide(usual(saving=Saving(error="disk full")), job(deleting=True))
    assert kinds(done, Stop) == [Stop(f"{CAUSE}: deleted")]


def test_the_end_does_not_wait_long_for_a_silent_coordinator():
    silent = replace(usual(silent=3.0), report=None)
    assert decide(silent, job(deleting=True)).again == pytest.approx(7.0)
    assert len(kinds(decide(replace(silent, silent=10.0), job(deleting=True)), DeletePod)) == 4


def test_a_job_deleted_before_it_began_goes_at_once():
    assert kinds(decide(Observed(), job(deleting=True)), SetFinalizer) == [SetFinalizer(False)]


# ---- all of them ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("report", [None, Report(), Report(phase="finished"), Report(phase="failed", reason="x")])
@pytest.mark.parametrize("phase", ["", WAITING, STARTING, RUNNING, SUSPENDING, SUSPENDED, COMPLETED, FAILED])
@pytest.mark.parametrize("pods", [(), (COORDINATOR,), (COORDINATOR, worker(1), server(1)), (worker(1),)])
@pytest.mark.parametrize("document", [job(), job(deleting=True), job(suspend=True), job(without=["checkpoint"])])
def test_whatever_is_seen_is_answered_and_asked_again_only_until_it_is_done(report, phase, pods, document):
    status = Status(phase=phase, term=int(phase != ""), completion_time=timestamp(NOW))
    first = decide(Observed(status, pods, report), document)
    again = decide(Observed(status, pods, report), document)
    assert first == again
    assert Status.of({"status": first.status.to_dict()}) == replace(
        first.status, created=first.status.created if first.status.term else Counts()
    )


def test_pods_are_read_from_the_api_servers_objects():
    body = {
        "metadata": {"name": "digits-worker-1", "labels": {"dl2.scheduler/role": "worker", "dl2.scheduler/node": "w4"}},
        "spec": {"nodeName": "node-1"},
        "status": {
            "phase": "Failed",
            "podIP": "10.0.0.9",
            "containerStatuses": [{"state": {"terminated": {"exitCode": 3, "message": "one\nValueError: no data\n"}}}],
        },
    }
    found = Pod.of(body)
    assert (found.role, found.member, found.exit_status, found.lost) == (Role.WORKER, "w4", 3, False)
    assert found.trouble == "ValueError: no data"
    body["metadata"]["deletionTimestamp"] = timestamp(NOW)
    assert Pod.of(body, {"node-1"}).lost
    assert not Pod.of(body, {"node-2"}).lost
    assert not found.disrupted
    body["status"]["conditions"] = [{"type": "DisruptionTarget", "status": "True"}]
    assert Pod.of(body).disrupted
