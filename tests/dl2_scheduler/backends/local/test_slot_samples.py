"""What slots tell of where tasks were and how fast their jobs trained: kept in the history, and fitted."""

from contextlib import closing
from dataclasses import replace

import pytest

from dl2_scheduler.backends.slot_samples import SlotSamples
from dl2_scheduler.cluster.errors import BadInput
from dl2_scheduler.cluster.hardware.measured import MeasuredJob, MeasuredPlacement
from dl2_scheduler.cluster.snapshot import Allocation, Grant
from dl2_scheduler.commands.cluster.fit import fit
from dl2_scheduler.live.history import HISTORY_FILE, History
from tests.dl2_scheduler.backends.local.test_local_placement import placing, slot
from tests.dl2_scheduler.live.test_recorded_slots import outcome_of, write
from tests.dl2_scheduler.local_cases import HERE
from tests.dl2_scheduler.played_cluster import document


def test_a_slot_in_which_nothing_moved_says_where_tasks_were(serve):
    cluster = serve(placing=placing("load-balance"))
    cluster.desk.submit(document(epochs=400), HERE)
    _, begun = slot(cluster, digits=(2, 1))
    assert begun.placed is None  # it has just begun
    _, stayed = slot(cluster, digits=(2, 1))
    (job,) = stayed.placed.jobs
    assert (job.model, sorted((*job.workers, *job.servers))) == ("digits", [0, 0, 1])
    assert job.speeds == (stayed.reports[0].samples_per_second,)
    _, grown = slot(cluster, digits=(3, 1))
    assert grown.placed is None
    _, again = slot(cluster, digits=(3, 1))
    assert len(again.placed.jobs[0].workers) == 3


def test_a_job_that_comes_or_does_not_answer_spoils_the_slot(serve, runtime):
    cluster = serve(placing=placing("load-balance"))
    cluster.desk.submit(document("first", epochs=400), HERE)
    slot(cluster, first=(1, 1))
    cluster.desk.submit(document("second", epochs=400), HERE)
    _, came = slot(cluster, first=(1, 1), second=(1, 1))
    assert came.placed is None
    _, both = slot(cluster, first=(1, 1), second=(1, 1))
    assert [job.model for job in both.placed.jobs] == ["digits", "digits"]


def test_a_job_that_stands_spoils_the_slot(serve, runtime, monkeypatch):
    """Its speed falls all the while, wherever its tasks are and beside whatever."""
    cluster, report = serve(placing=placing("load-balance")), runtime.report
    cluster.desk.submit(document(epochs=400), HERE)
    for _ in range(2):
        slot(cluster, digits=(2, 1))
    monkeypatch.setattr(runtime, "report", lambda *of: replace(report(*of), epochs=3.0))
    found = [slot(cluster, digits=(2, 1))[1].placed for _ in range(2)]
    monkeypatch.undo()
    assert found[1] is None
    assert slot(cluster, digits=(2, 1))[1].placed is not None


def test_a_cluster_that_only_counts_tasks_says_nothing(serve):
    cluster = serve()
    cluster.desk.submit(document(epochs=400), HERE)
    for _ in range(3):
        cluster.snapshot()
        cluster.apply(Allocation({"digits": Grant(1, 1)}))
        assert cluster.finish_slot().placed is None


def test_without_jobs_there_is_nothing_to_say():
    assert SlotSamples().at_end_of_slot([], ()) is None


PLACED = MeasuredPlacement((MeasuredJob("m", (0,), (1, 1), (33.5,)),))
"""On nodes of `test_recorded_slots`."""


def test_the_history_keeps_it_and_a_fit_reads_it(tmp_path):
    with closing(History(tmp_path / HISTORY_FILE)) as history:
        for number, placed in ((3, PLACED), (4, None)):
            write(history, number)
            history.happened(replace(outcome_of(number), placed=placed))
        assert [recorded.outcome.placed for recorded in history.slots()] == [PLACED, None]
    with pytest.raises(BadInput, match="1 measured placements are too few"):
        fit(folder=tmp_path, places=tmp_path / "model")


@pytest.mark.parametrize(
    "job",
    [MeasuredJob("m", (0,), (), (1.0,)), MeasuredJob("m", (0,), (2,), (1.0,)), MeasuredJob("m", (0,), (1,), (0.0,))],
)
def test_a_placement_that_cannot_be_is_damage(tmp_path, job, caplog):
    with closing(History(tmp_path / HISTORY_FILE)) as history:
        write(history, 3)
        history.happened(replace(outcome_of(3), placed=MeasuredPlacement((job,))))
        assert list(history.slots()) == []
    assert "slot 3 is left out" in caplog.text


def test_fit_wants_to_know_what_to_write(tmp_path):
    with pytest.raises(BadInput, match="--out for a table of speeds, or --places"):
        fit(folder=tmp_path)
    with pytest.raises(BadInput, match="--table: of --places"):
        fit(out=tmp_path / "speeds.csv", table=tmp_path / "table.jsonl")
