"""The journal gives back what it was given, to one coordinator."""

import json
from dataclasses import replace

import pytest

from coordinator.core import events as ev
from coordinator.core.job import DurableJob
from coordinator.core.plans.plan import Phase
from coordinator.dataclass_json import Texts, decode, encode
from coordinator.server.journal import JobFolderUnwritable, Journal, JournalError
from tests.coordinator.played_job import ASYNC, World


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


def test_the_journal_writes_the_same_text_whatever_of_it_is_kept():
    """What has changed since the last record is not taken from that."""
    texts, world = Texts(), World(2, 1)
    world.ask(ev.ScaleAsked, 3, 2)
    for phase in (Phase.REGISTERED, Phase.ASSIGNED, Phase.SYNCING, Phase.ARMED):
        world.until(phase)
        job = world.state.job
        for record in (job, replace(job, saves=7), replace(job, nodes={}), job, *world.records):
            assert texts.text(record) == json.dumps(encode(record), separators=(",", ":"))


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
    with pytest.raises(
        JobFolderUnwritable, match=r"cannot write /.*/journal.sqlite: .*readonly database; free some space, or mend"
    ):
        journal.write(World(declare=False).state.job, [])
    journal.close()


def test_a_journal_that_is_none_is_refused(tmp_path):
    path = tmp_path / "journal.sqlite"
    path.write_text("not a database, but long enough to be taken for one" * 100)
    with pytest.raises(JournalError, match="cannot open"):
        Journal(path)


def test_records_refuse_what_is_not_one():
    job = encode(World(declare=False).state.job)
    del job["goal"]
    with pytest.raises(KeyError):
        decode(DurableJob, json.loads(json.dumps(job)))


def test_a_record_of_an_earlier_program_gets_what_has_been_added_since():
    job = World(declare=False).state.job
    old = encode(job)
    del old["identity"], old["begun"]
    assert decode(DurableJob, json.loads(json.dumps(old))) == replace(job, identity="")
