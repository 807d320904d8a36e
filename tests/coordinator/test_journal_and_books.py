"""What is on the disk: journal, ledger, steps, checkpoints."""

import json

import pytest
from played_job import ASYNC, World

from coordinator import checkpoints
from coordinator import events as ev
from coordinator.batches import Batch, Book
from coordinator.books import Ledger, Steps
from coordinator.checkpoints import CheckpointError, Manifest
from coordinator.journal import Journal, JournalError, Unwritten
from coordinator.plan import Phase
from coordinator.records import decode, encode
from coordinator.state import Job, Void
from elastic_ps.core.storage import MANIFEST
from protos import elastic_pb2 as pb


def a_job_in(phase: Phase) -> World:
    world = World(2, 1)
    world.ask(ev.ScaleAsked, 3, 2)
    world.ask(ev.DrainAsked, "w0")
    world.until(phase)
    return world


@pytest.mark.parametrize("phase", [Phase.REGISTERED, Phase.ASSIGNED, Phase.SYNCING, Phase.ARMED])
def test_the_journal_gives_back_what_it_was_given(tmp_path, phase):
    world = a_job_in(phase)
    journal = Journal(tmp_path / "journal.sqlite")
    assert journal.load() is None
    journal.write(world.state.job, world.records)
    journal.write(world.state.job, [])
    journal.close()
    again = Journal(tmp_path / "journal.sqlite")
    assert again.load() == (world.state.job, tuple(world.records), world.state.book)
    again.close()


def test_the_book_of_batches_is_journalled_on_its_own(tmp_path):
    world = World(2, 1, data=ASYNC)
    world.check_batches(1)
    job, book = world.state.job, world.state.book
    journal = Journal(tmp_path / "journal.sqlite")
    journal.write(job, world.records)
    journal.write(None, book=book)
    journal.close()
    again = Journal(tmp_path / "journal.sqlite")
    assert again.load() == (job, tuple(world.records), book)
    again.write(job)
    assert again.load()[2] == book
    again.close()


def test_two_coordinators_cannot_write_one_journal(tmp_path):
    first = Journal(tmp_path / "journal.sqlite")
    first.write(World(declare=False).state.job, [])
    with pytest.raises(JournalError, match="another coordinator"):
        Journal(tmp_path / "journal.sqlite")
    first.close()


def test_what_cannot_be_written_names_the_file(tmp_path):
    journal = Journal(tmp_path / "journal.sqlite")
    journal._database.execute("PRAGMA query_only = 1")
    with pytest.raises(Unwritten, match=r"cannot write /.*/journal.sqlite: .*readonly database; make room for it: a"):
        journal.write(World(declare=False).state.job, [])
    journal.close()


def test_a_ledger_on_a_full_disk_names_the_file(tmp_path):
    ledger = Ledger(tmp_path / "ledger.jsonl")
    ledger._book._file.close()
    ledger._book._file = open("/dev/full", "a", encoding="utf-8")  # noqa: SIM115  # the ledger closes it
    with pytest.raises(Unwritten, match=r"cannot write /.*/ledger.jsonl: No space left on device; make room for it"):
        ledger.store("s0", 0, [entry(0)])
    ledger.close()


def test_a_journal_that_is_none_is_refused(tmp_path):
    path = tmp_path / "journal.sqlite"
    path.write_text("not a database, but long enough to be taken for one" * 100)
    with pytest.raises(JournalError, match="cannot open"):
        Journal(path)


def test_records_refuse_what_is_not_one():
    job = encode(World(declare=False).state.job)
    del job["term"]
    with pytest.raises(KeyError):
        decode(Job, json.loads(json.dumps(job)))


def entry(version: int, term: int = 1) -> pb.LedgerEntry:
    return pb.LedgerEntry(term=term, number=1, version=version, runs=[0, 4], slices=[pb.Slice(worker="w0", high=5)])


def test_the_ledger_stores_once_and_says_how_far(tmp_path):
    ledger = Ledger(tmp_path / "ledger.jsonl")
    assert ledger.store("s0", 0, [entry(0), entry(1)]) == 2
    assert ledger.store("s0", 0, [entry(0), entry(1), entry(2)]) == 3, "the acknowledgement was lost"
    assert ledger.store("s1", 0, []) == 0
    assert ledger.store("s0", 7, [entry(9)]) == 3, "a gap is not stored"
    ledger.close()
    again = Ledger(tmp_path / "ledger.jsonl")
    assert again.store("s0", 2, [entry(2), entry(3)]) == 4
    found = list(again.entries([]))
    assert [(e.server, e.version) for e in found] == [("s0", version) for version in range(4)]
    assert found[0].slices[0].worker == "w0"
    assert list(found[0].runs) == [0, 4]
    again.close()


def test_a_torn_line_is_dropped_and_stored_again(tmp_path):
    path = tmp_path / "ledger.jsonl"
    ledger = Ledger(path)
    ledger.store("s0", 0, [entry(0), entry(1)])
    ledger.close()
    path.write_bytes(path.read_bytes()[:-20])
    again = Ledger(path)
    assert again.store("s0", 0, [entry(0), entry(1)]) == 2
    assert [e.version for e in again.entries([])] == [0, 1]
    again.close()


