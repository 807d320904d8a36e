"""The launcher starts its coordinator again, where that may help."""

import errno
import os
import signal

import pytest

from elastic_ps.core.errors import EXIT_LATER
from elastic_ps.launch import coordinator_process, decide
from elastic_ps.launch.processes.child_process import ChildProcess
from tests.elastic_ps.launch.launch_stage import PATIENCE, StartJob, over, registered, running


def test_a_dead_coordinator_is_started_again_on_its_port(start_job: StartJob) -> None:
    job, (worker,) = running(start_job, max_restarts=1)
    os.kill(job.coordinator.pid, signal.SIGKILL)
    job.coordinator = job.stage.enter("coordinator")
    job.listen()
    assert job.commands.ports == [0, int(job.fake.address.rpartition(":")[2])]
    assert job.commands.terms == [1, 2], "where the journal is gone, those who train are asked"
    worker.tell("say still here")
    assert worker.heard() == "said"
    os.kill(job.coordinator.pid, signal.SIGKILL)
    assert worker.heard() == "term"  # nobody is left who could stop it in order
    worker.tell("exit 0")
    outcome = job.outcome()
    assert outcome.status == 1
    assert "the coordinator ended with status 137" in outcome.reason


def test_a_coordinator_that_dies_as_the_job_ends_is_started_for_those_who_have_not_ended(start_job: StartJob) -> None:
    """Servers tell the last entries of the ledger behind the job's end."""
    job, (worker,) = running(start_job, max_restarts=0)
    job.fake.want(ended=True, reason="finished")
    job.transcript.wait_for("the job is over: finished")
    os.kill(job.coordinator.pid, signal.SIGKILL)
    job.coordinator = job.stage.enter("coordinator")
    job.listen()
    assert len(job.commands.ports) == 2
    worker.tell("exit 0")
    assert job.end().status == 0


def test_a_record_that_cannot_be_written_ends_no_job(start_job: StartJob) -> None:
    job, (worker,) = running(start_job, max_restarts=1)
    (job.folder.path / "job.json.tmp").mkdir()  # for want of a disk that fails
    os.kill(job.coordinator.pid, signal.SIGKILL)
    job.coordinator = job.stage.enter("coordinator")
    job.listen()
    job.transcript.wait_for(
        "job.json still has the last coordinator's process, as it cannot be written: Is a directory"
    )
    worker.tell("say still here")
    assert worker.heard() == "said"
    assert over(job, worker).status == 0


def test_a_first_record_that_cannot_be_written_ends_the_job_for_now(start_job: StartJob) -> None:
    job = start_job()
    (job.folder.path / "job.json.tmp").mkdir()  # for want of a disk that fails
    job.coordinator.tell(f"say listening on {job.fake.address}")
    assert {job.coordinator.heard(), job.coordinator.heard()} == {"said", "end"}
    job.coordinator.tell("exit 0")
    outcome = job.outcome()
    assert outcome.status == EXIT_LATER
    assert outcome.reason == f"{job.folder.path} cannot be written: Is a directory"


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


@pytest.mark.parametrize("status", [2, 255])
def test_a_coordinator_that_does_not_start_fails_the_job_at_once(start_job: StartJob, status: int) -> None:
    """No signal ends a process with 255, but `sys.exit(-1)` does: it was tried again as if it had been killed."""
    job = start_job()
    job.coordinator.tell("say coordinator: cannot write its journal")
    assert job.coordinator.heard() == "said"
    job.coordinator.tell(f"exit {status}")
    outcome = job.outcome()
    assert outcome.status == 1
    assert f"the coordinator did not start: status {status}: cannot write its journal (log: /" in outcome.reason
    assert len(job.commands.ports) == 1


@pytest.mark.parametrize("restarts", [0, 3])
def test_a_first_start_that_may_come_to_something_later_is_tried_again(start_job: StartJob, restarts: int) -> None:
    job = start_job(max_restarts=restarts)
    job.coordinator.tell("say coordinator: cannot write its journal: No space left on device")
    assert job.coordinator.heard() == "said"
    job.coordinator.tell(f"exit {EXIT_LATER}")
    job.transcript.wait_for(
        "the coordinator did not start: status 69: cannot write its journal: No space left on device (log: /"
    )
    job.transcript.wait_for("; it is tried again now, which does not count against --max-restarts")
    job.coordinator = job.stage.enter("coordinator")
    job.listen()
    job.fake.want(workers=1, starting_workers=1)
    (worker,) = job.workers(1)
    registered(job, [worker], workers=1)
    assert job.commands.ports == [0, 0]
    assert job.commands.terms == [1, 1], "nobody has joined the first one: there is nobody to ask"
    assert over(job, worker).status == 0


def test_a_first_start_that_is_killed_counts_as_a_death(start_job: StartJob) -> None:
    """So is one that does not listen in time: modules are in the machine's memory at the next start."""
    job = start_job(max_restarts=1)
    os.kill(job.coordinator.pid, signal.SIGKILL)
    job.coordinator = job.stage.enter("coordinator")
    os.kill(job.coordinator.pid, signal.SIGKILL)
    outcome = job.outcome()
    assert (outcome.status, len(job.commands.ports)) == (1, 2)
    assert "the coordinator did not start: status 137 (log: /" in outcome.reason
    assert outcome.reason.endswith("; --max-restarts 1 has been used up")


def test_what_does_not_pass_for_long_fails_a_job_that_never_began(
    start_job: StartJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(coordinator_process, "_FIRST_SECONDS", 0.0)
    job = start_job()
    job.coordinator.tell(f"exit {EXIT_LATER}")
    outcome = job.outcome()
    assert (outcome.status, len(job.commands.ports)) == (1, 1)
    assert "the coordinator did not start: status 69 (log: /" in outcome.reason


def test_a_machine_without_a_process_for_the_first_coordinator_has_one_later(
    start_job: StartJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    failures = iter([OSError(errno.EAGAIN, "Resource temporarily unavailable")])

    def start(*arguments: object) -> ChildProcess:
        if failure := next(failures, None):
            raise failure
        return ChildProcess(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(coordinator_process, "ChildProcess", start)
    job = start_job()
    assert (
        "the coordinator could not be started: Resource temporarily unavailable; tried again in 0 s"
    ) in job.transcript.getvalue()
    job.listen()
    job.fake.want(ended=True, reason="all done")
    assert job.end().status == 0


def test_a_coordinator_that_refuses_the_launcher_fails_the_job(start_job: StartJob) -> None:
    job = start_job()
    job.fake.refusal = "wrong token"
    job.listen()
    job.fake.stops.get(timeout=PATIENCE)
    outcome = job.end()
    assert outcome.status == 1
    assert "refuses this launcher: wrong token" in outcome.reason
