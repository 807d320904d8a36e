"""The local cluster over played jobs: differences only, restarts, what people ask."""

import sqlite3
from dataclasses import replace
from pathlib import Path

import pytest
from played_cluster import document

from dl2_scheduler.backends.local.nodes import virtual_nodes
from dl2_scheduler.backends.local.records import Records
from dl2_scheduler.backends.local.runtime import Ending
from dl2_scheduler.cluster.errors import BadInput, Refused, UnknownJob, Unwritten
from dl2_scheduler.cluster.live import Phase
from dl2_scheduler.cluster.snapshot import Allocation, Grant

HERE = Path("there")


def slot(cluster, **grants):
    """One slot with these counts; a job that is not named gets nothing."""
    cluster.snapshot()
    cluster.apply(Allocation({name: Grant(*counts) for name, counts in grants.items()}))
    return cluster.finish_slot()


def only(outcome):
    (job,) = outcome.jobs
    return job


def phases(cluster):
    return {job.name: job.phase for job in cluster.jobs()}


def test_a_job_from_submission_to_its_end(serve, runtime):
    cluster = serve()
    assert cluster.submit(document(), HERE) == "digits"
    assert phases(cluster) == {"digits": Phase.WAITING}
    assert only(slot(cluster, digits=(2, 1))) == type(only(slot(cluster, digits=(2, 1))))(
        "digits", 2, 1, pytest.approx(2.0), None, since=0.0
    )
    assert runtime.calls == [("start", "digits", 2, 1)]
    outcome = only(slot(cluster, digits=(4, 4)))
    assert (outcome.workers, outcome.servers, outcome.epochs) == (4, 4, pytest.approx(8.0))
    for _ in range(4):
        last = only(slot(cluster, digits=(4, 4)))
    assert runtime.calls[1:] == [("scale", "digits", 4, 4)]
    assert last.finished == pytest.approx(130.0)  # 2 slots at 1 a second, the other 36 epochs at 4
    assert (phases(cluster), cluster.snapshot().jobs) == ({"digits": Phase.FINISHED}, ())
    assert cluster.jobs()[0].epochs_done == 40


def test_when_a_slot_was_and_a_job_got_its_counts_is_told(serve, runtime):
    cluster = serve()
    cluster.submit(document(epochs=400), HERE)
    slot(cluster, digits=(2, 1))
    kept, grown = slot(cluster, digits=(2, 1)), slot(cluster, digits=(4, 4))
    assert [(each.began, each.ended, only(each).since) for each in (kept, grown)] == [(20, 40, 0), (40, 60, 40)]
    runtime.jobs["digits"].answers = False
    silent = slot(cluster, digits=(4, 4))
    assert (only(silent).since, silent.reports) == (40, ())  # what it reported before is not of this slot
    runtime.jobs["digits"].answers = True
    slot(cluster)
    assert only(slot(cluster, digits=(1, 1))).since == 80  # the slot without it had ended at once


def test_since_when_a_job_has_its_counts_is_asked_until_it_is_known(serve, runtime):
    """A coordinator has switched before it can tell when it has done the first step with the new counts."""
    cluster = serve()
    cluster.submit(document(epochs=400), HERE)
    slot(cluster, digits=(2, 1))
    scale = runtime.scale

    def scaled_late(name, workers, servers):
        scale(name, workers, servers)
        runtime.changed[name] = None

    runtime.scale = scaled_late
    early = only(slot(cluster, digits=(4, 4)))
    assert (early.workers, early.since) == (4, None)
    runtime.changed["digits"] = 1023.0
    assert [only(slot(cluster, digits=(4, 4))).since for _ in range(2)] == [23.0, 23.0]


def test_what_jobs_measured_is_in_the_next_snapshot(serve):
    cluster = serve()
    cluster.submit(document(), HERE)
    (state,) = cluster.snapshot().jobs
    assert (state.job.samples_per_epoch, state.workers, state.slots_run) == (1.0, 0, 0)
    slot(cluster, digits=(2, 3))
    now = cluster.snapshot()
    (state,), (report,) = now.jobs, now.reports
    assert (state.job.samples_per_epoch, state.workers, state.servers, state.slots_run) == (10.0, 2, 3, 1)
    assert (report.job, report.model, report.workers, report.servers) == ("digits", "digits", 2, 3)
    assert report.samples_per_second == 2.0
    assert now.slot == 1


