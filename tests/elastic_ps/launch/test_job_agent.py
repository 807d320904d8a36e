"""The launcher of a whole job, with real processes and a played coordinator."""

import json
import math
import os
import signal

import pytest

from elastic_ps.core.errors import EXIT_LATER, EXIT_RESTART
from elastic_ps.core.script_hints import HOW_TO_JOIN
from elastic_ps.launch import children, coordinator_link, decide, restart_budget
from elastic_ps.launch.outcome import LauncherOutcome
from tests.elastic_ps.launch.launch_stage import PATIENCE, Job, StartJob, gone, over, registered, running, wait_gone
from tests.elastic_ps.waiting import until


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


def test_replaces_dead_nodes_up_to_max_restarts_then_fails(start_job: StartJob) -> None:
    job, (worker,) = running(start_job, max_restarts=2)
    for status in (1, 3):
        worker.tell(f"exit {status}")
        assert job.exit_of(worker) == status
        job.fake.want(workers=1, starting_workers=1)
        (worker,) = job.workers(1)
        registered(job, [worker], workers=1)
    os.kill(worker.pid, signal.SIGKILL)
    assert job.exit_of(worker) == 128 + signal.SIGKILL
    stop = job.fake.stops.get(timeout=PATIENCE)
    outcome = job.end()
    assert (stop.now, stop.failed, stop.reason) == (True, True, outcome.reason)
    assert outcome.status == 1
    assert "was killed by SIGKILL" in outcome.reason
    assert "--max-restarts 2 has been used up" in outcome.reason
    assert outcome.reason in job.transcript.getvalue()


def reached(job: Job, version: int) -> None:
    """The job trains up to a version; returns once the launcher knows that."""
    job.fake.status.version = version
    until(lambda: job.agent._link is not None and job.agent._link.version == version)


