"""One node that is to join a job elsewhere says why it could not."""

import errno
import os
import signal
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from elastic_ps.core.configuration import Role
from elastic_ps.core.errors import ConfigurationError, CoordinatorLost, NotNow
from elastic_ps.launch import decide, member_agent
from elastic_ps.launch.commands import JoinSettings
from elastic_ps.launch.member_agent import MemberAgent, MemberSettings
from elastic_ps.launch.processes.child_process import ChildProcess
from elastic_ps.node.leaving import GRACE
from elastic_ps.system.process.signals import SAME_SECONDS, SignalCount
from tests.elastic_ps.launch.launch_stage import (
    PATIENCE,
    FakeCoordinator,
    Puppet,
    ScarceProcesses,
    Stage,
    puppet_command,
)


def why_not_joined(address: str, token_file: Path) -> str:
    settings = MemberSettings(Role.WORKER, JoinSettings(address, token_file, "127.0.0.1"), join_timeout=0.01)
    with pytest.raises(CoordinatorLost) as lost:
        MemberAgent(settings, lambda nonce: ["false"]).run()
    return str(lost.value)


def test_a_token_of_another_job_is_said_to_be_one(tmp_path: Path, fake: FakeCoordinator) -> None:
    """It was told as a coordinator that had not answered, with the reason in brackets."""
    other = tmp_path.with_name(f"{tmp_path.name}-other")
    other.write_text("11" * 16)
    (tmp_path / "token").write_text("00" * 16)
    assert why_not_joined(fake.address, other) == (
        f"{fake.address}: who answers there does not know this job's token: it is another job's coordinator, or "
        "somebody else; give --coordinator and --token-file of one job; the file is `token` in its folder "
        "(asked for 0.01 s)"
    )


def test_a_coordinator_that_is_not_there(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("00" * 16)
    why = why_not_joined("127.0.0.1:1", tmp_path / "token")
    assert why.startswith("no coordinator has answered at 127.0.0.1:1 for 0.01 s (")
    assert why.endswith("): is the job running, and can this machine reach it?")


def member(tmp_path: Path, fake: FakeCoordinator, join_timeout: float = 60.0) -> MemberAgent:
    """The launcher of one worker, whose process ends with status 7."""
    token = tmp_path / "token"
    token.write_text("00" * 16)
    settings = MemberSettings(Role.WORKER, JoinSettings(fake.address, token, "127.0.0.1"), join_timeout=join_timeout)
    return MemberAgent(settings, lambda nonce: ["sh", "-c", "exit 7"])


def test_a_machine_that_has_no_process_for_the_node_is_asked_again(
    tmp_path: Path, fake: FakeCoordinator, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It was told as a bug of the launcher."""
    monkeypatch.setattr(decide, "FIRST_PAUSE", 0.01)
    monkeypatch.setattr(member_agent, "ChildProcess", ScarceProcesses(2))
    assert member(tmp_path, fake).run() == 7
    said = f"elasticrun: the worker could not be started: {os.strerror(errno.EAGAIN)}; tried again"
    assert capsys.readouterr().err.splitlines() == [f"{said} now", f"{said} in 0.01 s"]


def test_a_machine_that_has_no_process_for_long_may_have_one_later(
    tmp_path: Path, fake: FakeCoordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(member_agent, "ChildProcess", ScarceProcesses(99))
    with pytest.raises(NotNow, match=rf"{os.strerror(errno.EAGAIN)} \(tried for 0.5 s\); free memory or processes"):
        member(tmp_path, fake, join_timeout=0.5).run()


def test_a_signal_ends_the_wait_for_a_process(
    tmp_path: Path, fake: FakeCoordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(member_agent, "ChildProcess", ScarceProcesses(99))
    agent = member(tmp_path, fake)
    agent.signalled(signal.SIGTERM)
    assert agent.run() == 128 + signal.SIGTERM


def test_a_process_that_can_never_be_started_is_one_sentence(
    tmp_path: Path, fake: FakeCoordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(member_agent, "ChildProcess", ScarceProcesses(1, errno.E2BIG))
    with pytest.raises(ConfigurationError, match="the worker could not be started: Argument list too long"):
        member(tmp_path, fake).run()


def test_a_node_is_told_its_grace(tmp_path: Path, fake: FakeCoordinator, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two signals are one where they come close together, and a short grace has the second one soon."""
    given: list[Mapping[str, str]] = []

    def started(name: str, command: list[str], environment: Mapping[str, str], *others: Any) -> ChildProcess:
        given.append(environment)
        return ChildProcess(name, command, environment, *others)

    monkeypatch.setattr(member_agent, "ChildProcess", started)
    assert member(tmp_path, fake).run() == 7
    assert [environment[GRACE] for environment in given] == ["30"]


class Followed:
    """A launcher of one node, a puppet, in a thread of its own; its clock for signals stands still."""

    def __init__(self, agent: MemberAgent, worker: Puppet, status: "Future[int]"):
        self.agent, self.worker, self.status = agent, worker, status
        self.now = 0.0


@pytest.fixture
def followed(
    tmp_path: Path, stage: Stage, fake: FakeCoordinator, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Followed]:
    monkeypatch.setattr(member_agent, "SignalCount", lambda: SignalCount(clock=lambda: made.now))
    token = tmp_path / "token"
    token.write_text("00" * 16)
    settings = MemberSettings(Role.WORKER, JoinSettings(fake.address, token, "127.0.0.1"), grace=PATIENCE)
    agent = MemberAgent(settings, lambda nonce: puppet_command(stage.port, nonce))
    with ThreadPoolExecutor(1) as threads:
        status = threads.submit(agent.run)
        made = Followed(agent, stage.enter("worker"), status)
        yield made
        with suppress(OSError):  # it has ended
            made.worker.tell("exit 9")


def test_two_signals_at_once_are_one(followed: Followed) -> None:
    """A session that is lost sends SIGHUP twice: the node was ended before it could hand over what it has."""
    followed.agent.signalled(signal.SIGHUP)
    followed.now = 0.9 * SAME_SECONDS
    followed.agent.signalled(signal.SIGHUP)
    assert followed.worker.heard() == "term"
    followed.worker.tell("exit 0")
    assert followed.status.result(PATIENCE) == 0


def test_a_second_signal_ends_a_node_that_drains(followed: Followed) -> None:
    for _ in range(2):
        followed.agent.signalled(signal.SIGTERM)
        assert followed.worker.heard() == "term"
        followed.now += SAME_SECONDS
    followed.worker.tell("exit 1")
    assert followed.status.result(PATIENCE) == 143
