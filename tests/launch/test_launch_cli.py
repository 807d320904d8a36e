"""The command line of `elasticrun`."""

import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from elastic_ps.core.configuration import Role
from elastic_ps.core.errors import ConfigurationError
from elastic_ps.launch import cli
from elastic_ps.launch.agent import Outcome
from elastic_ps.launch.commands import JobCommands, JobSettings, Place, Script
from elastic_ps.launch.member import MemberSettings


@pytest.fixture(autouse=True)
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("train.py").touch()
    Path("token").write_text("00" * 16)


@pytest.fixture
def jobs(monkeypatch: pytest.MonkeyPatch) -> list[tuple[JobSettings, JobCommands]]:
    """Jobs that would have been run."""
    taken: list[tuple[JobSettings, JobCommands]] = []

    def run_job(settings: JobSettings, commands: JobCommands, *_: Any) -> Outcome:
        taken.append((settings, commands))
        return Outcome(3, "failed")

    monkeypatch.setattr(cli, "run_job", run_job)
    return taken


def invoke(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(cli.app, arguments)
    return result.exit_code, result.output


def test_a_job_with_the_scripts_own_options(jobs: list[tuple[JobSettings, JobCommands]]) -> None:
    line = "--workers 4 --servers 3 --name toy --seed 7 --grace 5 train.py --workers 9 -m -- x --help"
    assert invoke(*line.split()) == (3, "")
    ((settings, _),) = jobs
    assert settings == JobSettings(
        name="toy",
        script=Script("train.py", ("--workers", "9", "-m", "--", "x", "--help")),
        workers=4,
        servers=3,
        grace=5.0,
        coordinator_options=("--seed", "7", "--join-timeout", "60.0"),
    )


def test_a_module(jobs: list[tuple[JobSettings, JobCommands]]) -> None:
    assert invoke("-m", "pkg.train", "--epochs", "3")[0] == 3
    ((settings, commands),) = jobs
    assert settings.name.startswith("pkg-")
    place = Place("h:1", Path("token"), "h")
    assert commands.node(Role.WORKER, place, "n") == [sys.executable, "-m", "pkg.train", "--epochs", "3"]


def test_the_command_lines_of_coordinator_and_servers(jobs: list[tuple[JobSettings, JobCommands]]) -> None:
    options = "--checkpoint-interval 30 --restore c/9 --migration pause --block-bytes 128 --optimizer-module rules"
    assert invoke("--name", "toy", *options.split(), "train.py")[0] == 3
    ((_, commands),) = jobs
    given = commands.coordinator(Path("/jobs/toy"), Path("/jobs/toy/token"), 0)
    assert given == [
        *(sys.executable, "-m", "coordinator", "--job", "toy", "--folder", "/jobs/toy"),
        *("--token-file", "/jobs/toy/token", "--host", "127.0.0.1", "--port", "0", "--workers", "1", "--servers", "1"),
        *("--checkpoint", "/jobs/toy/checkpoints", "--block-bytes", "128", "--migration", "pause"),
        *("--checkpoint-interval", "30.0", "--restore", "c/9", "--join-timeout", "60.0"),
    ]
    place = Place("h:1", Path("token"), "h")
    assert commands.node(Role.SERVER, place, "n") == [
        *(sys.executable, "-m", "elastic_ps.server", "--coordinator", "h:1", "--token-file", "token", "--host", "h"),
        *("--nonce", "n", "--optimizer-module", "rules"),
    ]


def test_a_member(monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[MemberSettings] = []

    def run_member(settings: MemberSettings, command: Any) -> int:
        taken.append(settings)
        assert command("n")[1:] == ["train.py", "--lr", "1"]
        return 143

    monkeypatch.setattr(cli, "run_member", run_member)
    where = "--coordinator 10.0.0.1:7000 --token-file token --host 10.0.0.2"
    assert invoke("--role", "worker", *where.split(), "train.py", "--lr", "1") == (143, "")
    assert taken == [MemberSettings(Role.WORKER, Place("10.0.0.1:7000", Path("token"), "10.0.0.2"))]


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("", "name the training script"),
        ("nope.py", "no script 'nope.py' here"),
        ("pkg.train", "a module is run with -m"),
        ("--workers 0 train.py", "--workers"),
        ("--servers 0 train.py", "--servers"),
        ("--workers 100000000000000 train.py", "'--workers': Input should be less than or equal to 65535"),
        (
            "--seed 99999999999999999999999 train.py",
            "'--seed': Input should be less than or equal to 18446744073709551615",
        ),
        ("--block-bytes 64000000000000000000000000 train.py", "--block-bytes"),
        ("--max-restarts -1 train.py", "--max-restarts"),
        ("--block-bytes 100 train.py", "--block-bytes 100: must be a multiple of 64"),
        ("--migration never train.py", "--migration"),
        ("--checkpoint-interval 0 train.py", "--checkpoint-interval"),
        ("--name a/b train.py", "--name 'a/b'"),
        ("--coordinator h:1 train.py", "--coordinator is for one node"),
        ("--role worker --coordinator h:1 --token-file token --workers 2 train.py", "--workers is for a whole job"),
        ("--role worker --token-file token train.py", "--role needs --coordinator"),
        ("--role worker --coordinator h:1 train.py", "--role needs --token-file"),
        ("--role worker --coordinator h:1 --token-file token", "name the training script"),
        ("--role worker --coordinator h --token-file token train.py", "give HOST:PORT"),
        ("--role server --coordinator h:1 --token-file token train.py", "a server runs no script"),
        ("--role cook --coordinator h:1 --token-file token", "--role"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_starts(
    line: str, problem: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    status, output = invoke(*line.split())
    assert (status, problem in output) == (2, True), output
    assert not (tmp_path / "state").exists()


def test_a_member_without_a_token_file(monkeypatch: pytest.MonkeyPatch) -> None:
    status, output = invoke("--role", "server", "--coordinator", "127.0.0.1:1", "--token-file", "missing")
    assert status == 1
    assert "cannot read the job token from missing" in output


def test_a_name_that_runs_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def run_job(*_: Any) -> Outcome:
        raise ConfigurationError("a job named toy runs already")

    monkeypatch.setattr(cli, "run_job", run_job)
    assert invoke("--name", "toy", "train.py") == (2, "elasticrun: a job named toy runs already\n")
