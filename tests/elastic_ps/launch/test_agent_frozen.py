"""Frozen processes: the launcher kills them and goes on, with real processes and a played coordinator."""

import os
import signal
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest

from elastic_ps.core.configuration import Role
from elastic_ps.launch import coordinator_link, job_agent
from elastic_ps.launch.commands import JoinSettings
from elastic_ps.launch.member_agent import MemberAgent, MemberSettings
from elastic_ps.launch.outcome import LauncherOutcome
from elastic_ps.launch.processes import stillness
from tests.elastic_ps.launch.launch_stage import (
    PATIENCE,
    FakeCoordinator,
    Job,
    Puppet,
    Stage,
    StartJob,
    over,
    puppet_command,
    registered,
    running,
    wait_gone,
)


@pytest.mark.slow
def test_a_frozen_node_that_was_expelled_is_killed_and_replaced(start_job: StartJob) -> None:
    job, (worker, other) = running(start_job, workers=2, max_restarts=1)
    os.kill(worker.pid, signal.SIGSTOP)
    job.fake.want(workers=2, nodes={other.name: "w1"}, expelled=[worker.name], starting_workers=1)
    job.transcript.wait_for("the job goes on without w0: its process is killed in 2 s")
    (new,) = job.workers(1)
    assert job.exit_of(worker) == 128 + signal.SIGKILL
    wait_gone(worker.pid)
    job.fake.want(workers=2, nodes={other.name: "w1", new.name: "w2"})
    job.transcript.wait_for("w2 has joined")
    job.fake.want(workers=2, nodes={new.name: "w2"}, expelled=[worker.name, other.name], starting_workers=1)
    job.transcript.wait_for("the job goes on without w1")
    other.tell("exit 1")  # it was not frozen: it hears of it, and ends by itself
    assert job.exit_of(other) == 1
    job.fake.stops.get(timeout=PATIENCE)
    new.tell("exit 0")
    outcome = job.end()
    assert "worker w1 was silent or cut off for too long" in outcome.reason
    assert "--max-restarts 1 has been used up" in outcome.reason


@pytest.mark.slow
def test_the_end_of_a_job_gives_an_expelled_node_no_more_time(start_job: StartJob) -> None:
    job, (frozen, other) = running(start_job, workers=2, max_restarts=1, grace=600.0)
    os.kill(frozen.pid, signal.SIGSTOP)
    job.fake.want(workers=1, nodes={other.name: "w1"}, expelled=[frozen.name])
    job.transcript.wait_for("the job goes on without w0: its process is killed in 2 s")
    job.fake.want(ended=True, reason="all done")
    job.transcript.wait_for("the job is over: all done")
    other.tell("exit 0")
    assert job.exit_of(other) == 0
    assert job.exit_of(frozen) == 128 + signal.SIGKILL
    assert job.end() == LauncherOutcome(0, "finished", "all done")


def test_a_silent_leaver_that_may_be_busy_has_the_grace(start_job: StartJob) -> None:
    job, (worker,) = running(start_job, max_restarts=0, grace=0.25)
    job.fake.want(leaving=["w0"], nodes={worker.name: "w0"})
    job.transcript.wait_for("w0 is leaving")
    job.fake.want(expelled=[worker.name])
    job.transcript.wait_for("the job goes on without w0: its process is killed in 0.25 s")
    assert job.exit_of(worker) == 128 + signal.SIGKILL
    job.fake.want(ended=True, reason="all done")
    assert job.outcome() == LauncherOutcome(0, "finished", "all done")


def finish(job: Job, new: Puppet) -> None:
    """The process that came for another one joins and ends, and so does the job."""
    job.fake.want(workers=1, nodes={new.name: "w1"})
    job.transcript.wait_for("w1 has joined")
    new.tell("exit 0")
    assert job.exit_of(new) == 0
    job.fake.want(ended=True, reason="all done")
    assert job.outcome() == LauncherOutcome(0, "finished", "all done")


def test_a_frozen_node_does_not_outlive_a_restore_by_more_than_the_grace(start_job: StartJob) -> None:
    job, (frozen,) = running(start_job, max_restarts=0, grace=0.0)
    os.kill(frozen.pid, signal.SIGSTOP)
    job.fake.want(workers=1, nodes={frozen.name: "w0"}, restarting=[frozen.name], starting_workers=1)
    (new,) = job.workers(1)
    assert job.exit_of(frozen) == 128 + signal.SIGKILL
    finish(job, new)


@pytest.mark.slow
def test_who_a_restore_was_to_end_fails_no_job_that_has_finished_meanwhile(start_job: StartJob) -> None:
    job, (frozen,) = running(start_job, max_restarts=0, grace=2.0)
    os.kill(frozen.pid, signal.SIGSTOP)
    job.fake.want(workers=1, nodes={frozen.name: "w0"}, restarting=[frozen.name], starting_workers=1)
    (new,) = job.workers(1)
    finish(job, new)
    assert job.exit_of(frozen) == 128 + signal.SIGKILL


