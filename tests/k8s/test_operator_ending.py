"""How a job is suspended, ends and goes away: `reconcile.plan`, without a cluster."""

from dataclasses import replace

import pytest

from k8s.elastic_operator.job.actions import (
    DeleteJob,
    DeletePod,
    RequestScale,
    SaveJob,
    SetFinalizer,
    StartCoordinator,
    StopJob,
    WriteEvent,
)
from k8s.elastic_operator.job.model import CAUSE, Counts, timestamp
from k8s.elastic_operator.job.reconciliation import CheckpointSaving, ObservedJob
from k8s.elastic_operator.job.report import ReportedProtection
from k8s.elastic_operator.job.status import (
    COMPLETED,
    FAILED,
    RUNNING,
    STARTING,
    SUSPENDED,
    SUSPENDING,
    ElasticJobStatus,
)
from tests.k8s.operator_cases import COORDINATOR, NOW, decide, job, kinds, server, usual, worker

# ---- suspension ------------------------------------------------------------------------------------------------------


def test_suspension_saves_then_stops_then_ends_pods():
    paused = job(suspend=True)
    first = decide(usual(), paused)
    assert first.status.phase == SUSPENDING
    assert kinds(first, SaveJob, StopJob, DeletePod) == [SaveJob(1)]
    assert not kinds(
        decide(replace(usual(saving=CheckpointSaving(1)), status=first.status), paused), SaveJob, StopJob, DeletePod
    )
    second = decide(replace(usual(saving=CheckpointSaving(1, url="/ckpt/v9")), status=first.status), paused)
    assert kinds(second, SaveJob, StopJob, DeletePod) == [StopJob(f"{CAUSE}: suspended")]
    assert second.status.checkpoint == "/ckpt/v9"
    stopped = {"phase": "finished", "reason": f"{CAUSE}: suspended"}
    third = decide(replace(usual(report=stopped), status=second.status), paused)
    assert len(kinds(third, DeletePod)) == 4
    fourth = decide(ObservedJob(third.status), paused)
    assert (fourth.status.phase, fourth.status.workers) == (SUSPENDED, 0)
    back = decide(ObservedJob(fourth.status), job())
    assert kinds(back, StartCoordinator) == [StartCoordinator(2, Counts(2, 1), restore=True, begins=True)]


@pytest.mark.parametrize("desired", [job(suspend=True), job(deleting=True)])
@pytest.mark.parametrize("before", [{"url": "/ckpt/v9"}, {"error": "its coordinator is gone"}, {}])
def test_what_an_earlier_coordinator_was_asked_for_is_not_what_the_job_has_trained_by_now(desired, before):
    """It was lost between its checkpoint and the stop, and the job has trained on until another one came."""
    again = usual(saving=CheckpointSaving(1, **before), report={"term": 2})
    found = decide(again, desired)
    assert kinds(found, SaveJob, StopJob) == [SaveJob(2)]
    saved = decide(replace(again, status=found.status, saving=CheckpointSaving(2, url="/ckpt/v12")), desired)
    assert saved.status.checkpoint == "/ckpt/v12"
    assert kinds(saved, SaveJob, StopJob)[0].reason.startswith(CAUSE)


def test_a_job_that_may_have_trained_while_the_operator_was_away_is_asked_before_it_is_suspended():
    """Its coordinator's pod is gone, too: the nodes alone know, and a new coordinator asks them."""
    unseen = {"trained": False}
    nodes = (worker(1), worker(2), server(1))
    alone = replace(usual(status=unseen), pods=nodes, report=None)
    found = decide(alone, job(suspend=True))
    assert not kinds(found, DeletePod)
    assert kinds(found, StartCoordinator) == [StartCoordinator(2, Counts(1, 1))]
    begins = replace(COORDINATOR, phase="Pending")
    waits = decide(ObservedJob(found.status, (begins, *nodes), silent=60.0), job(suspend=True))
    assert not waits.actions
    asks = replace(usual(report={"term": 2, "phase": "rebuilding", "version": 0}), status=waits.status)
    assert not decide(asks, job(suspend=True)).actions
    rebuilt = usual(status=unseen, report={"phase": "rebuilding", "version": 0})
    assert not kinds(decide(rebuilt, job(suspend=True)), DeletePod)
    back = replace(usual(report={"term": 2}), status=waits.status)
    assert kinds(decide(back, job(suspend=True)), SaveJob, DeletePod) == [SaveJob(2)]
    fresh = replace(usual(report={"term": 2, "version": 0}), status=waits.status)
    assert len(kinds(decide(fresh, job(suspend=True)), DeletePod)) == 4


@pytest.mark.parametrize(
    "nodes",
    [
        (worker(1, phase="Pending", member=""), server(1, phase="Pending", member="")),
        (worker(1, deleting=True), server(1, deleting=True)),
    ],
)
def test_a_job_whose_nodes_do_not_run_has_nothing_to_tell_before_it_is_suspended(nodes):
    alone = replace(usual(status={"trained": False}), pods=nodes, report=None)
    assert not kinds(decide(alone, job(suspend=True)), StartCoordinator)


