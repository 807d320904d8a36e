"""A job's folder."""

import errno
import json
import os
import shutil
import socket
import stat
from pathlib import Path

import pytest

from elastic_ps.control.token import read_token
from elastic_ps.core.errors import ConfigurationError, NotNow
from elastic_ps.launch.job_folder import JobFolder, default_name
from elastic_ps.system.process.proc_stat import birth_of
from elastic_ps.system.state_folder import jobs_folder


def test_jobs_are_in_the_users_state_folder() -> None:
    assert jobs_folder({"XDG_STATE_HOME": "/state"}) == Path("/state/elastic_ps/jobs")
    assert jobs_folder({}) == Path("~/.local/state/elastic_ps/jobs").expanduser()


def test_the_token_is_new_and_its_owners_alone(tmp_path: Path) -> None:
    one, two = JobFolder("one", tmp_path), JobFolder("two", tmp_path)
    assert stat.S_IMODE(one.token_file.stat().st_mode) == 0o600
    assert read_token(one.token_file) != read_token(two.token_file)


def test_a_running_name_is_refused(tmp_path: Path) -> None:
    folder = JobFolder("toy", tmp_path)
    with pytest.raises(ConfigurationError, match=r"toy runs already .* another --name.*elasticctl stop toy"):
        JobFolder("toy", tmp_path)
    assert read_token(folder.token_file)


def test_the_folder_of_an_ended_job_is_kept_beside_the_new_one(tmp_path: Path) -> None:
    for number in range(3):
        folder = JobFolder("toy", tmp_path)
        folder.listening(f"127.0.0.1:{number + 1}", 7)
        folder.over(0, "finished")
        folder.ended()
        folder.release()
    names = {path.parent.name: json.loads(path.read_text()) for path in tmp_path.glob("*/job.json")}
    assert {name: record["coordinator"] for name, record in names.items()} == {
        "toy": "127.0.0.1:3",
        "toy~1": "127.0.0.1:1",
        "toy~2": "127.0.0.1:2",
    }
    assert all(record["name"] == name for name, record in names.items())
    assert names["toy~1"]["folder"] == str(tmp_path / "toy~1")


def test_a_checkpoint_in_the_folder_of_the_job_before_is_found_where_that_is_now(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`elasticrun --name toy --restore` with what a job named toy has saved found no checkpoint: it had just moved."""
    first = JobFolder("toy", tmp_path)
    saved = str(first.path / "checkpoints")
    assert first.moved(saved) == saved
    first.release()
    again, there = JobFolder("toy", tmp_path), str(tmp_path / "toy~1" / "checkpoints")
    monkeypatch.chdir(tmp_path)
    assert [again.moved(url) for url in (saved, f"file://{saved}", "toy/checkpoints")] == [there] * 3
    others = ["", str(tmp_path / "toys"), "memory://toy/checkpoints", str(tmp_path)]
    assert [again.moved(url) for url in others] == others


def test_a_folder_that_moves_aside_is_later_than_those_before_though_some_were_deleted(tmp_path: Path) -> None:
    for _ in range(4):
        JobFolder("toy", tmp_path).release()
    shutil.rmtree(tmp_path / "toy~1")
    shutil.rmtree(tmp_path / "toy~2")
    again = JobFolder("toy", tmp_path, identity="toy-7")
    assert {path.name for path in tmp_path.iterdir()} == {"toy", "toy~3", "toy~4"}
    again.listening("127.0.0.1:1", 7)
    assert json.loads((again.path / "job.json").read_text())["identity"] == "toy-7"
    again.release()


def test_a_folder_without_a_record_is_kept_too(tmp_path: Path) -> None:
    JobFolder("toy", tmp_path).release()
    JobFolder("toy", tmp_path).release()
    assert (tmp_path / "toy~1" / "token").exists()


@pytest.mark.parametrize("name", ["", "a/b", "../x", ".hidden", "a" * 64, "toy~1", "a b"])
def test_what_is_no_name(name: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="--name"):
        JobFolder(name, tmp_path / "jobs")
    assert not (tmp_path / "jobs").exists()


@pytest.mark.parametrize(
    "script", ["train.py", "dir/train.py", "my train!.py", "---.py", "x" * 90 + ".py", "pkg.train"]
)
def test_a_default_name_is_a_name(script: str, tmp_path: Path) -> None:
    name = default_name(script)
    JobFolder(name, tmp_path).release()
    assert name != default_name(script)


def test_no_later_process_can_be_taken_for_those_of_the_record(tmp_path: Path) -> None:
    folder = JobFolder("toy", tmp_path)
    other = 1  # a parent may have been started in the same tick of the clock
    folder.listening("127.0.0.1:1", other)
    record = json.loads((folder.path / "job.json").read_text())
    births = birth_of(os.getpid()), birth_of(other)
    assert (record["birth"], record["coordinator_birth"]) == births
    assert record["host"] == socket.gethostname()
    assert None not in births
    assert births[0] != births[1]
    folder.release()


def test_the_end_is_written_where_the_disk_is_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = JobFolder("toy", tmp_path)
    folder.listening("127.0.0.1:1", 7)

    def full(path: Path, text: str) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "write_text", full)
    size = (folder.path / "job.json").stat().st_size
    folder.over(1, "the coordinator ended")
    folder.ended()
    record = json.loads((folder.path / "job.json").read_text())
    assert (record["status"], record["reason"], record["ended"] > 0) == (1, "the coordinator ended", True)
    assert (folder.path / "job.json").stat().st_size == size
    folder.release()


def test_an_end_that_cannot_be_written_keeps_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(path: Path, text: str) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    folder = JobFolder("toy", tmp_path)
    monkeypatch.setattr(Path, "write_text", full)
    folder.over(1, "before it listened")
    assert not (folder.path / "job.json").exists()
    folder.release()


def test_a_disk_that_is_full_as_the_folder_is_made_leaves_nothing_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each further try moved the half of a folder of the one before aside."""

    def full(folder: JobFolder) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(JobFolder, "_write_token", full)
        for _ in range(2):
            with pytest.raises(NotNow, match=r"toy cannot be made: No space left on device; have XDG_STATE_HOME name"):
                JobFolder("toy", tmp_path)
    assert list(tmp_path.iterdir()) == []
    JobFolder("toy", tmp_path).release()


def test_a_state_folder_that_is_a_file_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "state").write_text("no folder")
    root = jobs_folder({"XDG_STATE_HOME": str(tmp_path / "state")})
    with pytest.raises(ConfigurationError, match=r"toy cannot be made: Not a directory; have XDG_STATE_HOME name a"):
        JobFolder("toy", root)


@pytest.mark.parametrize("what", ["mkdir", "open"])
def test_a_state_folder_that_cannot_be_written_is_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    def refuse(*arguments: object, **options: object) -> int:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(os, what, refuse)
    with pytest.raises(ConfigurationError, match=r"toy cannot be made: Permission denied; have XDG_STATE_HOME name a"):
        JobFolder("toy", tmp_path / "jobs")
