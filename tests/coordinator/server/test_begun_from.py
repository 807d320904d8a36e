"""What a coordinator begins from: the journal, what --restore names, its own checkpoints, or nothing."""

import time
from contextlib import closing
from dataclasses import replace

import pytest

from coordinator import __main__ as program
from coordinator.core.checkpoints.search_requests import search_of
from coordinator.options import parser
from coordinator.server import checkpoint_choice
from coordinator.server.journal import Journal
from elastic_ps.core.errors import CheckpointError, StorageError
from elastic_ps.system import storage
from tests.coordinator.played_job import World
from tests.coordinator.server.test_checkpoint_storage import OTHER, found, save, trouble


@pytest.fixture
def begin(tmp_path):
    """Begins a job with more options, in a folder for its journal; its state."""
    journals = []

    def begins(*more, folder="job"):
        for journal in journals:
            journal.close()
        where = ("--job", "j", "--folder", str(tmp_path / folder), "--token-file", "token")
        options = parser(None).parse_args([*where, *map(str, more)])
        options.folder.mkdir(exist_ok=True)
        journals.append(Journal(options.folder / "journal.sqlite"))
        return program._load(options, journals[-1])

    yield begins
    journals[-1].close()


def back_to(state):
    """Where the job goes when a server dies."""
    return checkpoint_choice.find(search_of(state.settings, state.job))[0]


def test_a_named_checkpoint_is_loaded_though_its_folder_has_newer_ones_and_again_after_a_death(begin, tmp_path):
    shared = tmp_path / "shared"
    named, newer = save(shared, 100, "older-run"), save(shared, 200, "older-run", written=9.0)
    state = begin("--restore", named, "--checkpoint", shared)
    assert (state.job.restore, state.job.begun) == (named, named)
    assert back_to(state) == named
    state = begin("--restore", named, "--checkpoint", shared)
    assert back_to(state) == named, "a coordinator that comes back knows it from its journal"
    own = save(shared, 101, state.job.identity, written=time.time() + 1.0)
    assert back_to(state) == own
    assert storage.is_complete(newer)


def test_a_job_taken_back_to_an_older_checkpoint_of_its_own_stays_there(begin, tmp_path):
    """It went wrong after version 100: what it saved later is not what it goes back to when a server dies."""
    shared = tmp_path / "shared"
    named = save(shared, 100, "run1", written=time.time() - 20.0)
    save(shared, 200, "run1", written=time.time() - 10.0)
    options = ("--identity", "run1", "--restore", named, "--checkpoint", shared)
    assert back_to(begin(*options)) == named
    assert back_to(begin(*options)) == named, "a coordinator that comes back knows it from its journal"
    own = save(shared, 110, "run1", written=time.time() + 10.0)
    assert back_to(begin(*options)) == own
    later = begin("--identity", "run1", "--restore", shared, "--checkpoint", shared, folder="later")
    assert later.job.restore == own, "nor does a run after it go on from there"


def test_a_job_taken_back_on_a_machine_whose_clock_is_behind_stays_there(begin, tmp_path):
    shared = tmp_path / "shared"
    named = save(shared, 100, "run1", written=time.time() - 20.0)
    given_up = time.time() + 600.0
    save(shared, 200, "run1", written=given_up)
    save(shared, 300, OTHER, written=given_up + 600.0)
    state = begin("--identity", "run1", "--restore", named, "--checkpoint", shared)
    assert back_to(state) == named
    assert given_up < state.job.since < given_up + 2.0, "another job's do not count"
    own = save(shared, 110, "run1", written=state.job.since)  # as the first one is dated
    assert back_to(state) == own


def test_a_job_begins_though_its_folder_for_checkpoints_cannot_be_listed(begin, tmp_path, monkeypatch, caplog):
    named = save(tmp_path / "old", 5, "older-run")
    trouble(monkeypatch, "ls", PermissionError(13, "Permission denied"), "new")
    monkeypatch.setattr(program, "_STORAGE_SECONDS", 0.0)
    assert begin("--restore", named, "--checkpoint", tmp_path / "new").job.restore == named
    assert "nobody knows when earlier runs of this job last saved" in caplog.text


