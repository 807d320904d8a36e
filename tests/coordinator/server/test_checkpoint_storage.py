"""Checkpoints on the disk: whose they are, which one is found, which are dropped."""

import errno
import json
import os
import stat
from pathlib import Path

import pytest

from coordinator.core.batches.async_batches import Batch, Book
from coordinator.core.checkpoints.manifest import CheckpointSearch, Manifest
from coordinator.manifest_json import manifest_from_json, manifest_to_json
from coordinator.server import checkpoint_choice, checkpoint_storage
from elastic_ps.core.checkpoint_names import name_of
from elastic_ps.core.errors import CheckpointError, StorageError
from elastic_ps.system import storage
from elastic_ps.system.storage import MANIFEST
from tests.coordinator.played_job import World

MINE, OTHER = "mine", "other"


def manifest(version: int, book: Book | None = None, identity: str = MINE, written: float = 0.0) -> Manifest:
    job = World(1, 1).state.job
    blocks = {
        block: {"file": "s0.bin", "offset": 2 * block, "value_bytes": 1, "states": [["mom", "int8", 1]]}
        for block in range(len(job.model.blocks))
    }
    return Manifest(
        version, 7, job.model, job.optimizers, job.data, False, job.configuration, book, blocks, identity, written
    )


def save(root: Path, version: int, identity: str = MINE, written: float = 0.0) -> str:
    folder = root / name_of(version, identity)
    folder.mkdir(parents=True)
    (folder / "s0.bin").write_bytes(b"x" * 100)
    assert checkpoint_storage.write(str(folder), manifest(version, None, identity, written)) > 100
    return str(folder)


def nameless(root: Path, version: int) -> str:
    """As a program of before jobs had identities wrote it."""
    folder = root / f"version-{version:010d}"
    folder.mkdir(parents=True)
    (folder / "s0.bin").write_bytes(b"x" * 100)
    value = manifest_to_json(manifest(version))
    for name in ("identity", "written", "applied"):
        del value[name]
    (folder / MANIFEST).write_text(json.dumps(value))
    return str(folder)


def found(**search) -> str:
    return checkpoint_choice.find(CheckpointSearch(MINE, **search))[0]


# ---- whose they are --------------------------------------------------------------------------------------------------


def test_only_its_own_are_found_in_a_folder_that_jobs_share(tmp_path):
    save(tmp_path, 200, OTHER)
    with pytest.raises(CheckpointError, match="no checkpoint of this job under"):
        found(folder=str(tmp_path))
    own = save(tmp_path, 5)
    assert found(folder=str(tmp_path)) == own
    nameless(tmp_path, 300)
    assert found(folder=str(tmp_path)) == own


def test_one_that_another_job_has_put_in_its_place_is_not_loaded(tmp_path):
    older, newer = save(tmp_path, 1), save(tmp_path, 2)
    (Path(newer) / MANIFEST).write_text(json.dumps(manifest_to_json(manifest(2, identity=OTHER))))
    assert found(known=(newer, older)) == older


def test_before_its_own_first_one_a_job_goes_back_to_exactly_what_was_named(tmp_path):
    named = save(tmp_path, 100, OTHER)
    save(tmp_path, 200, OTHER)
    places = {"folder": str(tmp_path), "begun": named, "restore": named}
    assert found(**places) == named
    with pytest.raises(CheckpointError, match="could not be loaded"):
        found(**places, passed=frozenset({named}))
    assert found(**places) == named
    own = save(tmp_path, 101)
    assert found(**places) == own


def test_of_a_folder_that_was_named_the_one_that_was_begun_from_stays(tmp_path):
    begun = save(tmp_path, 100, OTHER, written=5.0)
    save(tmp_path, 101, OTHER, written=6.0)
    assert found(begun=begun, restore=str(tmp_path)) == begun


def test_of_several_jobs_the_last_written_is_the_newest(tmp_path):
    save(tmp_path, 300, OTHER, written=5.0)
    gone_on = save(tmp_path, 150, "third", written=9.0)
    assert found(restore=str(tmp_path)) == gone_on


