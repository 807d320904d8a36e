"""Kills at the worst moments, with real processes: nothing lost, nothing doubled, or a clear end."""

import os
import signal

import pytest

from coordinator.archive import read_archive
from tests.e2e import jobs
from tests.e2e.proofs import SCRIPT, assert_undisturbed, finish, weights_in


@pytest.mark.slow
@pytest.mark.parametrize("victim", ["w0", "w1"])
def test_a_killed_worker_is_replaced_and_its_step_redone(tmp_path, victim):
    """w0 is the chief."""
    with jobs.run(tmp_path, SCRIPT, tmp_path, workers=2, servers=2) as job:
        job.running(2, 2)
        job.kill(victim)
        job.until(
            lambda status: victim not in jobs.member_ids(status, 1) and len(jobs.member_ids(status, 1)) == 2,
            f"{victim} replaced",
        )
        causes = [plan.cause for plan in job.client.plans()]
        assert any(victim in cause for cause in causes), causes
        weights = finish(job, tmp_path)
    assert_undisturbed(weights)


@pytest.mark.slow
def test_a_joining_worker_killed_in_mid_plan_cancels_it_and_the_next_try_joins(tmp_path):
    with jobs.run(tmp_path, SCRIPT, tmp_path, workers=1, servers=1) as job:
        job.running(1, 1)
        (tmp_path / "hold").touch()
        job.client.scale(workers=2)
        status = job.until(lambda status: status.plan.phase == "SYNCING", "a plan that waits for its joiner")
        joiner = next(node for node in status.nodes if node.state == "shadow")
        os.kill(joiner.pid, signal.SIGKILL)
        job.until(
            lambda status: any(plan.phase == "CANCELLED" for plan in job.client.plans()), "the plan was cancelled"
        )
        (tmp_path / "hold").unlink()
        job.until(lambda status: len(jobs.member_ids(status, 1)) == 2, "the replacement joined")
        assert joiner.member.id not in jobs.member_ids(job.status(), 1)
        weights = finish(job, tmp_path)
    assert_undisturbed(weights)


@pytest.mark.slow
@pytest.mark.numeric
def test_a_killed_coordinator_comes_back_and_training_went_on(tmp_path):
    with jobs.run(tmp_path, SCRIPT, tmp_path, workers=2, servers=1) as job:
        term = job.running(2, 1).term
        described = jobs.described(job)
        os.kill(described["coordinator_pid"], signal.SIGKILL)
        after = job.until(lambda status: status.term > term, "a coordinator of a higher term")
        job.until(lambda status: status.version > after.version + 20, "training under it")
        assert job.scale(1, 2).phase == "COMMITTED"
        weights = finish(job, tmp_path)
    assert_undisturbed(weights)


@pytest.mark.slow
def test_a_killed_server_sends_the_job_back_to_its_checkpoint(tmp_path):
    with jobs.run(tmp_path, SCRIPT, tmp_path, workers=2, servers=2) as job:
        job.running(2, 2)
        saved = job.client.checkpoint()
        job.until(lambda status: status.version > saved.version + 10, "steps that will be lost")
        job.kill("s0")
        job.until(lambda status: "s0" not in jobs.member_ids(status, 2) and jobs.counts(status) == (2, 2), "restored")
        weights = finish(job, tmp_path)
    archive = read_archive(job.folder)
    assert any(entry.voided and entry.version >= saved.version for entry in archive.ledger)
    assert_undisturbed(weights)


@pytest.mark.slow
def test_a_killed_server_without_a_checkpoint_ends_the_job_with_the_reason(tmp_path):
    with jobs.run(tmp_path, SCRIPT, tmp_path, workers=1, servers=1) as job:
        job.running(1, 1)
        job.kill("s0")
        assert job.wait() == 1
        assert "s0 died" in job.tail()
        assert "no checkpoint" in job.tail()


@pytest.mark.slow
def test_sigterm_drains_a_worker_and_a_server(tmp_path):
    with jobs.run(tmp_path, SCRIPT, tmp_path, workers=2, servers=2) as job:
        job.running(2, 2)
        for node, left in (("w0", (1, 2)), ("s1", (1, 1))):
            os.kill(job.pid(node), signal.SIGTERM)
            job.running(*left)
        assert "status 143" not in job.tail()
        weights = finish(job, tmp_path)
    assert_undisturbed(weights)


@pytest.mark.slow
def test_pause_mode_gives_the_same_weights(tmp_path):
    with jobs.run(tmp_path, SCRIPT, tmp_path, workers=2, servers=1) as job:
        job.running(2, 1)
        for servers in (3, 1, 2):
            plan = job.scale(2, servers, mode=1)
            assert plan.phase == "COMMITTED"
            assert plan.mode == 1
        weights = finish(job, tmp_path)
    assert_undisturbed(weights)


@pytest.mark.slow
def test_a_checkpoint_restores_into_other_numbers_of_nodes(tmp_path):
    with jobs.run(tmp_path, SCRIPT, tmp_path, name="first", workers=2, servers=1) as job:
        job.running(2, 1)
        saved = job.client.checkpoint()
        job.client.stop()
        job.wait()
    options = ("--restore", saved.url)
    with jobs.run(tmp_path, SCRIPT, tmp_path, name="second", workers=3, servers=2, options=options) as job:
        status = job.running(3, 2)
        assert status.version >= saved.version
        (tmp_path / "finish").touch()
        assert job.wait() == 0, job.tail()
    assert_undisturbed(weights_in(tmp_path))


@pytest.mark.slow
def test_a_run_goes_back_to_exactly_what_it_began_from_though_its_folder_has_newer_ones(tmp_path):
    shared = tmp_path / "shared"
    where = ("--checkpoint", str(shared))
    with jobs.run(tmp_path, SCRIPT, tmp_path, name="first", options=where) as job:
        job.running(1, 1)
        named = job.client.checkpoint()
        job.until(lambda status: status.version > named.version + 10, "steps that make another version")
        newer = job.client.checkpoint()
        job.client.stop()
        job.wait()
    assert newer.version > named.version
    with jobs.run(tmp_path, SCRIPT, tmp_path, name="second", options=(*where, "--restore", named.url)) as job:
        job.running(1, 1)
        job.until(lambda status: status.version > named.version + 10, "steps that will be lost")
        job.kill("s0")
        job.until(lambda status: "s0" not in jobs.member_ids(status, 2) and jobs.counts(status) == (1, 1), "restored")
        (tmp_path / "finish").touch()
        assert job.wait() == 0, job.tail()
    voided = [entry.version for entry in read_archive(job.folder).ledger if entry.voided]
    assert min(voided) == named.version
    assert f"restored from {named.url}" in job.log.read_text()
    assert_undisturbed(weights_in(tmp_path))
