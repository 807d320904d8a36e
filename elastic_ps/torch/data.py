"""A `DataLoader` loads the batches of a data set in the elastic order, ahead of their use, in processes."""

import errno
import multiprocessing
import os
import random
import signal
import threading
import weakref
import zlib
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from pickle import PicklingError
from typing import Any

import numpy as np
import torch
from torch._utils import ExceptionWrapper
from torch.utils.data import default_collate
from torch.utils.data._utils import worker
from torch.utils.data._utils.pin_memory import pin_memory

from elastic_ps.core.errors import ConfigurationError, ElasticError
from elastic_ps.core.script_arguments import check_function, whole_number
from elastic_ps.data.prefetch import Prefetch
from elastic_ps.system.process.file_descriptors import how_to_have_more, raise_limit
from elastic_ps.system.process.signals import ignore_sigterm
from elastic_ps.torch.sampler import Indices, Sampler
from elastic_ps.worker.script.worker_job import script_job

Collate = Callable[[list[Any]], Any]

_MOST_PROCESSES = 10_000

_DEAF = "elastic_ps.system.process.deaf_fork_server"
"""Who ends all processes of a machine together signals these, too, which a worker needs until it is drained."""

_INSTEAD = {
    "batch_size": "give global_batch, the samples of a step over all workers",
    "sampler": "the job divides the samples among its workers; give shuffle=True for a new order in each epoch",
    "batch_sampler": "the job divides the samples among its workers; give global_batch",
    "generator": "elasticrun --seed fixes the order of the samples",
    "timeout": "leave it out",
    "multiprocessing_context": "leave it out: processes are started by 'forkserver', as one that has joined a job "
    "must not fork",
}

_DEFAULTS = {"sampler": None, "batch_sampler": None, "generator": None, "timeout": 0, "multiprocessing_context": None}
"""PyTorch's own of these: a script that gives them asks for nothing."""


class DataLoader(Sampler):
    """A `DataLoader` yields the batches of this worker's slices until the epoch ends.

        loader = elastic.DataLoader(dataset, global_batch=256, num_workers=4, shuffle=True)
        for epoch in elastic.epochs(10):
            for images, labels in loader:
                ...
                optimizer.step()

    All workers together use every sample of an epoch once, whatever joins, leaves or dies. Batches that are loaded
    ahead and that a new configuration makes useless are thrown away.

    Args:
        dataset: has len() and [index]; with `num_workers` it is pickled, once for each process.
        global_batch: samples of a step over all workers, however many there are.
        shuffle: each epoch has an order of its own, by the job's seed; else that of the data set.
        num_workers: processes that load; 0: this one does, when a batch is needed.
        collate_fn: makes a batch of a list of samples; None: PyTorch's.
        pin_memory: batches are in memory from which `.to("cuda", non_blocking=True)` is fastest; without effect where
            there is no GPU.
        drop_last: leave out the last step of an epoch where it has fewer samples.
        worker_init_fn: called with the number of each process when it begins.
        prefetch_factor: batches that each process loads ahead, of the four that are known.
        persistent_workers: accepted as PyTorch's: the processes always stay.
        loss: "mean" where the script's loss is averaged over samples, as PyTorch's are; "sum" where it is summed.
        others: arguments of PyTorch's that are refused, with what to write instead, unless they are its defaults.

    Raises:
        ConfigurationError: a bad value.
        ElasticError: while batches are taken: a process that loads has ended.
    """

    def __init__(
        self,
        dataset: Any,
        global_batch: int | None = None,
        *,
        shuffle: bool = False,
        num_workers: int = 0,
        collate_fn: Collate | None = None,
        pin_memory: bool = False,
        drop_last: bool = False,
        worker_init_fn: Callable[[int], None] | None = None,
        prefetch_factor: int | None = None,
        persistent_workers: bool = False,
        loss: str = "mean",
        **others: Any,
    ):
        _refuse(others)
        count = whole_number("num_workers", num_workers, 0, _MOST_PROCESSES)
        ahead = 2 if prefetch_factor is None else whole_number("prefetch_factor", prefetch_factor, 1)
        check_function("collate_fn", collate_fn)
        check_function("worker_init_fn", worker_init_fn)
        self._collate = default_collate if collate_fn is None else collate_fn
        self._processes: _Processes | None = None
        if count:
            self._processes = processes = _Processes(count, dataset, self._collate, worker_init_fn)
            weakref.finalize(self, processes.stop)
            self._ahead = Prefetch(processes.start, processes.load, count * ahead)
        self._pins = pin_memory and torch.cuda.is_available()
        super().__init__(dataset, global_batch, shuffle=shuffle, drop_last=drop_last, loss=loss)

    def __iter__(self) -> Iterator[Any]:
        try:
            yield from super().__iter__()
        except (OSError, RuntimeError) as error:
            if self._processes is None or not (isinstance(error, BrokenProcessPool) or _lacks_descriptors(error)):
                raise
            self._processes.stop()  # the others: the pool would wait for them, as they ignore its SIGTERM
            raise ElasticError(_why_broken(error)) from error

    def _take(self, indices: Indices) -> Any:
        """See `Sampler`: the batch."""
        batch = self._collate(_items(self.dataset, indices)) if self._ahead is None else self._ahead.take(indices)
        if isinstance(batch, ExceptionWrapper):
            batch.reraise()  # type: ignore[no-untyped-call]
        return pin_memory(batch) if self._pins else batch  # type: ignore[no-untyped-call]


