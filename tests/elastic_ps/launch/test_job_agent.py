"""The launcher of a whole job, with real processes and a played coordinator."""

import json
import os
import signal

import pytest

from elastic_ps.core.errors import CoordinatorLost
from elastic_ps.launch import job_agent
from elastic_ps.launch.coordinator_link import CoordinatorLink
from elastic_ps.launch.outcome import LauncherOutcome
from elastic_ps.system.process.signals import SAME_SECONDS, SignalCount
from protos import elastic_pb2 as pb
from tests.elastic_ps.launch.launch_stage import PATIENCE, Job, StartJob, gone, over, running, wait_gone


def test_starts_what_is_wanted_and_ends_with_the_job(start_job: StartJob) -> None:
    job, puppets = running(start_job, workers=2, servers=1)
    worker = puppets[0]
    assert worker.environment == {
        "ELASTIC_COORDINATOR": job.fake.address,
        "ELASTIC_NONCE": worker.name,
        "ELASTIC_HOST": "127.0.0.1",
        "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "1"),
    }
    assert over(job, *puppets) == LauncherOutcome(0, "finished", "all done")
    summary = job.transcript.getvalue().splitlines()[-1]
    assert "job toy finished (all done) after" in summary
    assert "42 steps; at the end 2 workers and 1 server; logs: " in summary
    record = json.loads((job.folder.path / "job.json").read_text())
    assert (record["status"], record["coordinator"], record["pid"]) == (0, job.fake.address, os.getpid())
    assert record["ended"] >= record["started"]


def test_scales_up_and_takes_back_what_is_no_longer_wanted(start_job: StartJob) -> None:
    job, puppets = running(start_job)
    nodes = {puppets[0].name: "w0"}
    job.fake.want(workers=3, nodes=nodes, starting_workers=2)
    first, second = job.workers(2)
    job.fake.want(workers=2, nodes=nodes, starting_workers=1)
    newest = max(first, second, key=lambda puppet: int(puppet.name.split("-")[1]))
    assert newest.heard() == "term"
    newest.tell("exit 143")
    assert job.exit_of(newest) == 143
    assert "exited with status 143" not in job.transcript.getvalue()
    assert over(job, puppets[0], first if newest is second else second).status == 0


def test_a_drained_node_is_neither_a_death_nor_replaced(start_job: StartJob) -> None:
    job, (worker, server) = running(start_job, servers=1, max_restarts=0)
    job.fake.want(workers=1, nodes={worker.name: "w0", server.name: "s1"}, leaving=["s1"])
    job.transcript.wait_for("s1 is leaving")
    job.fake.want(workers=1, nodes={worker.name: "w0"})
    server.tell("exit 1")
    assert job.exit_of(server) == 1
    assert over(job, worker).status == 0


def test_a_failed_job_fails_the_launcher_with_its_reason(start_job: StartJob) -> None:
    job, (worker,) = running(start_job)
    job.fake.want(ended=True, failed=True, reason="lost s0 and there is no checkpoint")
    job.transcript.wait_for("the job is over: lost s0")
    worker.tell("exit 1")
    assert job.end() == LauncherOutcome(1, "failed", "lost s0 and there is no checkpoint")
    assert "at the end" not in job.transcript.getvalue().splitlines()[-1]  # what it wanted is not what it had


def test_a_failed_job_tells_how_the_node_died_that_its_reason_names(start_job: StartJob) -> None:
    job, (worker,) = running(start_job)
    worker.tell("exit 1")
    job.transcript.wait_for("w0 exited with status 1")
    reason = "the last worker died (w0), and the job cannot go back"
    job.fake.want(ended=True, failed=True, reason=reason)
    outcome = job.end()
    assert outcome.reason.startswith(f"{reason}; worker w0 exited with status 1")
    assert outcome.reason in job.transcript.getvalue().splitlines()[-1]


@pytest.mark.parametrize(("version", "says"), [(0, "0 steps (its script has trained nothing)"), (1, "1 step")])
def test_a_job_that_finished_without_a_step_says_so(version: int, says: str) -> None:
    status = pb.StatusReply(version=version)
    assert LauncherOutcome(0, "finished").summary("toy", 1.0, status, {}) == f"job toy finished after 1.0 s, {says}"


