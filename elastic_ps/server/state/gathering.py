"""`Gathering` keeps contributions to the open updates of blocks until the roster is complete, and adds them by rank."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from elastic_ps.core.configuration import NodeId
from elastic_ps.core.data_order import DataSpec, Slice
from elastic_ps.core.model import Run, runs
from elastic_ps.core.optimizer import Hyper
from elastic_ps.core.segments import Raw
from elastic_ps.core.sparse_rows import Rows, summed
from elastic_ps.optimizers.gradient_sum import Contribution, GradientSum
from elastic_ps.server.blocks.block_store import ServerBlockStore
from elastic_ps.server.phases import Given, weights


@dataclass(frozen=True, slots=True)
class Share:
    """A `Share` is a worker's part of a step.

    Attributes:
        samples: how many the worker has in the step.
        slice: what its push is about; None for static data.
        version: which it pushes; -1: none. Not told of a batch that is the worker's own.
        empty: it has no samples in the step.
    """

    samples: int = 0
    slice: Slice | None = None
    version: int = -1
    empty: bool = False


@dataclass(slots=True)
class _Kept:
    run: Run
    data: Contribution
    blocks_left: int


class Gathering:
    """`Gathering` knows contributions by rank and block. Not thread-safe: `ServerState.changed` guards it.

    Args:
        blocks: how many blocks the model has.
        workers: the workers of the configuration in force, in rank order.

    Attributes:
        given: int8 of shape (workers, blocks): `Given` by rank and block.
        source: int64 of shape (workers, blocks): number of the contribution that holds the gradient; -1: none does.
    """

    def __init__(self, blocks: int, workers: Sequence[NodeId]):
        self.workers = tuple(workers)
        self.given = np.zeros((len(self.workers), blocks), dtype=np.int8)
        self.source = np.full((len(self.workers), blocks), -1, dtype=np.int64)
        self._latest = [Share()] * len(self.workers)  # by rank, and the one before
        self._earlier = [Share()] * len(self.workers)
        self._kept: dict[int, _Kept] = {}
        self._next = 0

    def grow(self, blocks: int) -> None:
        """Take in that the model has `blocks` blocks now."""
        new = blocks - self.given.shape[1]
        self.given = np.pad(self.given, ((0, 0), (0, new)), constant_values=Given.NOTHING)
        self.source = np.pad(self.source, ((0, 0), (0, new)), constant_values=-1)

    def keep(self, rank: int, run: Run, given: Given, data: Contribution | None = None) -> None:
        """Keep a contribution to a run; it replaces an earlier one of the same rank.

        Args:
            rank: the worker's rank.
            run: the blocks that it contributes to.
            given: what it contributes.
            data: the gradient, which must stay as it is; None: there is none.
        """
        window = slice(run[0], run[0] + run[1])
        self._free(rank, run)
        self.given[rank, window] = given
        if data is not None:
            self._kept[self._next] = _Kept(run, data, run[1])
            self.source[rank, window] = self._next
            self._next += 1

    def note(self, rank: int, share: Share) -> bool:
        """Note which part of a version a worker pushes; return whether it has said nothing of that version before."""
        known = self._latest[rank]
        if share.version > known.version:
            self._earlier[rank] = known
        if share.version >= known.version:
            self._latest[rank] = share
        return share.version > known.version

    def has_come_to(self, rank: int, version: int) -> bool:
        """Return whether a worker has pushed, or asked for, something of a version or of a later one."""
        return self._latest[rank].version >= version

    def shares(self, version: int) -> list[Share]:
        """Return each worker's part of a version, by rank: the latest that it has pushed, or the one before."""
        return [
            next((share for share in both if share.version == version), Share())
            for both in zip(self._latest, self._earlier, strict=True)
        ]

    def settle(self, run: Run, version: int) -> None:
        """Take it that workers who are past a version give nothing more to blocks that have it.

        They have not heard of those when they pushed: their keys are new. So it is with a worker without samples.

        Args:
            run: the blocks, all at that version.
            version: the version.
        """
        for rank, both in enumerate(zip(self._latest, self._earlier, strict=True)):
            if (given := _left_out(*both, version)) is not Given.NOTHING:
                window = self.given[rank, run[0] : sum(run)]
                window[window == Given.NOTHING] = given

    def withdraw(self, node: NodeId, run_list: Sequence[Run]) -> None:
        """Forget a worker's contribution to these runs: it sends it once more, perhaps otherwise."""
        if node in self.workers:
            rank = self.workers.index(node)
            for run in run_list:
                self._forget(rank, run)

    def complete(self, run: Run) -> Iterator[Run]:
        """Yield the parts of a run to which every worker has contributed."""
        first, count = run
        ready = self.given[:, first : first + count].all(axis=0)  # `Given.NOTHING` is 0
        yield from runs((ready.nonzero()[0] + first).tolist())

    def drop(self, run: Run) -> None:
        """Forget all contributions to a run: they were applied, or cannot be."""
        for rank in range(len(self.workers)):
            self._free(rank, run)
        self.given[:, run[0] : run[0] + run[1]] = 0  # `Given.NOTHING`

    def drop_worker(self, rank: int) -> None:
        """Forget a dead worker's contributions."""
        self._forget(rank, (0, self.given.shape[1]))
        self._latest[rank] = self._earlier[rank] = Share()

    def _forget(self, rank: int, run: Run) -> None:
        self._free(rank, run)
        self.given[rank, run[0] : sum(run)] = Given.NOTHING

    def _free(self, rank: int, run: Run) -> None:
        if not self._kept:
            return
        sources = self.source[rank, run[0] : run[0] + run[1]]
        for number, count in Counter(sources[sources >= 0].tolist()).items():
            kept = self._kept[number]
            kept.blocks_left -= count
            if not kept.blocks_left:
                del self._kept[number]
        sources[...] = -1

    def combine(
        self,
        segment: Run,
        samples: Sequence[int],
        store: ServerBlockStore,
        hyper: Hyper | None,
        data: DataSpec,
    ) -> GradientSum | Rows:
        """Return the aggregate of a segment that every worker has contributed to, alike over the whole segment.

        Args:
            segment: alike in `given` and `source`.
            samples: of each worker in the step, by rank.
            store: the store that holds the blocks.
            hyper: the optimizer's values in the step.
            data: batch and loss, for the normalisation.
        """
        given = self.given[:, segment[0]].tolist()
        ranks = [rank for rank, kind in enumerate(given) if kind == Given.GRADIENT]
        found = []
        for rank in ranks:
            kept = self._kept[int(self.source[rank, segment[0]])]
            first = kept.run[0]
            found.append(store.part(kept.run, kept.data, segment[0] - first, sum(segment) - first))
        return aggregated(store, segment, found, [samples[rank] for rank in ranks], hyper, data)


