"""How jobs of the local cluster end: of themselves, lost, or stopped by people."""

import pytest

from dl2_scheduler.backends.local.runtime import LauncherEnding, Unreachable
from dl2_scheduler.cluster.desk import LiveJobPhase
from dl2_scheduler.cluster.errors import ClusterRefused, NoSuchJob
from tests.dl2_scheduler.local_cases import HERE, only, phases, slot
from tests.dl2_scheduler.played_cluster import document


def test_a_job_that_fails_says_why_and_the_others_go_on(serve, runtime, clock):
    cluster = serve()
    for name in ("a", "b"):
        cluster.desk.submit(document(name), HERE)
    slot(cluster, a=(1, 1), b=(1, 1))
    clock.at(1025.0, lambda: runtime.end("a", 1, "worker w0 exited with status 3"))
    a, b = slot(cluster, a=(2, 1), b=(1, 1)).jobs
    assert (a.finished, a.workers, a.note) == (25.0, 1, "failed: worker w0 exited with status 3")
    assert (b.finished, b.epochs) == (None, pytest.approx(2.0))
    assert cluster.desk.jobs()[0].ended == 1025.0


def test_a_job_whose_end_is_forgotten_in_the_slot_ends_no_cluster(serve, runtime, clock, monkeypatch):
    """The clock came up years back: of ten thousand jobs that have ended, one that ended now had ended first."""
    monkeypatch.setattr("dl2_scheduler.backends.local.job_records.MOST_ENDED", 0)
    cluster = serve()
    cluster.desk.submit(document("a"), HERE)
    clock.at(1005.0, lambda: runtime.end("a", 0, "finished"))
    clock.at(1010.0, lambda: cluster.desk.submit(document("b"), HERE))
    assert list(slot(cluster, a=(1, 1)).jobs) == []
    assert phases(cluster) == {"b": LiveJobPhase.WAITING}


def test_a_job_that_fails_before_it_was_heard_to_train_had_nothing(serve, runtime, clock):
    cluster = serve()
    cluster.desk.submit(document(), HERE)
    clock.at(1005.0, lambda: runtime.end("digits", 1, "worker w0 exited with status 3"))
    found = only(slot(cluster, digits=(2, 1)))
    assert (found.workers, found.servers, found.finished) == (0, 0, 5.0)
    assert found.note == "failed before it told of any training: worker w0 exited with status 3"


def test_a_job_that_is_stopped_before_it_was_heard_to_train_had_nothing(serve, clock):
    cluster = serve()
    cluster.desk.submit(document(), HERE)
    clock.at(1005.0, lambda: cluster.desk.stop("digits"))
    found = only(slot(cluster, digits=(2, 1)))
    assert (found.workers, found.servers) == (0, 0)
    assert found.note == "stopped before it told of any training: as asked"


@pytest.mark.parametrize(("reason", "said"), [("finished", "digits: finished"), ("why", "digits: finished: why")])
def test_the_log_says_once_how_a_job_has_ended(serve, runtime, clock, caplog, reason, said):
    caplog.set_level("INFO")
    cluster = serve()
    cluster.desk.submit(document(), HERE)
    slot(cluster, digits=(1, 1))
    clock.at(1025.0, lambda: runtime.end("digits", 0, reason))
    slot(cluster, digits=(1, 1))
    assert said in caplog.messages


@pytest.mark.parametrize(("status", "epochs"), [(0, 40), (1, 2)])
def test_a_job_that_is_over_is_not_decided_about_while_its_launcher_lives(serve, runtime, clock, status, epochs):
    cluster = serve()
    for name in ("a", "b"):
        cluster.desk.submit(document(name), HERE)

    def over():
        runtime.train(runtime.jobs["a"])
        runtime.jobs["a"].over = LauncherEnding(status, "why", 0.0)

    slot(cluster, a=(1, 1), b=(1, 1))
    clock.at(1030.0, over)
    a, _ = slot(cluster, a=(1, 1), b=(1, 1)).jobs
    assert (a.finished, a.epochs, a.workers) == (40.0, 38 if status == 0 else 0, 1)
    assert [state.job.id for state in cluster.snapshot().jobs] == ["b"]
    assert (cluster.desk.jobs()[0].phase, cluster.desk.jobs()[0].reason) == (
        LiveJobPhase.RUNNING,
        "it is over, and its processes end",
    )
    clock.at(1041.5, lambda: runtime.end("a", status, "why"))
    assert [job.id for job in slot(cluster, b=(1, 1)).jobs] == ["b"]
    found = cluster.desk.jobs()[0]
    assert (found.phase, found.reason) == (LiveJobPhase.FAILED if status else LiveJobPhase.FINISHED, "why")
    assert found.ended == pytest.approx(1041.5)


