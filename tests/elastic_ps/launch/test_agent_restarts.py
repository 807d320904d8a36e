"""What the launcher starts again, how often, and which deaths count."""

import errno
import math
import os
import signal

import pytest

from elastic_ps.core import crash_loop
from elastic_ps.core.errors import EXIT_RESTART
from elastic_ps.core.script_hints import HOW_TO_JOIN
from elastic_ps.launch import coordinator_link, coordinator_process, decide
from elastic_ps.launch.processes import children
from tests.elastic_ps.launch.launch_stage import PATIENCE, Job, ScarceProcesses, StartJob, over, registered, running
from tests.elastic_ps.waiting import until


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
    monkeypatch.setattr(crash_loop, "HEALTHY_SECONDS", 0.0)
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


def test_job_that_trains_goes_on_without_those_whose_script_fails_before_they_belong_to_it(
    start_job: StartJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A script that was changed meanwhile registers, and raises when it rehearses."""
    monkeypatch.setattr(decide, "FIRST_PAUSE", 0.05)
    job, (worker,) = running(start_job, max_restarts=0)
    for when in ("now", "in 0.05 s", "in 0.1 s"):
        job.fake.want(workers=2, nodes={worker.name: "w0"}, starting_workers=1)
        late = job.stage.enter("worker")
        job.fake.want(workers=2, nodes={worker.name: "w0", late.name: f"w{late.pid}"}, joining=[f"w{late.pid}"])
        job.transcript.wait_for(f"w{late.pid} has joined")
        late.tell("exit 1")
        assert job.exit_of(late) == 1
        job.transcript.wait_for(f"--max-restarts: another one is started {when}\n")
    job.fake.want(workers=2, nodes={worker.name: "w0"}, starting_workers=1)
    late = job.stage.enter("worker")
    registered(job, [worker, late], workers=2)
    late.tell("exit 1")
    assert job.fake.stops.get(timeout=PATIENCE).failed, "a death as any other, of which none is allowed"
    worker.tell("exit 1")
    assert job.end().status == 1


@pytest.mark.parametrize("whole", [False, True])
def test_scripts_that_register_and_end_well_are_not_started_again_without_a_pause(
    start_job: StartJob, monkeypatch: pytest.MonkeyPatch, whole: bool
) -> None:
    """As one may that finds itself superfluous; it is no death, as it may have trained since the last word."""
    monkeypatch.setattr(decide, "FIRST_PAUSE", 0.05)
    if whole:
        job, (worker,) = running(start_job, max_restarts=0)
        known = {"workers": 2, "nodes": {worker.name: "w0"}}
    else:
        job, worker = start_job(max_restarts=0), None
        job.listen()
        known = {"workers": 2, "nodes": {}}
    for when in ("now", "in 0.05 s", "in 0.1 s"):
        job.fake.want(**known, starting_workers=1)
        late = job.stage.enter("worker")
        node = f"w{late.pid}"
        job.fake.want(**{**known, "nodes": {**known["nodes"], late.name: node}}, joining=[node])
        job.transcript.wait_for(f"{node} has joined")
        late.tell("exit 0")
        assert job.exit_of(late) == 0
        job.transcript.wait_for(
            f"{node} has ended with status 0 before it belonged to the job; one that is wanted is started {when}\n"
        )
    assert over(job, *filter(None, [worker])).status == 0


def test_a_job_that_trains_goes_on_where_the_system_has_no_process_for_another_node(
    start_job: StartJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(decide, "FIRST_PAUSE", 0.05)
    job, (worker,) = running(start_job, max_restarts=0)
    monkeypatch.setattr(children, "ChildProcess", ScarceProcesses(3))
    job.fake.want(workers=3, nodes={worker.name: "w0"}, starting_workers=2)
    late = job.workers(2)
    for when in ("now", "in 0.05 s", "in 0.1 s"):
        job.transcript.wait_for(f"--max-restarts: another one is started {when}\n")
    assert f"could not be started: {os.strerror(errno.EAGAIN)}; " in job.transcript.getvalue()
    assert over(job, worker, *late).status == 0


def test_a_job_that_begins_fails_where_the_system_has_no_process_for_it(
    start_job: StartJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(children, "ChildProcess", ScarceProcesses(9))
    job = start_job(max_restarts=2)
    job.listen()
    job.fake.want(workers=1, starting_workers=1)
    outcome = job.end()
    assert outcome.status == 1
    assert f"could not be started: {os.strerror(errno.EAGAIN)}; --max-restarts 2 has been used up" in outcome.reason


def test_a_coordinator_for_which_there_is_no_process_is_tried_again(
    start_job: StartJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(decide, "FIRST_PAUSE", 0.05)
    job, (worker,) = running(start_job, max_restarts=1)
    monkeypatch.setattr(coordinator_process, "ChildProcess", ScarceProcesses(2))
    os.kill(job.coordinator.pid, signal.SIGKILL)
    job.coordinator = job.stage.enter("coordinator")
    job.listen()
    job.transcript.wait_for("the coordinator could not be started: ")
    assert over(job, worker).status == 0


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


def test_nothing_takes_the_place_of_a_process_of_whose_end_the_coordinator_does_not_know(start_job: StartJob) -> None:
    """It may have registered, and is counted as there: the next one would be one more than wanted, and be kept."""
    job, (first,) = running(start_job, max_restarts=1)
    job.fake.want(nodes={first.name: "w0"}, workers=2, starting_workers=1)
    (second,) = job.workers(1)
    job.fake.absences = 4
    second.tell("exit 137")
    (third,) = job.workers(1)
    assert not job.fake.exits.empty(), "told before the next one is started"
    assert job.exit_of(second) == 137
    registered(job, [first, third], workers=2)
    assert over(job, first, third).status == 0


@pytest.mark.parametrize("lost", ["absences", "deaths"])
def test_one_that_drained_before_the_launcher_heard_that_it_had_joined_is_no_death(
    start_job: StartJob, lost: str
) -> None:
    """Its own stream from the coordinator was broken meanwhile: with --max-restarts 0 it failed the job.

    So it did where the coordinator had taken the process off its list, and was killed before it had said so.
    """
    job = start_job(max_restarts=0)
    job.listen()
    job.fake.want(workers=1, starting_workers=1)
    (first,) = job.workers(1)
    job.fake.known.add(first.name)
    setattr(job.fake, lost, 1)
    first.tell("exit 0")
    (second,) = job.workers(1)
    assert job.exit_of(first) == 0
    assert f"{first.name} has ended with status 0" in job.transcript.getvalue()
    registered(job, [second], workers=1)
    assert over(job, second).status == 0
