"""The members of a new configuration agree here on one version, before its first step. Pure.

tests/allreduce_model tries every order of deaths and switches on it.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from elastic_ps.core.errors import JobEnded

BEGINS = -1
"""The version of a worker that has no parameters but its script's own, in a job that has trained nothing."""

LACKS = -2
"""The version of a worker that joins a job which has trained: its own parameters mean nothing."""


@dataclass(frozen=True)
class HeldVersion:
    """A `HeldVersion` is what a member tells at an agreement.

    Attributes:
        held: the version that it holds; `BEGINS` or `LACKS` where it holds none.
        keeps: it keeps the gradient that led to this version.
        proven: it has agreed with members on a version before; else it has no more than followed one.
        fingerprint: of its parameters and their states.
        shape: of what its steps sum, as a number; with another one they could not be summed.
    """

    held: int
    keeps: bool = False
    proven: bool = True
    fingerprint: int = 0
    shape: int = 0

    def told(self) -> list[float]:
        """Return it as numbers."""
        return list(map(float, (self.held, self.keeps, self.proven, self.fingerprint, self.shape)))

    @staticmethod
    def of(told: Sequence[float]) -> "HeldVersion":
        """Return what `told` has made numbers of."""
        return HeldVersion(int(told[0]), bool(told[1]), bool(told[2]), int(told[3]), int(told[4]))


def checked(holdings: Sequence[HeldVersion]) -> list[HeldVersion]:
    """Return holdings without those of shadows that have come to other parameters than a member of their version.

    They have: a script changes parameters otherwise than by its optimizer, or machines round differently.
    """
    sound = {each.held: each.fingerprint for each in holdings if each.proven}
    return [
        each if each.proven or sound.get(each.held, each.fingerprint) == each.fingerprint else replace(each, held=LACKS)
        for each in holdings
    ]


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


def agree(holdings: Sequence[HeldVersion]) -> Agreement:
    """Return how all members of a configuration come to hold the newest version that any of them holds.

    Nobody goes back: a version was reached by a reduced gradient that all members of its step had contributed to. One
    that has followed a member may have more than all others, and then they get it; but it may as well have less than
    the members have reported. So it can go on only together with one of them.

    Args:
        holdings: by rank.

    Raises:
        JobEnded: the job has trained, and nobody has its parameters any more.
    """
    held = [each.held for each in holdings]
    newest = max(held)
    if newest == LACKS or (newest >= 0 and not any(each.proven and each.held >= 0 for each in holdings)):
        raise JobEnded("nobody has the job's parameters any more: all workers that had them are gone", 1)
    giver = held.index(newest)
    if newest == BEGINS:
        return Agreement(0, giver, frozenset(), frozenset(range(len(held))) - {giver})
    behind = frozenset(rank for rank, version in enumerate(held) if version < newest)
    by_one = frozenset(rank for rank in behind if held[rank] == newest - 1 and held[rank] >= 0)
    keepers = [rank for rank, each in enumerate(holdings) if each.held == newest and each.keeps]
    if not by_one or not keepers:
        return Agreement(newest, giver, frozenset(), behind)
    return Agreement(newest, keepers[0], by_one, behind - by_one)
