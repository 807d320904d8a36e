"""`make demo-cluster` without its jobs: what it submits, what it learns on, what it draws, what it proves."""

from contextlib import closing
from dataclasses import replace

import pytest

from benchmarks.scripts.emulated import KINDS
from benchmarks.support.mxnet_jobs import mxnet_jobs
from dl2_scheduler.cluster.document.job_document import read_document
from dl2_scheduler.cluster.jobs import Job, Node
from dl2_scheduler.live.history import HISTORY_FILE, History
from dl2_scheduler.sim.lanes import MEASURED
from examples.demo_cluster import play
from examples.demo_cluster.jobs import TODAY, YESTERDAY
from examples.demo_cluster.picture import draw
from examples.demo_cluster.play import Look, Played, prove
from examples.demo_cluster.policy import SIMULATED_SLOT, SeenLessons, read
from protos import elastic_pb2 as pb
from tests.dl2_scheduler.learning.test_live_learning import SLOT, SPEEDS, live

NODES = (Node("node-0", {"slots": 4.0}),)


def job(model, samples=1437.0):
    return Job(f"{model}-1", 0.0, model, 40.0, samples, {"slots": 1.0}, {"slots": 1.0}, 4, 3)


def test_jobs_of_three_kinds_come_over_time():
    documents = [read_document(each.document) for each in TODAY]
    assert [document.metadata.name for document in documents] == [each.name for each in TODAY]
    assert {each.kind for each in TODAY} < set(KINDS)
    assert [each.arrival for each in TODAY] == sorted(each.arrival for each in TODAY)
    for each, document in zip(TODAY, documents, strict=True):
        known = document.job(0.0)
        assert (known.model, known.epochs, known.max_workers, known.max_servers) == (each.kind, each.epochs, 4, 4)
        assert document.spec.workers.container.args[-3:] == (each.kind, "--epochs", str(each.epochs))


def test_jobs_of_yesterday_have_fixed_numbers():
    for each in YESTERDAY:
        known = read_document(each.document).job(0.0)
        assert (known.min_workers, known.min_servers) == (known.max_workers, known.max_servers)
        assert each.name == f"{each.kind}-{known.max_workers}w{known.max_servers}s"
    assert {each.kind for each in YESTERDAY} == {each.kind for each in TODAY}


def test_mxnet_jobs_of_benchmarks_may_be_longer(tmp_path):
    short, long = mxnet_jobs(1, tmp_path), mxnet_jobs(3, tmp_path)
    assert [each.epochs for each in long] == [3 * each.epochs for each in short]
    for each in long:
        document = read_document(each.document)
        assert (document.metadata.name, document.spec.model_type, document.job(0.0).epochs) == (
            each.name, each.kind, each.epochs,
        )  # fmt: skip
        assert document.spec.workers.container.args[1::2] == (str(each.epochs), str(tmp_path / f"{each.name}.json"))


def test_speeds_and_costs_are_those_of_the_play_and_jobs_those_to_come(tmp_path):
    coming = [replace(job("a"), epochs=5.0), job("c")]
    with closing(History(tmp_path / HISTORY_FILE)) as history:
        live(history, tmp_path)[0].run()
        seen = read(list(history.slots()), coming)
    assert [(each.model, each.epochs, each.samples_per_epoch) for each in seen.jobs] == [("a", 5.0, 200.0)]
    slots = SIMULATED_SLOT / SLOT
    assert seen.speeds.grid("a")[2, 2] == pytest.approx(SPEEDS.grid("a")[2, 2] / slots, rel=0.05), "a slot is a slot"
    assert seen.cost.change == pytest.approx(MEASURED.change * slots)


def test_lessons_are_of_the_jobs_that_were_seen():
    lessons = SeenLessons((NODES,), 8, kinds=(job("digits"), job("mlp")))
    episodes = lessons.episodes(0, 3)
    assert episodes == lessons.episodes(0, 3)
    assert episodes[0] != episodes[1]
    for episode in episodes:
        assert {each.model for each in episode.jobs} <= {"digits", "mlp"}
        assert [each.arrival for each in episode.jobs] == sorted(each.arrival for each in episode.jobs)
        assert all(28 <= each.epochs <= 52 for each in episode.jobs)


def test_a_sample_that_was_not_used_is_a_problem_of_the_play(tmp_path, monkeypatch):
    class Archive:
        ledger: tuple[pb.LedgerEntry, ...] = ()

    monkeypatch.setattr(play, "read_archive", lambda _: Archive)
    played = Played("drf", tmp_path)
    prove(played, TODAY[:1], 640, 32)
    assert played.problems
    assert all(problem.startswith("drf: computing-1: ") for problem in played.problems)


@pytest.mark.slow
def test_picture(tmp_path):
    looks = [Look(0.0, {"computing-1": (0, 0)}), Look(1.0, {"computing-1": (2, 1)})]
    played = Played("drf", tmp_path, looks, {each.name: 20.0 for each in TODAY})
    draw([played, played], TODAY, tmp_path / "picture.png")
    assert (tmp_path / "picture.png").read_bytes().startswith(b"\x89PNG")
    assert played.mean == 20
