"""Batches are loaded ahead, and what became stale is thrown away."""

import gc
import threading
import weakref
from concurrent.futures import ThreadPoolExecutor
from typing import ClassVar

import mxnet as mx
import numpy as np
import pytest
from mxnet import gluon

import elastic_ps.mxnet.data as data_module
from elastic_ps.core.errors import ConfigurationError
from elastic_ps.data.sampler import Sampler
from elastic_ps.mxnet import ElasticDataLoader, record_files

pytestmark = pytest.mark.mxnet

TIMEOUT = 10  # seconds, of what takes none


class ScriptedSampler(Sampler):
    """Yields the slices of `script`, [(indices, foreseen after it), ...]."""

    script: ClassVar[list[tuple[list[int], list[list[int]]]]] = []

    def __iter__(self):
        for step, (chosen, coming) in enumerate(self.script):
            indices = np.array(chosen)
            yield step, indices, self._load(indices)
            if self._lookahead is not None:
                self._lookahead([np.array(slice_) for slice_ in coming])


class Watched:
    """A data set that says who loads what, and waits where it is told to."""

    def __init__(self):
        self.loaded: list[tuple[int, str]] = []
        self.loading = threading.Semaphore(0)
        self.closed: dict[int, threading.Event] = {}

    def __len__(self):
        return 100

    def __getitem__(self, index):
        self.loading.release()
        if index in self.closed:
            assert self.closed[index].wait(TIMEOUT)
        self.loaded.append((index, threading.current_thread().name))
        return index

    def by(self, index: int) -> list[str]:
        return [name for loaded, name in self.loaded if loaded == index]


@pytest.fixture
def script(monkeypatch):
    monkeypatch.setattr(data_module, "Sampler", ScriptedSampler)
    monkeypatch.setattr(ScriptedSampler, "script", [])
    return ScriptedSampler.script


def test_gluon_batches_of_the_slices(script):
    images, labels = np.arange(40, dtype="float32").reshape(10, 4), np.arange(10, dtype="float32")
    script += [([3, 1], [[0, 9, 5]]), ([0, 9, 5], [])]
    loader = ElasticDataLoader(gluon.data.ArrayDataset(images, labels), 4)
    assert len(loader) == 3
    seen = [(step, indices.tolist(), batch) for step, indices, batch in loader]
    assert [(step, indices) for step, indices, _ in seen] == [(0, [3, 1]), (1, [0, 9, 5])]
    for _, indices, (x, y) in seen:
        assert isinstance(x, mx.nd.NDArray)
        np.testing.assert_array_equal(x.asnumpy(), images[indices])
        np.testing.assert_array_equal(y.asnumpy(), labels[indices])


def test_what_is_foreseen_is_loaded_by_threads_and_once(script):
    script += [([0], [[1], [2]]), ([1], [[2]]), ([2], [])]
    dataset = Watched()
    batches = [batch for _, _, batch in ElasticDataLoader(dataset, 1, batchify_fn=list)]
    assert batches == [[0], [1], [2]]
    assert dataset.by(0) == ["MainThread"]
    for index in (1, 2):
        assert [name.startswith("elastic-data") for name in dataset.by(index)] == [True]


@pytest.mark.parametrize(("shape", "array"), [(True, True), (True, False), (False, False)])
def test_threads_have_the_numpy_semantics_of_the_script(script, shape, array):
    """Batches that were loaded ahead were of the other class of arrays, and scalars had no shape."""
    script += [([0], [[1]]), ([1], [])]
    seen = []

    def batchify(samples):
        seen.append((threading.current_thread().name, mx.util.is_np_shape(), mx.util.is_np_array()))
        return data_module.default_batchify_fn(samples)

    with mx.util.np_shape(shape), mx.util.np_array(array):
        loader = ElasticDataLoader([5, 6], 1, batchify_fn=batchify)
        batches = [batch for _, _, batch in loader]
    assert [scope for _, *scope in seen] == [[shape, array]] * 2
    assert [name == "MainThread" for name, *_ in seen] == [True, False]
    assert type(batches[0]) is type(batches[1])


def test_loading_goes_on_while_the_script_works(script):
    script += [([0], [[1], [2]]), ([1], [[2]]), ([2], [])]
    dataset = Watched()
    loader = iter(ElasticDataLoader(dataset, 1, batchify_fn=list))
    next(loader)
    next(loader)
    for _ in range(3):  # samples 0, 1, and 2 before it is asked for
        assert dataset.loading.acquire(timeout=TIMEOUT)


def test_stale_batches_are_thrown_away(script):
    script += [([0], [[1], [2, 3], [4, 5]]), ([1], [[2]]), ([2], [])]  # then another number of workers: other slices
    dataset = Watched()
    dataset.closed[2] = threading.Event()
    loader = ElasticDataLoader(dataset, 1, batchify_fn=list, prefetch=3)
    steps = iter(loader)
    next(steps)
    next(steps)
    for _ in range(3):
        assert dataset.loading.acquire(timeout=TIMEOUT)  # the one thread is busy with samples 2 and 3
    assert len(loader._prefetch._ahead) == 2
    loader._prefetch.look_ahead([np.array([2])])
    dataset.closed[2].set()
    assert next(steps)[2] == [2]
    with pytest.raises(StopIteration):
        next(steps)
    assert dataset.by(4) == dataset.by(5) == []
    assert loader._prefetch._ahead == {}


def test_no_more_than_prefetch_batches_are_ahead(script):
    script += [([0], [[1], [2], [3], [4]]), ([1], [])]
    dataset = Watched()
    loader = ElasticDataLoader(dataset, 1, batchify_fn=list, prefetch=3)
    steps = iter(loader)
    next(steps)
    loader._prefetch.look_ahead([np.array([index]) for index in (1, 2, 3, 4)])
    assert len(loader._prefetch._ahead) == 3


