"""A `Sampler` is the elastic data order, as a training script iterates over it."""

import logging
from collections.abc import Callable, Iterator, Sized
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from elastic_ps.core.data_order import CONSISTENCIES, DataSpec, indices, permutation, share
from elastic_ps.core.errors import ConfigurationError
from elastic_ps.core.script_arguments import check_function, whole_number, yes_or_no
from elastic_ps.core.script_hints import ITERATE_OVER_SAMPLER
from elastic_ps.worker.script.data_position import StepPart
from elastic_ps.worker.script.script_job import ScriptJob
from elastic_ps.worker.script.worker_job import script_job

log = logging.getLogger(__name__)

_LOOKAHEAD = 4
_MOST_STALENESS = 2**32 - 1


class Sampler:
    """A `Sampler` yields (step, indices, batch) of this worker's part of the data, until the epoch ends.

    Every sample of an epoch is used exactly once by the whole job, whatever joins, leaves or dies. The first batch
    is a rehearsal: what is pushed then is not counted. Under "sync" all workers share each step, and it may be yielded
    again where a worker died in it. Under "async" and "ssp" each step is one worker's, which updates the parameters
    alone.

    Args:
        samples: N, of one epoch: the length of the data set.
        global_batch: "sync": B, samples of a step over all workers.
        load: called with the indices of a step; what it returns is the batch. None: the batch is None.
        lookahead: called after each step with the indices that will probably come next, for prefetching.
        last: "short", "drop" or "wrap": what becomes of the N mod B samples at an epoch's end.
        loss: "sum" where the script's loss is summed over samples, "mean" where it is averaged.
        batch: "async", "ssp": samples of a step, which is one worker's.
        consistency: "sync", "async" or "ssp", of the whole job.
        staleness: "ssp": steps that a worker may complete more than the slowest, 1 or more.
        shuffle: the order of an epoch is a permutation; else it is that of the data set.

    Attributes:
        spec: what the job is told of it.

    Raises:
        ConfigurationError: a bad value, or a second sampler of another data set.
    """

    def __init__(
        self,
        samples: int,
        global_batch: int | None = None,
        load: Callable[[NDArray[np.int64]], Any] | None = None,
        lookahead: Callable[[list[NDArray[np.int64]]], None] | None = None,
        *,
        last: str = "short",
        loss: str = "sum",
        batch: int | None = None,
        consistency: str = "sync",
        staleness: int = 0,
        shuffle: bool = True,
    ):
        size = _batch_size(consistency, global_batch, batch)
        count, ahead = whole_number("samples", samples), whole_number("staleness", staleness, 0, _MOST_STALENESS)
        check_function("load", load)
        check_function("lookahead", lookahead)
        order = "shuffled" if yes_or_no("shuffle", shuffle) else "given"
        self.spec = DataSpec(True, count, size, last, loss, 1, consistency, ahead, order)
        self._load = load
        self._lookahead = lookahead
        self._order: tuple[int, NDArray[np.int64]] | None = None

    @property
    def batch_size(self) -> int:
        """Samples of one update, of all workers or ("async", "ssp") of one: what gradients are divided by."""
        return self.spec.global_batch

    @property
    def global_batch(self) -> int:
        """`batch_size`, by the name of its argument under "sync"."""
        return self.batch_size

    def __iter__(self) -> Iterator[tuple[int, NDArray[np.int64], Any]]:
        job = script_job()
        if job.spec is not None and replace(job.spec, exchanges=self.spec.exchanges) != self.spec:
            raise ConfigurationError(
                "a job has one elastic sampler: iterate over the same one in every epoch, and use a plain loop for "
                "validation data"
            )
        job.draws += 1
        job.leave_step()
        if job.rehearsed and _is_behind(job):
            return
        if not job.rehearsed:
            yield self._rehearsal(job)
            if job.staging.rehearsing:
                job.perform()
            if job.loop_epoch not in (None, job.epoch):
                return  # the job has come to a later epoch meanwhile, which the script's loop has next
        epoch = job.epoch
        if job.epochs is not None and epoch >= job.epochs:
            return  # the job has come to its end while this worker rehearsed
        loop = job.open_loop = object()
        try:
            yield from self._steps(job, epoch, loop)
        finally:  # it is over, or the script has let it go
            if job.open_loop is loop:
                job.open_loop = None
        job.used_epoch = epoch

    def _steps(self, job: ScriptJob, epoch: int, loop: object) -> Iterator[tuple[int, NDArray[np.int64], Any]]:
        while (part := _next_part(job, epoch, loop)) is not None:
            job.draws += 1  # a script may keep the iterator from one epoch's body to the next
            assert part.place is not None
            assert job.data_position is not None
            if not len(part.positions):
                job.skip_step()
                continue
            chosen = self._indices(job, epoch, part.positions)
            yield epoch * self.spec.steps_per_epoch + part.place.step, chosen, self._batch(chosen)
            if job.end_step(part) and self._lookahead is not None:
                coming = job.data_position.upcoming(part.place, _LOOKAHEAD)
                self._lookahead([self._indices(job, epoch, positions) for positions in coming])

    def _rehearsal(self, job: ScriptJob) -> tuple[int, NDArray[np.int64], Any]:
        """Return a batch of the usual size, from the epoch's start."""
        job.rehearse(self.spec)
        workers = max(len(job.node.configuration.workers), 1) if self.spec.is_sync else 1
        rank = job.rank % workers if self.spec.is_sync else 0
        positions = share(self.spec, 0, rank, workers)
        chosen = self._indices(job, 0, positions if len(positions) else range(1))
        return 0, chosen, self._batch(chosen)

    def _batch(self, chosen: NDArray[np.int64]) -> Any:
        return self._load(chosen) if self._load is not None else None

    def _indices(self, job: ScriptJob, epoch: int, positions: range) -> NDArray[np.int64]:
        if self._order is None or self._order[0] != epoch:
            samples = self.spec.samples
            shuffled = self.spec.order == "shuffled"
            order = permutation(job.node.seed, epoch, samples) if shuffled else np.arange(samples, dtype=np.int64)
            self._order = (epoch, order)
        return indices(self._order[1], positions)


