"""The local cluster over played jobs: differences only, counts and when they came, suspension."""

from dataclasses import replace
from threading import Barrier

import pytest

from dl2_scheduler.backends.local.runtime import Declined
from dl2_scheduler.cluster.desk import LiveJobPhase
from dl2_scheduler.cluster.snapshot import Allocation, Grant
from dl2_scheduler.policies.rules.speed_fit import FittedSpeeds
from tests.dl2_scheduler.local_cases import HERE, only, phases, slot
from tests.dl2_scheduler.played_cluster import document


def test_a_job_from_submission_to_its_end(serve, runtime):
    cluster = serve()
    assert cluster.desk.submit(document(), HERE) == "digits"
    assert phases(cluster) == {"digits": LiveJobPhase.WAITING}
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
    assert (phases(cluster), cluster.snapshot().jobs) == ({"digits": LiveJobPhase.FINISHED}, ())
    assert cluster.desk.jobs()[0].epochs_done == 40


def test_when_a_slot_was_and_a_job_got_its_counts_is_told(serve, runtime):
    cluster = serve()
    cluster.desk.submit(document(epochs=400), HERE)
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
    cluster.desk.submit(document(epochs=400), HERE)
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
    cluster.desk.submit(document(), HERE)
    (state,) = cluster.snapshot().jobs
    assert (state.job.samples_per_epoch, state.workers, state.slots_run) == (1.0, 0, 0)
    slot(cluster, digits=(2, 3))
    now = cluster.snapshot()
    (state,), (report,) = now.jobs, now.reports
    assert (state.job.samples_per_epoch, state.workers, state.servers, state.slots_run) == (10.0, 2, 3, 1)
    assert (report.job, report.model, report.workers, report.servers) == ("digits", "digits", 2, 3)
    assert report.samples_per_second == 2.0
    assert now.slot == 1


def test_a_job_that_stands_makes_its_type_no_slower_and_one_of_long_steps_tells_of_it(serve, runtime, monkeypatch):
    """A worker that stands tells an ever lower speed: for policies, forecasts and dreams its whole type was as slow."""
    cluster, fitted, report = serve(), FittedSpeeds(), runtime.report
    cluster.desk.submit(document(epochs=4000), HERE)
    runtime.epochs = 4000.0
    stood = [(1.0, speed) for speed in (7.0, 2.0, 1.0, *[0.5] * 9)]
    says, grids, stands = {}, [], []
    monkeypatch.setattr(runtime, "report", lambda *of: replace(report(*of), **says))
    for epochs, speed in [(1.0, 100.0)] * 2 + stood + [(2.0, 50.0), (2.0, 50.0), (3.0, 50.0), (3.0, 50.0)]:
        says |= {"epochs": epochs, "samples_per_second": speed}
        snapshot = cluster.snapshot()
        fitted.observe(snapshot.reports)
        grids.append(fitted.grid(snapshot.jobs[0].job)[2, 2])
        stands += [told.stands for told in snapshot.reports]
        cluster.apply(Allocation({"digits": Grant(2, 2)}))
        cluster.finish_slot()
    assert stands == [False] + [True] * len(stood) + [False, True] * 2
    assert grids[1 : 2 + len(stood)] == pytest.approx([100.0] * (1 + len(stood)), rel=0.01)


def test_a_job_that_only_starts_says_so(serve, runtime, monkeypatch):
    cluster = serve()
    cluster.desk.submit(document(), HERE)
    assert not cluster.snapshot().jobs[0].starting
    report = runtime.report
    monkeypatch.setattr(runtime, "report", lambda *job: replace(report(*job), trains=False, workers=0, servers=0))
    slot(cluster, digits=(2, 2))
    (state,) = cluster.snapshot().jobs
    assert (state.starting, state.workers) == (True, 0)


def test_suspended_with_a_checkpoint_and_restored_from_it(serve, runtime):
    cluster = serve()
    cluster.desk.submit(document(), HERE)
    slot(cluster, digits=(2, 2))
    outcome = only(slot(cluster))
    assert (outcome.workers, outcome.epochs) == (0, pytest.approx(0.0))
    assert runtime.calls[-2:] == [("save", "digits"), ("stop", "digits")]
    assert phases(cluster) == {"digits": LiveJobPhase.WAITING}
    assert "suspended" in cluster.desk.jobs()[0].reason
    slot(cluster, digits=(1, 1))
    assert runtime.calls[-1] == ("start", "digits", 1, 1)
    assert cluster.desk.jobs()[0].epochs_done == pytest.approx(6.0)