@pytest.mark.parametrize("named", [False, True], ids=["a neighbour", "itself"])
def test_another_users_checkpoint_is_passed_over_in_a_folder_and_not_where_it_is_named(
    begin, tmp_path, monkeypatch, named
):
    readable, theirs = save(tmp_path, 100, "older-run", written=5.0), save(tmp_path, 200, OTHER, written=9.0)
    trouble(monkeypatch, "open", PermissionError(13, "Permission denied"), theirs)
    monkeypatch.setattr(program, "_STORAGE_SECONDS", 0.0)
    if named:
        with pytest.raises(StorageError, match="Permission denied"):
            begin("--restore", theirs)
    else:
        assert begin("--restore", tmp_path).job.restore == readable


def test_a_jobs_own_checkpoint_is_not_passed_over_because_it_may_not_be_read_now(begin, tmp_path, monkeypatch):
    save(tmp_path, 100, "older-run", written=5.0)
    trouble(monkeypatch, "open", PermissionError(13, "Permission denied"), save(tmp_path, 200, "run1", written=9.0))
    monkeypatch.setattr(program, "_STORAGE_SECONDS", 0.0)
    with pytest.raises(StorageError, match="Permission denied"):
        begin("--identity", "run1", "--restore", tmp_path)


def test_of_a_named_folder_the_one_that_was_begun_from_stays(begin, tmp_path):
    """Another job goes on in that folder: what it writes there later is not what was named."""
    begun = save(tmp_path / "shared", 100, "older-run", written=5.0)
    state = begin("--restore", tmp_path / "shared")
    save(tmp_path / "shared", 200, "older-run", written=9.0)
    assert back_to(state) == begun


@pytest.mark.parametrize("ahead", [-3600.0, 3600.0])
def test_what_others_wrote_after_a_job_began_from_their_folder_is_never_taken(begin, tmp_path, ahead):
    """The clock of who wrote it may be ahead: the job began after what it began from, whatever its own clock says."""
    now = time.time()
    before = save(tmp_path / "shared", 90, OTHER, written=now + ahead - 2.0)
    begun = save(tmp_path / "shared", 100, OTHER, written=now + ahead)
    state = begin("--restore", tmp_path / "shared")
    assert state.job.since >= max(now, now + ahead)
    save(tmp_path / "shared", 200, OTHER, written=state.job.since + 1.0)
    storage.remove(begun)
    assert back_to(state) == before


@pytest.mark.parametrize("harm", ["damaged", "deleted"])
def test_of_a_named_folder_the_next_one_is_what_was_written_before(tmp_path, harm):
    before, begun = save(tmp_path, 100, OTHER, written=4.0), save(tmp_path, 110, OTHER, written=5.0)
    save(tmp_path, 10, "third", written=9.0)
    places = {"begun": begun, "restore": str(tmp_path), "passed": frozenset({begun} if harm == "damaged" else ())}
    if harm == "deleted":
        storage.remove(begun)
    assert found(**places, since=7.0) == before
    storage.remove(before)
    with pytest.raises(CheckpointError, match=r"no complete checkpoint|could not be loaded"):
        found(**places, since=7.0)
    assert found(**places).endswith("third"), "nobody knows when it began"


def test_a_job_that_began_from_nothing_does_not_come_back_as_another(begin, tmp_path):
    save(tmp_path / "shared", 200, "older-run")
    state = begin("--checkpoint", tmp_path / "shared")
    assert not state.job.restore
    with pytest.raises(CheckpointError, match="no checkpoint of this job"):
        back_to(state)


def test_runs_of_one_identity_go_on_from_their_own(begin, tmp_path):
    """As on Kubernetes: all pods are lost, the journal with them, and the folder has others' checkpoints too."""
    shared = tmp_path / "shared"
    own = save(shared, 7, "uid-1", written=1.0)
    save(shared, 300, "uid-2", written=9.0)
    state = begin("--identity", "uid-1", "--restore", shared, "--checkpoint", shared)
    assert (state.job.identity, state.job.restore) == ("uid-1", own)


