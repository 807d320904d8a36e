"""This module holds the errors of the scheduler: what can go wrong, as a tree.

SchedulerError
├── BadInput        a file or an option is wrong; the text says where, and how to mend it
├── Starved         a policy gives jobs nothing, for ever
├── NoSuchJob       a live cluster has no job of that name
├── ClusterRefused  a live cluster will not do it, and says why
├── NotServed       no `dl2 serve` answers
├── StateNotWritten the state of a live cluster cannot be written down, so nothing more is done
└── TrialFailed     a job that was started to be measured has not done its part
"""

from pathlib import Path


class SchedulerError(Exception):
    """A `SchedulerError` is any error of the scheduler that is not a defect of it."""


class BadInput(SchedulerError):
    """`BadInput` is raised where a file or an option of a user cannot be used."""


class Starved(SchedulerError):
    """`Starved` is raised where jobs are left that a policy never gives enough."""


class NoSuchJob(SchedulerError):
    """`NoSuchJob` is raised where no job of that name has been submitted."""


class ClusterRefused(SchedulerError):
    """`ClusterRefused` is raised where a cluster will not do what is asked; the message says why."""


class NotServed(SchedulerError):
    """`NotServed` is raised where nobody serves the cluster of a folder."""


class StateNotWritten(SchedulerError):
    """`StateNotWritten` is raised where what shall be done cannot be written down before it is done.

    Args:
        path: the path of the file.
        why: not.
    """

    def __init__(self, path: Path, why: object):
        super().__init__(f"cannot write {path}: {why}; mend that, and start dl2 serve again: jobs go on meanwhile")


class TrialFailed(SchedulerError):
    """`TrialFailed` is raised where a job that is measured has not done its part; the message names its log."""
