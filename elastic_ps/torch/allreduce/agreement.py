"""The members of a new configuration agree here on one version, before its first step. Pure.

tests/allreduce_model tries every order of deaths and switches on it.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from elastic_ps.core.errors import JobEnded

BEGINS = -1
"""The version of a worker that has no parameters but its script's own, in a job that has trained nothing."""

LACKS = -2
"""The version of a worker that joins a job which has trained: its own parameters mean nothing."""


@dataclass(frozen=True)
class Agreement:
    """An `Agreement` says who gives what to whom, by ranks, so that all hold one version.

    Attributes:
        version: that all hold afterwards.
        giver: who gives.
        records: who lacks the last step's gradient alone, and applies it.
        states: who lacks more, and takes everything.
    """

    version: int
    giver: int
    records: frozenset[int]
    states: frozenset[int]


def agree(held: Sequence[int], keeps: Sequence[bool]) -> Agreement:
    """Return how all members of a configuration come to hold the newest version that any of them holds.

    Nobody goes back: a version was reached by a reduced gradient that all members of its step had contributed to.

    Args:
        held: by rank, the version that a member holds; `BEGINS` or `LACKS` where it holds none.
        keeps: by rank, whether the member keeps the gradient that led to its version.

    Raises:
        JobEnded: the job has trained, and nobody has its parameters any more.
    """
    newest = max(held)
    if newest == LACKS:
        raise JobEnded("nobody has the job's parameters any more: all workers that had them are gone", 1)
    giver = held.index(newest)
    if newest == BEGINS:
        return Agreement(0, giver, frozenset(), frozenset(range(len(held))) - {giver})
    behind = frozenset(rank for rank, version in enumerate(held) if version < newest)
    by_one = frozenset(rank for rank in behind if held[rank] == newest - 1 and held[rank] >= 0)
    keepers = [rank for rank, version in enumerate(held) if version == newest and keeps[rank]]
    if not by_one or not keepers:
        return Agreement(newest, giver, frozenset(), behind)
    return Agreement(newest, keepers[0], by_one, behind - by_one)
