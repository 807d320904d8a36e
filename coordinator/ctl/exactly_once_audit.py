"""An audit proves from the servers' ledger that every sample of every epoch entered every parameter exactly once.

Protocol, invariant 4. The proof knows N, B and what the servers applied; it shares no code with the data order that it
proves: it counts.
"""

import sys
from array import array
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from elastic_ps.control.codec import runs_from_pb
from protos import elastic_pb2 as pb

_SHOWN = 20

Counts = NDArray[np.int64]
"""How often each position of an epoch was used."""


class _Tally:
    """A tally holds what all entries of the same blocks say, in some bytes of each: a ledger may have millions.

    Attributes:
        versions: that they were applied to, in the ledger's order.
        used: by epoch and exchange, the ends of the pieces that they took: one low and one high after the other.
    """

    def __init__(self) -> None:
        self.versions = array("q")
        self.used: dict[tuple[int, int], array[int]] = {}
        self._places = array("q")
        self._servers: list[str] = []

    def count(self, entry: pb.LedgerEntry, place: int) -> None:
        """Count an entry, which has this place in the ledger."""
        self.versions.append(entry.version)
        self._places.append(place)
        self._servers.append(sys.intern(entry.server))
        used = self.used.setdefault((entry.epoch, entry.exchange), array("q"))
        used.extend(end for piece in entry.slices for end in (piece.low, piece.high))

    @property
    def updates(self) -> Iterator[tuple[int, int, str]]:
        """Place, version and server of each entry."""
        return zip(self._places, self.versions, self._servers, strict=True)


class _Group(NamedTuple):
    """A group holds blocks that the same tallies tell of, so that what is found of one of them is true of all."""

    blocks: list[int]
    tallies: list[_Tally]


@dataclass(frozen=True)
class Audit:
    """An audit holds what the ledger shows.

    Attributes:
        epochs: that were found complete, or should have been.
        samples: positions used, by epoch.
        updates: ledger entries that count.
        voided: entries that a restored checkpoint took back.
        problems: what contradicts "exactly once"; empty: proved.
        remarks: which blocks have no update: those of frozen layers, or of a server whose entries are lost.
    """

    epochs: int
    samples: tuple[int, ...]
    updates: int
    voided: int
    problems: tuple[str, ...] = field(default=())
    remarks: tuple[str, ...] = field(default=())

    @property
    def exactly_once(self) -> bool:
        """Return whether every sample of every epoch was used exactly once."""
        return not self.problems and self.epochs > 0


def audit(
    entries: Iterable[pb.LedgerEntry],
    samples: int,
    global_batch: int,
    epochs: int,
    last: str = "short",
    begin: int = 0,
    blocks: int = 0,
) -> Audit:
    """Check a finished job's ledger.

    Args:
        entries: of all servers, in any order.
        samples: N, of one epoch.
        global_batch: B.
        epochs: that the job was to make.
        last: what became of the N mod B samples at an epoch's end.
        begin: first epoch to check. A coordinator that lost its folder has no ledger of what was applied before, but
            for what servers had not reported yet: the epochs that began after its return can be proved.
        blocks: that the job has; 0: those that the ledger speaks of.
    """
    expected = _expected(samples, global_batch, last)
    tallies: dict[tuple[int, ...], _Tally] = defaultdict(_Tally)
    problems: list[str] = []
    updates = voided = 0
    for entry in entries:
        if entry.epoch < begin:
            continue
        if entry.voided:
            voided += 1
            continue
        tallies[tuple(entry.runs)].count(entry, updates)
        updates += 1
        problems += _beyond(entry, len(expected)) if entry.epoch < epochs and len(problems) < _SHOWN else []
    groups = _groups(tallies)
    problems += _doubled_versions(groups)
    places = {place for tally in tallies.values() for place in tally.used}
    exchanges = sorted({exchange for _, exchange in places}) or [0]
    for epoch in range(begin, epochs):
        for exchange in exchanges:
            problems += _check_epoch(epoch, exchange, groups, expected)
    unasked = sorted(place for place in places if place[0] >= epochs)
    problems += [f"updates of epoch {epoch}, which the job was not to make" for epoch, _ in unasked]
    used = (int(expected.sum()),) * max(0, epochs - begin)
    return Audit(epochs - begin, used, updates, voided, tuple(problems[:_SHOWN]), _remarks(groups, blocks))


def first_whole_epoch(entries: Iterable[pb.LedgerEntry]) -> int:
    """Return the epoch from which on a ledger that was lost has all entries again.

    It begins with what servers had not reported yet, which is more of one server's blocks than of another's.

    Args:
        entries: of all servers, in any order.
    """
    first: dict[tuple[int, ...], int] = {}
    for entry in entries:
        pattern = tuple(entry.runs)
        first[pattern] = min(entry.epoch, first.get(pattern, entry.epoch))
    begun: dict[int, int] = {}
    for pattern, epoch in first.items():
        for low, count in runs_from_pb(pattern):
            for block in range(low, low + count):
                begun[block] = min(epoch, begun.get(block, epoch))
    return 1 + max(begun.values(), default=0)


