"""This module says how often nodes report to their coordinator, which tells by that who lives."""

_MOST_SECONDS = 1.0
"""Operators see the job no older than this."""


def report_seconds(lease: float) -> float:
    """Return after how many seconds a node reports again, also where nothing has happened.

    Args:
        lease: seconds that the coordinator lets a node be silent.
    """
    return min(lease / 3, _MOST_SECONDS)
