"""This module says what a policy's name means, without importing any policy."""

from pathlib import Path

from dl2_scheduler.cluster.errors import BadInput

DL2 = "dl2:"
"""The beginning of a learnt policy's name; the path of its run follows."""

CHIC = "chic:"
"""The beginning of the name of a policy of Chic; the path of its run follows."""


def absolute(policy: str) -> str:
    """Return a policy's name that means the same in whichever folder it is read: paths become absolute.

    Raises:
        BadInput: see `named_folder`.
    """
    if not policy.startswith(DL2):
        return policy
    return f"{DL2}{named_folder(policy.removeprefix(DL2)).absolute()}"


def named_folder(written: str) -> Path:
    """Return the folder that a policy's name ends with; ~ is a home. Raises BadInput: of nobody."""
    try:
        return Path(written).expanduser()
    except RuntimeError as error:
        raise BadInput(f"{written}: {error}") from error