def test_a_restore_voids_what_came_after_its_checkpoint(tmp_path):
    ledger = Ledger(tmp_path / "ledger.jsonl")
    ledger.store("s0", 0, [entry(4), entry(5), entry(6)])
    ledger.store("s2", 0, [entry(5, term=2), entry(6, term=2)])
    found = [(e.term, e.version, e.voided) for e in ledger.entries([Void(2, 5)])]
    assert found == [(1, 4, False), (1, 5, True), (1, 6, True), (2, 5, False), (2, 6, False)]
    ledger.close()


def test_a_restore_without_a_common_version_voids_what_was_not_done(tmp_path):
    ledger = Ledger(tmp_path / "ledger.jsonl")
    places = [(0, 6), (1, 0), (1, 1), (1, 2)]
    for server, term in (("s0", 1), ("s1", 2)):
        entries = [pb.LedgerEntry(term=term, version=9, runs=[0, 4], epoch=e, step=s) for e, s in places]
        ledger.store(server, 0, entries)
    void = Void(2, 0, Book(1, 2, (Batch(0),)))
    found = [(e.term, e.epoch, e.step) for e in ledger.entries([void]) if e.voided]
    assert found == [(1, 1, 0), (1, 1, 2)]
    ledger.close()


def test_steps_come_back_once(tmp_path):
    steps = Steps(tmp_path / "steps.jsonl")
    rows = [pb.StepTime(version=v, end=10.0 + v, seconds=1.0, samples=8) for v in (1, 2)]
    steps.store("w0", rows)
    steps.store("w0", rows)
    steps.store("w1", rows[:1])
    assert [(row.worker, row.step.version) for row in steps.rows()] == [("w0", 1), ("w0", 2), ("w1", 1)]
    steps.close()


# ---- checkpoints -----------------------------------------------------------------------------------------------------


def manifest(version: int, book: Book | None = None) -> dict:
    job = World(1, 1).state.job
    blocks = {
        block: {"file": "s0.bin", "offset": 2 * block, "value_bytes": 1, "states": [["mom", "int8", 1]]}
        for block in range(len(job.model.blocks))
    }
    return Manifest(version, 7, job.model, job.optimizers, job.data, False, job.configuration, book, blocks).to_json()


def save(root, version: int) -> str:
    url = f"{root}/version-{version:010d}"
    (root / url.rpartition("/")[2]).mkdir(parents=True)
    (root / url.rpartition("/")[2] / "s0.bin").write_bytes(b"x" * 100)
    assert checkpoints.write(url, manifest(version)) > 100
    return url


def test_a_manifest_comes_back(tmp_path):
    url = save(tmp_path, 5)
    found, value = checkpoints.newest(str(tmp_path))
    assert found == url
    saved = Manifest.from_json(value)
    assert (saved.version, saved.seed, saved.model) == (5, 7, World(1, 1).state.job.model)
    assert checkpoints.newest(url) == (url, value), "a checkpoint's own folder is taken as it is"


def test_a_manifest_holds_the_book_of_batches():
    book = Book(2, 5, (Batch(3),))
    assert Manifest.from_json(json.loads(json.dumps(manifest(5, book)))).book == book
    assert Manifest.from_json(manifest(5)).book is None


def test_the_last_three_are_kept(tmp_path):
    for version in (1, 2, 3, 4, 5):
        save(tmp_path, version)
    assert sorted(path.name[-2:] for path in tmp_path.iterdir()) == ["03", "04", "05"]


@pytest.mark.parametrize(
    "harm", ["no manifest", "half a manifest", "no manifest of ours", "no data", "data cut off", "a block less"]
)
def test_a_torn_one_is_skipped_with_a_warning(tmp_path, caplog, harm):
    older = save(tmp_path, 1)
    folder = tmp_path / save(tmp_path, 2).rpartition("/")[2]
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
        (folder / "s0.bin").write_bytes(b"x" * (2 * len(manifest(1)["blocks"]) - 1))
    else:
        value = json.loads(path.read_text())
        del value["blocks"]["3"]
        path.write_text(json.dumps(value))
    assert checkpoints.newest(str(tmp_path))[0] == older
    assert "version-0000000002 holds no complete checkpoint" in caplog.text


def test_what_servers_could_not_load_is_passed_over_in_every_folder(tmp_path):
    first, begun_from = tmp_path / "own", tmp_path / "begun"
    older, newer = save(first, 1), save(first, 2)
    other = save(begun_from, 9)
    roots = (str(first), "", str(begun_from))
    assert checkpoints.newest(*roots)[0] == newer
    assert checkpoints.newest(*roots, urls=[older])[0] == older
    assert checkpoints.newest(*roots, damaged=[newer])[0] == older
    assert checkpoints.newest(*roots, damaged=[newer, older])[0] == other
    with pytest.raises(CheckpointError, match=r"version-0000000002 is damaged; .*version-0000000009 is damaged"):
        checkpoints.newest(*roots, damaged=[newer, older, other])


def test_no_checkpoint_is_an_error_that_says_where(tmp_path, caplog):
    with pytest.raises(CheckpointError, match="no checkpoint under"):
        checkpoints.newest(str(tmp_path))
    with caplog.at_level("WARNING"), pytest.raises(CheckpointError, match="no checkpoint under"):
        checkpoints.newest(str(tmp_path / "absent"))
    assert not caplog.records, "where none has been written, nothing is wrong"
