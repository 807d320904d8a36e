"""What every backend promises: one suite for the simulated cluster, the local one, and Kubernetes'."""

from pathlib import Path

import numpy as np
import pytest

from dl2_scheduler.cluster.free_resources import NodeRule
from dl2_scheduler.cluster.interfaces import Cluster
from dl2_scheduler.cluster.jobs import Job
from dl2_scheduler.cluster.snapshot import Allocation, Grant
from dl2_scheduler.cluster.speeds import Speeds
from dl2_scheduler.live.history import History
from dl2_scheduler.live.policies import Policies
from dl2_scheduler.live.slot_loop import SlotLoop
from dl2_scheduler.policies.registry import make_live_policy
from dl2_scheduler.sim.simulator import SimulatedCluster
from tests.dl2_scheduler.kube_objects import PART
from tests.dl2_scheduler.played_cluster import SAMPLES, document

SLOT, EPOCHS = 20.0, 40
NAMES = ("a", "b", "c")


@pytest.fixture(params=["simulated", "local", "kube"])
def cluster(request, serve, serve_kube) -> Cluster:
    """Three jobs of 40 epochs of 10 samples that train min(workers, servers) samples a second; 16 slots."""
    if request.param == "kube":
        return serve_kube(NAMES, SLOT, EPOCHS)
    local = serve("2x8", SLOT)
    if request.param == "local":
        for name in NAMES:
            local.desk.submit(document(name, EPOCHS), Path())
        return local
    one = {"slots": 1.0}
    jobs = [Job(name, 0.0, "digits", EPOCHS, SAMPLES, one, one, max_workers=4, max_servers=4) for name in NAMES]
    counts = np.arange(6.0)
    return SimulatedCluster(jobs, local.snapshot().nodes, Speeds({"digits": np.minimum.outer(counts, counts)}), SLOT)


def slot(cluster, **grants):
    snapshot = cluster.snapshot()
    cluster.apply(Allocation({name: Grant(*counts) for name, counts in grants.items()}))
    return snapshot, {job.id: job for job in cluster.finish_slot().jobs}


def states(cluster):
    return {state.job.id: state for state in cluster.snapshot().jobs}


def test_a_snapshot_has_all_jobs_by_arrival(cluster):
    now = cluster.snapshot()
    assert [state.job.id for state in now.jobs] == list(NAMES)
    (part,) = now.jobs[0].job.worker.keys() & {"slots", PART}
    assert (now.slot, now.slot_seconds, sum(node.capacity[part] for node in now.nodes)) == (0, SLOT, 16)
    assert all((state.workers, state.servers, state.epochs_done) == (0, 0, 0) for state in now.jobs)
    assert not cluster.done


def test_counts_given_are_counts_had(cluster):
    _, jobs = slot(cluster, a=(2, 1), b=(3, 3))
    assert {name: (job.workers, job.servers) for name, job in jobs.items()} == {"a": (2, 1), "b": (3, 3), "c": (0, 0)}
    assert [jobs[name].epochs for name in NAMES] == pytest.approx([2.0, 6.0, 0.0])
    now = states(cluster)
    assert [(now[name].workers, now[name].servers, now[name].slots_run) for name in NAMES] == [
        (2, 1, 1),
        (3, 3, 1),
        (0, 0, 0),
    ]
    assert [now[name].epochs_done for name in NAMES] == pytest.approx([2.0, 6.0, 0.0])


def test_counts_change_from_slot_to_slot(cluster):
    slot(cluster, a=(1, 1))
    before, jobs = slot(cluster, a=(4, 3), b=(1, 1))
    assert (before.slot, jobs["a"].workers, jobs["a"].servers, jobs["b"].workers) == (1, 4, 3, 1)
    assert jobs["a"].epochs == pytest.approx(6.0)


def test_slots_follow_each_other_in_time(cluster):
    times = []
    for _ in range(2):
        cluster.snapshot()
        cluster.apply(Allocation({"a": Grant(1, 1)}))
        outcome = cluster.finish_slot()
        times.append((outcome.began, outcome.ended))
    assert times == [(0.0, SLOT), (SLOT, 2 * SLOT)]