def test_a_job_that_only_starts_says_so(serve, runtime, monkeypatch):
    cluster = serve()
    cluster.submit(document(), HERE)
    assert not cluster.snapshot().jobs[0].starting
    report = runtime.report
    monkeypatch.setattr(runtime, "report", lambda *job: replace(report(*job), trains=False, workers=0, servers=0))
    slot(cluster, digits=(2, 2))
    (state,) = cluster.snapshot().jobs
    assert (state.starting, state.workers) == (True, 0)


def test_suspended_with_a_checkpoint_and_restored_from_it(serve, runtime):
    cluster = serve()
    cluster.submit(document(), HERE)
    slot(cluster, digits=(2, 2))
    outcome = only(slot(cluster))
    assert (outcome.workers, outcome.epochs) == (0, pytest.approx(0.0))
    assert runtime.calls[-2:] == [("save", "digits"), ("stop", "digits")]
    assert phases(cluster) == {"digits": Phase.WAITING}
    assert "suspended" in cluster.jobs()[0].reason
    slot(cluster, digits=(1, 1))
    assert runtime.calls[-1] == ("start", "digits", 1, 1)
    assert cluster.jobs()[0].epochs_done == pytest.approx(6.0)


def test_what_a_job_could_not_follow_is_what_happened(serve, runtime):
    cluster = serve()
    cluster.submit(document(), HERE)
    slot(cluster, digits=(2, 1))
    runtime.jobs["digits"].refuses = "no more workers: use an elastic_ps.Sampler"
    outcome = only(slot(cluster, digits=(4, 1)))
    assert (outcome.workers, outcome.servers, outcome.note) == (2, 1, "no more workers: use an elastic_ps.Sampler")
    kept = only(slot(cluster))
    assert (kept.workers, runtime.calls) == (2, [("start", "digits", 2, 1)])
    assert kept.note.startswith("it could not be saved, so it is not suspended: no more workers")
    assert phases(cluster) == {"digits": Phase.RUNNING}


def test_jobs_that_shrink_go_first(serve, runtime):
    cluster = serve()
    for name in ("a", "b", "c"):
        cluster.submit(document(name), HERE)
    slot(cluster, a=(4, 4), b=(2, 2))
    slot(cluster, c=(1, 1), b=(4, 4), a=(1, 1))
    assert [call[:2] for call in runtime.calls[2:]] == [("scale", "a"), ("start", "c"), ("scale", "b")]


def test_an_idle_cluster_does_not_wait_for_its_slot(serve, clock):
    cluster = serve(slot=1200.0)
    clock.at(1003.0, lambda: cluster.submit(document("a"), HERE))
    slot(cluster)
    assert clock.now() == 1003.0
    clock.at(1100.0, lambda: cluster.submit(document("b"), HERE))
    slot(cluster, a=(1, 1))
    assert clock.now() == 1003.0 + 400.0  # a ended, and b waits
    slot(cluster, b=(1, 1))
    assert clock.now() == 1403.0 + 1200.0  # nobody waits


def test_a_job_that_fails_says_why_and_the_others_go_on(serve, runtime, clock):
    cluster = serve()
    for name in ("a", "b"):
        cluster.submit(document(name), HERE)
    clock.at(1005.0, lambda: runtime.end("a", 1, "worker w0 exited with status 3"))
    a, b = slot(cluster, a=(1, 1), b=(1, 1)).jobs
    assert (a.finished, a.note) == (5.0, "failed: worker w0 exited with status 3")
    assert (b.finished, b.epochs) == (None, pytest.approx(2.0))
    assert cluster.jobs()[0].ended == 1005.0


