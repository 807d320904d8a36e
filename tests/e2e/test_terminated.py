"""SIGTERM to nodes that all others need, with real processes: they are replaced, and nothing waits for ever."""

import os
import signal
from contextlib import ExitStack

import pytest

from tests.e2e import jobs
from tests.e2e.one_by_one import Apart
from tests.e2e.proofs import SCRIPT, assert_undisturbed, finish


@pytest.mark.slow
@pytest.mark.parametrize("last", ["s0", "w0"])
def test_in_the_place_of_the_last_of_its_role_comes_another(tmp_path, last):
    """It goes when that one has what it had: the job does not go back to a checkpoint."""
    with jobs.run(tmp_path, SCRIPT, tmp_path, workers=1, servers=1) as job:
        before = job.running(1, 1)
        os.kill(job.pid(last), signal.SIGTERM)
        job.until(lambda status: last not in {node.member.id for node in status.nodes}, f"{last} has gone")
        after = job.running(1, 1)
        assert after.version > before.version
        assert after.term == before.term, "it went back to a checkpoint"
        weights = finish(job, tmp_path)
    assert_undisturbed(weights)


@pytest.mark.slow
def test_a_signal_to_all_processes_at_once_ends_a_job_in_order(tmp_path):
    """systemd stops a service so: the coordinator ended first, and the nodes asked for it until they were killed."""
    with jobs.run(tmp_path, SCRIPT, tmp_path, workers=2, servers=1) as job:
        status = job.running(2, 1)
        pids = [jobs.described(job)["coordinator_pid"], *(node.pid for node in status.nodes), job.process.pid]
        for pid in pids:
            os.kill(pid, signal.SIGTERM)
        assert job.wait(25) == 143, job.tail()
        said = job.log.read_text()
    assert "job job stopped (by SIGTERM) after" in said
    for node in ("w0", "w1", "s0"):
        assert f"[elasticrun] {node} has ended with status 0\n" in said, said


@pytest.mark.slow
def test_without_a_coordinator_nodes_end_before_their_grace(tmp_path):
    with ExitStack() as stack:
        job = Apart(tmp_path / "job", stack, workers=1)
        job.start_coordinator()
        job.start_node("server", 0, "--grace", "30")
        job.start_node("worker", 0, "--grace", "30", SCRIPT, tmp_path)
        job.until(lambda status: status.phase == "running" and status.version > 5, "training")
        job.coordinator.kill()
        job.coordinator.wait(20)
        for node in job.nodes:
            node.send_signal(signal.SIGTERM)
        assert [node.wait(30) for node in job.nodes] == [143, 143], job.logs()
        assert "nor the job be saved" in job.logs()
        assert "killed" not in job.logs(), "the grace ended first"
