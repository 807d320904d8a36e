"""The ledger and the step times: each entry is kept once, whatever the disk does to the file."""

import errno

import pytest

from coordinator.archive import read_archive
from coordinator.core.checkpoints.ledger_voids import Void
from coordinator.server import json_lines, ledger_files
from coordinator.server.journal import JobFolderUnwritable, Journal
from coordinator.server.ledger_files import Ledger, Steps
from protos import elastic_pb2 as pb


def entry(version: int, term: int = 1) -> pb.LedgerEntry:
    return pb.LedgerEntry(term=term, number=1, version=version, runs=[0, 4], slices=[pb.Slice(worker="w0", high=5)])


def loaded(path) -> Ledger:
    ledger = Ledger(path)
    ledger.load()
    return ledger


def told(version, *blocks):
    """An entry of s0 that another server tells."""
    return pb.LedgerEntry(server="s0", sequence=version, version=version, runs=blocks)


def found(of):
    return [(e.server, e.version, tuple(e.runs)) for e in of.entries([]) if e.runs]


def test_the_ledger_stores_once_and_says_how_far(tmp_path):
    ledger = loaded(tmp_path / "ledger.jsonl")
    assert ledger.store("s0", 0, [entry(0), entry(1)]) == 2
    assert ledger.store("s0", 0, [entry(0), entry(1), entry(2)]) == 3, "the acknowledgement was lost"
    assert ledger.store("s1", 0, []) == 0
    ledger.close()
    again = loaded(tmp_path / "ledger.jsonl")
    assert again.store("s0", 2, [entry(2), entry(3)]) == 4
    found = list(again.entries([]))
    assert [(e.server, e.version) for e in found] == [("s0", version) for version in range(4)]
    assert found[0].slices[0].worker == "w0"
    assert list(found[0].runs) == [0, 4]
    again.close()


def test_what_a_dead_server_had_not_told_others_tell_in_its_name(tmp_path):
    ledger = loaded(tmp_path / "ledger.jsonl")
    assert ledger.store("s0", 0, [entry(0), entry(1)]) == 2
    assert ledger.store("s1", 0, [entry(7), told(1, 0, 2), told(2, 0, 2)]) == 3
    assert ledger.store("s2", 0, [told(2, 2, 2), told(3, 2, 2)]) == 2
    ledger.close()
    again = loaded(tmp_path / "ledger.jsonl")
    assert again.store("s0", 2, []) == 2, "what others tell does not count as its own"
    assert again.store("s1", 0, [entry(7), told(1, 0, 2), told(2, 0, 2)]) == 3, "the acknowledgement was lost"
    mine = [("s0", 0, (0, 4)), ("s0", 1, (0, 4)), ("s1", 7, (0, 4))]
    assert found(again) == [*mine, ("s0", 2, (0, 2)), ("s0", 2, (2, 2)), ("s0", 3, (2, 2))]
    again.close()


@pytest.mark.parametrize("dies", [False, True], ids=["lives", "has died"])
@pytest.mark.parametrize("again", [False, True], ids=["stays", "is started again"])
def test_what_others_tell_in_a_servers_name_at_the_end_counts_where_it_does_not_tell_it_itself(tmp_path, again, dies):
    ledger = loaded(tmp_path / "ledger.jsonl")
    assert ledger.store("s0", 0, [told(0, 0, 4)]) == 1
    assert ledger.store("s1", 0, [told(0, 0, 2), told(1, 0, 2)], ended=True) == 2
    if again:
        ledger.close()
        ledger = loaded(tmp_path / "ledger.jsonl")
    assert ledger.store("s2", 0, [told(1, 1, 3)], ended=True) == 1, "by both of which one block was followed"
    assert ledger.store("s1", 0, [told(0, 0, 2), told(1, 0, 2)], ended=True) == 2, "the acknowledgement was lost"
    if not dies:
        assert ledger.store("s0", 1, [told(1, 0, 4), told(2, 0, 4)], ended=True) == 3
    expected = [("s0", version, (0, 4)) for version in range(2 if dies else 3)]
    assert found(ledger) == expected, "an audit before the coordinator ends"
    ledger.close()
    after = loaded(tmp_path / "ledger.jsonl")
    assert found(after) == expected
    after.settle()
    assert found(after) == expected
    assert (tmp_path / "ledger.jsonl").read_text().count('"runs":[0,4]') == len(expected)
    after.close()