def _expected(samples: int, global_batch: int, last: str) -> Counts:
    """Return how often each position of an epoch is to be used."""
    rest = samples % global_batch
    if not rest or last == "short":
        return np.ones(samples, dtype=np.int64)
    if last == "drop":
        return np.ones(samples - rest, dtype=np.int64)
    return np.ones(samples - rest + global_batch, dtype=np.int64)


def _beyond(entry: pb.LedgerEntry, positions: int) -> list[str]:
    """Return problems for positions that an epoch does not have."""
    return [
        f"epoch {entry.epoch} step {entry.step}: {piece.worker} used positions {piece.low}..{piece.high}, "
        f"but the epoch has {positions}"
        for piece in entry.slices
        if piece.high > positions
    ]


def _groups(tallies: Mapping[tuple[int, ...], _Tally]) -> list[_Group]:
    """Return all blocks, each in one group. Blocks mostly come together: a ledger has many entries and few groups."""
    told_of: dict[int, list[_Tally]] = defaultdict(list)
    for runs, tally in tallies.items():
        for first, count in runs_from_pb(runs):
            for block in range(first, first + count):
                told_of[block].append(tally)
    alike: dict[tuple[int, ...], _Group] = {}
    for block, found in sorted(told_of.items()):
        alike.setdefault(tuple(map(id, found)), _Group([], found)).blocks.append(block)
    return list(alike.values())


def _doubled_versions(groups: Sequence[_Group]) -> list[str]:
    """Return problems for blocks whose version was applied twice (invariant 1)."""
    problems: list[str] = []
    for group in groups:
        versions = np.concatenate([np.asarray(tally.versions) for tally in group.tallies])
        found, times = np.unique(versions, return_counts=True)
        if (twice := found[times > 1]).size:
            problems += _doubled(group, set(twice[:_SHOWN].tolist()))
    return problems


def _doubled(group: _Group, versions: Set[int]) -> Iterator[str]:
    """Yield a problem for each block of a group, and each entry that applies one of these versions again."""
    updates = sorted(update for tally in group.tallies for update in tally.updates if update[1] in versions)
    seen: set[int] = set()
    for _, version, server in updates:
        if version in seen:
            yield from (
                f"block {block}: version {version} was applied twice, again by {server}" for block in group.blocks
            )
        seen.add(version)


def _check_epoch(epoch: int, exchange: int, groups: Sequence[_Group], expected: Counts) -> list[str]:
    """Check that every block had each position of an epoch as often as expected."""
    problems, recorded = [], False
    for group in groups:
        used = [tally.used[epoch, exchange] for tally in group.tallies if (epoch, exchange) in tally.used]
        if not used:
            continue
        recorded = True
        count = _times(used, len(expected))
        wrong = np.flatnonzero(count != expected)
        if len(wrong):
            rest = f", and {len(wrong) - 1} more positions" if len(wrong) > 1 else ""
            times = f"{count[wrong[0]]} times instead of {expected[wrong[0]]}{rest}"
            problems += [
                f"epoch {epoch}, block {block}: position {wrong[0]} was used {times}" for block in group.blocks
            ]
    return problems if recorded else [f"epoch {epoch}: no update was recorded (exchange {exchange})"]


def _times(used: Sequence[Sequence[int]], positions: int) -> Counts:
    """Return how often each position is in pieces that are told as their ends, one low and one high after the other."""
    ends = np.minimum(np.concatenate([np.asarray(each, dtype=np.int64) for each in used]), positions)
    low, high = ends[::2], np.maximum(ends[::2], ends[1::2])
    changes = np.bincount(low, minlength=positions + 1) - np.bincount(high, minlength=positions + 1)
    return np.cumsum(changes[:positions])


def _remarks(groups: Sequence[_Group], blocks: int) -> tuple[str, ...]:
    """Return of which blocks no update was recorded, in all epochs or in some: a proof says nothing of them."""
    epochs = [{epoch for tally in group.tallies for epoch, _ in tally.used} for group in groups]
    every = set().union(*epochs)
    seen = {block for group in groups for block in group.blocks}
    never = [block for block in range(blocks) if block not in seen]
    partly = sorted(
        (block, min(every - those))
        for group, those in zip(groups, epochs, strict=True)
        for block in group.blocks
        if those != every
    )
    found = []
    if never:
        found.append(f"no update was recorded of {len(never)} of {blocks} blocks, such as {never[0]}")
    if partly:
        block, epoch = partly[0]
        found.append(f"no update was recorded in some epochs of {len(partly)} blocks, such as {block} in {epoch}")
    return tuple(f"{each}: their layers are frozen, or a server's entries are lost" for each in found)
