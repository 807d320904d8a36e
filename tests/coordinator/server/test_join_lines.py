"""The lines that a person runs on other machines, where no launcher starts the nodes of a job."""

import shlex

import pytest
from typer.testing import CliRunner

from coordinator.core import events as ev
from coordinator.server.addresses import join_options
from elastic_ps.core.configuration import Role
from elastic_ps.core.job_mode import JobMode
from elastic_ps.launch import cli
from tests.coordinator.played_job import World


@pytest.fixture
def taken(tmp_path, monkeypatch):
    """What `elasticrun --role` would have run, with what is asked of a machine and its folders."""
    (tmp_path / "job {1}").mkdir()
    (tmp_path / "job {1}" / "token").write_text("00" * 16)
    (tmp_path / "train.py").touch()
    monkeypatch.chdir(tmp_path)
    found = []
    monkeypatch.setattr(cli, "run_member", lambda settings, _: found.append(settings) or 0)
    return found


@pytest.mark.parametrize(
    ("goal", "mode"), [((2, 2), JobMode.PARAMETER_SERVERS), ((3,), JobMode.ALL_REDUCE)], ids=["servers", "all-reduce"]
)
def test_elasticrun_takes_them(taken, tmp_path, monkeypatch, goal, mode):
    """Typed as shown they had no script and no mode, and told the job 127.0.0.1."""
    world = World(1, len(goal) - 1, join_options=join_options("10.0.0.5", "127.0.0.1:7000", "job {1}/token"))
    lines = world.ask(ev.ScaleAsked, *goal).lines
    monkeypatch.chdir("/")
    for line in lines:
        filled = line.replace("THIS_MACHINES_ADDRESS", "127.0.0.2").replace("SCRIPT", str(tmp_path / "train.py"))
        program, *words = shlex.split(filled)
        result = CliRunner().invoke(cli.app, words)
        assert (program, result.exit_code, result.output) == ("elasticrun", 0, "")
    expected = [Role.SERVER, Role.WORKER] if goal[1:] else [Role.WORKER] * 2
    assert sorted(settings.role for settings in taken) == expected
    assert {settings.join.mode for settings in taken} == {mode}
    assert {(settings.join.coordinator, settings.join.host) for settings in taken} == {("127.0.0.1:7000", "127.0.0.2")}


@pytest.mark.parametrize("host", ["127.0.0.1", "[::1]", "localhost"])
def test_a_job_of_one_machine_needs_no_address(host):
    assert "--host" not in join_options(host, f"{host}:7000", "token")
