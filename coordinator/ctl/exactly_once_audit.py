"""An audit proves from the servers' ledger that every sample of every epoch entered every parameter exactly once.

Protocol, invariant 4. The proof knows N, B and what the servers applied; it shares no code with the data order that it
proves: it counts.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from elastic_ps.control.codec import runs_from_pb
from protos import elastic_pb2 as pb

_SHOWN = 20

Counts = NDArray[np.int64]
"""How often each position of an epoch was used."""


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
    kept = []
    voided = 0
    for entry in entries:
        if entry.epoch < begin:
            continue
        if entry.voided:
            voided += 1
        else:
            kept.append(entry)
    problems = _doubled_versions(kept)
    by_exchange: dict[tuple[int, int], list[pb.LedgerEntry]] = defaultdict(list)
    for entry in kept:
        by_exchange[entry.epoch, entry.exchange].append(entry)
    exchanges = sorted({exchange for _, exchange in by_exchange}) or [0]
    used = []
    expected = _expected(samples, global_batch, last)
    for epoch in range(begin, epochs):
        for exchange in exchanges:
            found = by_exchange.pop((epoch, exchange), [])
            problems += _check_epoch(epoch, exchange, found, expected)
        used.append(int(expected.sum()))
    problems += [f"updates of epoch {epoch}, which the job was not to make" for epoch, _ in sorted(by_exchange)]
    remarks = _remarks(kept, blocks)
    return Audit(epochs - begin, tuple(used), len(kept), voided, tuple(problems[:_SHOWN]), remarks)


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


def _doubled_versions(entries: Sequence[pb.LedgerEntry]) -> list[str]:
    """Return problems for blocks whose version was applied twice (invariant 1)."""
    seen: set[tuple[int, int]] = set()
    problems = []
    for entry in entries:
        for first, count in runs_from_pb(entry.runs):
            for block in range(first, first + count):
                if (entry.version, block) in seen:
                    problems.append(
                        f"block {block}: version {entry.version} was applied twice, again by {entry.server}"
                    )
                seen.add((entry.version, block))
    return problems


def _check_epoch(epoch: int, exchange: int, entries: Sequence[pb.LedgerEntry], expected: Counts) -> list[str]:
    """Check that every block had each position of an epoch as often as expected."""
    if not entries:
        return [f"epoch {epoch}: no update was recorded (exchange {exchange})"]
    counts: dict[int, Counts] = {}
    by_pattern: dict[tuple[int, ...], list[pb.LedgerEntry]] = defaultdict(list)
    for entry in entries:
        by_pattern[tuple(entry.runs)].append(entry)
    problems = []
    for pattern, alike in by_pattern.items():
        count = np.zeros(len(expected), dtype=np.int64)
        for entry in alike:
            for piece in entry.slices:
                if piece.high > len(expected):
                    problems.append(
                        f"epoch {epoch} step {entry.step}: {piece.worker} used positions {piece.low}..{piece.high}, "
                        f"but the epoch has {len(expected)}"
                    )
                count[piece.low : piece.high] += 1
        for first, blocks in runs_from_pb(pattern):
            for block in range(first, first + blocks):
                counts[block] = counts[block] + count if block in counts else count
    for block, count in counts.items():
        wrong = np.flatnonzero(count != expected)
        if len(wrong):
            problems.append(
                f"epoch {epoch}, block {block}: position {wrong[0]} was used {count[wrong[0]]} times instead of "
                f"{expected[wrong[0]]}" + (f", and {len(wrong) - 1} more positions" if len(wrong) > 1 else "")
            )
    return problems


def _remarks(entries: Sequence[pb.LedgerEntry], blocks: int) -> tuple[str, ...]:
    """Return of which blocks no update was recorded, in all epochs or in some: a proof says nothing of them."""
    by_pattern: dict[tuple[int, ...], set[int]] = defaultdict(set)
    for entry in entries:
        by_pattern[tuple(entry.runs)].add(entry.epoch)
    seen: dict[int, set[int]] = defaultdict(set)
    for pattern, epochs in by_pattern.items():
        for first, count in runs_from_pb(pattern):
            for block in range(first, first + count):
                seen[block] |= epochs
    every = set().union(*by_pattern.values())
    never = [block for block in range(blocks) if block not in seen]
    partly = sorted(block for block, epochs in seen.items() if epochs != every)
    found = []
    if never:
        found.append(f"no update was recorded of {len(never)} of {blocks} blocks, such as {never[0]}")
    if partly:
        epoch = min(every - seen[partly[0]])
        found.append(f"no update was recorded in some epochs of {len(partly)} blocks, such as {partly[0]} in {epoch}")
    return tuple(f"{each}: their layers are frozen, or a server's entries are lost" for each in found)
