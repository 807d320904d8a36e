"""Two jobs that run do not save under one identity into one folder."""

import os
from pathlib import Path

import pytest

from elastic_ps.core.errors import ConfigurationError
from elastic_ps.launch import checkpoint_lock
from elastic_ps.launch.checkpoint_lock import sole_saver


def test_a_second_job_of_the_same_identity_is_refused_while_the_first_runs(tmp_path: Path) -> None:
    folder = str(tmp_path)
    with sole_saver(folder, "run-1"):
        with (
            pytest.raises(ConfigurationError, match=rf"--identity run-1: .* \(process {os.getpid()} of .*End it first"),
            sole_saver(f"file://{folder}/", "run-1"),
        ):
            pass
        with sole_saver(folder, "run-2"):
            pass
    with sole_saver(folder, "run-1"):
        pass


@pytest.mark.parametrize(("checkpoint", "identity"), [("", "run-1"), ("memory://c", "run-1"), ("{here}", "")])
def test_who_cannot_be_told_apart_or_needs_no_lock_has_none(tmp_path: Path, checkpoint: str, identity: str) -> None:
    for_both = checkpoint.format(here=tmp_path), identity
    with sole_saver(*for_both), sole_saver(*for_both):
        assert not list(tmp_path.iterdir())


def test_a_full_disk_keeps_no_job_from_its_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """That nobody can read who holds it is no reason to end; `elasticrun` ended with status 1."""

    def full(_lock: int, _text: bytes) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "write", full)
    with (
        sole_saver(str(tmp_path), "run-1"),
        pytest.raises(ConfigurationError, match=r"\(another process\)"),
        sole_saver(str(tmp_path), "run-1"),
    ):
        pass


def test_where_the_file_system_has_no_locks_the_job_runs_and_people_are_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(_file: Path) -> int | None:
        raise OSError(37, "No locks available")

    monkeypatch.setattr(checkpoint_lock, "try_lock", refuse)
    with sole_saver(str(tmp_path), "run-1"):
        pass
    assert "No locks available): see that no other job saves as run-1 there" in capsys.readouterr().err
