"""What can go wrong.

SchedulerError
├── BadInput        a file or an option is wrong; the text says where, and how to mend it
└── Starved         a policy gives jobs nothing, for ever
"""


class SchedulerError(Exception):
    """Any error of the scheduler that is not a defect of it."""


class BadInput(SchedulerError):
    """What a user gave cannot be used."""


class Starved(SchedulerError):
    """Jobs are left that a policy never gives enough."""
