"""A `ServerBlockStore` holds a server's blocks: values, optimizer state, versions, counts.

Every block has its place in images of the whole model, of which only what is held takes memory: a run of consecutive
blocks is one memory range, in the values (two images: see `double_buffer`) and in each state array. A switch of
configuration changes `status` and nothing else: no byte is moved. Work goes by *segments*: the longest sequences of
consecutive blocks that one vectorised operation can treat alike.

It is not thread-safe: `ServerState.changed` guards it.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from elastic_ps.core.errors import ProtocolError
from elastic_ps.core.gradient_norm import SKIPPED, DecidedFactor
from elastic_ps.core.model import Model, Run, Tensor, runs
from elastic_ps.core.module_file import NO_MODULES, ModuleFile
from elastic_ps.core.optimizer import Hyper
from elastic_ps.core.segments import Array, scatter, stretches
from elastic_ps.core.sparse_rows import Rows
from elastic_ps.optimizers.gradient_sum import Contribution, GradientSum
from elastic_ps.server.blocks.applied_batches import AppliedBatches, BatchId
from elastic_ps.server.blocks.double_buffer import DoubleBuffer
from elastic_ps.server.blocks.memory_release import UnusedMemory
from elastic_ps.server.blocks.row_updates import RowUpdates
from elastic_ps.server.blocks.state_arrays import StateArrays
from elastic_ps.server.blocks.treatments import Treatment, Treatments
from elastic_ps.server.phases import BlockStatus, having


class ServerBlockStore:
    """A `ServerBlockStore` keeps blocks by their ids and updates them by segments.

    Args:
        model: the job's, as known so far.
        modules: the modules that users' optimizers may come from.

    Attributes:
        status, versions, counts: by block id, as int8, int64 and int64. A count is the number of optimizer updates.
        extents, positions: by block id, as int64: bytes of a block with its padding, and where in the slab it begins.
        values: the blocks' values.
        applied: async and ssp: batches that the blocks have taken.
        decided: factors on gradients (`Hyper.factor`) of updates that were made here, or will be.
    """

    def __init__(self, model: Model, modules: Mapping[str, ModuleFile] = NO_MODULES):
        self.model = model
        self._treatments = Treatments(modules)
        self.values = DoubleBuffer()
        self.row_updates = RowUpdates(model)
        self._states = StateArrays()
        self.applied = AppliedBatches()
        self.decided = DecidedFactor()
        self._set_arrays(0)
        self.grow(model, ())

    def _set_arrays(self, size: int) -> None:
        self.status = np.zeros(size, dtype=np.int8)
        self.versions = np.zeros(size, dtype=np.int64)
        self.counts = np.zeros(size, dtype=np.int64)
        self.extents = np.zeros(size, dtype=np.int64)
        self.positions = np.zeros(size, dtype=np.int64)
        self._treatment = np.zeros(size, dtype=np.int64)
        self._optimized = np.zeros(size, dtype=bool)

    # ---- the model -------------------------------------------------------------------------------------------------

    def grow(self, model: Model, optimizers: Sequence[str]) -> None:
        """Take over a model that has grown at its end, and optimizers (JSON, by key store) that were set.

        Raises:
            ConfigurationError: an optimizer that this server cannot run.
        """
        self._treatments.grow(model, optimizers)
        self.model = model
        blocks, known = model.blocks, len(self.status)
        for name in ("status", "versions", "counts", "extents", "positions", "_treatment"):
            old = getattr(self, name)
            setattr(self, name, np.append(old, np.zeros(len(blocks) - known, dtype=old.dtype)))
        self.applied.grow(len(blocks))
        self.row_updates.grow(model)
        self.extents[known:] = [block.extent for block in blocks[known:]]
        self.positions[known:] = [block.position for block in blocks[known:]]
        self._treatment[:] = [self._treatments.of_tensor[block.tensor] for block in blocks]
        self._optimized = np.array([self._treatments[kind].rule is not None for kind in self._treatment], dtype=bool)
        self.values.grow(model)
        self._grow_states()

    def treatment(self, block: int) -> Treatment:
        """Return how a block is updated."""
        return self._treatments[int(self._treatment[block])]

    def tensor(self, block: int) -> Tensor:
        """Return the tensor that a block is part of."""
        return self.model.tensors[self.model.blocks[block].tensor]

    def refusal(self, block: int, hyper: Hyper | None) -> str:
        """Return why a gradient for a block cannot be taken under `hyper`; "" where it can."""
        treatment = self.treatment(block)
        return treatment.refusal or treatment.lack(hyper, self.tensor(block).name)

    def updates(self, blocks: NDArray[np.int64]) -> int:
        """Return the highest count of optimizer updates among blocks."""
        return int(self.counts[blocks][self._optimized[blocks]].max(initial=0))

    # ---- memory ----------------------------------------------------------------------------------------------------

    def _grow_states(self) -> None:
        """Make room for the state arrays, and give first ones where an optimizer was set just now: to copies, too."""
        layouts = np.array([self._treatments[treatment].layout for treatment in self._treatment], dtype=np.int64)
        valued = ~having(self.status, BlockStatus.ABSENT, BlockStatus.EMPTY) & (self.versions >= 0)
        for layout in self._states.grow(self.model.slab_bytes, self._treatments.layouts()):
            for run in runs(np.flatnonzero((layouts == layout) & valued).tolist()):
                self.init_states(run)

    def allocate(self, blocks: Sequence[int], status: BlockStatus) -> None:
        """Hold blocks from now on, whose values come; what was `unused` of their memory is zero by now."""
        ids = np.asarray(blocks, dtype=np.int64)
        self.status[ids] = status
        self.values.sides[ids] = 0
        self.versions[ids] = 0
        self.counts[ids] = 0

    def release(self, blocks: Iterable[int], unused: UnusedMemory, keeps_values: bool = False) -> None:
        """Forget blocks.

        Args:
            blocks: ascending ids.
            unused: takes their memory, which must be zero before other blocks come there.
            keeps_values: workers may read the values yet: they stay as they are.
        """
        gone = list(runs(blocks))
        self.applied.forget(gone)
        for run in gone:
            self.row_updates.forget(run)
            for segment in self.segments(run):
                span, treatment = self.model.span(segment), self.treatment(segment[0])
                if not keeps_values:
                    self.values.release(span, unused)
                self._states.release(treatment, span, unused)
            self.status[run[0] : run[0] + run[1]] = BlockStatus.ABSENT

    # ---- runs ------------------------------------------------------------------------------------------------------

    def held(self, status: BlockStatus) -> NDArray[np.int64]:
        """Return the ids of the blocks of a status."""
        found: NDArray[np.int64] = having(self.status, status).nonzero()[0]
        return found

    def span(self, runs_: Iterable[Run]) -> int:
        """Return how many bytes the values of runs have on the wire.

        Raises:
            ProtocolError: blocks that the model does not have, or more of them than it has.
        """
        total = named = 0
        for first, count in runs_:
            named += count
            if first < 0 or count < 1 or first + count > len(self.status):
                last = first + count - 1
                raise ProtocolError(f"blocks {first} to {last} are named, but the model has {len(self.status)}")
            if named > len(self.status):  # the least text could ask for any amount of memory
                raise ProtocolError(f"{named} blocks are named, but the model has {len(self.status)}")
            last = first + count - 1
            total += int(self.positions[last] + self.extents[last] - self.positions[first])
        return total

    def segments(self, run: Run, *alike: Array) -> Iterator[Run]:
        """Cut a run where memory, treatment, or one of the arrays `alike` (last axis: block ids) changes."""
        window = slice(run[0], run[0] + run[1])
        kinds: tuple[Array, ...] = (self.values.sides, self._treatment, *alike)
        for low, high in stretches(*(array[..., window] for array in kinds)):
            yield run[0] + low, high - low

    def alike(self, blocks: Array, *arrays: Array) -> Iterator[Run]:
        """Yield ascending block ids as runs over which each of `arrays` is constant; the treatment may change."""
        for first, count in runs(blocks.tolist()):
            window = slice(first, first + count)
            for low, high in stretches(self.status[window], *(array[window] for array in arrays)):
                yield first + low, high - low

    def value(self, segment: Run) -> Array:
        """Return a segment's values, flat, in its dtype."""
        return self.values.present(segment).view(self.treatment(segment[0]).dtype)

    def sides(self, segment: Run) -> tuple[Array, Array]:
        """Return the values of a segment of one tensor, flat, without padding, and the memory that its update writes
        to.
        """
        last, dtype = self.model.blocks[sum(segment) - 1], self.treatment(segment[0]).dtype
        end = last.nbytes - last.extent or None
        return self.values.present(segment)[:end].view(dtype), self.values.coming(segment)[:end].view(dtype)

    def states(self, segment: Run) -> dict[str, Array]:
        """Return a segment's state arrays by name, flat, in the order of the rule."""
        return self._states.arrays(self.treatment(segment[0]), self.model.span(segment))

    # ---- changes ---------------------------------------------------------------------------------------------------

    def part(self, run: Run, data: Contribution, low: int, high: int) -> Contribution:
        """Return the part of what came for a run that belongs to its blocks [low, high).

        Args:
            run: the run that it came for.
            data: as it came off the wire.
            low: first block, counted from the run's.
            high: behind the last block.
        """
        if isinstance(data, Rows):
            return data.between(self.row_updates.rows((run[0] + low, high - low)))
        return self.cut(run, data, low, high)

    def cut(self, run: Run, data: NDArray[np.uint8], low: int, high: int) -> NDArray[np.uint8]:
        """Return the part of a run's bytes that belongs to its blocks [low, high).

        Args:
            run: the run that the bytes belong to.
            data: values, with their padding.
            low: first block, counted from the run's.
            high: behind the last block.
        """
        first, count = run
        start = int(self.positions[first + low] - self.positions[first])
        stop = int(self.positions[first + high] - self.positions[first]) if high < count else data.nbytes
        return data[start:stop]

    def write_values(self, run: Run, data: NDArray[np.uint8]) -> None:
        """Replace a run's values by bytes off the wire."""
        self.row_updates.forget(run)
        scatter(data, self.values.pieces(run))

    def init_states(self, run: Run) -> None:
        """Give first values their state."""
        for segment in self.segments(run):
            rule = self.treatment(segment[0]).rule
            states = self.states(segment)
            if rule is not None and states:
                rule.init(states, self.value(segment))

    def update_segment(
        self, segment: Run, aggregate: GradientSum | Rows | None, hyper: Hyper | None, batch: BatchId | None = None
    ) -> None:
        """Take a segment (alike in counts, too) to its next version.

        Args:
            aggregate: in the values' dtype; rows: the others stay as they are; None: nobody pushed these keys.
            hyper: the optimizer's values; needed where the segment has a rule. By its factor the update may be skipped.
            batch: async and ssp: what the segment takes by it. There a version counts the block's own updates, so
                that it stays where the key was not pushed.
        """
        first, count = segment
        window = slice(first, first + count)
        if hyper is not None and hyper.factor is not None:
            self.decided.note(int(self.versions[first]), hyper.factor)
            aggregate = aggregate if hyper.factor != SKIPPED else None
        self.values.begin(int(self.versions[first]) + 1)
        if isinstance(aggregate, Rows):
            self._update_rows(segment, aggregate, hyper)
        elif aggregate is not None:
            self._update_all(segment, aggregate, hyper)
        if aggregate is not None:
            self.counts[window] += 1
        if batch is not None:
            self.applied.take(batch, segment)
        if batch is None or aggregate is not None:
            self.versions[window] += 1

    def _update_all(self, segment: Run, aggregate: GradientSum, hyper: Hyper | None) -> None:
        treatment = self.treatment(segment[0])
        old, new = self.value(segment), self.values.coming(segment).view(treatment.dtype)
        if treatment.rule is None:
            aggregate.write(new)
        else:
            treatment.rule.apply(old, new, aggregate, self.states(segment), *self.step(segment[0], hyper))
        self.values.turn(segment)
        self.row_updates.forget(segment)

    def _update_rows(self, segment: Run, aggregate: Rows, hyper: Hyper | None) -> None:
        rule = self.treatment(segment[0]).rule
        assert rule is not None, "where the aggregate is the value, it has all rows"
        count, factors = self.step(segment[0], hyper)

        def apply(old: Array, new: Array, added: GradientSum, states: dict[str, Array]) -> None:
            rule.apply(old, new, added, states, count, factors)

        self.row_updates.update_rows(segment, aggregate, self.sides(segment), self.states(segment), apply)
        self.values.turn(segment)

    def row_values(self, segment: Run, numbers: NDArray[np.int64]) -> Rows:
        """Return a copy of some rows of a segment's values; `numbers` are ascending and in it."""
        rows = self.row_updates.rows(segment)
        return Rows(numbers, self.sides(segment)[0].reshape(len(rows), -1)[numbers - rows.start])

    def step(self, block: int, hyper: Hyper | None) -> tuple[int, Hyper]:
        """Number and values of a block's coming update."""
        if hyper is None:
            raise ProtocolError(f"an update of key {self.tensor(block).name} without hyperparameters")
        return int(self.counts[block]) + 1, self.treatment(block).hyper(hyper)

    def state_bytes(self, run: Run) -> int:
        """Return how many bytes a run's state arrays have."""
        return sum(array.nbytes for segment in self.segments(run) for array in self.states(segment).values())

    def has_one_treatment(self, run: Run) -> bool:
        """Return whether the blocks of a run have the same state arrays, one behind the other."""
        kinds = self._treatment[run[0] : sum(run)]
        return bool((kinds == kinds[0]).all())

    def load_states(self, segment: Run, data: NDArray[np.uint8], counts: Sequence[int]) -> None:
        """Replace a segment's state arrays and counts; its values stay.

        Args:
            segment: blocks of one treatment.
            data: bytes of the arrays, one behind the other.
            counts: the optimizer's updates, by block.
        """
        scatter(data, self.states(segment).values())
        self.counts[segment[0] : sum(segment)] = counts

    # ---- blocks as they travel -------------------------------------------------------------------------------------

    def image_bytes(self, segment: Run) -> int:
        """Return how many bytes `image` has."""
        return sum(part.nbytes for part in self.image(segment))

    def image(self, segment: Run) -> list[Array]:
        """Return a segment's values and states: the memory itself, in the order in which it travels."""
        return [self.value(segment), *self.states(segment).values()]

    def load(
        self,
        segment: Run,
        data: NDArray[np.uint8],
        version: int,
        counts: Sequence[int],
        applied: Mapping[str, Sequence[int]],
    ) -> None:
        """Replace a segment by an `image` of it that came from another server or a checkpoint.

        Args:
            segment: blocks of one treatment.
            data: bytes of the image.
            version: the version of its blocks.
            counts: the optimizer's updates, by block.
            applied: image of the batches that its blocks have taken.

        Raises:
            ProtocolError: another number of bytes than these blocks have here.
        """
        window = slice(segment[0], segment[0] + segment[1])
        self.row_updates.forget(segment)
        self.values.sides[window] = counts[0] % 2  # so that blocks that come at different versions are in one image
        parts = self.image(segment)
        if sum(part.nbytes for part in parts) != data.nbytes:
            raise ProtocolError(
                f"blocks {segment[0]} to {sum(segment) - 1} came with {data.nbytes} bytes of values and state, "
                f"but have {sum(part.nbytes for part in parts)} here: do all servers run the same optimizer?"
            )
        scatter(data, parts)
        self.versions[window] = version
        self.counts[window] = counts
        self.applied.load(segment, applied)