def test_deaths_are_counted_anew_when_the_job_has_trained_since_the_last(
    start_job: StartJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(restart_budget, "HEALTHY_SECONDS", 0.0)
    monkeypatch.setattr(coordinator_link, "_HEALTH_SECONDS", 0.01)
    job, (worker,) = running(start_job, max_restarts=1)

    for version in (90, 91, 92):
        reached(job, version)
        worker.tell("exit 1")
        assert job.exit_of(worker) == 1
        job.fake.want(workers=1, starting_workers=1)
        (worker,) = job.workers(1)
        registered(job, [worker], workers=1)
    job.fake.status.version = 40  # it is back at its checkpoint, and dies on the way to where it was
    worker.tell("exit 1")
    assert job.exit_of(worker) == 1
    job.fake.stops.get(timeout=PATIENCE)
    assert "--max-restarts 1 has been used up" in job.end().reason


def test_job_that_trains_goes_on_without_what_cannot_start(
    start_job: StartJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(decide, "FIRST_PAUSE", 0.05)
    job, (worker, server) = running(start_job, servers=1, max_restarts=1)
    known = {"workers": 1, "servers": 2, "nodes": {worker.name: "w0", server.name: "s1"}}
    job.fake.want(**known, starting_servers=1)
    for when in ("now", "in 0.05 s", "in 0.1 s", "in 0.2 s"):
        late = job.stage.enter("server")
        late.tell("exit 1")
        assert job.exit_of(late) == 1
        said = f"{late.name} exited with status 1 (log: "
        job.transcript.wait_for(said)
        (line,) = [line for line in job.transcript.getvalue().splitlines() if said in line]
        assert line.endswith(f"does not count against --max-restarts: another one is started {when}")
    late = job.stage.enter("server")
    job.fake.want(**{**known, "nodes": {**known["nodes"], late.name: "s2"}})
    job.transcript.wait_for("s2 has joined")
    assert over(job, worker, server, late).status == 0


def test_a_job_that_ends_in_a_pause_between_starts_does_not_wake_for_it_for_ever(
    start_job: StartJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(decide, "FIRST_PAUSE", 0.2)
    job, (worker,) = running(start_job)
    job.fake.want(workers=2, nodes={worker.name: "w0"}, starting_workers=1)
    for _ in range(2):
        late = job.stage.enter("worker")
        late.tell("exit 1")
        assert job.exit_of(late) == 1
    job.agent.signalled(signal.SIGINT)
    until(lambda: job.agent._failed_starts.deadline == math.inf)


def test_processes_that_cannot_start_after_a_restore_count(start_job: StartJob) -> None:
    job, (worker,) = running(start_job, max_restarts=0)
    job.fake.want(workers=1, nodes={worker.name: "w0"}, restarting=[worker.name])
    worker.tell(f"exit {EXIT_RESTART}")
    assert job.exit_of(worker) == EXIT_RESTART
    job.fake.want(workers=1, starting_workers=1)
    (worker,) = job.workers(1)
    worker.tell("exit 1")
    assert job.end().status == 1


def test_a_restoring_job_is_started_again_without_counting(start_job: StartJob) -> None:
    job, (worker,) = running(start_job, max_restarts=0)
    for _ in range(3):
        job.fake.want(workers=1, nodes={worker.name: "w0"}, restarting=[worker.name])
        worker.tell(f"exit {EXIT_RESTART}")
        assert job.exit_of(worker) == EXIT_RESTART
        job.fake.want(workers=1, starting_workers=1)
        (worker,) = job.workers(1)
        registered(job, [worker], workers=1)
    assert over(job, worker).status == 0


def test_a_script_that_never_joins_is_a_failure(start_job: StartJob) -> None:
    job = start_job(max_restarts=0)
    job.listen()
    job.fake.want(workers=1, starting_workers=1)
    (worker,) = job.workers(1)
    worker.tell("exit 0")
    job.fake.stops.get(timeout=PATIENCE)
    outcome = job.end()
    assert outcome.status == 1
    assert HOW_TO_JOIN in outcome.reason


def test_people_are_told_once_of_a_script_that_runs_without_joining(
    start_job: StartJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(children, "JOIN_SECONDS", 0.2)
    job = start_job(max_restarts=0)
    job.listen()
    job.fake.want(workers=2, starting_workers=2)
    joins, alone = job.workers(2)
    registered(job, [joins], workers=2, starting_workers=1)
    job.transcript.wait_for(f"{alone.name} has run for 60 s without joining the job; {HOW_TO_JOIN}")
    registered(job, [joins, alone], workers=2)
    assert job.transcript.getvalue().count(f"{alone.name} has run") == 1
    assert over(job, joins, alone).status == 0


def test_a_failed_job_fails_the_launcher_with_its_reason(start_job: StartJob) -> None:
    job, (worker,) = running(start_job)
    job.fake.want(ended=True, failed=True, reason="lost s0 and there is no checkpoint")
    job.transcript.wait_for("the job is over: lost s0")
    worker.tell("exit 1")
    assert job.end() == LauncherOutcome(1, "failed", "lost s0 and there is no checkpoint")


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
    assert job.coordinator.heard() == "term"
    record = json.loads((job.folder.path / "job.json").read_text())
    assert (record["status"], record["reason"], record.get("ended")) == (1, "no data", None)
    job.coordinator.tell("exit 0")
    assert job.outcome().status == 1
    assert json.loads((job.folder.path / "job.json").read_text())["ended"] >= record["started"]


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


def test_a_second_signal_kills(start_job: StartJob) -> None:
    job, (worker,) = running(start_job)
    worker.tell("child")
    child = int(worker.heard())
    job.agent.signalled(signal.SIGINT)
    job.fake.stops.get(timeout=PATIENCE)
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


def test_a_dead_coordinator_is_started_again_on_its_port(start_job: StartJob) -> None:
    job, (worker,) = running(start_job, max_restarts=1)
    os.kill(job.coordinator.pid, signal.SIGKILL)
    job.coordinator = job.stage.enter("coordinator")
    job.listen()
    assert job.commands.ports == [0, int(job.fake.address.rpartition(":")[2])]
    worker.tell("say still here")
    assert worker.heard() == "said"
    os.kill(job.coordinator.pid, signal.SIGKILL)
    assert worker.heard() == "term"  # nobody is left who could stop it in order
    worker.tell("exit 0")
    outcome = job.outcome()
    assert outcome.status == 1
    assert "the coordinator ended with status 137" in outcome.reason


@pytest.mark.slow
def test_what_may_pass_does_not_count_and_is_tried_again_after_pauses_that_grow(
    start_job: StartJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(decide, "FIRST_PAUSE", 0.01)
    job, (worker,) = running(start_job, max_restarts=0)
    pauses = ["now", "in 0.01 s", "in 0.02 s", "in 0.04 s"]
    for when in pauses:
        job.coordinator.tell("say coordinator: cannot write its journal: No space left on device")
        assert job.coordinator.heard() == "said"
        job.coordinator.tell(f"exit {EXIT_LATER}")
        job.transcript.wait_for("ended with status 69: cannot write its journal: No space left on device (log: /")
        job.transcript.wait_for(
            "; training goes on without it; it is started again from its journal "
            f"{when}, which does not count against --max-restarts"
        )
        job.coordinator = job.stage.enter("coordinator")
    job.listen()
    assert len(job.commands.ports) == 1 + len(pauses)
    assert over(job, worker).status == 0


def test_a_coordinator_that_does_not_start_fails_the_job_at_once(start_job: StartJob) -> None:
    job = start_job()
    job.coordinator.tell("say coordinator: cannot write its journal")
    assert job.coordinator.heard() == "said"
    job.coordinator.tell("exit 2")
    outcome = job.outcome()
    assert outcome.status == 1
    assert "the coordinator did not start: status 2: cannot write its journal (log: /" in outcome.reason
    assert len(job.commands.ports) == 1


def test_a_coordinator_that_refuses_the_launcher_fails_the_job(start_job: StartJob) -> None:
    job = start_job()
    job.fake.refusal = "wrong token"
    job.listen()
    job.fake.stops.get(timeout=PATIENCE)
    outcome = job.end()
    assert outcome.status == 1
    assert "refuses this launcher: wrong token" in outcome.reason


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