@pytest.mark.parametrize("workers", [(), (worker(1, phase="Succeeded", deleting=True),)])
def test_a_job_that_was_stopped_has_not_finished_though_its_coordinator_goes_before_its_servers(workers):
    saved = decide(usual(saving=CheckpointSaving(1, url="/ckpt/v9")), job(suspend=True))
    going = ObservedJob(saved.status, (*workers, server(1, deleting=True)))
    waits = decide(going, job(suspend=True))
    assert (waits.status.phase, waits.status.reason) == (SUSPENDING, "its pods end")
    assert not kinds(waits, StartCoordinator, WriteEvent)
    gone = decide(ObservedJob(waits.status), job(suspend=True))
    assert (gone.status.phase, gone.status.condition("Suspended")) == (SUSPENDED, True)
    wanted_again = decide(going, job())
    assert not kinds(wanted_again, StartCoordinator, WriteEvent)
    back = decide(ObservedJob(wanted_again.status), job())
    assert kinds(back, StartCoordinator) == [StartCoordinator(2, Counts(2, 1), restore=True, begins=True)]


def test_a_job_that_was_not_stopped_after_all_may_finish():
    saved = decide(usual(saving=CheckpointSaving(1, url="/ckpt/v9")), job(suspend=True))
    on = decide(replace(usual(), status=saved.status), job())
    assert on.status.phase == RUNNING
    done = decide(ObservedJob(on.status, (worker(1, phase="Succeeded"),)), job())
    assert done.status.phase == COMPLETED
    saving = decide(replace(usual(), status=on.status), job(suspend=True))
    done = decide(
        ObservedJob(saving.status, (worker(1, phase="Succeeded"), server(1, deleting=True))), job(suspend=True)
    )
    assert done.status.phase == COMPLETED


def test_a_job_that_cannot_be_saved_goes_on():
    done = decide(usual(saving=CheckpointSaving(1, error="disk full")), job(suspend=True))
    assert not kinds(done, StopJob, DeletePod)
    assert (done.status.phase, done.status.reason) == (RUNNING, "it goes on, as it could not be saved: disk full")


def test_a_job_without_a_place_for_checkpoints_keeps_what_it_has():
    done = decide(usual(), job(scaling="Scheduler", allocation={"workers": 0, "servers": 0}, without=["checkpoint"]))
    assert not kinds(done, SaveJob, StopJob, DeletePod, RequestScale)
    assert done.status.conditions["Suspended"].reason == "NoCheckpoint"


def test_a_job_that_has_trained_nothing_is_suspended_at_once():
    seen = usual(report={"version": 0}, status={"trained": False})
    done = decide(seen, job(suspend=True))
    assert not kinds(done, SaveJob)
    assert len(kinds(done, DeletePod)) == 4


def test_a_job_that_has_trained_as_nobody_looked_is_not_thrown_away():
    """An operator that was away finds what was written last, before the first step; the coordinator knows better."""
    unheard = replace(usual(status={"phase": STARTING, "trained": False}), report=None, silent=0.5)
    first = decide(unheard, job(suspend=True))
    assert not kinds(first, DeletePod)
    assert first.again == 9.5
    assert kinds(decide(replace(usual(), status=first.status), job(suspend=True)), SaveJob, DeletePod) == [SaveJob(1)]
    assert len(kinds(decide(replace(unheard, silent=10.0), job(suspend=True)), DeletePod)) == 4


def test_an_end_beats_a_suspension():
    done = decide(usual(report={"phase": "finished", "reason": "finished"}), job(suspend=True))
    assert done.status.phase == COMPLETED


# ---- the end ---------------------------------------------------------------------------------------------------------


def test_a_finished_job_is_completed_with_its_last_numbers():
    report = {"phase": "finished", "reason": "finished", "metrics": {"accuracy": 0.98}}
    first = decide(usual(report=report), job())
    assert first.status.phase == COMPLETED
    assert first.status.metrics == {"accuracy": 0.98}
    assert first.status.condition("Completed")
    ended = (COORDINATOR, worker(1, phase="Succeeded"), worker(2, phase="Succeeded"), server(1, phase="Succeeded"))
    second = decide(replace(usual(report=report), pods=ended, status=first.status), job())
    assert kinds(second, DeletePod) == [DeletePod("digits-coordinator")]
    third = decide(ObservedJob(second.status, ended[1:]), job())
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
    assert kinds(done, WriteEvent) == [WriteEvent("Failed", "s0 died, and the job has no checkpoint", warning=True)]


@pytest.mark.parametrize("without", [(), ("checkpoint",)])
def test_a_job_whose_pods_are_all_lost_is_not_said_to_train(without):
    """Waiting, it may stay so for long; failed, it stays so."""
    known = ElasticJobStatus(phase=RUNNING, term=1, trained=True, samples_per_second=900.0, plan="SYNCING: scale")
    for condition in ("Running", "Protected"):
        known = known.with_condition(condition, True, "Training", NOW)
    status = decide(ObservedJob(known), job(without=without)).status
    assert status.phase == (FAILED if without else SUSPENDED)
    assert status.conditions["Running"].status == "False"
    assert (status.samples_per_second, status.plan, "Protected" in status.conditions) == (0.0, "", False)