def test_a_worker_that_exits_with_a_status_when_the_job_has_finished_fails_it(start_job: StartJob) -> None:
    job, puppets = running(start_job)
    outcome = over(job, *puppets, status=3)
    assert (outcome.status, outcome.word) == (1, "failed")
    assert "worker w0 exited with status 3" in outcome.reason


def test_a_job_that_turns_out_to_have_failed_fails_the_launcher(start_job: StartJob) -> None:
    job, (worker,) = running(start_job)
    job.fake.want(ended=True, reason="all done")
    job.transcript.wait_for("the job is over: all done")
    job.fake.want(
        ended=True, failed=True, reason="w1 ended with exit status 3", leaving=["w0"], nodes={worker.name: "w0"}
    )
    job.transcript.wait_for("w0 is leaving")
    worker.tell("exit 0")
    assert job.end() == LauncherOutcome(1, "failed", "w1 ended with exit status 3")


def test_how_a_job_ends_is_written_before_its_coordinator_that_could_tell_goes(start_job: StartJob) -> None:
    job, (worker,) = running(start_job)
    job.fake.want(ended=True, failed=True, reason="no data")
    worker.tell("exit 0")
    assert job.coordinator.heard() == "end"
    record = json.loads((job.folder.path / "job.json").read_text())
    assert (record["status"], record["reason"], record.get("ended")) == (1, "no data", None)
    job.coordinator.tell("exit 0")
    assert job.outcome().status == 1
    assert json.loads((job.folder.path / "job.json").read_text())["ended"] >= record["started"]


def elsewhere(start_job: StartJob) -> Job:
    """A job that has finished, its own worker too; a server of another launcher has not ended."""
    job, (worker,) = running(start_job)
    job.fake.want(ended=True, reason="all done", nodes={worker.name: "w0", "server-x.1": "s4"})
    job.transcript.wait_for("the job is over: all done")
    worker.tell("exit 0")
    job.transcript.wait_for("waits for s4 of other launchers to end")
    return job


def test_nodes_of_other_launchers_end_before_the_coordinator(start_job: StartJob) -> None:
    """Nobody took the ledger's last entries of a server that had them to tell."""
    job = elsewhere(start_job)
    job.coordinator.tell("say still here")
    assert job.coordinator.heard() == "said"
    job.fake.want(ended=True, reason="all done")
    assert job.end() == LauncherOutcome(0, "finished", "all done")
    assert "no longer" not in job.transcript.getvalue()


def test_a_signal_ends_the_wait_for_nodes_of_other_launchers(start_job: StartJob) -> None:
    job = elsewhere(start_job)
    job.agent.signalled(signal.SIGINT)
    assert job.end() == LauncherOutcome(0, "finished", "all done")


def test_nodes_of_other_launchers_are_waited_for_no_longer_than_the_grace(start_job: StartJob) -> None:
    job, (worker,) = running(start_job, grace=0.0)
    job.fake.want(ended=True, failed=True, reason="no data", nodes={worker.name: "w0", "server-x.1": "s4"})
    assert job.outcome() == LauncherOutcome(1, "failed", "no data")
    assert "[elasticrun] waits no longer for s4\n" in job.transcript.getvalue()