def test_a_job_that_began_from_an_older_one_of_its_own_does_not_jump_to_what_it_gave_up(tmp_path):
    """Training went wrong after version 100: a person began from that again, under the same identity."""
    oldest, begun = save(tmp_path, 90, written=4.0), save(tmp_path, 100, written=5.0)
    given_up = save(tmp_path, 200, written=6.0)
    places = {"folder": str(tmp_path), "begun": begun, "restore": begun, "since": 7.0}
    assert found(**places) == begun
    assert found(**places, passed=frozenset({begun})) == oldest, "which is of what it began from"
    unjournalled = save(tmp_path, 110, written=8.0)
    assert found(**places) == unjournalled
    assert found(**places, known=(unjournalled,), passed=frozenset({unjournalled})) == begun
    again = str(tmp_path / Path(given_up).name)
    checkpoint_storage.write(again, manifest(200, written=9.0))
    assert found(**places) == again, "the job has come there itself"


def test_a_job_that_began_from_anothers_does_not_take_what_an_earlier_run_of_its_identity_saved(tmp_path):
    save(tmp_path / "own", 200, written=6.0)
    named = save(tmp_path / "other", 100, OTHER, written=5.0)
    assert found(folder=str(tmp_path / "own"), begun=named, restore=named, since=7.0) == named


def test_one_whose_coordinator_died_before_it_could_journal_it_is_the_newest(tmp_path):
    first, second = save(tmp_path, 100, written=5.0), save(tmp_path, 110, written=6.0)
    unjournalled = save(tmp_path, 120, written=7.0)
    places = {"folder": str(tmp_path), "known": (second, first)}
    assert found(**places) == unjournalled
    assert found(**places, passed=frozenset({unjournalled})) == second
    assert found(**places, passed=frozenset({unjournalled, second})) == first
    assert found(folder=str(tmp_path), known=(unjournalled,)) == unjournalled
    assert found(folder=str(tmp_path), known=(unjournalled,), passed=frozenset({unjournalled})) == second


def test_of_what_a_job_remembers_no_manifest_is_read_that_is_not_needed(tmp_path, monkeypatch):
    older, newer = save(tmp_path, 100, written=5.0), save(tmp_path, 110, written=6.0)
    trouble(monkeypatch, "open", OSError(5, "Input/output error"), Path(older).name)
    assert found(folder=str(tmp_path), known=(newer, older)) == newer


def test_of_its_own_the_last_written_is_the_newest_where_nobody_knows_when_the_job_began(tmp_path):
    save(tmp_path, 200, written=6.0)
    gone_on = save(tmp_path, 110, written=8.0)
    assert found(folder=str(tmp_path), begun=save(tmp_path, 100, written=5.0)) == gone_on


def test_one_of_before_jobs_had_identities_is_taken_where_it_is_named(tmp_path):
    nameless(tmp_path, 1)
    newest = nameless(tmp_path, 2)
    assert found(restore=str(tmp_path)) == newest
    assert found(restore=newest) == newest
    assert found(known=(newest,)) == newest, "a journal of that time names it"


def test_only_its_own_last_three_are_kept(tmp_path):
    others = {Path(save(tmp_path, version, OTHER)).name for version in (1, 2)} | {Path(nameless(tmp_path, 3)).name}
    for version in range(4, 9):
        save(tmp_path, version)
    own = {name_of(version, MINE) for version in (6, 7, 8)}
    assert {path.name for path in tmp_path.iterdir()} == own | others


# ---- which are whole -------------------------------------------------------------------------------------------------


def test_a_manifest_comes_back(tmp_path):
    url = save(tmp_path, 5)
    saved = checkpoint_choice.find(CheckpointSearch(MINE, folder=str(tmp_path)))[1]
    assert (saved.version, saved.seed, saved.model) == (5, 7, World(1, 1).state.job.model)
    assert found(restore=url) == url, "a checkpoint's own folder is taken as it is"


def test_a_manifest_holds_the_book_of_batches():
    book = Book(2, 5, (Batch(3, "w0", 4),), ahead=((3, Batch(0, "w1", 2)),))
    assert manifest_from_json(json.loads(json.dumps(manifest_to_json(manifest(5, book))))).book == book
    assert manifest_from_json(manifest_to_json(manifest(5))).book is None