def _left_out(latest: Share, earlier: Share, version: int) -> Given:
    """Return what a worker gives to blocks of a version that its pushes have not named."""
    if latest.version < version or (latest.version == version and not latest.empty):
        return Given.NOTHING  # it may name them yet
    pushed = earlier if latest.version > version else latest
    return Given.ABSENT if pushed.version == version and not pushed.empty else Given.EMPTY


def aggregated(
    store: ServerBlockStore,
    segment: Run,
    contributions: Sequence[Contribution],
    samples: Sequence[int],
    hyper: Hyper | None,
    data: DataSpec,
) -> GradientSum | Rows:
    """Return contributions to a segment as one: as rows where the others stay as they are.

    Args:
        store: the store that holds the blocks.
        segment: blocks of one treatment.
        contributions: the contributions, in the order in which they are added.
        samples: how many samples are behind each.
        hyper: the optimizer's values in the step.
        data: batch and loss, for the normalisation.
    """
    treatment = store.treatment(segment[0])
    each, factor = weights(data, treatment.auxiliary, samples)
    rows = [one for one in contributions if isinstance(one, Rows)]
    if rows and len(rows) == len(contributions) and treatment.takes_rows(hyper):
        return summed(rows, each, factor)
    dense = [_dense(store, segment, one) if isinstance(one, Rows) else one for one in contributions]
    return GradientSum([one.view(treatment.dtype) for one in dense], each, factor)


def _dense(store: ServerBlockStore, segment: Run, rows: Rows) -> Raw:
    """Return rows as bytes of all of the segment's rows, with its padding."""
    whole = np.zeros(store.span([segment]), np.uint8)
    values = rows.dense(store.row_updates.rows(segment)).view(np.uint8)
    whole[: len(values)] = values
    return whole