_NO_DESCRIPTORS = (os.strerror(errno.EMFILE), "items of ancdata")
"""What is said where a process has no room for the descriptors of a batch: each of its tensors has one."""


def _lacks_descriptors(error: Exception) -> bool:
    """Return whether a batch did not come for want of descriptors; an error of the data set is told as it is."""
    is_of_data_set = str(error).startswith("Caught ")  # as `ExceptionWrapper` begins
    return not is_of_data_set and any(words in f"{error} {error.__cause__}" for words in _NO_DESCRIPTORS)


def _why_broken(error: Exception) -> str:
    if _lacks_descriptors(error):
        return (
            "there is no room for a batch that a process has loaded for this worker (num_workers): each tensor takes a "
            f"file descriptor, and {how_to_have_more()}, or let batches have fewer tensors, and fewer be loaded ahead "
            "(prefetch_factor)"
        )
    return (
        "a process that loads data for this worker (num_workers) has ended: it was killed, perhaps for want of memory, "
        "or its worker_init_fn has raised"
    )


def _refuse(others: dict[str, Any]) -> None:
    """Refuse arguments that the loader does not have."""
    for name, value in others.items():
        if name not in _INSTEAD:
            raise TypeError(f"elastic.DataLoader has no argument {name!r}")
        if name in _DEFAULTS and type(value) is type(_DEFAULTS[name]) and value == _DEFAULTS[name]:
            continue
        raise ConfigurationError(f"elastic.DataLoader takes no {name}: {_INSTEAD[name]}")


def _items(dataset: Any, indices: Indices) -> Any:
    """Return what the batch is made of, as PyTorch's own loader does: a data set may have batches of its own kind."""
    wanted = indices.tolist()
    if getattr(dataset, "__getitems__", None):
        return dataset.__getitems__(wanted)
    return [dataset[index] for index in wanted]


# ---- processes -----------------------------------------------------------------------------------------------------


class _Processes:
    """`_Processes` load batches beside the script. They are no forks of it: it has joined a job.

    Args:
        count: how many.
        dataset: given to each.
        collate: makes a batch of a list of samples.
        init: called with the number of each; None: nothing is.
    """

    def __init__(self, count: int, dataset: Any, collate: Collate, init: Callable[[int], None] | None):
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload([_DEAF, "torch"])  # once, not in each process
        self._pool = ProcessPoolExecutor(
            count,
            mp_context=context,
            initializer=_begin,
            initargs=(dataset, collate, init, count, context.Value("i", 0)),
        )
        self._count = count
        self._worker = os.getpid()
        _running.add(self)

    def start(self, indices: Indices) -> "Future[Any]":
        """Begin to load a batch; what is drawn at random follows from the job's seed, the epoch and the samples."""
        job = script_job()
        seed = zlib.crc32(indices.tobytes(), zlib.crc32(f"{job.node.seed} {job.epoch}".encode()))
        try:
            return self._pool.submit(_load, indices, seed)
        except (AttributeError, TypeError, PicklingError) as error:  # of pickle, as a process begins
            raise ConfigurationError(
                f"num_workers={self._count}: the data set, collate_fn and worker_init_fn are pickled for "
                f"the processes that load, as these are no forks, and one of them cannot be ({error}): define it at "
                "the top of a module, without lambda, and open files in worker_init_fn or when they are first read"
            ) from error

    def load(self, indices: Indices) -> Any:
        """Load a batch."""
        return self.start(indices).result()

    def stop(self) -> None:
        """Kill the processes, whatever they load: nobody waits for it any more. A fork of the worker leaves them."""
        if os.getpid() != self._worker:
            return
        processes = list((self._pool._processes or {}).values())
        self._pool.shutdown(wait=False, cancel_futures=True)
        for process in processes:
            process.kill()


_running: weakref.WeakSet[_Processes] = weakref.WeakSet()


def _stop_all() -> None:
    """Stop all processes: Python would wait for what they load, perhaps for ever, before the worker leaves its job."""
    for processes in list(_running):
        processes.stop()


threading._register_atexit(_stop_all)  # type: ignore[attr-defined]  # as concurrent.futures does, and before it


_own: tuple[Any, Collate] | None = None


def _begin(dataset: Any, collate: Collate, init: Callable[[int], None] | None, count: int, numbers: Any) -> None:
    global _own  # a process loads for one loader
    ignore_sigterm()  # it ends with its worker
    raise_limit()
    threading.Thread(target=_end_with_worker, name="end-with-worker", daemon=True).start()
    torch.set_num_threads(1)
    _own = dataset, collate
    with numbers.get_lock():
        number = numbers.value
        numbers.value += 1
    seed = torch.initial_seed()  # each batch has one of its own
    worker._worker_info = worker.WorkerInfo(id=number, num_workers=count, seed=seed, dataset=dataset)
    if init is not None:
        init(number)


def _end_with_worker() -> None:
    """End this process when its worker is gone: it holds both ends of its queue, and would wait for ever."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os.kill(os.getpid(), signal.SIGKILL)


def _load(indices: Indices, seed: int) -> Any:
    assert _own is not None
    torch.manual_seed(seed)
    random.seed(seed)
    np.random.seed(seed)
    dataset, collate = _own
    try:
        return collate(_items(dataset, indices))
    except Exception:  # noqa: BLE001  # whose class may not be made again of its pickle: it travels as a text
        return ExceptionWrapper(where="in a process that loads data (num_workers)")  # type: ignore[no-untyped-call]