@pytest.mark.parametrize("place", ["folder", "restore"])
@pytest.mark.parametrize(
    "harm", ["no manifest", "half a manifest", "no manifest of ours", "no data", "data cut off", "a block less"]
)
def test_a_torn_one_is_skipped_with_a_warning(tmp_path, caplog, harm, place):
    older = save(tmp_path, 1)
    folder = Path(save(tmp_path, 2))
    path = folder / MANIFEST
    if harm == "no manifest":
        path.unlink()
    elif harm == "half a manifest":
        path.write_bytes(path.read_bytes()[:200])
    elif harm == "no manifest of ours":
        path.write_text('{"format": 3, "blocks": []}')
    elif harm == "no data":
        (folder / "s0.bin").unlink()
    elif harm == "data cut off":
        (folder / "s0.bin").write_bytes(b"x" * (2 * len(manifest(1).blocks) - 1))
    else:
        value = json.loads(path.read_text())
        del value["blocks"]["3"]
        path.write_text(json.dumps(value))
    assert found(**{place: str(tmp_path)}) == older
    assert f"{folder.name} holds no complete checkpoint" in caplog.text


def test_what_servers_could_not_load_is_passed_over_in_every_folder(tmp_path):
    first, begun_from = tmp_path / "own", tmp_path / "begun"
    older, newer = save(first, 1), save(first, 2)
    other = save(begun_from, 9, OTHER)
    places = {"folder": str(first), "restore": str(begun_from)}
    assert found(**places) == newer
    assert found(**places, known=(older,)) == older, "nobody knows when the other one was written"
    assert found(**places, passed=frozenset({newer})) == older
    assert found(**places, passed=frozenset({newer, older})) == other
    with pytest.raises(CheckpointError, match=r"version-0000000002-mine could not .*version-0000000009-other could"):
        found(**places, passed=frozenset({newer, older, other}))


def test_no_checkpoint_is_an_error_that_says_where(tmp_path, caplog):
    with pytest.raises(CheckpointError, match="no checkpoint of this job under"):
        found(folder=str(tmp_path))
    with caplog.at_level("WARNING"), pytest.raises(CheckpointError, match="no checkpoint of this job under"):
        found(folder=str(tmp_path / "absent"))
    assert not caplog.records, "where none has been written, nothing is wrong"


# ---- a storage in trouble --------------------------------------------------------------------------------------------


class ForeignError(Exception):
    """As boto's are: no OSError."""


def trouble(monkeypatch, name: str, error: Exception, where: str) -> list[str]:
    """`LocalFileSystem.name` fails at paths that hold `where`; those at which it did."""
    system = storage.LocalFileSystem
    usual, failed = getattr(system, name), []

    def acts(self, path, *arguments, **named):
        if where in str(path):
            failed.append(str(path))
            raise error
        return usual(self, path, *arguments, **named)

    monkeypatch.setattr(system, name, acts)
    return failed


@pytest.mark.parametrize("error", [OSError("503 Slow Down"), ForeignError("503 Slow Down")])
def test_a_listing_that_fails_is_no_absence_of_checkpoints(tmp_path, monkeypatch, error):
    own, named = save(tmp_path / "own", 3), save(tmp_path / "named", 1, OTHER)
    failed = trouble(monkeypatch, "ls", error, "own")
    for patient in (True, False):
        with pytest.raises(StorageError, match="503 Slow Down"):
            checkpoint_choice.find(CheckpointSearch(MINE, folder=str(Path(own).parent), restore=named), patient)
    assert len(failed) == 2


def test_a_manifest_that_cannot_be_read_now_is_passed_over_at_the_last_try_only(tmp_path, monkeypatch):
    older, newer = save(tmp_path, 1), save(tmp_path, 2)
    failed = trouble(monkeypatch, "open", OSError(5, "Input/output error"), Path(newer).name)
    search = CheckpointSearch(MINE, folder=str(tmp_path))
    with pytest.raises(StorageError, match="Input/output error"):
        checkpoint_choice.find(search)
    assert checkpoint_choice.find(search, patient=False)[0] == older
    assert len(failed) == 2


