"""Bounds on what strangers may cost."""

import logging
import resource

from elastic_ps.control.token_proof import Purpose, new_nonce, proof, proves
from elastic_ps.system.process.file_descriptors import raise_limit
from elastic_ps.system.strangers import CountedLog, Strangers

TOKEN = bytes(16)


def test_of_too_many_the_oldest_is_turned_out():
    gone = []
    strangers = Strangers(gone.append, most=2)
    for name in ("a", "b", "c"):
        strangers.enter(name)
    strangers.leave("b")
    strangers.leave("b")
    strangers.enter("d")
    assert (gone, len(strangers)) == (["a"], 2)


def test_lines_about_strangers_are_counted(caplog):
    clock = [0.0]
    counted = CountedLog(logging.getLogger("doors"), lambda: clock[0])
    for number in range(42):
        counted.warning("stranger %d", number)
    clock[0] = 61.0
    counted.warning("stranger %d", 99)
    assert [record.getMessage() for record in caplog.records] == [
        *(f"stranger {number}" for number in range(5)),
        "stranger 99 (37 more in the minute before)",
    ]


def test_a_proof_is_of_one_token_one_purpose_and_one_meeting():
    mine, theirs = new_nonce(), new_nonce()
    shown = proof(TOKEN, Purpose.DATA_CALLER, mine, theirs)
    assert proves(shown, TOKEN, Purpose.DATA_CALLER, mine, theirs)
    assert not proves(shown, b"x" * 16, Purpose.DATA_CALLER, mine, theirs)
    assert not proves(shown, TOKEN, Purpose.DATA_LISTENER, mine, theirs)
    assert not proves(shown, TOKEN, Purpose.DATA_CALLER, theirs, mine)
    assert not proves(shown, TOKEN, Purpose.DATA_CALLER, mine + theirs, b"")


def test_a_process_takes_the_descriptors_that_it_may_have(monkeypatch):
    found = []
    monkeypatch.setattr(resource, "getrlimit", lambda _what: (1024, 4096))
    monkeypatch.setattr(resource, "setrlimit", lambda _what, limits: found.append(limits))
    raise_limit()
    assert found == [(4096, 4096)]