def test_what_a_job_could_not_follow_is_what_happened(serve, runtime):
    cluster = serve()
    cluster.desk.submit(document(), HERE)
    slot(cluster, digits=(2, 1))
    runtime.jobs["digits"].refuses = "no more workers: use an elastic_ps.Sampler"
    outcome = only(slot(cluster, digits=(4, 1)))
    assert (outcome.workers, outcome.servers, outcome.note) == (2, 1, "no more workers: use an elastic_ps.Sampler")
    kept = only(slot(cluster))
    assert (kept.workers, runtime.calls) == (2, [("start", "digits", 2, 1)])
    assert kept.note.startswith("it could not be saved, so it is not suspended: no more workers")
    assert phases(cluster) == {"digits": LiveJobPhase.RUNNING}


def test_jobs_that_shrink_go_first(serve, runtime):
    cluster = serve()
    for name in ("a", "b", "c"):
        cluster.desk.submit(document(name), HERE)
    slot(cluster, a=(4, 4), b=(2, 2))
    slot(cluster, c=(1, 1), b=(4, 4), a=(1, 1))
    assert [call[:2] for call in runtime.calls[2:]] == [("scale", "a"), ("start", "c"), ("scale", "b")]


def test_an_idle_cluster_does_not_wait_for_its_slot(serve, clock):
    cluster = serve(slot=1200.0)
    clock.at(1003.0, lambda: cluster.desk.submit(document("a"), HERE))
    slot(cluster)
    assert clock.now() == 1003.0
    clock.at(1100.0, lambda: cluster.desk.submit(document("b"), HERE))
    slot(cluster, a=(1, 1))
    assert clock.now() == 1003.0 + 400.0  # a ended, and b waits
    slot(cluster, b=(1, 1))
    assert clock.now() == 1403.0 + 1200.0  # nobody waits


def test_a_job_is_saved_while_it_trains_and_the_others_go_on(serve, runtime, clock):
    cluster = serve()
    runtime.save_seconds = 30.0
    for name in ("a", "b"):
        cluster.desk.submit(document(name), HERE)
    slot(cluster, a=(2, 2))
    a, b = slot(cluster, b=(1, 1)).jobs
    assert (a.workers, a.epochs, b.epochs) == (2, pytest.approx(4.0), pytest.approx(2.0))
    assert (phases(cluster), cluster.desk.jobs()[0].reason) == (
        {"a": LiveJobPhase.SUSPENDING, "b": LiveJobPhase.RUNNING},
        "it is being saved",
    )
    a, b = slot(cluster, a=(1, 1), b=(1, 1)).jobs
    assert (a.workers, a.note, phases(cluster)["a"]) == (0, "it is still being suspended", LiveJobPhase.WAITING)
    assert runtime.saved == {1: pytest.approx(10.0)}  # it trained until it was saved
    slot(cluster, a=(1, 1), b=(1, 1))
    assert (phases(cluster)["a"], runtime.calls[-1]) == (LiveJobPhase.RUNNING, ("start", "a", 1, 1))


def test_what_a_coordinator_says_instead_of_a_report_is_told(serve, runtime):
    cluster = serve()
    cluster.desk.submit(document(epochs=400), HERE)
    slot(cluster, digits=(2, 1))
    reports = runtime.report

    def declined(name, process):
        raise Declined("a coordinator of an earlier release answers there")

    runtime.report = declined
    told = "its coordinator does not answer: a coordinator of an earlier release answers there"
    assert only(slot(cluster, digits=(4, 4))).note == told
    runtime.report = reports
    runtime.jobs["digits"].answers = False
    assert only(slot(cluster, digits=(4, 4))).note == "its coordinator does not answer"


def test_coordinators_are_asked_at_the_same_time_so_that_frozen_ones_do_not_add_up(serve, runtime, monkeypatch):
    cluster = serve()
    for name in ("a", "b", "c"):
        cluster.desk.submit(document(name), HERE)
    slot(cluster, a=(1, 1), b=(1, 1), c=(1, 1))
    report, all_asked = runtime.report, Barrier(3, timeout=10.0)

    def asked(name, process):
        all_asked.wait()
        return report(name, process)

    monkeypatch.setattr(runtime, "report", asked)
    assert len(cluster.snapshot().jobs) == 3
    assert len(cluster.desk.jobs()) == 3
    assert len(cluster.desk.load().tasks) == 6
