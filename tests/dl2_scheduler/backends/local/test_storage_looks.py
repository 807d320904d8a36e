"""Looks at file systems that hang: they cost a bounded number of threads, whoever asks for whatever."""

import errno
import threading

import pytest

from dl2_scheduler.backends.local import storage_looks
from dl2_scheduler.backends.local.storage_looks import StorageLooks
from dl2_scheduler.cluster.errors import BadInput
from tests.dl2_scheduler.local_cases import HERE
from tests.dl2_scheduler.played_cluster import document

SECONDS = 20.0


@pytest.fixture
def hung(monkeypatch):
    """Looks of which as many hang as may, and what lets them answer."""
    monkeypatch.setattr(storage_looks, "_MOST_LOOKS", 2)
    monkeypatch.setattr(storage_looks, "_SECONDS", 0.0)
    looks, answers = StorageLooks(), threading.Event()
    for what in ("a", "b"):
        with pytest.raises(TimeoutError):
            looks.ask(what, lambda: answers.wait(SECONDS))
    yield looks, answers
    answers.set()


def test_no_more_are_begun_than_may_hang_and_others_are_told_so(hung):
    looks, _ = hung
    with pytest.raises(OSError, match="2 others do not answer: no more are asked until one does") as refused:
        looks.ask("c", lambda: True)
    assert refused.value.errno == errno.EAGAIN, "jobs wait for what the machine lacks"
    with pytest.raises(TimeoutError):
        looks.ask("a", lambda: True)  # it is under way


def test_what_has_answered_makes_room_also_where_nobody_asks_again(hung, monkeypatch):
    looks, answers = hung
    threads = [thread for thread in threading.enumerate() if thread.name.startswith("looks for")]
    answers.set()
    for thread in threads:
        thread.join(SECONDS)
    monkeypatch.setattr(storage_looks, "_SECONDS", SECONDS)
    assert looks.ask("c", lambda: True)
    assert not looks._looks


def test_a_submission_is_refused_with_the_reason(hung, serve):
    desk = serve().desk
    desk._looks = hung[0]
    asked = document().replace("- command:", "- workingDir: mine\n            command:")
    with pytest.raises(BadInput, match=r"workingDir: there/mine cannot be looked at now: 2 others do not answer"):
        desk.submit(asked, HERE)