def test_a_job_that_somebody_stops_by_its_coordinator_has_not_finished(serve, runtime, clock):
    """Its epochs are those that it has trained: forecasts take those of finished jobs for all there are."""
    cluster = serve()
    cluster.desk.submit(document(), HERE)

    def over():
        runtime.jobs["digits"].over = LauncherEnding(0, "stopped by the operator", 0.0, is_stopped=True)

    slot(cluster, digits=(1, 1))
    clock.at(1030.0, over)
    found = only(slot(cluster, digits=(1, 1)))
    assert (found.note, found.epochs, found.finished) == ("stopped: stopped by the operator", 0.0, 40.0)
    runtime.end("digits", 0, "stopped by the operator", is_stopped=True)
    slot(cluster)
    (job,) = cluster.desk.jobs()
    assert (job.phase, job.reason, job.epochs_done) == (LiveJobPhase.STOPPED, "stopped by the operator", 2.0)


def test_a_held_job_that_is_over_is_given_nothing(serve, runtime):
    cluster = serve()
    cluster.desk.submit(document(), HERE)
    slot(cluster, digits=(1, 1))
    cluster.desk.hold("digits")
    cluster.desk.scale("digits", 2, 2)
    runtime.jobs["digits"].over = LauncherEnding(0, "finished", 0.0)
    slot(cluster)
    assert cluster.desk.jobs()[0].reason == "it is over, and its processes end"
    assert runtime.calls == [("start", "digits", 1, 1)]


def test_a_job_that_is_over_as_it_was_suspended_is_decided_about(serve, runtime, monkeypatch):
    cluster = serve()
    cluster.desk.submit(document(), HERE)
    slot(cluster, digits=(1, 1))

    def stop(name, process):
        runtime.jobs[name].over = LauncherEnding(0, "stopped by an operator", 0.0)

    monkeypatch.setattr(runtime, "stop", stop)
    slot(cluster)
    (state,) = cluster.snapshot().jobs
    assert (state.job.id, phases(cluster)) == ("digits", {"digits": LiveJobPhase.SUSPENDING})


def test_a_job_that_ends_while_it_is_saved_has_finished(serve, runtime):
    cluster = serve()
    runtime.save_seconds = 1000.0
    cluster.desk.submit(document(), HERE)
    slot(cluster, digits=(2, 2))
    for _ in range(9):
        outcome = slot(cluster)
    assert (phases(cluster), only(outcome).finished) == ({"digits": LiveJobPhase.FINISHED}, pytest.approx(200.0))


def test_a_job_that_cannot_be_started_has_failed(serve):
    cluster = serve()
    cluster.desk.submit(document().replace("digits.py", "gone.py"), HERE)
    assert only(slot(cluster, digits=(1, 1))).note == "its folder is gone"
    assert phases(cluster) == {"digits": LiveJobPhase.FAILED}


def test_a_job_whose_checkpoints_cannot_be_read_now_waits_until_they_can(serve, runtime, monkeypatch):
    cluster = serve()
    cluster.desk.submit(document(), HERE)
    slot(cluster, digits=(1, 1))
    slot(cluster)  # suspended
    sound = runtime.start

    def away(order, started):
        assert order.was_saved
        raise Unreachable("its checkpoints cannot be read now")

    monkeypatch.setattr(runtime, "start", away)
    assert only(slot(cluster, digits=(1, 1))).note == "its checkpoints cannot be read now"
    (waits,) = cluster.desk.jobs()
    assert (waits.phase, waits.reason) == ("waiting", "its checkpoints cannot be read now")
    slot(cluster, digits=(1, 1))  # likewise
    monkeypatch.setattr(runtime, "start", sound)
    slot(cluster, digits=(1, 1))
    assert runtime.jobs["digits"].order.run == 2  # the second start, that is from the checkpoint
    assert cluster.desk.jobs()[0].phase == "running"


def test_a_job_that_cannot_be_started_yet_takes_no_room_from_others(serve, runtime):
    """A policy that serves the oldest first would give it all that there is, slot after slot."""
    cluster = serve()
    for name in ("a", "b"):
        cluster.desk.submit(document(name), HERE)
    runtime.away["a"] = "its folder is not there"
    assert [job.workers for job in slot(cluster, a=(4, 4), b=(1, 1)).jobs] == [0, 1]
    for reason in ("its folder is not there", "its folder does not answer"):
        runtime.away["a"] = reason
        assert [state.job.id for state in cluster.snapshot().jobs] == ["b"]
        assert cluster.desk.jobs()[0].reason == reason
    del runtime.away["a"]
    assert [job.workers for job in slot(cluster, a=(4, 4), b=(1, 1)).jobs] == [4, 1]


def test_a_job_that_is_stopped_while_it_waits_to_be_started_is_forgotten(serve, runtime):
    cluster = serve()
    cluster.desk.submit(document(), HERE)
    runtime.away["digits"] = "its folder is not there"
    slot(cluster, digits=(1, 1))
    assert cluster._actions._kept_waiting == {1}
    cluster.desk.stop("digits")
    for _ in range(2):
        slot(cluster)
    assert cluster._actions._kept_waiting == set()