def test_each_of_two_restores_in_a_row_ends_what_had_joined(start_job: StartJob) -> None:
    """There is no moment between them: a process of another launcher takes its time over the first one."""
    job, (old,) = running(start_job, max_restarts=0, grace=0.0)
    job.fake.want(workers=1, nodes={old.name: "w0"}, restarting=[old.name, "elsewhere"], starting_workers=1)
    (first,) = job.workers(1)
    assert job.exit_of(old) == 128 + signal.SIGKILL
    job.fake.want(workers=1, nodes={first.name: "w2"}, restarting=["elsewhere"])
    job.transcript.wait_for("w2 has joined")
    job.fake.want(workers=1, nodes={first.name: "w2"}, restarting=["elsewhere", first.name], starting_workers=1)
    (second,) = job.workers(1)
    assert job.exit_of(first) == 128 + signal.SIGKILL
    job.fake.want(workers=1, nodes={second.name: "w3"})
    job.transcript.wait_for("w3 has joined")
    second.tell("exit 0")
    assert job.exit_of(second) == 0
    job.fake.want(ended=True, reason="all done")
    assert job.outcome() == LauncherOutcome(0, "finished", "all done")


@pytest.mark.parametrize("has_joined", [False, True], ids=["not joined", "joined"])
def test_a_member_that_is_stopped_is_killed_unless_its_job_has_it(
    tmp_path: Path, stage: Stage, fake: FakeCoordinator, monkeypatch: pytest.MonkeyPatch, has_joined: bool
) -> None:
    monkeypatch.setattr(stillness, "LOOK_SECONDS", 0.02)
    monkeypatch.setattr(stillness, "STILL_SECONDS", 0.1)
    (tmp_path / "token").write_text("00" * 16)
    join = JoinSettings(fake.address, tmp_path / "token", "127.0.0.1")
    agent = MemberAgent(MemberSettings(Role.WORKER, join), partial(puppet_command, stage.port))
    with ThreadPoolExecutor(1) as pool:
        status = pool.submit(agent.run)
        frozen = stage.enter("worker")
        if has_joined:
            fake.status.nodes.add(nonce=frozen.name)
        os.kill(frozen.pid, signal.SIGSTOP)
        if has_joined:
            with pytest.raises(TimeoutError):
                status.result(0.5)
            del fake.status.nodes[:]  # the job goes on without it
        assert status.result(PATIENCE) == 128 + signal.SIGKILL
        wait_gone(frozen.pid)


@pytest.mark.slow
def test_who_was_evicted_counts_against_no_limit(start_job: StartJob) -> None:
    job, (worker,) = running(start_job, max_restarts=0)
    os.kill(worker.pid, signal.SIGSTOP)
    job.fake.want(workers=1, expelled=[worker.name], evicted=[worker.name], starting_workers=1)
    (new,) = job.workers(1)
    assert job.exit_of(worker) == 128 + signal.SIGKILL
    job.fake.want(workers=1, nodes={new.name: "w1"})
    job.transcript.wait_for("w1 has joined")
    assert over(job, new).status == 0


def test_a_stopped_process_is_killed_when_the_grace_of_its_jobs_end_is_over(start_job: StartJob) -> None:
    job, (worker,) = running(start_job, grace=1000.0)
    os.kill(worker.pid, signal.SIGSTOP)
    os.waitid(os.P_PID, worker.pid, os.WSTOPPED | os.WNOWAIT)
    job.fake.want(workers=1, nodes={worker.name: "w0"}, ended=True, reason="all done")
    job.transcript.wait_for("the job is over: all done")
    job.agent.signalled(signal.SIGTERM)  # its patience is over at once
    assert job.exit_of(worker) == 128 + signal.SIGKILL
    assert job.end().status == 143


def test_a_process_that_is_stopped_before_it_has_joined_is_killed_and_replaced(
    start_job: StartJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stillness, "LOOK_SECONDS", 0.02)
    monkeypatch.setattr(stillness, "STILL_SECONDS", 0.1)
    job = start_job(max_restarts=1)
    job.listen()
    job.fake.want(workers=1, starting_workers=1)
    (frozen,) = job.workers(1)
    os.kill(frozen.pid, signal.SIGSTOP)
    (new,) = job.workers(1)
    assert job.exit_of(frozen) == 128 + signal.SIGKILL
    job.transcript.wait_for(f"{frozen.name} has been stopped for 15 s without joining the job: killed")
    registered(job, [new], workers=1)
    assert over(job, new).status == 0


def test_a_frozen_coordinator_is_killed_and_started_again(start_job: StartJob, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coordinator_link, "_HEALTH_SECONDS", 0.05)
    monkeypatch.setattr(job_agent, "_SILENT_SECONDS", 0.1)
    job, (worker,) = running(start_job, max_restarts=1, lease=0.1)
    job.fake.answering.clear()
    job.transcript.wait_for("the coordinator runs and has not answered for 0 s: killed")
    monkeypatch.setattr(coordinator_link, "_HEALTH_SECONDS", PATIENCE)  # the next one has time to answer
    job.fake.answering.set()
    wait_gone(job.coordinator.pid)
    job.coordinator = job.stage.enter("coordinator")
    job.listen()
    worker.tell("say still here")
    assert worker.heard() == "said"
    assert over(job, worker).status == 0
