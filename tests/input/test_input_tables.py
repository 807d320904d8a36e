"""Texts of others in every table of `elasticctl` and of `dl2`: nothing in them acts on the terminal."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message
from typer.testing import CliRunner

from coordinator.ctl import render
from coordinator.ctl.job_folders import LocalJob
from dl2_scheduler import cli
from dl2_scheduler.commands.cluster import kube_target
from elastic_ps.system.terminal import Terminal
from protos import cluster_pb2 as cluster
from protos import elastic_pb2 as pb

EVIL = "a\x1b]0;x\x07\x9b2J\u202eb"
ACTING = {"\x1b", "\x07", "\x9b", "\u202e"}


def filled(message: Any, depth: int = 3) -> Any:
    """A message with such a text in each of its texts, one of each repeated."""
    for field in message.DESCRIPTOR.fields:
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            of_key, of_value = field.message_type.fields
            if of_key.type == FieldDescriptor.TYPE_STRING:
                value = {FieldDescriptor.TYPE_STRING: EVIL}.get(of_value.type, 1)
                getattr(message, field.name)[EVIL] = value
        elif field.message_type is not None:
            if depth:
                below = getattr(message, field.name)
                filled(below.add() if field.is_repeated else below, depth - 1)
        elif field.type == FieldDescriptor.TYPE_STRING:
            if field.is_repeated:
                getattr(message, field.name).append(EVIL)
            else:
                setattr(message, field.name, EVIL)
    return message


def committed(plan: Any) -> Any:
    plan.phase = "COMMITTED"
    return plan


VIEWS: dict[str, Callable[[], Any]] = {
    "job_table": lambda: render.job_table([(LocalJob(EVIL, EVIL, Path("x")), EVIL, filled(pb.StatusReply()))]),
    "status_view": lambda: render.status_view(filled(pb.StatusReply())),
    "progress_line": lambda: render.progress_line(filled(pb.StatusReply())),
    "plan_line": lambda: render.plan_line(filled(pb.Plan())),
    "plan_table": lambda: render.plan_table([filled(pb.Plan())]),
    "plan_result": lambda: render.plan_result(committed(filled(pb.Plan()))),
    "dry_run": lambda: render.dry_run(filled(pb.ScaleReply())),
    "accepted": lambda: render.accepted(filled(pb.ScaleReply(plan=1, joining_workers=1))),
    "launch_lines": lambda: render.launch_lines([EVIL]),
    "checkpoint_line": lambda: render.checkpoint_line(filled(pb.CheckpointReply()), pb.DataSpec()),
}


@pytest.mark.parametrize("name", VIEWS)
def test_of_elasticctl(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    Terminal().print(VIEWS[name]())
    Terminal(stderr=True).print(VIEWS[name](), soft_wrap=True)
    said = "".join(capsys.readouterr())
    assert said.strip()
    assert not ACTING & set(said), said


class Told:
    """Answers every question with such texts."""

    def __enter__(self) -> "Told":
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def jobs(self) -> list[Message]:
        return [filled(cluster.JobStatus())]

    def status(self, job: str) -> Message:
        return filled(cluster.JobStatus())

    def why(self, job: str, last: int) -> list[Message]:
        return [filled(cluster.Decision())]

    def top(self) -> Message:
        return filled(cluster.TopReply())

    def policies(self) -> Message:
        return filled(cluster.PoliciesReply())


@pytest.mark.parametrize("line", ["jobs", "status a", "why a --shadow", "top", "policy"])
def test_of_dl2(line: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kube_target.Where, "client", lambda _: Told())
    monkeypatch.setattr("dl2_scheduler.commands.cluster.policy.client_of", lambda _: Told())
    for form in ([], ["--json"]):
        result = CliRunner().invoke(cli.app, [*line.split(), *form])
        assert result.exit_code == 0, result.output
        assert "\\x1b" in result.output or "\\u001b" in result.output
        assert not ACTING & set(result.output), result.output
