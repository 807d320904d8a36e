"""A `FollowedLedger` keeps what owners have written down of the blocks that a server follows."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from elastic_ps.control.codec import runs_from_pb, runs_to_pb
from elastic_ps.core.configuration import ConfigId, NodeId
from elastic_ps.core.model import Run
from elastic_ps.core.segments import joined, mask_of, runs_of
from elastic_ps.transport.meta_parts import Written
from protos import elastic_pb2 as pb


class FollowedLedger:
    """A `FollowedLedger` has the entries of each owner that the coordinator is not known to have.

    Should the owner die, who goes on with its blocks tells them under its name. Not thread-safe.
    """

    def __init__(self) -> None:
        self._entries: dict[NodeId, dict[int, pb.LedgerEntry]] = defaultdict(dict)

    def keep(self, owner: NodeId, number: ConfigId, version: int, written: Written, updated: Sequence[Run]) -> None:
        """Keep an entry, or what it has more than is known of it.

        Args:
            owner: whose ledger it is in.
            number: id of the configuration in which the update was made.
            version: the version that the blocks had before.
            written: what the ledger says.
            updated: runs of the blocks.
        """
        entry = self._entries[owner].get(written.sequence)
        if entry is None:
            entry = self._entries[owner][written.sequence] = pb.LedgerEntry(
                server=owner,
                sequence=written.sequence,
                term=number.term,
                number=number.number,
                version=version,
                epoch=written.epoch,
                step=written.step,
                exchange=written.exchange,
                slices=[pb.Slice(worker=worker, low=low, high=high) for worker, low, high in written.slices],
            )
        _set(entry, runs_of(mask_of([*runs_from_pb(entry.runs), *updated])))

    def kept(self, owner: NodeId, sequence: int) -> None:
        """Drop the entries of an owner below `sequence`: the coordinator has them."""
        if owner in self._entries:
            known = self._entries[owner]
            for old in [number for number in known if number < sequence]:
                del known[old]

    def take(
        self, owners: Collection[NodeId], counts: NDArray[np.bool_], versions: NDArray[np.int64]
    ) -> list[pb.LedgerEntry]:
        """Return, and forget, what owners have written down of updates that are in this server's blocks.

        Args:
            owners: that have died, or may have.
            counts: by block, whether it counts.
            versions: by block.
        """
        found = []
        for owner in sorted(self._entries.keys() & set(owners)):
            for _, entry in sorted(self._entries.pop(owner).items()):
                of = mask_of(runs_from_pb(entry.runs))
                _set(entry, runs_of(of & counts[: len(of)] & (versions[: len(of)] > entry.version)))
                if entry.runs:
                    found.append(entry)
        return found

    @property
    def owners(self) -> frozenset[NodeId]:
        """Those of whose ledgers something is known here that the coordinator is not known to have."""
        return frozenset(self._entries)

    def forget(self, others_than: Collection[NodeId]) -> None:
        """Forget the entries of all owners but some: they have left, and told them themselves."""
        for owner in self._entries.keys() - set(others_than):
            del self._entries[owner]


def _set(entry: pb.LedgerEntry, updated: Iterable[Run]) -> None:
    entry.runs[:] = runs_to_pb(joined(updated))
