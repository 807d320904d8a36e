"""A `Sampler` yields the indices of this worker's part of the data, in the elastic order."""

import weakref
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch.utils.data import IterableDataset

from elastic_ps.core.errors import ConfigurationError
from elastic_ps.core.script_arguments import yes_or_no
from elastic_ps.data.prefetch import Prefetch
from elastic_ps.data.sampler import Sampler as ElasticOrder
from elastic_ps.data.sampler import refuse_other_length
from elastic_ps.torch.optimizer import optimizers
from elastic_ps.torch.other_optimizers import note_optimizers, others_refused
from elastic_ps.worker.script.worker_job import script_job

Indices = NDArray[np.int64]


class Sampler:
    """A `Sampler` yields the indices of this worker's slice of each step until the epoch ends.

        sampler = elastic.Sampler(dataset, global_batch=256, shuffle=True)
        for epoch in elastic.epochs(10):
            for indices in sampler:
                images, labels = my_batch(indices)
                ...
                optimizer.step()

    It is for scripts that load batches by themselves; `DataLoader` does it for the others.

    Args:
        dataset: has len() and [index]; range(n) will do.
        global_batch: samples of a step over all workers, however many there are.
        shuffle: each epoch has an order of its own, by the job's seed; else that of the data set.
        drop_last: leave out the last step of an epoch where it has fewer samples.
        loss: "mean" where the script's loss is averaged over samples, as PyTorch's are; "sum" where it is summed.

    Raises:
        ConfigurationError: a bad value.
    """

    _ahead: Prefetch | None = None

    def __init__(
        self,
        dataset: Any,
        global_batch: int | None = None,
        *,
        shuffle: bool = False,
        drop_last: bool = False,
        loss: str = "mean",
    ):
        name = type(self).__name__
        if isinstance(dataset, IterableDataset) or not (
            hasattr(dataset, "__getitem__") and hasattr(dataset, "__len__")
        ):
            raise ConfigurationError(
                f"elastic.{name} needs a data set with len() and [index]: of one that can only be iterated over nobody "
                "could say which samples a worker that came or died has used. Give a map-style torch.utils.data.Dataset"
            )
        if global_batch is None:
            raise ConfigurationError(f"elastic.{name} needs global_batch, the samples of a step over all workers")
        self.dataset = dataset
        lookahead = self._ahead.look_ahead if self._ahead is not None else None
        last = "drop" if yes_or_no("drop_last", drop_last) else "short"
        load = _defining(self._take)
        self._step = 0
        self._order = ElasticOrder(len(dataset), global_batch, load, lookahead, last=last, loss=loss, shuffle=shuffle)

    def __len__(self) -> int:
        """Return the steps of an epoch, of all workers together."""
        return self._order.spec.steps_per_epoch

    @property
    def step(self) -> int:
        """The number of the job's step whose batch was yielded last, from 0 over all epochs; 0 in the rehearsal."""
        return self._step

    @property
    def global_batch(self) -> int:
        """The samples of a step over all workers."""
        return self._order.global_batch

    def __iter__(self) -> Iterator[Any]:
        name = type(self).__name__
        if script_job().epochs is None:
            raise ConfigurationError(
                f"the loop over an elastic.{name} is outside of `for epoch in elastic.epochs(n)`: a worker that "
                "joins would not know in which epoch the job is"
            )
        job = script_job()
        if job.rehearsed and job.epochs is not None and job.epoch >= job.epochs:
            raise ConfigurationError(
                f"the loop over an elastic.{name} is behind the last of elastic.epochs({job.epochs}), and has no batch "
                "any more: to evaluate, or for torch.optim.swa_utils.update_bn, take torch.utils.data.DataLoader"
            )
        refuse_other_length(self.dataset, self._order.spec)
        if not job.rehearsed:
            note_optimizers()
        for number, _indices, batch in self._order:
            self._step = number
            before = _steps()
            for optimizer in optimizers():
                optimizer.begin_batch()
            try:
                with others_refused():
                    yield batch
            finally:
                is_left = _steps() == before
                for optimizer in optimizers():
                    optimizer.end_batch(is_left)
            if is_left:
                raise ConfigurationError(
                    "no optimizer.step() in this batch: call it in every batch, of an elastic.Optimizer that was made "
                    "before the loop. For larger batches give a larger global_batch; a worker may divide its batch and "
                    "call backward() for each part, of its mean loss times len(part) / len(batch)"
                )

    def _take(self, indices: Indices) -> Any:
        """Return what is yielded for a step."""
        return indices.tolist()


def _defining(take: Callable[[Indices], Any]) -> Callable[[Indices], Any]:
    """Return what calls a method, and in the rehearsal then has the optimizers tell the job of their models.

    They do so behind the first batch's loading: processes that load get `collate_fn` with what it refers to, perhaps
    the model, whose tensors PyTorch moves into shared memory for that. From then on they stay where they are.

    It keeps the method's object no longer than others do: processes that load for one that is gone end at once, and
    not when Python comes to look for cycles. Who iterates over it keeps it.
    """
    kept = weakref.WeakMethod(take)

    def taken(indices: Indices) -> Any:
        method = kept()
        assert method is not None
        found = method(indices)
        if script_job().staging.rehearsing:
            for optimizer in optimizers():
                optimizer.define()
        return found

    return taken


def _steps() -> int:
    return sum(optimizer.steps for optimizer in optimizers())
