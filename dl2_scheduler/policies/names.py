"""What a policy's name means, without the policies."""

from pathlib import Path

DL2 = "dl2:"
"""Followed by the path of a run, of its learnt policy."""


def absolute(policy: str) -> str:
    """A policy's name that means the same wherever it is read."""
    if not policy.startswith(DL2):
        return policy
    return f"{DL2}{Path(policy.removeprefix(DL2)).expanduser().absolute()}"