@pytest.mark.parametrize(("status", "epochs"), [(0, 40), (1, 2)])
def test_a_job_that_is_over_is_not_decided_about_while_its_launcher_lives(serve, runtime, clock, status, epochs):
    cluster = serve()
    for name in ("a", "b"):
        cluster.submit(document(name), HERE)

    def over():
        runtime.train(runtime.jobs["a"])
        runtime.jobs["a"].over = Ending(status, "why", 0.0)

    slot(cluster, a=(1, 1), b=(1, 1))
    clock.at(1030.0, over)
    a, _ = slot(cluster, a=(1, 1), b=(1, 1)).jobs
    assert (a.finished, a.epochs, a.workers) == (40.0, 38 if status == 0 else 0, 1)
    assert [state.job.id for state in cluster.snapshot().jobs] == ["b"]
    assert (cluster.jobs()[0].phase, cluster.jobs()[0].reason) == (Phase.RUNNING, "it is over, and its processes end")
    clock.at(1041.5, lambda: runtime.end("a", status, "why"))
    assert [job.id for job in slot(cluster, b=(1, 1)).jobs] == ["b"]
    found = cluster.jobs()[0]
    assert (found.phase, found.reason) == (Phase.FAILED if status else Phase.FINISHED, "why")
    assert found.ended == pytest.approx(1041.5)


def test_a_held_job_that_is_over_is_given_nothing(serve, runtime):
    cluster = serve()
    cluster.submit(document(), HERE)
    slot(cluster, digits=(1, 1))
    cluster.hold("digits")
    cluster.scale("digits", 2, 2)
    runtime.jobs["digits"].over = Ending(0, "finished", 0.0)
    slot(cluster)
    assert cluster.jobs()[0].reason == "it is over, and its processes end"
    assert runtime.calls == [("start", "digits", 1, 1)]


def test_a_job_that_is_over_as_it_was_suspended_is_decided_about(serve, runtime, monkeypatch):
    cluster = serve()
    cluster.submit(document(), HERE)
    slot(cluster, digits=(1, 1))

    def stop(name, process):
        runtime.jobs[name].over = Ending(0, "stopped by an operator", 0.0)

    monkeypatch.setattr(runtime, "stop", stop)
    slot(cluster)
    (state,) = cluster.snapshot().jobs
    assert (state.job.id, phases(cluster)) == ("digits", {"digits": Phase.SUSPENDING})


def test_a_job_that_cannot_be_started_has_failed(serve):
    cluster = serve()
    cluster.submit(document().replace("digits.py", "gone.py"), HERE)
    assert only(slot(cluster, digits=(1, 1))).note == "its folder is gone"
    assert phases(cluster) == {"digits": Phase.FAILED}


def test_stopped_in_mid_slot(serve, clock, runtime):
    cluster = serve()
    for name in ("a", "b"):
        cluster.submit(document(name), HERE)
    clock.at(1004.0, lambda: cluster.stop("b"))
    clock.at(1004.5, lambda: cluster.stop("a"))
    a, b = slot(cluster, a=(1, 1)).jobs
    assert (a.finished, b.finished, phases(cluster)) == (4.5, 4.0, {"a": Phase.STOPPED, "b": Phase.STOPPED})
    assert runtime.calls[-1] == ("stop", "a")
    with pytest.raises(Refused, match="a has ended: it is stopped"):
        cluster.stop("a")
    with pytest.raises(UnknownJob, match="no job c; those that have not ended: none"):
        cluster.stop("c")


def test_a_job_that_is_being_stopped_takes_no_orders(serve):
    cluster = serve()
    cluster.submit(document("a"), HERE)
    cluster.stop("a")
    cluster.stop("a")  # twice is no mistake
    for order in (cluster.hold, cluster.release, lambda name: cluster.scale(name, 1, 1)):
        with pytest.raises(Refused, match="a is being stopped"):
            order("a")


def test_a_job_that_is_being_stopped_wants_nothing_more(serve, runtime, monkeypatch):
    cluster = serve()
    cluster.submit(document(), HERE)
    slot(cluster, digits=(1, 1))
    cluster.stop("digits")
    monkeypatch.setattr(runtime, "stop", lambda name, process: None)  # it takes its time
    assert cluster.snapshot().jobs == ()
    assert phases(cluster) == {"digits": Phase.STOPPING}