def test_nodes_of_other_launchers_that_nobody_could_tell_are_not_waited_for(
    start_job: StartJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(*_: object) -> None:
        raise CoordinatorLost("it is being started again")

    monkeypatch.setattr(CoordinatorLink, "stop", away)
    job, (worker,) = running(start_job)
    job.fake.want(nodes={worker.name: "w0", "server-x.1": "s4"}, leaving=["w0"])
    job.transcript.wait_for("w0 is leaving")
    job.agent.signalled(signal.SIGTERM)
    assert worker.heard() == "term"
    worker.tell("exit 0")
    assert job.end().status == 143
    assert "waits for" not in job.transcript.getvalue()


def test_a_job_that_is_over_does_not_wait_for_processes_that_still_start(start_job: StartJob) -> None:
    job, (worker,) = running(start_job, grace=1000.0)
    job.fake.want(workers=2, nodes={worker.name: "w0"}, starting_workers=1)
    (late,) = job.workers(1)
    job.fake.want(workers=2, nodes={worker.name: "w0"}, ended=True, reason="all done")
    assert late.heard() == "term"
    late.tell("exit 143")
    assert job.exit_of(late) == 143
    worker.tell("say my last model")  # it has its time to end by itself
    assert worker.heard() == "said"
    worker.tell("exit 0")
    assert job.exit_of(worker) == 0
    assert job.end() == LauncherOutcome(0, "finished", "all done")


def test_a_signal_stops_the_job_through_the_coordinator(start_job: StartJob) -> None:
    job, (worker,) = running(start_job)
    job.agent.signalled(signal.SIGINT)
    stop = job.fake.stops.get(timeout=PATIENCE)
    assert (stop.now, stop.failed, stop.reason) == (False, False, "stopped by SIGINT")
    worker.tell("exit 0")
    assert job.end() == LauncherOutcome(130, "stopped", "by SIGINT")


def test_who_does_not_stop_gets_sigterm_then_sigkill(start_job: StartJob) -> None:
    job, (worker,) = running(start_job, grace=0.0)
    job.agent.signalled(signal.SIGTERM)
    job.fake.stops.get(timeout=PATIENCE)
    assert worker.heard() in ("term", "")
    assert job.exit_of(worker) == 128 + signal.SIGKILL
    assert job.outcome().status == 143
    assert gone(worker.pid)
    assert gone(job.coordinator.pid)
    assert "does not end: killed" in job.transcript.getvalue()


def test_two_signals_at_once_are_one_and_a_later_one_kills(
    start_job: StartJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A session that is lost sends SIGHUP twice: the job was killed."""
    now = [0.0]
    monkeypatch.setattr(job_agent, "SignalCount", lambda: SignalCount(clock=lambda: now[0]))
    job, (worker,) = running(start_job)
    worker.tell("child")
    child = int(worker.heard())
    for _ in range(2):
        job.agent.signalled(signal.SIGHUP)
    job.fake.stops.get(timeout=PATIENCE)
    job.fake.want(nodes={worker.name: "w0"}, leaving=["w0"])
    job.transcript.wait_for("w0 is leaving")
    assert "killing the job" not in job.transcript.getvalue()
    now[0] += SAME_SECONDS
    job.agent.signalled(signal.SIGINT)
    assert job.exit_of(worker) == 128 + signal.SIGKILL
    wait_gone(child)
    assert job.end().status == 130


def test_what_a_node_leaves_behind_ends_with_it(start_job: StartJob) -> None:
    job, (worker,) = running(start_job)
    worker.tell("child")
    child = int(worker.heard())
    worker.tell("exit 0")
    assert job.exit_of(worker) == 0
    wait_gone(child)
    assert over(job).status == 0


def test_logs_one_file_a_node_and_a_merged_stream(start_job: StartJob) -> None:
    job, (worker, server) = running(start_job, servers=1)
    for puppet, text in ((worker, "loss 0.25"), (server, "12 blocks")):
        puppet.tell(f"say {text}")
        assert puppet.heard() == "said"
        job.transcript.wait_for(f"] {text}\n")
    assert "[elasticrun] w0 has joined" in job.transcript.getvalue()
    assert "\nw0 has joined" in (job.folder.logs / "elasticrun.log").read_text()
    lines = job.transcript.getvalue().splitlines()
    assert "[w0] loss 0.25" in lines
    assert "[s1] 12 blocks" in lines
    assert sorted(path.name for path in job.folder.logs.iterdir()) == [
        "coordinator.log",
        "elasticrun.log",
        "s1.log",
        "w0.log",
    ]
    assert (job.folder.logs / "w0.log").read_text() == "loss 0.25\n"
    assert over(job, worker, server).status == 0
