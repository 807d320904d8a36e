"""The elastic data order, as a training script iterates over it."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from elastic_ps.core.data import DataSpec, Place, indices, permutation, place, share
from elastic_ps.core.errors import ConfigurationError
from elastic_ps.worker.job import WorkerJob, current_job

_LOOKAHEAD = 4


class Sampler:
    """Yields (step, indices, batch) of this worker's slices, until the epoch ends.

    Every sample of an epoch is used exactly once by the whole job, whatever joins, leaves or dies. The first batch
    is a rehearsal: what is pushed then is not counted. A step may be yielded again where a worker died in it.

    Args:
        samples: N, of one epoch: the length of the data set.
        global_batch: B, samples of a step over all workers. `trainer.step` takes this number.
        load: called with the indices of a step; what it returns is the batch. None: the batch is None.
        lookahead: called after each step with the indices that will probably come next, for prefetching.
        last: "short", "drop" or "wrap": what becomes of the N mod B samples at an epoch's end.
        loss: "sum" where the script's loss is summed over samples (Gluon), "mean" where it is averaged.

    Raises:
        ConfigurationError: a bad value, or a second sampler of another data set.
    """

    def __init__(
        self,
        samples: int,
        global_batch: int,
        load: Callable[[NDArray[np.int64]], Any] | None = None,
        lookahead: Callable[[list[NDArray[np.int64]]], None] | None = None,
        *,
        last: str = "short",
        loss: str = "sum",
    ):
        self.spec = DataSpec(True, samples, global_batch, last, loss)
        self.global_batch = global_batch
        self._load = load
        self._lookahead = lookahead
        self._order: tuple[int, NDArray[np.int64]] | None = None

    def __iter__(self) -> Iterator[tuple[int, NDArray[np.int64], Any]]:
        job = current_job()
        if not job.rehearsed:
            yield self._rehearsal(job)
            job.perform()
        spec = job.spec
        if spec is None or (spec.samples, spec.global_batch) != (self.spec.samples, self.spec.global_batch):
            raise ConfigurationError(
                "a job has one elastic sampler: iterate over the same one in every epoch, and use a plain loop for "
                "validation data"
            )
        epoch = place(spec, job.node.version).epoch
        while (here := job.begin_step()).epoch == epoch:
            if not len(job.positions):
                job.skip_step()
                continue
            chosen = self._indices(job, here.epoch, job.positions)
            yield here.epoch * spec.steps_per_epoch + here.step, chosen, self._batch(chosen)
            if job.end_step() and self._lookahead is not None:
                self._lookahead(self._upcoming(job, spec, here))

    def _rehearsal(self, job: WorkerJob) -> tuple[int, NDArray[np.int64], Any]:
        """A batch of the usual size, from the epoch's start."""
        job.rehearse(self.spec)
        workers = max(len(job.node.configuration.workers), 1)
        rank = job.node.configuration.ranks.get(job.node.session.node, 0)
        positions = share(self.spec, 0, rank, workers)
        chosen = self._indices(job, 0, positions if len(positions) else range(1))
        return 0, chosen, self._batch(chosen)

    def _batch(self, chosen: NDArray[np.int64]) -> Any:
        return self._load(chosen) if self._load is not None else None

    def _indices(self, job: WorkerJob, epoch: int, positions: range) -> NDArray[np.int64]:
        if self._order is None or self._order[0] != epoch:
            self._order = (epoch, permutation(job.node.seed, epoch, self.spec.samples))
        return indices(self._order[1], positions)

    def _upcoming(self, job: WorkerJob, spec: DataSpec, after: Place) -> list[NDArray[np.int64]]:
        workers = job.node.configuration.workers
        rank = job.node.configuration.ranks.get(job.node.session.node)
        if rank is None:
            return []
        steps = range(after.step + 1, min(after.step + 1 + _LOOKAHEAD, spec.steps_per_epoch))
        slices = [share(spec, step, rank, len(workers)) for step in steps]
        return [self._indices(job, after.epoch, positions) for positions in slices if len(positions)]


def epochs(count: int) -> Iterator[int]:
    """The epochs from the job's present one to `count` - 1.

    A joiner enters in the job's current epoch, a restored job in its checkpoint's.

    Args:
        count: epochs of the whole job.

    Raises:
        ConfigurationError: the loop's body does not iterate over a Sampler.
    """
    job = current_job()
    epoch = job.epoch
    while epoch < count:
        yield epoch
        if not job.rehearsed:
            raise ConfigurationError(
                "the body of `for epoch in elastic_ps.epochs(n)` must iterate over an elastic_ps.Sampler"
            )
        epoch = job.epoch