def test_a_restart_finds_its_jobs_and_tells_them_nothing(serve, runtime, clock):
    first = serve()
    for name in ("a", "b"):
        first.submit(document(name) + "  checkpoint: {interval: 5m}\n  retryLimit: 0\n", HERE)
    slot(first, a=(2, 2), b=(1, 1))
    assert (runtime.jobs["a"].order.checkpoint_interval, runtime.jobs["a"].order.retry_limit) == (300, 0)
    clock.time += 15.0
    runtime.end("b", 1, "no data")
    second = serve()
    told = list(runtime.calls)
    now = second.snapshot()
    assert [(state.job.id, state.workers, state.epochs_done) for state in now.jobs] == [("a", 2, pytest.approx(7.0))]
    assert now.slot == 1
    slot(second, a=(2, 2))
    assert runtime.calls == told
    assert told[-1] == ("watch", runtime.jobs["a"].process.pid)
    assert phases(second) == {"a": Phase.RUNNING, "b": Phase.FAILED}


def test_a_slot_that_a_kill_cut_short_keeps_its_number(serve):
    first = serve()
    first.submit(document(), HERE)
    slot(first, digits=(1, 1))
    assert first.snapshot().slot == 1
    first.apply(Allocation({"digits": Grant(2, 1)}))
    second = serve()
    assert second.snapshot().slot == 2
    outcome = slot(second, digits=(2, 1))
    assert (outcome.slot, only(outcome).workers) == (2, 2)


def test_a_restart_in_mid_suspension_ends_it(serve, runtime, monkeypatch):
    first = serve()
    first.submit(document(), HERE)
    slot(first, digits=(2, 2))
    with monkeypatch.context() as patch:
        patch.setattr(runtime, "stop", lambda name, process: None)  # killed before it could
        slot(first)
        assert phases(first) == {"digits": Phase.SUSPENDING}
    second = serve()
    slot(second, digits=(1, 1))
    assert runtime.calls[-2:] == [("stop", "digits"), ("start", "digits", 1, 1)]


def test_a_job_is_saved_while_it_trains_and_the_others_go_on(serve, runtime, clock):
    cluster = serve()
    runtime.save_seconds = 30.0
    for name in ("a", "b"):
        cluster.submit(document(name), HERE)
    slot(cluster, a=(2, 2))
    a, b = slot(cluster, b=(1, 1)).jobs
    assert (a.workers, a.epochs, b.epochs) == (2, pytest.approx(4.0), pytest.approx(2.0))
    assert (phases(cluster), cluster.jobs()[0].reason) == (
        {"a": Phase.SUSPENDING, "b": Phase.RUNNING},
        "it is being saved",
    )
    a, b = slot(cluster, a=(1, 1), b=(1, 1)).jobs
    assert (a.workers, a.note, phases(cluster)["a"]) == (0, "it is still being suspended", Phase.WAITING)
    assert runtime.saved == {1: pytest.approx(10.0)}  # it trained until it was saved
    slot(cluster, a=(1, 1), b=(1, 1))
    assert (phases(cluster)["a"], runtime.calls[-1]) == (Phase.RUNNING, ("start", "a", 1, 1))


def test_a_job_that_ends_while_it_is_saved_has_finished(serve, runtime):
    cluster = serve()
    runtime.save_seconds = 1000.0
    cluster.submit(document(), HERE)
    slot(cluster, digits=(2, 2))
    for _ in range(9):
        outcome = slot(cluster)
    assert (phases(cluster), only(outcome).finished) == ({"digits": Phase.FINISHED}, pytest.approx(200.0))


def test_a_restart_while_a_job_is_saved_saves_it_again(serve, runtime, clock):
    first = serve()
    runtime.save_seconds = 1000.0
    first.submit(document(), HERE)
    slot(first, digits=(1, 1))
    slot(first)
    runtime.save_seconds = 5.0
    second = serve()
    slot(second)
    assert [call[0] for call in runtime.calls] == ["start", "save", "watch", "save", "stop"]
    assert phases(second) == {"digits": Phase.WAITING}


def test_a_restart_before_a_job_had_a_process_starts_it(serve, tmp_path, clock):
    serve().submit(document(), HERE)
    records = Records(tmp_path / "jobs.sqlite", clock.now())
    records.change(1, phase=Phase.STARTING, runs=1)  # killed right after this was written
    records.close()
    second = serve()
    assert phases(second) == {"digits": Phase.WAITING}
    assert only(slot(second, digits=(1, 1))).workers == 1


