"""A launcher of a whole job hears these events beside what its coordinator wants: threads post them to its one loop."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ProcessExited:
    """A process of the launcher's has ended.

    Attributes:
        nonce: the launcher's name for it.
        status: its exit status.
    """

    nonce: str
    status: int


@dataclass(frozen=True, slots=True)
class ExitTold:
    """The coordinator has heard of a process's end.

    Attributes:
        nonce: of the process.
        known: it had registered.
    """

    nonce: str
    known: bool


@dataclass(frozen=True, slots=True)
class LauncherSignalled:
    """Somebody wants the job to end.

    Attributes:
        number: of the signal.
    """

    number: int


@dataclass(frozen=True, slots=True)
class LauncherRefused:
    """The coordinator does not take this launcher for one of its job's.

    Attributes:
        reason: for people.
    """

    reason: str


@dataclass(frozen=True, slots=True)
class CoordinatorSilent:
    """The coordinator runs and does not answer.

    Attributes:
        seconds: for which it has not.
        coordinator: which one, of those that have listened so far.
    """

    seconds: float
    coordinator: int
