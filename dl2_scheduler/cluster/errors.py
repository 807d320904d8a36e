"""What can go wrong.

SchedulerError
├── BadInput        a file or an option is wrong; the text says where, and how to mend it
├── Starved         a policy gives jobs nothing, for ever
├── NoSuchJob       a live cluster has no job of that name
├── RequestRefused  a live cluster will not do it, and says why
├── NotServed       no `dl2 serve` answers
├── StateNotWritten the state of a live cluster cannot be written down, so nothing more is done
└── TrialFailed     a job that was started to be measured has not done its part
"""

from pathlib import Path


class SchedulerError(Exception):
    """Any error of the scheduler that is not a defect of it."""


class BadInput(SchedulerError):
    """What a user gave cannot be used."""


class Starved(SchedulerError):
    """Jobs are left that a policy never gives enough."""


class NoSuchJob(SchedulerError):
    """No job of that name has been submitted."""


class RequestRefused(SchedulerError):
    """The cluster will not do it; the message says why."""


class NotServed(SchedulerError):
    """Nobody serves the cluster of a folder."""


class StateNotWritten(SchedulerError):
    """What shall be done cannot be written down before it is.

    Args:
        path: of the file.
        why: not.
    """

    def __init__(self, path: Path, why: object):
        super().__init__(f"cannot write {path}: {why}; mend that, and start dl2 serve again: jobs go on meanwhile")


class TrialFailed(SchedulerError):
    """A job that was started to be measured has not done its part; the message names its log."""