def test_an_archive_has_what_was_told_at_the_end_to_a_coordinator_that_was_killed(tmp_path):
    Journal(tmp_path / "journal.sqlite").close()
    (tmp_path / "steps.jsonl").touch()
    ledger = loaded(tmp_path / "ledger.jsonl")
    ledger.store("s1", 0, [told(0, 0, 2)], ended=True)
    ledger.close()
    assert [(e.server, e.version) for e in read_archive(tmp_path).ledger] == [("s0", 0)]


@pytest.mark.parametrize("marks", [0, 1, 2])
def test_what_was_told_in_the_name_of_a_dead_server_is_not_told_again_at_the_end(tmp_path, monkeypatch, marks):
    """Its heir had switched when the job ended, another server that has copies had not."""
    monkeypatch.setattr(ledger_files, "MARK_BYTES", 20)
    ledger = loaded(tmp_path / "ledger.jsonl")
    assert ledger.store("s1", 0, [told(0, 0, 2)]) == 1
    for mark in range(marks):  # each start reads from the last one on
        ledger.store("s3", mark, [pb.LedgerEntry()])
        ledger.close()
        ledger = loaded(tmp_path / "ledger.jsonl")
    ledger.close()
    assert (tmp_path / "ledger.jsonl").read_text().count('{"kept":') == marks
    ledger = loaded(tmp_path / "ledger.jsonl")
    assert ledger.store("s2", 0, [told(0, 0, 3), told(1, 2, 1)], ended=True) == 2
    assert found(ledger) == [("s0", 0, (0, 2)), ("s0", 0, (2, 1)), ("s0", 1, (2, 1))]
    ledger.close()


def test_more_told_in_the_names_of_dead_servers_than_a_mark_repeats_is_read_from_the_file(tmp_path, monkeypatch):
    """Nothing of it is lost: the next start reads what lies behind the last mark, if there is one."""
    monkeypatch.setattr(ledger_files, "MARK_BYTES", 20)
    monkeypatch.setattr(ledger_files, "_MOST_TOLD", 404)
    path, most = tmp_path / "ledger.jsonl", 199
    runs = [(0, 2) if version % 2 else (0, 2, 9, 1) for version in range(most + 2)]  # none is like the one before it
    ledger = loaded(path)
    for first, count in ((0, most - 1), (most - 1, 1), (most, 1), (most + 1, 1)):
        ledger.store("s1", first, [told(version, *runs[version]) for version in range(first, first + count)])
    ledger.close()
    lines = path.read_text().splitlines()
    assert [number for number, line in enumerate(lines) if line.startswith('{"kept":')] == [most]
    again = loaded(path)
    assert again.store("s1", 0, []) == most + 2
    told_again = [told(0, 0, 3), told(most, 0, 3), told(most + 1, 0, 3)]
    again.store("s2", 0, told_again, ended=True)
    of_s0 = [(version, runs) for server, version, runs in found(again) if server == "s0"]
    assert of_s0[: most + 2] == list(enumerate(runs))
    assert of_s0[most + 2 :] == [(0, (2, 1)), (most, (2, 1)), (most + 1, (2, 1))], "what nobody had told"
    again.close()


def test_all_that_was_told_in_the_names_of_dead_servers_is_in_a_mark_as_most_of_it_is_alike(tmp_path, monkeypatch):
    """A coordinator that was away for long hears thousands: later ones need not read them in the file, nor all else."""
    monkeypatch.setattr(ledger_files, "MARK_BYTES", 20)
    path, count = tmp_path / "ledger.jsonl", 30_000
    ledger = loaded(path)
    ledger.store("s1", 0, [told(version, 0, 2) for version in range(count)])
    ledger.store("s2", 0, [told(7, 4, 1), told(9, 4, 1)])
    ledger.close()
    spoilt, mark = path.read_text().rsplit("\n", 2)[:2]
    assert '"told":[["s0",' in mark
    assert len(mark) < 200
    path.write_text("x" * len(spoilt) + "\n" + mark + "\n")  # nobody reads what is before the mark
    again = loaded(path)
    again.store("s3", 0, [told(7, 0, 5), told(8, 0, 5), told(count, 0, 5)], ended=True)
    of_s0 = [(version, runs) for server, version, runs in found(again) if server == "s0"]
    assert of_s0 == [(7, (2, 2)), (8, (2, 3)), (count, (0, 5))], "what nobody had told"
    again.close()