def test_a_run_of_an_identity_begins_from_the_folder_that_was_named(begin, tmp_path):
    """Its own of before lie in another folder, to which it will save: they are not what was named."""
    save(tmp_path / "ck", 400, "run1", written=9.0)
    named = save(tmp_path / "good", 300, "older-run", written=5.0)
    places = ("--identity", "run1", "--checkpoint", tmp_path / "ck")
    assert begin(*places, "--restore", tmp_path / "good").job.restore == named
    own = save(tmp_path / "good", 200, "run1", written=4.0)
    assert begin(*places, "--restore", tmp_path / "good", folder="later").job.restore == own, "its own go first"


def test_a_job_that_begins_again_takes_the_last_one_of_its_journal(begin, tmp_path):
    """The clock was behind when it was written. One that lies elsewhere was not named."""
    shared, elsewhere = tmp_path / "shared", tmp_path / "elsewhere"
    older, last = save(shared, 100, "run1", written=9.0), save(shared, 110, "run1", written=5.0)
    known = (older, last, save(elsewhere, 120, "run1", written=10.0))
    (tmp_path / "job").mkdir()
    with closing(Journal(tmp_path / "job" / "journal.sqlite")) as journal:
        journal.write(replace(World(1, 1).state.job, identity="run1", checkpoints=known))
    again = ("--checkpoint", shared, "--begin-again", "--term", 8)
    assert begin(*again, "--restore", shared).job.restore == last
    assert begin(*again[:-1], 9, "--restore", older).job.restore == older, "which was named"


def test_each_run_has_its_own_identity_which_its_journal_keeps(begin):
    first, again = begin().job, begin(folder="other").job
    assert first.identity
    assert first.identity != again.identity


def test_a_journal_keeps_the_identity_and_one_of_before_gets_one(begin, tmp_path):
    save(tmp_path / "shared", 5, "older-run")
    given = begin("--restore", tmp_path / "shared").job.identity
    assert begin().job.identity == given
    with_none = replace(World(1, 1).state.job, identity="")
    journal = Journal(tmp_path / "old.sqlite")
    journal.write(with_none)
    options = parser(None).parse_args(["--job", "j", "--folder", ".", "--token-file", "t", "--identity", "uid-1"])
    assert program._load(options, journal).job.identity == "uid-1"
    journal.close()


def test_a_storage_that_does_not_answer_at_the_start_is_asked_again(begin, tmp_path, monkeypatch):
    named = save(tmp_path / "shared", 5, "older-run")
    usual, failed = storage.candidates, []

    def candidates(root):
        if not failed:
            failed.append(root)
            raise StorageError("503 Slow Down")
        return usual(root)

    monkeypatch.setattr(storage, "candidates", candidates)
    assert begin("--restore", named).job.restore == named
    assert failed


@pytest.mark.parametrize(
    ("option", "words"),
    [("--workers", "'two' is no integer"), ("--port", "'two' is no integer"), ("--lease", "'two' is no number")],
)
def test_what_is_no_number_is_said_plainly(capsys, option, words):
    with pytest.raises(SystemExit):
        parser(None).parse_args([option, "two"])
    assert f"argument {option}: {words}" in capsys.readouterr().err


@pytest.mark.parametrize("option", ["--lease", "--join-timeout", "--checkpoint-interval"])
@pytest.mark.parametrize("seconds", ["nan", "inf", "-inf", "-1", "2592001", "1e300"])
def test_what_is_no_duration_is_refused(capsys, option, seconds):
    with pytest.raises(SystemExit):
        parser(None).parse_args([f"{option}={seconds}"])
    assert f"argument {option}: must be more than 0 seconds and at most 2592000" in capsys.readouterr().err


def test_an_interval_may_be_none():
    needed = ["--job", "a", "--folder", "/a", "--token-file", "/a/token"]
    assert parser(None).parse_args([*needed, "--checkpoint-interval", "0"]).checkpoint_interval == 0
    with pytest.raises(SystemExit):
        parser(None).parse_args([*needed, "--lease", "0"])