def test_what_cannot_be_synced_is_not_published_and_older_ones_stay(tmp_path, monkeypatch):
    older = [save(tmp_path, version) for version in (1, 2, 3)]
    usual, failed = os.fsync, []

    def fsync(descriptor):
        if "version-0000000004" in os.readlink(f"/proc/self/fd/{descriptor}"):
            failed.append(descriptor)
            raise OSError(28, "No space left on device")
        usual(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    with pytest.raises(CheckpointError, match=r"cannot write the manifest of .*No space left on device"):
        save(tmp_path, 4)
    assert failed
    assert found(folder=str(tmp_path)) == older[-1]
    assert {str(path) for path in tmp_path.iterdir()} >= set(older), "nothing older goes before the new one is durable"
    rest = tmp_path / name_of(4, MINE)
    checkpoint_storage.discard(str(rest))
    assert not rest.exists()
    checkpoint_storage.discard(older[-1])
    assert found(folder=str(tmp_path)) == older[-1], "a whole one is never discarded"


def test_of_a_file_that_is_on_another_machine_the_node_is_named(tmp_path):
    """The manifest was said to be in no folder, which sent people to the coordinator's disk."""
    with pytest.raises(CheckpointError) as told:
        checkpoint_storage.write(str(tmp_path / "version-1"), manifest(1))
    words = "s0 says that it wrote s0.bin, which is not here: give a folder that all machines share"
    assert str(told.value) == words


def test_a_manifest_and_its_folders_are_synced_before_older_ones_go(tmp_path, monkeypatch):
    for version in (1, 2, 3):
        save(tmp_path / "a" / "b", version)
    done: list[str] = []
    usual = os.fsync

    def fsync(descriptor):
        done.append(os.path.relpath(os.readlink(f"/proc/self/fd/{descriptor}"), tmp_path))
        usual(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    remove = storage.remove
    monkeypatch.setattr(storage, "remove", lambda url: done.append(f"removes {Path(url).name}") or remove(url))
    folder = f"a/b/{name_of(4, MINE)}"
    save(tmp_path / "a" / "b", 4)
    assert done[0] == f"{folder}/{MANIFEST}.part"
    assert done[-2:] == [folder, f"removes {name_of(1, MINE)}"]


@pytest.mark.parametrize(("number", "saves"), [(errno.EINVAL, True), (errno.ENOTSUP, True), (errno.EIO, False)])
def test_a_file_system_that_syncs_no_folders_has_checkpoints(tmp_path, monkeypatch, number, saves):
    """Each was refused there; an error of the disk is one."""
    usual = os.fsync

    def fsync(descriptor):
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise OSError(number, os.strerror(number))
        usual(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    if saves:
        saved = save(tmp_path, 1)
        assert found(folder=str(tmp_path)) == saved
    else:
        with pytest.raises(CheckpointError, match="Input/output error"):
            save(tmp_path, 1)


def test_new_folders_are_synced_up_to_one_that_was_there(tmp_path, monkeypatch):
    done: list[str] = []
    monkeypatch.setattr(os, "fsync", lambda descriptor: done.append(os.readlink(f"/proc/self/fd/{descriptor}")))
    storage.make_folder(str(tmp_path / "a" / "b"))
    assert set(done) == {str(tmp_path), str(tmp_path / "a")}


def test_a_storage_that_is_away_keeps_nobody_from_what_lies_elsewhere(tmp_path, monkeypatch):
    """Of three that the job remembers the second lies where nothing can be read now; a fourth is not remembered."""
    own, elsewhere = tmp_path / "own", tmp_path / "elsewhere"
    oldest, _, newest = (save(own, version, written=float(version)) for version in (1, 3, 4))
    away = save(elsewhere, 2, written=2.0)
    read = checkpoint_choice.read_manifest

    def reading(url):
        if url == away:
            raise StorageError(f"cannot read {url}")
        return read(url)

    monkeypatch.setattr(checkpoint_choice, "read_manifest", reading)
    assert found(folder=str(own), known=(newest, away, oldest)) == newest