def _is_behind(job: ScriptJob) -> bool:
    """Return whether the job is past the epoch that the script's body is in: by what this worker did there, or before.

    Raises:
        ConfigurationError: a loop before this one has come to the epoch's end, so that this one would take the next's.
    """
    if job.loop_epoch is None or job.epoch <= job.loop_epoch:
        return False
    if job.used_epoch == job.loop_epoch:
        raise ConfigurationError(
            f"the loop over a sampler begins when the samples of epoch {job.loop_epoch} are used, by a loop before it "
            "in the body of `for epoch in epochs(n)`: do in one loop all that is done with them, or have an epoch for "
            "each (epochs(2 * n)); to evaluate, load the data without the job"
        )
    return True


def _next_part(job: ScriptJob, epoch: int, loop: object) -> StepPart | None:
    """Return this worker's part of the next step; None: `epoch` is over.

    Raises:
        ConfigurationError: another loop has begun meanwhile, and goes on: neither could end its own steps.
    """
    if job.open_loop not in (None, loop):
        raise ConfigurationError(
            "two loops over the job's samples go on at once, as in zip(loader, loader), and each would take the "
            "other's steps: make one data set whose [index] returns what both yield"
        )
    return job.begin_step(epoch)


def refuse_other_length(dataset: Sized, spec: DataSpec) -> None:
    """Refuse to begin an epoch of a data set that has become longer or shorter: the job's steps are those of before.

    Args:
        dataset: that the script iterates over.
        spec: what the job was told of it.

    Raises:
        ConfigurationError: the numbers of samples differ.
    """
    if len(dataset) != spec.samples:
        raise ConfigurationError(
            f"the data set has {len(dataset)} samples now, and had {spec.samples} when its loader was made, which the "
            "job divides in each epoch: make it with all that it comes to have, and let [index] say what stands for "
            "those that are not there yet"
        )


def _batch_size(consistency: str, global_batch: int | None, batch: int | None) -> int:
    """Return the batch size that the consistency takes, for a DataSpec.

    Raises:
        ConfigurationError: the other one is given, or none, or it is no whole number.
    """
    if consistency == "sync":
        taken, other, rule = global_batch, batch, "global_batch, the samples of a step over all workers, and no batch"
    else:
        taken, other, rule = batch, global_batch, "batch, the samples of each worker's own step, and no global_batch"
    if consistency in CONSISTENCIES and (taken is None or other is not None):
        raise ConfigurationError(f'consistency "{consistency}" takes {rule}')
    # 0 is refused there, like an unknown consistency
    return whole_number("global_batch" if consistency == "sync" else "batch", 0 if taken is None else taken)


def epochs(count: int) -> Iterator[int]:
    """Yield the epochs from the job's present one to `count` - 1.

    A joiner enters in the job's current epoch, a restored job in its checkpoint's. Where the job has come to a later
    one when the joiner has rehearsed, its first epoch has the rehearsal alone. Who comes when the last one is over gets
    that one all the same: by its rehearsal the script has the job's parameters.

    Args:
        count: epochs of the whole job.

    Raises:
        ConfigurationError: at once: `count` is no whole number, or below 0; in the loop: its body does not iterate over
            a Sampler, or a loop before this one has trained all these epochs.
    """
    return _epochs(whole_number("the number of epochs", count, 0))


def refuse_past_epochs(job: ScriptJob, count: int, module: str = "elastic_ps") -> None:
    """Refuse a loop that would train nothing, as one before it in the script has trained all its epochs.

    Args:
        job: of the script.
        count: of the loop.
        module: that the script has `epochs` from.

    Raises:
        ConfigurationError: it is such a loop.
    """
    if job.rehearsed and job.epochs is not None and count <= job.epochs and job.epoch >= count:
        raise ConfigurationError(
            f"{module}.epochs({count}) has no epoch left: epochs are those of the whole job, and a loop before has "
            f"come to {job.epoch}. A loop that goes on takes the number of all epochs behind it, such as "
            f"{module}.epochs({job.epoch + count}); another model or data set is another job"
        )


def _epochs(count: int) -> Iterator[int]:
    job = script_job()
    refuse_past_epochs(job, count)
    job.epochs = count
    epoch = job.epoch if job.rehearsed else min(job.epoch, max(count - 1, 0))
    told = False
    while epoch < count:
        draws, job.loop_epoch = job.draws, epoch
        try:
            yield epoch
        finally:  # a loop over the sampler behind this one is in no epoch's body
            job.loop_epoch = None
        job.leave_step()
        # a body that skips an epoch of a sync job would get it again for ever, as all workers make each step
        if not job.rehearsed or (job.draws == draws and job.spec is not None and job.spec.is_sync):
            raise ConfigurationError(f"the body of `for epoch in elastic_ps.epochs(n)` {ITERATE_OVER_SAMPLER}")
        if job.epoch == epoch and job.draws != draws and not told:
            told = True
            log.warning(
                "epoch %d comes again, as the script has left its loop over the samples (break) before all were used: "
                "an epoch comes until they are. To use fewer make the data set smaller; to end the training leave the "
                "loop over epochs, too",
                epoch,
            )
        epoch = job.epoch
