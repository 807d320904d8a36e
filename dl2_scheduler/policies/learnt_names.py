"""This module says what a policy's name means, without importing any policy."""

from pathlib import Path

DL2 = "dl2:"
"""The beginning of a learnt policy's name; the path of its run follows."""

CHIC = "chic:"
"""The beginning of the name of a policy of Chic; the path of its run follows."""


def absolute(policy: str) -> str:
    """Return a policy's name that means the same in whichever folder it is read: paths become absolute."""
    if not policy.startswith(DL2):
        return policy
    return f"{DL2}{Path(policy.removeprefix(DL2)).expanduser().absolute()}"