@pytest.mark.parametrize("cluster", ["local", "kube"], indirect=True)
def test_a_clock_that_is_set_back_does_not_stop_the_cluster(cluster, clock):
    began = clock.now()

    def set_back():
        clock.time -= 3600.0
        clock.wake()

    clock.at(began + 5.0, set_back)
    slot(cluster, a=(1, 1))
    assert clock.now() == began + 5.0 - 3600.0, "the slot has ended"
    slot(cluster, a=(1, 1))
    assert clock.now() == began + 5.0 + SLOT - 3600.0


def test_a_suspended_job_keeps_what_it_trained(cluster):
    slot(cluster, a=(2, 2), b=(1, 1))
    _, jobs = slot(cluster, b=(1, 1))
    assert (jobs["a"].workers, jobs["a"].servers, jobs["a"].finished) == (0, 0, None)
    _, jobs = slot(cluster, a=(1, 1), b=(1, 1))
    assert jobs["a"].epochs == pytest.approx(2.0)
    assert states(cluster)["a"].epochs_done == pytest.approx(6.0)


@pytest.mark.parametrize("cluster", ["local", "kube"], indirect=True)
def test_a_job_that_goes_back_to_a_checkpoint_is_where_it_is_and_its_progress_counts_once(
    cluster, request, clock, runtime, operator
):
    """Twice 4 epochs, from which at 15 s of the second slot it goes back to the first."""
    played = runtime if "local" in request.node.callspec.id else operator
    slot(cluster, a=(2, 2))
    clock.at(clock.now() + 15.0, lambda: played.set_back("a", 1.0))
    jobs = [slot(cluster, a=(2, 2))[1]["a"]]
    assert states(cluster)["a"].epochs_done == pytest.approx(2.0)
    assert states(cluster)["a"].remaining_epochs == pytest.approx(EPOCHS - 2.0)
    assert cluster.desk.jobs()[0].epochs_done == pytest.approx(2.0)
    jobs += [slot(cluster, a=(2, 2))[1]["a"] for _ in range(2)]
    assert [job.epochs for job in jobs] == pytest.approx([0.0, 4.0, 4.0])
    assert [job.lost for job in jobs] == pytest.approx([2.0, 0.0, 0.0])
    assert [job.again for job in jobs] == pytest.approx([0.0, 2.0, 0.0])
    assert [word in job.note for word, job in zip(["were lost", "done again", ""], jobs, strict=True)] == [True] * 3
    assert 4.0 + sum(job.epochs - job.again for job in jobs) == pytest.approx(states(cluster)["a"].epochs_done)


def test_reports_tell_speeds_and_counts(cluster):
    slot(cluster, a=(2, 3))
    reports = {report.job: report for report in cluster.snapshot().reports}
    assert set(reports) == {"a"}
    told = reports["a"]
    assert (told.model, told.workers, told.servers, told.samples_per_second) == ("digits", 2, 3, pytest.approx(2.0))


def test_a_job_ends_within_its_slot_and_is_gone(cluster):
    for _ in range(5):
        _, jobs = slot(cluster, a=(4, 4), b=(1, 1))
    assert jobs["a"].finished == pytest.approx(100.0)
    assert jobs["b"].finished is None
    assert sum(job.epochs for job in jobs.values()) == pytest.approx(8.0 + 2.0)
    assert list(states(cluster)) == ["b", "c"]


def test_drf_takes_every_job_to_its_end(cluster, tmp_path):
    history = History(tmp_path / "decisions.sqlite")
    loop = SlotLoop(cluster, Policies(make_live_policy, "drf", tmp_path), NodeRule.SPREAD, history, now=lambda: 5.0)
    finished = {}
    while len(finished) < len(NAMES):
        for job in loop.slot().jobs:
            if job.finished is not None:
                finished[job.id] = job.finished
    decisions = {name: history.of(name, 0.0, 100) for name in NAMES}
    history.close()
    # 16 slots: 3+3 for a and b, 2+2 for c; then 4+4 for c
    assert finished == pytest.approx({"a": 400 / 3, "b": 400 / 3, "c": 170.0})
    for name in NAMES:
        trained = sum(decision.happened.epochs for decision in decisions[name])
        assert trained == pytest.approx(EPOCHS)
        assert all(decision.reason for decision in decisions[name])
        assert [decision.slot for decision in decisions[name]] == list(range(len(decisions[name])))
