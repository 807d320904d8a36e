"""A task of a real job is moved to another node of this machine, and the job trains on to its end."""

import os

import pytest

from coordinator.archive import read_archive
from coordinator.ctl.exactly_once_audit import audit
from dl2_scheduler.backends.clock import SystemClock
from dl2_scheduler.backends.local.cluster import LocalCluster
from dl2_scheduler.backends.local.job_records import JobRecords
from dl2_scheduler.backends.local.launchers.elasticrun import ElasticrunRuntime
from dl2_scheduler.backends.local.places.nodes import virtual_nodes
from dl2_scheduler.backends.local.places.settling import LocalPlacement
from dl2_scheduler.backends.local.tasks.isolation import NoIsolation
from dl2_scheduler.backends.local.tasks.task_files import TaskFiles
from dl2_scheduler.cluster.desk import LiveJobPhase
from dl2_scheduler.cluster.free_resources import NodeRule
from dl2_scheduler.cluster.placement.guarded_placement import GuardedPlacement
from dl2_scheduler.live.history import History
from dl2_scheduler.live.policies import Policies
from dl2_scheduler.live.slot_loop import SlotLoop
from dl2_scheduler.policies.placement.registry import NamedPlacement, spread_placement
from dl2_scheduler.policies.placement.speed_model import SpeedModel
from dl2_scheduler.policies.registry import make_live_policy
from tests.dl2_scheduler.backends.local.test_local_moves import AllOnTheFirst
from tests.dl2_scheduler.policies.placement.test_moving import Crowd
from tests.e2e.proofs import BATCH, SAMPLES
from tests.e2e.test_cluster import no_job_left, regression, until
from tests.paths import ROOT

EPOCHS = 40


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_a_real_task_moves_to_other_cores_and_loses_nothing(tmp_path):
    cores = sorted(os.sched_getaffinity(0))
    assert len(cores) > 1, "two nodes of this machine need two cores"
    clock = SystemClock()
    tasks = TaskFiles(tmp_path / "tasks", NoIsolation(), 2.0, 2.0)
    runtime, records = ElasticrunRuntime(tmp_path, clock.wake, tasks), JobRecords(tmp_path / "jobs.sqlite", clock.now())
    named = NamedPlacement("crowd", AllOnTheFirst(), SpeedModel(("digits",), speeds=Crowd()))
    placing = LocalPlacement(GuardedPlacement(named, spread_placement()), frozenset(cores), most_moves=2)
    cluster = LocalCluster(virtual_nodes("2x4"), 0.5, records, runtime, clock, placing=placing)
    history = History(tmp_path / "decisions.sqlite")
    policies = Policies(make_live_policy, "drf", tmp_path)
    loop = SlotLoop(cluster, policies, NodeRule.SPREAD, history, settle=cluster.settle)

    def where(name):
        """Cores of each task, as the kernel says."""
        number = records.last(name).number
        report = cluster._reports.get(number)
        return {task.id: sorted(os.sched_getaffinity(task.pid)) for task in report.tasks} if report else {}

    with no_job_left(tmp_path):
        for name in ("a", "b"):
            cluster.desk.submit(regression(tmp_path, name, EPOCHS).replace("max: 2", "max: 1"), ROOT)
        reasons = until(lambda: loop.slot() and moves(history), "a move")
        assert len(reasons) == 1
        assert "2 tasks move from node-0 to node-1: its steps 67% shorter, those of " in reasons[0]
        half = len(cores) // 2
        found = [set(map(tuple, where(name).values())) for name in ("a", "b")]
        assert sorted(map(sorted, found)) == [[tuple(cores[:half])], [tuple(cores[half:])]]
        until(lambda: loop.slot() and {job.phase for job in cluster.desk.jobs()} == {LiveJobPhase.FINISHED}, "the end")
        assert len(moves(history)) == 1  # it does not come back
        history.close()
        records.close()
    for name in ("a", "b"):
        proof = audit(read_archive(tmp_path / "elastic_ps/jobs" / name).ledger, SAMPLES, BATCH, EPOCHS)
        assert proof.exactly_once, proof.problems


def moves(history):
    """Reasons of moves, as `dl2 why` tells them."""
    return [
        decision.reason for name in ("a", "b") for decision in history.of(name, 0.0, 1000) if "move" in decision.reason
    ]
