"""What SIGTERM makes of a node: a drain, else a checkpoint and its end."""

import pytest

from elastic_ps.core.errors import ConfigurationError, CoordinatorLost, JobEnded
from elastic_ps.node.leaving import leave_or_save


class Asked:
    """A session whose answers are given; `None`: yes."""

    def __init__(self, leave=None, save=None):
        self.answers, self.calls = {"leave": leave, "save": save}, []

    def _ask(self, what):
        self.calls.append(what)
        if self.answers[what] is not None:
            raise self.answers[what]

    def leave(self):
        self._ask("leave")

    def checkpoint(self):
        self._ask("save")
        return "file:///saved/1"


def test_a_drain_is_all():
    session = Asked()
    assert leave_or_save(session) == ""
    assert session.calls == ["leave"]


def test_the_end_of_the_job_is_no_refusal():
    assert leave_or_save(Asked(JobEnded("finished", 0))) == ""


def test_the_last_of_its_role_has_the_job_saved():
    session = Asked(ConfigurationError("w0 is the last worker"))
    assert leave_or_save(session).endswith("(w0 is the last worker); the job was saved to file:///saved/1")
    assert session.calls == ["leave", "save"]


@pytest.mark.parametrize("lost", [CoordinatorLost("nobody answers"), ConfigurationError("no folder for checkpoints")])
def test_what_cannot_be_saved_is_said(lost):
    why = leave_or_save(Asked(CoordinatorLost("nobody answers"), lost))
    assert f"nor the job be saved ({lost})" in why
