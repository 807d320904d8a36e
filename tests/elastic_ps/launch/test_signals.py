"""`elasticrun` as a real process: signals, and what is left when it dies."""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from elastic_ps.core.errors import EXIT_RESTART
from tests.elastic_ps.launch.launch_stage import PATIENCE, FakeCoordinator, Stage, gone, wait_gone

DRIVER = "tests.elastic_ps.launch.driver"
Drive = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def drive(tmp_path: Path, stage: Stage) -> Iterator[Drive]:
    """Starts the driver: with an address, as a member of the job there."""
    (tmp_path / "token").write_text("00" * 16)
    drivers: list[subprocess.Popen[str]] = []

    def start(grace: float = PATIENCE, member: str = "", prefix: str = "") -> subprocess.Popen[str]:
        arguments = [str(tmp_path), str(stage.port), str(grace), *filter(None, (member, prefix))]
        command = [sys.executable, "-m", DRIVER, *arguments]
        drivers.append(
            subprocess.Popen(
                command,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                cwd=os.getcwd(),
                preexec_fn=hear_the_terminal,
            )
        )
        return drivers[-1]

    yield start
    for driver in drivers:
        driver.kill()
        driver.wait()
        assert driver.stdout is not None
        driver.stdout.close()


def hear_the_terminal() -> None:
    """Hear what the tests may have been begun to ignore, as in the background of a shell's script."""
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)


@pytest.mark.slow
def test_ctrl_c_ends_the_job_in_order(drive: Drive, stage: Stage, fake: FakeCoordinator) -> None:
    driver = drive()
    coordinator = stage.enter("coordinator")
    coordinator.tell(f"say listening on {fake.address}")
    fake.want(workers=1, starting_workers=1)
    worker = stage.enter("worker")
    driver.send_signal(signal.SIGINT)
    assert not fake.stops.get(timeout=PATIENCE).now
    worker.tell("exit 0")
    assert coordinator.heard() == "said"
    assert coordinator.heard() == "end"
    coordinator.tell("exit 0")
    output, _ = driver.communicate(timeout=PATIENCE)
    assert driver.returncode == 130
    assert "SIGINT: ending the job" in output
    assert "job toy stopped (by SIGINT)" in output.splitlines()[-1]


@pytest.mark.slow
def test_nothing_outlives_a_killed_launcher(drive: Drive, stage: Stage, fake: FakeCoordinator) -> None:
    driver = drive()
    coordinator = stage.enter("coordinator")
    coordinator.tell(f"say listening on {fake.address}")
    fake.want(workers=2, servers=1, starting_workers=2, starting_servers=1)
    puppets = [coordinator, *(stage.enter(kind) for kind in ("worker", "worker", "server"))]
    driver.kill()
    assert coordinator.heard() == "said"
    for puppet in puppets:
        assert puppet.heard() == ""
        wait_gone(puppet.pid)


@pytest.mark.slow
def test_a_member_drains_on_sigterm_and_has_the_status_of_its_node(
    drive: Drive, stage: Stage, fake: FakeCoordinator
) -> None:
    driver = drive(member=fake.address)
    worker = stage.enter("worker")
    assert worker.environment["ELASTIC_COORDINATOR"] == fake.address
    driver.send_signal(signal.SIGTERM)
    assert worker.heard() == "term"
    worker.tell("exit 0")
    output, _ = driver.communicate(timeout=PATIENCE)
    assert driver.returncode == 0, output
    exited = fake.exits.get(timeout=PATIENCE)
    assert (exited.nonce, exited.status) == (worker.name, 0)


@pytest.mark.slow
def test_a_member_drains_when_nobody_reads_what_it_says(drive: Drive, stage: Stage, fake: FakeCoordinator) -> None:
    """Ctrl-C ends `| tee` first: the node was killed, or died at its next line, in place of being drained."""
    driver = drive(member=fake.address)
    worker = stage.enter("worker")
    assert driver.stdout is not None
    driver.stdout.close()
    driver.send_signal(signal.SIGINT)
    assert worker.heard() == "term"
    worker.tell("say the last step")
    assert worker.heard() == "said"
    worker.tell("exit 0")
    assert driver.wait(PATIENCE) == 0
    assert fake.exits.get(timeout=PATIENCE).nonce == worker.name


