"""`make demo-cluster` without its jobs: what it submits, what it learns on, what it draws."""

from dataclasses import replace

import pytest

from dl2_scheduler.cluster.job_document import read_document
from dl2_scheduler.cluster.jobs import Job, Node
from dl2_scheduler.sim.trace import write_trace
from examples.demo_cluster.jobs import JOBS, KINDS
from examples.demo_cluster.picture import draw
from examples.demo_cluster.play import Look, Played
from examples.demo_cluster.policy import SIMULATED_SLOT, SeenLessons, read

NODES = (Node("node-0", {"slots": 4.0}),)
SLOT_SECONDS = 5.0


def job(model, samples=1437.0):
    return Job(f"{model}-1", 0.0, model, 40.0, samples, {"slots": 1.0}, {"slots": 1.0}, 4, 3)


def test_six_jobs_of_three_kinds_come_over_time(tmp_path):
    documents = [read_document(each.document(tmp_path / "out.json")) for each in JOBS]
    assert [document.metadata.name for document in documents] == [each.name for each in JOBS]
    assert sorted(each.kind for each in JOBS) == sorted([*KINDS] * 2)
    assert [each.arrival for each in JOBS] == sorted(each.arrival for each in JOBS)
    read = documents[0].job(0.0)
    assert (read.model, read.epochs, read.max_workers, read.max_servers) == ("digits", 40, 4, 3)
    assert documents[0].spec.workers.container.args == ("--epochs", "40", "--out", str(tmp_path / "out.json"))
    longer = read_document(replace(JOBS[0], longer=3).document(tmp_path / "out.json"))
    assert (longer.job(0.0).epochs, longer.spec.workers.container.args[1]) == (120, "120")


def test_what_a_trained_network_reaches():
    assert KINDS["digits"].trained(0.95)
    assert not KINDS["digits"].trained(0.5)
    assert KINDS["lstm"].trained(2.3)
    assert not KINDS["lstm"].trained(4.0)


def test_speeds_and_jobs_are_those_of_the_fit(tmp_path):
    table, trace = tmp_path / "speeds.csv", tmp_path / "jobs.jsonl"
    grid = [f"digits,{servers},{workers},{100 * workers}" for servers in (1, 2) for workers in (1, 2)]
    table.write_text("\n".join(["model,servers,workers,samples_per_second", *grid]))
    write_trace(trace, [job("digits")])
    seen = read(table, trace, SLOT_SECONDS)
    assert [each.model for each in seen.jobs] == ["digits"]
    epochs_a_slot = seen.speeds.grid("digits")[1, 2] * SIMULATED_SLOT / seen.jobs[0].samples_per_epoch
    assert epochs_a_slot == pytest.approx(200 * SLOT_SECONDS / 1437)


def test_lessons_are_of_the_jobs_that_were_seen():
    lessons = SeenLessons((NODES,), 8, kinds=(job("digits"), job("mlp")))
    episodes = lessons.episodes(0, 3)
    assert episodes == lessons.episodes(0, 3)
    assert episodes[0] != episodes[1]
    for episode in episodes:
        assert {each.model for each in episode.jobs} <= {"digits", "mlp"}
        assert [each.arrival for each in episode.jobs] == sorted(each.arrival for each in episode.jobs)
        assert all(28 <= each.epochs <= 52 for each in episode.jobs)


@pytest.mark.slow
def test_picture(tmp_path):
    looks = [Look(0.0, {"digits-1": (0, 0)}), Look(1.0, {"digits-1": (2, 1)})]
    played = Played("drf", tmp_path, looks, {each.name: 20.0 for each in JOBS})
    draw([played, played], JOBS, tmp_path / "picture.png")
    assert (tmp_path / "picture.png").read_bytes().startswith(b"\x89PNG")
    assert played.mean == 20
