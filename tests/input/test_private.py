"""What `dl2 serve` keeps is its user's alone."""

import os
import stat
from pathlib import Path

import pytest
from typer.testing import CliRunner

from dl2_scheduler.backends.local.job_records import JobRecords
from dl2_scheduler.cli import app
from dl2_scheduler.cluster.errors import BadInput
from dl2_scheduler.commands.cluster.serving.foreground import held
from dl2_scheduler.forecasts.records import FORECASTS_FILE
from dl2_scheduler.learning.live.refit_program import FIRST_FOLDER, STATE_FILE
from dl2_scheduler.live.exploration.explorer import EXPLORATION_FILE
from dl2_scheduler.live.history import History
from dl2_scheduler.live.service import ClusterService, serving
from elastic_ps.core.errors import ConfigurationError
from elastic_ps.system.private_files import private_file, private_files, private_folder


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.fixture(autouse=True)
def wide_open() -> None:
    """As where the umask is 0."""
    before = os.umask(0)
    yield
    os.umask(before)


def test_a_folder_of_ones_own_is_closed_to_others(tmp_path: Path) -> None:
    folder = tmp_path / "cluster"
    folder.mkdir(mode=0o755)
    (folder / "jobs.sqlite").touch(mode=0o644)
    (folder / "jobs.sqlite-wal").touch(mode=0o644)
    with held(folder, private=True):
        assert [mode(path) for path in (folder, *sorted(folder.iterdir()))] == [0o700, 0o600, 0o600, 0o600]


def test_all_that_programs_beside_the_scheduler_write_is_ours(tmp_path: Path) -> None:
    folder = tmp_path / "cluster"
    folder.mkdir(mode=0o755)
    for name in (FORECASTS_FILE, EXPLORATION_FILE, STATE_FILE, "federation-id"):
        (folder / name).touch()
    (folder / FIRST_FOLDER).mkdir()
    with held(folder, private=True):
        assert mode(folder) == 0o700


def test_a_folder_with_other_things_keeps_its_mode(tmp_path: Path) -> None:
    folder = tmp_path / "home"
    folder.mkdir(mode=0o755)
    (folder / "thesis.tex").touch()
    result = CliRunner().invoke(app, ["serve", "--slots", "1x1", "--folder", str(folder), "--isolation", "none"])
    assert result.exit_code == 2
    assert "can be read by others, and holds more than is ours (thesis.tex)" in result.output
    assert (mode(folder), [path.name for path in folder.iterdir()]) == (0o755, ["thesis.tex"])


def test_a_folder_of_another_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 4321)
    with pytest.raises(ConfigurationError, match="another user's"):
        private_folder(tmp_path, ())


def test_an_empty_path_is_no_folder() -> None:
    for line in ("serve --slots 1x1", "jobs", "stop a", "policy", "policy use drf", "fit --out x"):
        result = CliRunner().invoke(app, [*line.split(), "--folder", ""])
        assert (result.exit_code, "an empty path" in result.output) == (2, True), result.output


def test_the_socket_is_its_users_alone(tmp_path: Path) -> None:
    with serving(ClusterService(None, None, None), tmp_path):  # type: ignore[arg-type]  # nobody asks
        assert mode(tmp_path / "socket") == 0o600


def test_databases_are_their_users_alone(tmp_path: Path) -> None:
    with private_files() as before:
        JobRecords(tmp_path / "jobs.sqlite", 0.0).close()
        History(tmp_path / "decisions.sqlite").close()
        (tmp_path / "policy.json").touch()
    assert (before, {mode(path) for path in tmp_path.iterdir()}) == (0, {0o600})
    private_file(tmp_path / "new")
    assert mode(tmp_path / "new") == 0o600


def test_an_emptied_database_orphans_nobody(tmp_path: Path) -> None:
    (tmp_path / "jobs.sqlite").touch()
    JobRecords(tmp_path / "jobs.sqlite", 1.0).close()  # no job is lost
    (tmp_path / "jobs.sqlite").unlink()
    (tmp_path / "jobs.sqlite").touch()
    job = tmp_path / "elastic_ps" / "jobs" / "digits"
    job.mkdir(parents=True)
    (job / "job.json").write_text('{"name": "digits", "coordinator": "127.0.0.1:1", "ended": null}')
    with pytest.raises(BadInput, match="is empty, and no longer knows the jobs digits"):
        JobRecords(tmp_path / "jobs.sqlite", 1.0)
    assert not (tmp_path / "jobs.sqlite").stat().st_size