@pytest.mark.slow
def test_a_members_processes_are_counted_behind_its_prefix(drive: Drive, stage: Stage, fake: FakeCoordinator) -> None:
    driver = drive(member=fake.address, prefix="digits-worker-3")
    for number, status in ((1, EXIT_RESTART), (2, 0)):
        node = stage.enter("digits")
        assert node.environment["ELASTIC_NONCE"] == node.name == f"digits-worker-3.{number}"
        node.tell(f"exit {status}")
        assert fake.exits.get(timeout=PATIENCE).nonce == node.name
    output, _ = driver.communicate(timeout=PATIENCE)
    assert driver.returncode == 0, output


@pytest.mark.slow
def test_the_end_of_a_node_is_told_to_a_coordinator_that_comes_back(
    drive: Drive, stage: Stage, fake: FakeCoordinator
) -> None:
    driver = drive(member=fake.address)
    worker = stage.enter("worker")
    fake.absences = 3
    worker.tell("exit 0")
    exited = fake.exits.get(timeout=PATIENCE)
    assert (exited.nonce, exited.status, fake.absences) == (worker.name, 0, 0)
    driver.communicate(timeout=PATIENCE)
    assert driver.returncode == 0


@pytest.mark.slow
def test_a_member_that_does_not_drain_within_the_grace_is_ended(
    drive: Drive, stage: Stage, fake: FakeCoordinator
) -> None:
    driver = drive(grace=0.5, member=fake.address)
    worker = stage.enter("worker")
    driver.send_signal(signal.SIGTERM)
    assert worker.heard() == "term"
    assert worker.heard() in ("term", "")  # where the machine is slow, both signals come as one, and then SIGKILL
    worker.tell("exit 0")
    output, _ = driver.communicate(timeout=PATIENCE)
    assert driver.returncode == 143, output
    assert "the node has not drained: ending it" in output


@pytest.mark.slow
def test_a_signal_ends_a_member_that_waits_for_its_coordinator(drive: Drive) -> None:
    with socket.create_server(("127.0.0.1", 0)) as deaf:  # accepts, and never speaks
        driver = drive(member=f"127.0.0.1:{deaf.getsockname()[1]}")
        deaf.settimeout(PATIENCE)
        connection, _ = deaf.accept()
        with connection:
            driver.send_signal(signal.SIGTERM)
            driver.communicate(timeout=PATIENCE)
    assert driver.returncode == 143


@pytest.mark.slow
def test_a_member_joins_again_after_a_restore_and_fails_as_its_node_does(
    drive: Drive, stage: Stage, fake: FakeCoordinator
) -> None:
    driver = drive(member=fake.address)
    first = stage.enter("worker")
    first.tell(f"exit {EXIT_RESTART}")
    second = stage.enter("worker")
    assert first.name != second.name
    second.tell("exit 3")
    driver.communicate(timeout=PATIENCE)
    assert driver.returncode == 3


@pytest.mark.slow
def test_a_member_of_an_ended_job_is_told(drive: Drive, fake: FakeCoordinator) -> None:
    fake.status.phase, fake.status.job = "finished", "toy"
    output, _ = (driver := drive(member=fake.address)).communicate(timeout=PATIENCE)
    assert driver.returncode == 1
    assert "job toy has finished: there is nothing to join" in output


@pytest.mark.slow
def test_a_member_with_a_wrong_token_is_told(drive: Drive, fake: FakeCoordinator) -> None:
    fake.refusal = "wrong token"
    output, _ = (driver := drive(member=fake.address)).communicate(timeout=PATIENCE)
    assert driver.returncode == 1
    assert f"the coordinator at {fake.address} refuses: wrong token" in output


def test_gone_knows_the_living() -> None:
    assert not gone(os.getpid())
