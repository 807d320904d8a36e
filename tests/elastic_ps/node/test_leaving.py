"""What SIGTERM makes of a node: a drain, asked for until it is done; else a checkpoint and its end."""

import logging

import pytest

from elastic_ps.core.errors import ConfigurationError, CoordinatorLost, JobEnded
from elastic_ps.node import leaving
from elastic_ps.node.leaving import leave_or_save

LOST = CoordinatorLost("nobody answers at 10.0.0.1:7000")
OUT = "out"


class Asked:
    """A session whose answers to `leave` are given, one a time; `None`: yes, OUT: yes, and the drain is done."""

    def __init__(self, *answers, save=None):
        self.answers, self.save, self.calls, self.out = list(answers), save, [], False

    def leave(self):
        self.calls.append("leave")
        answer = self.answers.pop(0)
        self.out = answer is OUT
        if isinstance(answer, Exception):
            raise answer

    def checkpoint(self):
        self.calls.append("save")
        if self.save is not None:
            raise self.save
        return "file:///saved/1"

    def closes_within(self, seconds):
        self.calls.append("wait")
        return self.out


def test_a_drain_is_all():
    session = Asked(OUT)
    assert leave_or_save(session) == ""
    assert session.calls == ["leave", "wait"]


def test_the_end_of_the_job_is_no_refusal():
    assert leave_or_save(Asked(JobEnded("finished", 0))) == ""


def test_a_refusal_has_the_job_saved():
    session = Asked(ConfigurationError("its script draws its own batches"))
    assert leave_or_save(session).endswith("(its script draws its own batches); the job was saved to file:///saved/1")
    assert session.calls == ["leave", "save"]


def test_what_cannot_be_saved_is_said():
    why = leave_or_save(Asked(ConfigurationError("no"), save=ConfigurationError("no folder for checkpoints")))
    assert why.endswith("(no), nor the job be saved (no folder for checkpoints)")


def test_a_coordinator_that_is_away_is_asked_until_it_is_back(caplog):
    """On Kubernetes a drained machine takes coordinator and operator along: that lasts longer than one call."""
    caplog.set_level(logging.WARNING)
    session = Asked(*[LOST] * 5, OUT)
    assert leave_or_save(session) == ""
    assert session.calls.count("leave") == 6
    assert [record.getMessage() for record in caplog.records] == [
        f"SIGTERM, but no coordinator answers to drain this node ({LOST}): it keeps asking"
    ]


def test_a_coordinator_that_has_forgotten_the_wish_hears_it_again():
    session = Asked(None, LOST, None, OUT)
    assert leave_or_save(session) == ""
    assert session.calls.count("leave") == 4


@pytest.mark.parametrize("save", [None, ConfigurationError("no folder for checkpoints")])
def test_a_drain_that_takes_long_is_insured_by_one_checkpoint(monkeypatch, save):
    clock = iter(range(0, 1000, 4))
    monkeypatch.setattr(leaving.time, "monotonic", lambda: next(clock))
    session = Asked(*[None] * 8, OUT, save=save)
    assert leave_or_save(session) == ""
    assert session.calls.count("save") == 1
    assert session.calls.index("save") > 3


def test_a_node_that_is_out_while_the_job_is_saved_complains_of_nothing(monkeypatch, caplog):
    caplog.set_level(logging.WARNING)
    clock = iter(range(0, 1000, 11))
    monkeypatch.setattr(leaving.time, "monotonic", lambda: next(clock))
    session = Asked(None, JobEnded("the session was closed", 0), save=JobEnded("the session was closed", 0))
    save = session.checkpoint

    def checkpoint():
        session.out = True
        return save()

    session.checkpoint = checkpoint
    assert leave_or_save(session) == ""
    assert session.calls == ["leave", "wait", "save", "wait", "leave"]
    assert not caplog.records