def test_a_lost_launcher_is_started_again_but_not_for_ever(serve, runtime):
    cluster = serve()
    cluster.desk.submit(document(), HERE)
    for _ in range(4):
        slot(cluster, digits=(1, 1))
        runtime.end("digits", None, "it was killed")
    cluster.snapshot()
    assert cluster.desk.jobs()[0].reason == "its launcher was lost: it was killed; retryLimit 3 has been used up"
    assert [call[0] for call in runtime.calls] == ["start"] * 4


def test_stopped_in_mid_slot(serve, clock, runtime):
    cluster = serve()
    for name in ("a", "b"):
        cluster.desk.submit(document(name), HERE)
    clock.at(1004.0, lambda: cluster.desk.stop("b"))
    clock.at(1004.5, lambda: cluster.desk.stop("a"))
    a, b = slot(cluster, a=(1, 1)).jobs
    assert (a.finished, b.finished, phases(cluster)) == (
        4.5,
        4.0,
        {"a": LiveJobPhase.STOPPED, "b": LiveJobPhase.STOPPED},
    )
    assert runtime.calls[-1] == ("stop", "a")
    with pytest.raises(ClusterRefused, match="a has ended: it is stopped"):
        cluster.desk.stop("a")
    with pytest.raises(NoSuchJob, match="no job c; those that have not ended: none"):
        cluster.desk.stop("c")


def test_a_job_that_cannot_begin_for_now_waits_and_is_tried_again(serve, runtime):
    """It was failed for good, as its launcher had ended by itself."""
    cluster = serve()
    cluster.desk.submit(document(), HERE)
    for run in range(1, 7):  # which retryLimit does not count
        slot(cluster, digits=(1, 1))
        assert runtime.jobs["digits"].order.run == run
        runtime.end("digits", 69, "the job's folder cannot be made: No space left on device")
        slot(cluster)
        (found,) = cluster.desk.jobs()
        assert (found.phase, found.ended) == (LiveJobPhase.WAITING, None)
        assert found.reason == (
            "the job's folder cannot be made: No space left on device: it waits, and is tried again"
        )


def test_a_job_that_cannot_begin_for_now_is_tried_once_a_slot(serve, runtime, clock):
    """A slot ended with its launcher where nothing else ran: logs and a history of some thousand slots a day."""
    cluster = serve()
    cluster.desk.submit(document(), HERE)
    begun = clock.now()
    clock.at(begun + 2.0, lambda: runtime.end("digits", 69, "No space left on device"))
    assert only(slot(cluster, digits=(1, 1))).workers == 0
    assert clock.now() >= begun + 20.0
    begun = clock.now()
    clock.at(begun + 2.0, lambda: runtime.end("digits", 69, "No space left on device"))
    clock.at(begun + 3.0, lambda: cluster.desk.submit(document("other"), HERE))
    slot(cluster, digits=(1, 1))
    assert clock.now() == begun + 3.0, "another job begins at once"


def test_a_job_that_is_being_stopped_takes_no_orders(serve):
    cluster = serve()
    cluster.desk.submit(document("a"), HERE)
    cluster.desk.stop("a")
    cluster.desk.stop("a")  # twice is no mistake
    for order in (cluster.desk.hold, cluster.desk.release, lambda name: cluster.desk.scale(name, 1, 1)):
        with pytest.raises(ClusterRefused, match="a is being stopped"):
            order("a")


def test_a_job_that_is_being_stopped_wants_nothing_more(serve, runtime, monkeypatch):
    cluster = serve()
    cluster.desk.submit(document(), HERE)
    slot(cluster, digits=(1, 1))
    cluster.desk.stop("digits")
    monkeypatch.setattr(runtime, "stop", lambda name, process: None)  # it takes its time
    assert cluster.snapshot().jobs == ()
    assert phases(cluster) == {"digits": LiveJobPhase.STOPPING}


def test_a_job_that_was_lost_unsaved_and_is_suspended_before_it_trains_again_goes_on(serve, runtime, monkeypatch):
    def silent(name):
        raise Unreachable("nobody answers")

    cluster = serve()
    cluster.desk.submit(document(), HERE)
    slot(cluster, digits=(1, 1))
    runtime.end("digits", None, "it was killed")
    with monkeypatch.context() as patch:
        patch.setattr(runtime, "asked", silent)
        slot(cluster, digits=(1, 1))
        assert phases(cluster) == {"digits": LiveJobPhase.STARTING}
        slot(cluster)
    slot(cluster, digits=(1, 1))
    assert runtime.jobs["digits"].order.run == 3
    assert not runtime.jobs["digits"].order.was_saved, "there is no checkpoint to wait for"