def test_a_mark_of_an_earlier_program_is_read(tmp_path):
    path = tmp_path / "ledger.jsonl"
    mark = '{"kept":{"s1":3},"counted":[["s0",7,[0,2]],["s0",9,[0,2,4,1]]]}'
    path.write_text(f"what nobody reads\n{mark}\n")
    ledger = loaded(path)
    assert ledger.store("s2", 0, [told(7, 0, 4), told(8, 0, 4), told(9, 0, 5)], ended=True) == 3
    assert found(ledger) == [("s0", 7, (2, 2)), ("s0", 8, (0, 4)), ("s0", 9, (2, 2))]
    ledger.close()


def test_no_mark_hides_what_is_kept_apart_at_the_end(tmp_path, monkeypatch):
    monkeypatch.setattr(ledger_files, "MARK_BYTES", 100)
    ledger = loaded(tmp_path / "ledger.jsonl")
    ledger.store("s1", 0, [told(0, 0, 2)], ended=True)
    for version in range(9):
        ledger.store("s2", version, [entry(version)], ended=True)
    ledger.close()
    again = loaded(tmp_path / "ledger.jsonl")
    assert ("s0", 0, (0, 2)) in found(again)
    again.settle()
    again.store("s2", 9, [entry(9)])
    again.close()
    assert (tmp_path / "ledger.jsonl").read_text().endswith('{"kept":{"s1":1,"s2":10,"s0":1}}\n')


def check_told_again(path):
    """Of s0 the first entry is kept, of s1 none: they tell the rest, once."""
    again = loaded(path)
    assert (again.store("s0", 1, [entry(1)]), again.store("s1", 0, [entry(7)])) == (2, 1)
    assert [(e.server, e.version) for e in again.entries([])] == [("s0", 0), ("s0", 1), ("s1", 7)]
    again.close()


def test_a_ledger_on_a_full_disk_names_the_file(tmp_path):
    ledger = loaded(tmp_path / "ledger.jsonl")
    ledger._book._file.close()
    ledger._book._file = open("/dev/full", "a", encoding="utf-8")  # noqa: SIM115  # the ledger closes it
    with pytest.raises(
        JobFolderUnwritable, match=r"cannot write /.*/ledger.jsonl: No space left on device; free some space"
    ):
        ledger.store("s0", 0, [entry(0)])
    ledger.close()


