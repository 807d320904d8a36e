"""The local cluster's records: what a restart finds in them, and where they cannot be written or read."""

import sqlite3
from contextlib import closing

import pytest

from dl2_scheduler.backends.local import job_records
from dl2_scheduler.backends.local.job_records import JobRecords
from dl2_scheduler.cluster.desk import LiveJobPhase
from dl2_scheduler.cluster.document.job_document import read_document
from dl2_scheduler.cluster.errors import BadInput, StateNotWritten
from dl2_scheduler.cluster.snapshot import Allocation, Grant
from tests.dl2_scheduler.local_cases import HERE, only, phases, slot
from tests.dl2_scheduler.played_cluster import document


def test_a_restart_finds_its_jobs_and_tells_them_nothing(serve, runtime, clock):
    first = serve()
    for name in ("a", "b"):
        first.desk.submit(document(name) + "  checkpoint: {interval: 5m}\n  retryLimit: 0\n  blockReplicas: 1\n", HERE)
    slot(first, a=(2, 2), b=(1, 1))
    order = runtime.jobs["a"].order
    assert (order.checkpoint_interval, order.retry_limit, order.block_replicas) == (300, 0, 1)
    clock.time += 15.0
    runtime.end("b", 1, "no data")
    second = serve()
    told = list(runtime.calls)
    now = second.snapshot()
    assert [(state.job.id, state.workers, state.epochs_done) for state in now.jobs] == [("a", 2, pytest.approx(7.0))]
    assert now.slot == 1
    told_of = [(each.model, each.workers, each.servers, each.samples_per_second) for each in now.reports]
    assert told_of == [("digits", 2, 2, 2.0)], "else what is nearly done may be suspended, as nobody knows its speed"
    slot(second, a=(2, 2))
    assert runtime.calls == told
    assert told[-1] == ("watch", runtime.jobs["a"].process.pid)
    assert phases(second) == {"a": LiveJobPhase.RUNNING, "b": LiveJobPhase.FAILED}


def test_of_jobs_that_have_ended_the_last_ones_stay(tmp_path, monkeypatch):
    """A cluster may serve for years. No number is given twice: logs and checkpoints bear it."""
    monkeypatch.setattr(job_records, "MOST_ENDED", 2)
    file, read = tmp_path / "jobs.sqlite", read_document(document("a"))
    with closing(JobRecords(file, 0.0)) as records:
        for number, ended in ((1, 90.0), (2, 20.0), (3, None), (4, 40.0)):
            records.add(read, HERE, float(number))
            if ended is not None:
                records.change(number, phase=LiveJobPhase.FINISHED, ended=ended)
        records.change(3, phase=LiveJobPhase.RUNNING)
        assert records.add(read, HERE, 5.0).number == 5
        assert [record.number for record in records.all()] == [1, 3, 4, 5], "2 ended first, and 3 trains"
    with closing(JobRecords(file, 0.0)) as again:
        assert [record.number for record in again.all()] == [1, 3, 4, 5]
        assert again.add(read, HERE, 6.0).number == 6


def test_a_job_is_submitted_though_no_earlier_one_can_be_forgotten(tmp_path, monkeypatch):
    """Who submits it would be told that it was not, and then that there is one of its name."""
    monkeypatch.setattr(job_records, "MOST_ENDED", 0)
    with closing(JobRecords(tmp_path / "jobs.sqlite", 0.0)) as records:
        records.change(records.add(read_document(document("a")), HERE, 1.0).number, phase=LiveJobPhase.FINISHED)
        records._database.execute("CREATE TRIGGER full BEFORE DELETE ON jobs BEGIN SELECT RAISE(ABORT, 'full'); END")
        assert records.add(read_document(document("b")), HERE, 2.0).number == 2
        records._database.execute("DROP TRIGGER full")
        records.add(read_document(document("c")), HERE, 3.0)
        assert [record.name for record in records.all()] == ["b", "c"]


def test_a_slot_that_a_kill_cut_short_keeps_its_number(serve):
    first = serve()
    first.desk.submit(document(), HERE)
    slot(first, digits=(1, 1))
    assert first.snapshot().slot == 1
    first.apply(Allocation({"digits": Grant(2, 1)}))
    second = serve()
    assert second.snapshot().slot == 2
    outcome = slot(second, digits=(2, 1))
    assert (outcome.slot, only(outcome).workers) == (2, 2)


def test_a_restart_in_mid_suspension_ends_it(serve, runtime, monkeypatch):
    first = serve()
    first.desk.submit(document(), HERE)
    slot(first, digits=(2, 2))
    with monkeypatch.context() as patch:
        patch.setattr(runtime, "stop", lambda name, process: None)  # killed before it could
        slot(first)
        assert phases(first) == {"digits": LiveJobPhase.SUSPENDING}
    second = serve()
    slot(second, digits=(1, 1))
    assert runtime.calls[-2:] == [("stop", "digits"), ("start", "digits", 1, 1)]


def test_a_restart_while_a_job_is_saved_saves_it_again(serve, runtime, clock):
    first = serve()
    runtime.save_seconds = 1000.0
    first.desk.submit(document(), HERE)
    slot(first, digits=(1, 1))
    slot(first)
    runtime.save_seconds = 5.0
    second = serve()
    slot(second)
    assert [call[0] for call in runtime.calls] == ["start", "save", "watch", "save", "stop"]
    assert phases(second) == {"digits": LiveJobPhase.WAITING}


def test_a_restart_before_a_job_had_a_process_starts_it(serve, tmp_path, clock):
    serve().desk.submit(document(), HERE)
    records = JobRecords(tmp_path / "jobs.sqlite", clock.now())
    records.change(1, phase=LiveJobPhase.STARTING, runs=1)  # killed right after this was written
    records.close()
    second = serve()
    assert phases(second) == {"digits": LiveJobPhase.WAITING}
    assert only(slot(second, digits=(1, 1))).workers == 1


def test_what_cannot_be_written_down_is_not_done(tmp_path, serve, runtime):
    cluster = serve()
    cluster.desk.submit(document("a"), HERE)
    cluster._records._database.execute("PRAGMA query_only = 1")
    with pytest.raises(
        StateNotWritten, match=r"cannot write .*jobs\.sqlite: .* readonly database; mend that, and start"
    ):
        cluster.desk.submit(document("b"), HERE)
    with pytest.raises(StateNotWritten):
        slot(cluster, a=(1, 1))
    assert (runtime.calls, [job.name for job in cluster.desk.jobs()]) == ([], ["a"])
    cluster._records._database.execute("PRAGMA query_only = 0")
    assert slot(cluster, a=(1, 1)).slot == 0


def test_a_file_that_is_no_database(tmp_path, serve, clock):
    (tmp_path / "other").write_text("not SQLite, but long enough to be looked at as one")
    with pytest.raises(BadInput, match="give another --folder"):
        JobRecords(tmp_path / "other", 0.0)
    serve().desk.submit(document(), HERE)
    with sqlite3.connect(tmp_path / "jobs.sqlite") as database:
        database.execute("UPDATE cluster SET value = 99 WHERE name = 'format'")
    database.close()
    with pytest.raises(BadInput, match="another version of dl2"):
        JobRecords(tmp_path / "jobs.sqlite", 0.0)