@pytest.mark.parametrize("phase", [COMPLETED, FAILED])
@pytest.mark.parametrize("told", [ReportedProtection("", "100% (8 of 8 blocks)"), None])
def test_a_job_that_is_over_is_not_said_to_be_protected(phase, told):
    """Its coordinator may tell so until it ends, and an earlier operator have left it so."""
    known = ElasticJobStatus(phase=phase, term=1, completion_time=timestamp(NOW))
    for condition in ("Running", "Protected"):
        known = known.with_condition(condition, True, "Followed", NOW)
    over = decide(usual(report={"protection": told}, status=vars(known)), job())
    silent = decide(ObservedJob(known), job())
    for each in (over, silent):
        assert "Protected" not in each.status.conditions
        assert each.status.conditions["Running"].status == "False"
        assert not kinds(each, WriteEvent)


def test_a_job_that_begins_again_is_not_said_to_train():
    """Nobody need have looked between the loss of its pods and their end."""
    known = ElasticJobStatus(phase=SUSPENDED, term=1, trained=True, samples_per_second=900.0, plan="SYNCING: scale")
    status = decide(ObservedJob(known.with_condition("Running", True, "Training", NOW)), job()).status
    assert status.conditions["Running"].status == "False"
    assert (status.phase, status.samples_per_second, status.plan) == (STARTING, 0.0, "")


def test_an_ended_job_goes_after_its_time():
    over = ObservedJob(ElasticJobStatus(phase=COMPLETED, term=1, completion_time=timestamp(NOW - 100)))
    assert decide(over, job(finalizer=False, ttlSecondsAfterFinished=160)).again == pytest.approx(60)
    assert kinds(decide(over, job(finalizer=False, ttlSecondsAfterFinished=100)), DeleteJob) == [DeleteJob()]
    assert not decide(over, job(finalizer=False)).actions


def test_workers_that_ended_well_beside_a_lost_coordinator_have_finished():
    pods = (worker(1, phase="Succeeded"), worker(2, phase="Succeeded"), server(1, phase="Succeeded"))
    done = decide(ObservedJob(ElasticJobStatus(phase=RUNNING, term=1, trained=True), pods), job())
    assert done.status.phase == COMPLETED


def test_a_deleted_job_is_saved_stopped_and_taken_away():
    going = job(deleting=True)
    first = decide(usual(), going)
    assert kinds(first, SaveJob, StopJob, DeletePod, SetFinalizer) == [SaveJob(1)]
    second = decide(usual(saving=CheckpointSaving(1, url="/ckpt/v9")), going)
    assert kinds(second, SaveJob, StopJob, DeletePod, SetFinalizer) == [StopJob(f"{CAUSE}: deleted")]
    third = decide(usual(report={"phase": "finished", "reason": f"{CAUSE}: deleted"}), going)
    assert len(kinds(third, DeletePod)) == 4
    ending = tuple(replace(pod, deleting=True) for pod in usual().pods)
    assert kinds(decide(replace(usual(), pods=ending), going), SetFinalizer) == [SetFinalizer(False)]


def test_a_deleted_job_that_cannot_be_saved_ends_all_the_same():
    done = decide(usual(saving=CheckpointSaving(1, error="disk full")), job(deleting=True))
    assert kinds(done, StopJob) == [StopJob(f"{CAUSE}: deleted")]


def test_the_end_does_not_wait_long_for_a_silent_coordinator():
    silent = replace(usual(silent=3.0), report=None)
    assert decide(silent, job(deleting=True)).again == pytest.approx(7.0)
    assert len(kinds(decide(replace(silent, silent=10.0), job(deleting=True)), DeletePod)) == 4


def test_a_job_deleted_before_it_began_goes_at_once():
    assert kinds(decide(ObservedJob(), job(deleting=True)), SetFinalizer) == [SetFinalizer(False)]


def test_pods_of_a_job_that_goes_do_not_wait_for_a_coordinator_that_is_gone():
    """As in a foreground deletion, which deletes them first: else they ask for a drain until their grace is over."""
    ending = tuple(replace(pod, deleting=True, deleted=NOW) for pod in usual().pods if pod.role is not None)
    seen = replace(usual(), pods=ending, report=None)
    early = decide(seen, job(deleting=True), NOW + 1)
    assert not kinds(early, DeletePod, SetFinalizer), "they may end by themselves"
    assert early.again is not None
    late = decide(seen, job(deleting=True), NOW + 6)
    assert kinds(late, DeletePod) == [DeletePod(pod.name, at_once=True) for pod in ending]
    assert kinds(late, SetFinalizer) == [SetFinalizer(False)]
    assert kinds(decide(replace(seen, pods=()), job(deleting=True), NOW + 1), SetFinalizer) == [SetFinalizer(False)]