def test_a_lost_launcher_is_started_again_but_not_for_ever(serve, runtime):
    cluster = serve()
    cluster.submit(document(), HERE)
    for _ in range(4):
        slot(cluster, digits=(1, 1))
        runtime.end("digits", None, "it was killed")
    cluster.snapshot()
    assert cluster.jobs()[0].reason == "its launcher was lost: it was killed; retryLimit 3 has been used up"
    assert [call[0] for call in runtime.calls] == ["start"] * 4


def test_what_cannot_be_submitted(serve):
    cluster = serve("1x2")
    with pytest.raises(
        BadInput, match="digits: a server takes 3 slots, which no node has; the most that a node has is 2"
    ):
        cluster.submit(document() + "    template: {spec: {containers: [{resources: {requests: {slots: 3}}}]}}\n", HERE)
    cluster.submit(document(), HERE)
    with pytest.raises(Refused, match="digits is waiting: give another name, or stop it first: dl2 stop digits"):
        cluster.submit(document(), HERE)
    cluster.stop("digits")
    cluster.snapshot()
    assert cluster.submit(document(), HERE) == "digits"
    assert phases(cluster) == {"digits": Phase.WAITING}


def test_a_job_runs_in_any_folder_that_is_there(serve, runtime, tmp_path):
    cluster = serve()
    here = tmp_path / "here"
    here.mkdir()
    for name, given in (("below", "data"), ("beside", "../data"), ("absolute", str(tmp_path / "data"))):
        text = document(name).replace("- command:", f"- workingDir: {given}\n            command:")
        with pytest.raises(BadInput, match=f"{name}: workingDir: there is no folder .*data: make it, or give another"):
            cluster.submit(text, here)
        (here / given).mkdir()
        cluster.submit(text, here)
        slot(cluster, **{name: (1, 1)})
        assert runtime.jobs[name].order.folder.samefile(here / given)
        (here / given).rmdir()


def test_virtual_nodes():
    assert [(node.name, node.capacity) for node in virtual_nodes("2x8+1x4")] == [
        ("node-0", {"slots": 8}),
        ("node-1", {"slots": 8}),
        ("node-2", {"slots": 4}),
    ]
    for wrong in ("", "8", "0x8", "2x0", "2x8cpu", "2x-1"):
        with pytest.raises(BadInput, match="is not NODESxSLOTS"):
            virtual_nodes(wrong)
    for huge in ("2000x1", "1000x1+25x1", "1x1000000", f"1x{'9' * 5000}", f"{'9' * 400}x1"):
        with pytest.raises(BadInput, match="give up to 1024 nodes, of up to 999,999 slots each"):
            virtual_nodes(huge)


def test_what_cannot_be_written_down_is_not_done(tmp_path, serve, runtime):
    cluster = serve()
    cluster.submit(document("a"), HERE)
    cluster._records._database.execute("PRAGMA query_only = 1")
    with pytest.raises(Unwritten, match=r"cannot write .*jobs\.sqlite: .* readonly database; mend that, and start"):
        cluster.submit(document("b"), HERE)
    with pytest.raises(Unwritten):
        slot(cluster, a=(1, 1))
    assert (runtime.calls, [job.name for job in cluster.jobs()]) == ([], ["a"])
    cluster._records._database.execute("PRAGMA query_only = 0")
    assert slot(cluster, a=(1, 1)).slot == 0


def test_a_file_that_is_no_database(tmp_path, serve, clock):
    (tmp_path / "other").write_text("not SQLite, but long enough to be looked at as one")
    with pytest.raises(BadInput, match="give another --folder"):
        Records(tmp_path / "other", 0.0)
    serve().submit(document(), HERE)
    with sqlite3.connect(tmp_path / "jobs.sqlite") as database:
        database.execute("UPDATE cluster SET value = 99 WHERE name = 'format'")
    database.close()
    with pytest.raises(BadInput, match="another version of dl2"):
        Records(tmp_path / "jobs.sqlite", 0.0)