def test_without_threads_each_batch_is_loaded_when_it_is_needed(script):
    script += [([0], [[1]]), ([1], [])]
    dataset = Watched()
    assert [batch for _, _, batch in ElasticDataLoader(dataset, 1, batchify_fn=list, num_workers=0)] == [[0], [1]]
    assert dataset.by(0) == dataset.by(1) == ["MainThread"]


def test_an_error_in_the_data_set_reaches_the_script_at_its_step(script):
    class Broken(Watched):
        def __getitem__(self, index):
            if index == 1:
                raise OSError("bad file 1")
            return index

    script += [([0], [[1]]), ([1], [])]
    steps = iter(ElasticDataLoader(Broken(), 1, batchify_fn=list))
    next(steps)
    with pytest.raises(OSError, match="bad file 1"):
        next(steps)


def test_threads_end_with_the_loader(script):
    script += [([0], [[1]]), ([1], [])]
    loader = ElasticDataLoader(Watched(), 1, batchify_fn=list)
    list(loader)
    assert loader._threads is not None
    threads = list(loader._threads._threads)
    assert threads
    gone = weakref.ref(loader)
    gc.disable()  # at once, as a script may make a loader in each epoch
    try:
        del loader
        assert gone() is None
    finally:
        gc.enable()
    for thread in threads:
        thread.join(TIMEOUT)
        assert not thread.is_alive()


def test_settings_reach_the_sampler(script):
    loader = ElasticDataLoader(Watched(), 30, last="drop", loss="mean")
    assert (loader._sampler.spec.last, loader._sampler.spec.loss, loader.global_batch) == ("drop", "mean", 30)
    assert len(loader) == 3
    drawn = ElasticDataLoader(Watched(), batch=8, consistency="ssp", staleness=2)
    assert (drawn._sampler.spec.consistency, drawn._sampler.spec.staleness, drawn.batch_size) == ("ssp", 2, 8)
    assert len(drawn) == 13


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"num_workers": -1}, "num_workers must be 0 or more, not -1"),
        ({"prefetch": -2}, "prefetch must be 0 or more, not -2"),
        ({"num_workers": "2"}, "num_workers must be a whole number, not '2'"),
        ({"num_workers": None}, "num_workers must be a whole number, not None"),
        ({"prefetch": 2.5}, "prefetch must be a whole number, not 2.5"),
        ({"batchify_fn": "list"}, "batchify_fn must be a function, not 'list'; or leave it out"),
        ({"dataset": iter("abc")}, r"needs a data set with len\(\) and \[index\], .*, not <str_"),
        ({"last": "keep"}, 'last must be "short", "drop" or "wrap"'),
        ({"loss": "max"}, 'loss must be "sum" or "mean"'),
        ({"global_batch": 0}, "global_batch must be at least 1"),
        ({"global_batch": None}, 'consistency "sync" takes global_batch'),
        ({"batch": 4}, 'consistency "sync" takes global_batch, .*, and no batch'),
        ({"consistency": "async"}, 'consistency "async" takes batch, .*, and no global_batch'),
        ({"consistency": "async", "batch": 4}, 'consistency "async" takes batch, .*, and no global_batch'),
        ({"consistency": "ssp", "batch": None, "global_batch": None}, 'consistency "ssp" takes batch'),
        ({"consistency": "async", "batch": 0, "global_batch": None}, "batch must be at least 1, not 0"),
        ({"consistency": "ssp", "batch": 4, "global_batch": None}, "needs an elastic_ps.Sampler with staleness=s"),
        ({"consistency": "eventual"}, "consistency must be one of sync, async, ssp, not 'eventual'"),
        ({"staleness": 1}, 'staleness belongs to consistency "ssp"'),
    ],
)
def test_bad_settings_are_refused(settings, message):
    with pytest.raises(ConfigurationError, match=message):
        ElasticDataLoader(**{"dataset": Watched(), "global_batch": 4, **settings})


def test_numpys_whole_numbers_and_gluons_own_default_are_taken(script):
    script += [([0], []), ([1], [])]
    loader = ElasticDataLoader([5, 6], np.int64(1), batchify_fn=None, num_workers=np.int32(1), prefetch=np.int8(1))
    assert [batch.asscalar() for _, _, batch in loader] == [5, 6]


def test_a_data_set_that_grows_is_refused():
    numbers = list(range(10))
    loader = ElasticDataLoader(numbers, 4, num_workers=0)
    numbers.append(10)
    with pytest.raises(ConfigurationError, match="has 11 samples now, and had 10 when its loader was made"):
        next(iter(loader))


def test_an_empty_data_set_is_refused():
    with pytest.raises(ConfigurationError, match="the data set is empty"):
        ElasticDataLoader([], 4)


def test_threads_read_the_records_of_one_file(tmp_path):
    records = [bytes([number % 256]) * (1 + number * 37 % 5000) for number in range(300)]
    writer = mx.recordio.MXIndexedRecordIO(str(tmp_path / "a.idx"), str(tmp_path / "a.rec"), "w")
    for number, record in enumerate(records):
        writer.write_idx(number, record)
    writer.close()
    dataset = gluon.data.RecordFileDataset(str(tmp_path / "a.rec"))
    with ThreadPoolExecutor(4) as threads:
        for _ in range(10):
            assert list(threads.map(dataset.__getitem__, range(len(records)))) == records


def test_a_process_that_was_forked_while_a_thread_read_can_read(tmp_path):
    with record_files._reading:
        record_files._renew()
        assert not record_files._reading.locked()
