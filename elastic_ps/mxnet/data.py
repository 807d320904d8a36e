"""This module loads batches of a Gluon data set in the elastic order, ahead of their use, in threads."""

import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import mxnet as mx
import numpy as np
from mxnet.gluon.data.dataloader import default_batchify_fn
from numpy.typing import NDArray

from elastic_ps.core.errors import ConfigurationError
from elastic_ps.core.script_arguments import check_function, whole_number
from elastic_ps.data.prefetch import Prefetch
from elastic_ps.data.sampler import Sampler, refuse_other_length


class ElasticDataLoader:
    """An `ElasticDataLoader` yields (step, indices, batch) of this worker's slices until the epoch ends.

        loader = ElasticDataLoader(dataset, global_batch=64, num_workers=2)
        for epoch in elastic_ps.epochs(10):
            for step, indices, (images, labels) in loader:
                ...
                trainer.step(loader.batch_size)

    Under "async" and "ssp" nobody knows which batch comes next: each is loaded when it is needed. Else batches are
    loaded ahead, and those that a new configuration made stale are thrown away. Threads load (decoding and numpy
    release the interpreter lock); a process must not fork once gRPC has started. What the data set draws at random is
    not reproducible where several threads draw.

    Args:
        dataset: has len() and [index], as gluon.data.Dataset; [index] must be safe to call from several threads.
        global_batch: see `elastic_ps.Sampler`.
        batchify_fn: makes a batch of a list of samples; None: Gluon's, which stacks.
        num_workers: threads; 0 loads each batch when it is needed.
        prefetch: batches loaded ahead, as far as the sampler can foresee them; default: 2 for each thread.
        last: see `elastic_ps.Sampler`.
        loss: see `elastic_ps.Sampler`.
        batch: see `elastic_ps.Sampler`.
        consistency: see `elastic_ps.Sampler`.
        staleness: see `elastic_ps.Sampler`.

    Raises:
        ConfigurationError: a bad value.
    """

    def __init__(
        self,
        dataset: Any,
        global_batch: int | None = None,
        *,
        batchify_fn: Callable[[list[Any]], Any] | None = None,
        num_workers: int = 1,
        prefetch: int | None = None,
        last: str = "short",
        loss: str = "sum",
        batch: int | None = None,
        consistency: str = "sync",
        staleness: int = 0,
    ):
        if not (hasattr(dataset, "__getitem__") and hasattr(dataset, "__len__")):
            raise ConfigurationError(
                f"ElasticDataLoader needs a data set with len() and [index], as gluon.data.Dataset, not {dataset!r:.80}"
            )
        count = whole_number("num_workers", num_workers, 0)
        check_function("batchify_fn", batchify_fn)
        self._dataset = dataset
        # None of what it hands on refers to itself: threads end with it, and not when Python comes to look for cycles.
        load = partial(_load, dataset, default_batchify_fn if batchify_fn is None else batchify_fn)
        most = 2 * count if prefetch is None else whole_number("prefetch", prefetch, 0)
        self._threads: ThreadPoolExecutor | None = None
        self._prefetch: Prefetch | None = None
        if count and most:
            # MXNet has its numpy semantics by thread, and the script has chosen them for the main one.
            np_scope = mx.util.is_np_shape(), mx.util.is_np_array()
            threads = self._threads = ThreadPoolExecutor(count, "elastic-data", mx.util.set_np, np_scope)
            weakref.finalize(self, threads.shutdown, wait=False, cancel_futures=True)
            self._prefetch = Prefetch(lambda indices: threads.submit(load, indices), load, most)
        self._sampler = Sampler(
            len(dataset),
            global_batch,
            self._prefetch.take if self._prefetch else load,
            self._prefetch.look_ahead if self._prefetch else None,
            last=last,
            loss=loss,
            batch=batch,
            consistency=consistency,
            staleness=staleness,
        )

    def __len__(self) -> int:
        """Return the steps of an epoch, of all workers together."""
        return self._sampler.spec.steps_per_epoch

    @property
    def batch_size(self) -> int:
        """See `Sampler.batch_size`."""
        return self._sampler.batch_size

    @property
    def global_batch(self) -> int:
        """See `Sampler.global_batch`."""
        return self._sampler.global_batch

    def __iter__(self) -> Iterator[tuple[int, NDArray[np.int64], Any]]:
        refuse_other_length(self._dataset, self._sampler.spec)
        yield from self._sampler  # who iterates over it keeps it


def _load(dataset: Any, batchify: Callable[[list[Any]], Any], indices: NDArray[np.int64]) -> Any:
    return batchify([dataset[int(index)] for index in indices])
