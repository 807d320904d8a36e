"""Jobs whose accelerator and network are emulated: what their steps take."""

import pytest

from benchmarks.live_learning_processes import WatchedLearning, lived_rows
from benchmarks.scripts.emulated import GLOBAL_BATCH, KEYS, KINDS, StepCost
from benchmarks.support.emulated_jobs import MOST, arrivals, document, emulated_speeds
from dl2_scheduler.cluster.document.job_document import read_document
from protos import cluster_pb2 as pb


def test_a_step_has_compute_that_workers_divide_updates_that_servers_divide_and_the_busiest_link():
    kind = StepCost(compute=4.0, transfer=1.0, update=2.0)
    assert kind.seconds(1.0, 1, 1) == 4 + 1 + 2
    assert kind.seconds(0.25, 4, 1) == 1 + 4 + 2  # one server's link carries the parameters four times
    assert kind.seconds(1.0, 1, 4) == 4 + 1 + 0.5  # the worker's own link carries them once, whatever servers there are
    assert kind.samples_per_second(4, 4) == pytest.approx(GLOBAL_BATCH / 2.5)


def test_kinds_gain_from_what_they_are_named_after():
    def gain(name, workers, servers):
        kind = KINDS[name]
        return kind.samples_per_second(workers, servers) / kind.samples_per_second(1, 1)

    assert gain("computing", 4, 1) > 3 > 1.2 > gain("computing", 1, 4)
    assert gain("updating", 1, 4) > 2 > 1.2 > gain("updating", 4, 1)
    assert gain("transferring", 4, 4) < 1.5


def test_arrivals_hold_each_kind_as_often_and_are_documents_that_a_cluster_takes():
    jobs = arrivals(12, seed=3)
    assert jobs == arrivals(12, seed=3) != arrivals(12, seed=4)
    assert {kind: sum(job.model == kind for job in jobs) for kind in KINDS} == dict.fromkeys(KINDS, 3)
    for job in jobs:
        read = read_document(document(job))
        assert (read.spec.model_type, read.spec.epochs) == (job.model, job.epochs)
    assert len(KEYS) >= MOST  # a job is given no more servers than its model has blocks


def test_a_pace_stretches_arrivals_and_steps():
    jobs, slow = arrivals(4, seed=3), arrivals(4, seed=3, pace=1.5)
    assert [job.arrival for job in slow] == [1.5 * job.arrival for job in jobs]
    assert [job.epochs for job in slow] == [job.epochs for job in jobs]
    assert read_document(document(slow[0], pace=1.5)).spec.workers.container.args[-2:] == ("--pace", "1.5")
    table, stretched = emulated_speeds().grid("mixed"), emulated_speeds(1.5).grid("mixed")
    assert stretched[2, 3] == pytest.approx(table[2, 3] / 1.5)


def test_the_guard_taking_a_policy_out_is_counted_once_for_each_time():
    watched = WatchedLearning()
    for guard in ("", "worse", "worse", "", "worse"):
        watched.look(pb.PoliciesReply(guard=guard))
    assert (watched.times, watched.looks_out) == (2, 3)


def test_halves_and_all_are_compared_with_both_rules():
    jobs = arrivals(4, seed=3)
    times = {"drf": (10, 10, 20, 20), "planner": (8, 8, 16, 16), "learning": (9, 9, 15, 15)}
    found = {name: {str(job.id): t for job, t in zip(jobs, of, strict=True)} for name, of in times.items()}
    first, last, every = lived_rows(7, jobs, found)
    assert first["learning above planner %"] == pytest.approx(12.5)
    assert last["learning below drf %"] == pytest.approx(25.0)
    assert (every["jobs"], every["seed"], every["learning s"]) == ("all", 7, 12.0)