class Torn:
    """A file on a disk that takes half of what is written, once."""

    def __init__(self, file):
        self.file = file

    def write(self, text):
        self.file.write(text[: len(text) // 2])
        self.file.flush()
        raise OSError(errno.EIO, "Input/output error")


def test_nothing_is_written_behind_half_a_line(tmp_path):
    """The line that ran together with it would be lost."""
    ledger = loaded(tmp_path / "ledger.jsonl")
    ledger.store("s0", 0, [entry(0)])
    works, ledger._book._file = ledger._book._file, Torn(ledger._book._file)
    with pytest.raises(JobFolderUnwritable, match="Input/output error"):
        ledger.store("s0", 1, [entry(1)])
    ledger._book._file = works
    with pytest.raises(JobFolderUnwritable, match="Input/output error"):
        ledger.store("s1", 0, [entry(7)])
    ledger.close()
    check_told_again(tmp_path / "ledger.jsonl")


def test_entries_that_have_run_together_are_kept_of_nobody(tmp_path):
    path = tmp_path / "ledger.jsonl"
    ledger = loaded(path)
    ledger.store("s0", 0, [entry(0), entry(1)])
    ledger.store("s1", 0, [entry(7)])
    ledger.close()
    first, second, third = path.read_text().splitlines(keepends=True)
    path.write_text(first + second[: len(second) // 2] + third)
    check_told_again(path)


def test_a_torn_line_is_dropped_and_stored_again(tmp_path):
    path = tmp_path / "ledger.jsonl"
    ledger = loaded(path)
    ledger.store("s0", 0, [entry(0), entry(1)])
    ledger.close()
    path.write_bytes(path.read_bytes()[:-20])
    again = loaded(path)
    assert again.store("s0", 0, [entry(0), entry(1)]) == 2
    assert [e.version for e in again.entries([])] == [0, 1]
    again.close()


def test_what_the_disk_has_lost_of_the_ledger_is_told_and_does_not_stop_the_rest(tmp_path, caplog):
    ledger = loaded(tmp_path / "ledger.jsonl")
    ledger.store("s0", 0, [entry(0), entry(1)])
    assert ledger.store("s0", 5, [entry(5)]) == 6, "else the server keeps its entries for ever"
    assert "the ledger has lost entries 2 to 4 of s0" in caplog.text
    ledger.close()


def test_a_ledger_that_is_still_read_takes_nothing_and_can_be_read(tmp_path):
    ledger = loaded(tmp_path / "ledger.jsonl")
    ledger.store("s0", 0, [entry(0)])
    ledger.close()
    again = Ledger(tmp_path / "ledger.jsonl")
    assert again.store("s0", 1, [entry(1)]) == 0
    assert [e.version for e in again.entries([])] == [0]
    again.give_up()
    again.load()
    assert not again.loaded
    again.close()


def test_a_ledger_is_read_from_its_last_mark(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(ledger_files, "MARK_BYTES", 1000)
    monkeypatch.setattr(json_lines, "_BLOCK", 64)  # marks lie across blocks
    path, written = tmp_path / "ledger.jsonl", 0
    ledger = loaded(path)
    for batch in range(40):
        written = ledger.store(f"s{batch % 2}", batch // 2 * 3, [entry(v) for v in range(3)])
    assert written == 60
    lines = path.read_text().splitlines()
    marks = [number for number, line in enumerate(lines) if line.startswith('{"kept":')]
    assert len(marks) > 5
    assert len(list(ledger.entries([]))) == 120, "marks are no entries"
    ledger.close()
    spoilt = "x" * len("\n".join(lines[: marks[-1] - 1]))  # nobody reads what is before the last mark
    path.write_text("\n".join([spoilt, *lines[marks[-1] - 1 :], ""]))
    again = loaded(path)
    assert again.store("s0", 57, [entry(0)] * 4) == 61
    assert again.store("s1", 57, [entry(0)] * 3) == 60
    assert "damaged" not in caplog.text, "what is before it was read"
    again.close()


ROW = '{{"worker":"w0","version":{0},"end":{0}.5,"seconds":0.1,"samples":8}}\n'
HARMS = {
    "a page of zeros": "\0" * 4096 + "\n",
    "zeros before the next line": "\0" * 4096,
    "a line of something else": '{"worker":"w0"}\n[]\nnull\n7\n',
    "no text": "\udcff\udcfe\n",
    "a long one": "\0" * 3_000_000 + "\n",
    "deep nesting": "[" * 100_000 + "\n",
}


@pytest.mark.parametrize("harm", HARMS)
def test_damage_within_a_book_is_passed_over_and_told(tmp_path, caplog, harm):
    path = tmp_path / "steps.jsonl"
    text = ROW.format(1) + ROW.format(2) + HARMS[harm] + ROW.format(3) + ROW.format(4)
    path.write_bytes(text.encode(errors="surrogateescape"))
    steps = Steps(path)
    assert "steps.jsonl is damaged" in caplog.text
    steps.store("w0", [pb.StepTime(version=5, end=4.5), pb.StepTime(version=6, end=6.5)])
    found = [row.step.version for row in steps.rows()]
    assert found == ([1, 2, 4, 6] if harm == "zeros before the next line" else [1, 2, 3, 4, 6])
    steps.close()


@pytest.mark.parametrize("harm", HARMS)
def test_damage_within_the_ledger_is_passed_over_and_told(tmp_path, caplog, harm):
    path = tmp_path / "ledger.jsonl"
    ledger = loaded(path)
    ledger.store("s0", 0, [entry(0)])
    with path.open("ab") as file:
        file.write(HARMS[harm].encode(errors="surrogateescape"))
    ledger.store("s0", 1, [entry(1), entry(2)])
    ledger.close()
    again = loaded(path)
    assert "ledger.jsonl is damaged" in caplog.text
    assert again.store("s0", 1, [entry(1), entry(2), entry(3)]) == 4
    found = [e.version for e in again.entries([])]
    assert found == ([0, 2, 3] if harm == "zeros before the next line" else [0, 1, 2, 3])
    again.close()


def test_an_entry_with_half_a_run_does_not_keep_the_others_from_being_read(tmp_path, caplog):
    ledger = loaded(tmp_path / "ledger.jsonl")
    ledger.store("s0", 0, [pb.LedgerEntry(runs=[0, 1, 2]), entry(1)])
    assert [e.version for e in ledger.entries([])] == [1]
    assert "ledger.jsonl is damaged: 1 lines" in caplog.text
    ledger.close()


@pytest.mark.parametrize("end", ["\0" * 4096, '{"worker":"w0","vers', "\0" * 3_000_000])
def test_an_end_that_is_no_line_is_cut_off_and_told(tmp_path, caplog, end):
    path = tmp_path / "steps.jsonl"
    path.write_text(ROW.format(1) + end)
    Steps(path).close()
    assert path.read_text() == ROW.format(1)
    assert f"ended within a line: its last {len(end)} bytes were cut off" in caplog.text


def test_only_the_end_of_long_step_times_is_read_at_the_start(tmp_path, monkeypatch):
    monkeypatch.setattr(ledger_files, "MARK_BYTES", 200)
    path = tmp_path / "steps.jsonl"
    path.write_text("no line\n" * 1000 + "".join(ROW.format(number) for number in range(1, 9)))
    steps = Steps(path)
    steps.store("w0", [pb.StepTime(version=8, end=8.5), pb.StepTime(version=9, end=9.5)])
    assert [row.step.version for row in steps.rows()] == list(range(1, 10))
    steps.close()


def test_a_restore_voids_what_came_after_its_checkpoint(tmp_path):
    ledger = loaded(tmp_path / "ledger.jsonl")
    ledger.store("s0", 0, [entry(4), entry(5), entry(6)])
    ledger.store("s2", 0, [entry(5, term=2), entry(6, term=2)])
    found = [(e.term, e.version, e.voided) for e in ledger.entries([Void(2, 5)])]
    assert found == [(1, 4, False), (1, 5, True), (1, 6, True), (2, 5, False), (2, 6, False)]
    ledger.close()


def test_a_restore_from_a_checkpoint_of_an_older_term_voids_all_terms_behind_it(tmp_path):
    """A job went back to version 5, and then, once more, to what it had saved at version 6 before that."""
    ledger = loaded(tmp_path / "ledger.jsonl")
    for server, term, versions in (("s0", 1, (4, 5, 6)), ("s1", 2, (5,)), ("s2", 3, (6,))):
        ledger.store(server, 0, [entry(version, term=term) for version in versions])
    found = [(e.term, e.version, e.voided) for e in ledger.entries([Void(3, 6, latest=1)])]
    assert found == [(1, 4, False), (1, 5, False), (1, 6, True), (2, 5, True), (3, 6, False)]
    ledger.close()


def test_a_restore_without_a_common_version_voids_what_each_block_did_not_have(tmp_path):
    """The checkpoint has blocks 0 and 1 at version 9, block 2 at 11, and block 3 not at all."""
    ledger = loaded(tmp_path / "ledger.jsonl")
    for server, term in (("s0", 1), ("s1", 2)):
        ledger.store(server, 0, [pb.LedgerEntry(term=term, version=v, runs=[0, 2, 2, 2]) for v in (8, 9, 11)])
    void = Void(2, 0, ((0, 2, 9), (2, 1, 11)))
    found = [(e.term, e.version, list(e.runs), e.voided) for e in ledger.entries([void])]
    assert found[:5] == [
        (1, 8, [0, 2, 2, 1], False),
        (1, 8, [3, 1], True),
        (1, 9, [2, 1], False),
        (1, 9, [0, 2, 3, 1], True),
        (1, 11, [0, 2, 2, 2], True),
    ]
    assert found[5:] == [(2, version, [0, 2, 2, 2], False) for version in (8, 9, 11)]
    ledger.close()


def test_steps_come_back_once(tmp_path):
    steps = Steps(tmp_path / "steps.jsonl")
    rows = [pb.StepTime(version=v, end=10.0 + v, seconds=1.0, samples=8) for v in (1, 2)]
    steps.store("w0", rows)
    steps.store("w0", rows)
    steps.store("w1", rows[:1])
    assert [(row.worker, row.step.version) for row in steps.rows()] == [("w0", 1), ("w0", 2), ("w1", 1)]
    steps.close()
