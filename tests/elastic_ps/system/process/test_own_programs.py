"""Programs of ours that are started in folders of others."""

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from elastic_ps.system.process.own_programs import own_program
from tests.paths import ROOT

PROGRAMS = ["coordinator", "elastic_ps.server", "elastic_ps.launch"]


@pytest.mark.slow
@pytest.mark.parametrize("module", PROGRAMS)
def test_what_lies_in_the_folder_is_not_imported_in_the_place_of_ours(
    module: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A user's coordinator.py was run in the place of ours."""
    for name in ("coordinator", "elastic_ps", "protos"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit(7)")
    monkeypatch.chdir(tmp_path)
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([*own_program(module), "--help"], env=environment, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr


def test_our_own_sources_are_found_where_they_are() -> None:
    """They may be installed nowhere."""
    for module in PROGRAMS:
        assert own_program(module, ROOT) == [sys.executable, "-m", module]


def test_a_folder_that_is_gone_is_not_that_of_our_sources(monkeypatch: pytest.MonkeyPatch) -> None:
    """A launcher whose folder was deleted on a server (NFS) could start no coordinator again: its job failed."""

    def stale(*_paths: object) -> bool:
        raise OSError(errno.ESTALE, "Stale file handle")

    monkeypatch.setattr(os.path, "samefile", stale)
    assert own_program("coordinator") == [sys.executable, "-P", "-m", "coordinator"]
    with pytest.raises(OSError, match="Stale file handle"):
        own_program("elastic_ps.launch", ROOT)


@pytest.mark.slow
def test_a_program_starts_in_a_folder_that_is_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "gone"
    folder.mkdir()
    monkeypatch.chdir(folder)
    folder.rmdir()
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    for module in ("coordinator", "elastic_ps.server"):
        done = subprocess.run([*own_program(module), "--help"], env=environment, capture_output=True, check=False)
        assert done.returncode == 0, done.stderr
