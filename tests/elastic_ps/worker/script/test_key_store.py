"""What a key store knows of its keys, whatever was refused."""

from contextlib import nullcontext
from types import SimpleNamespace

import numpy as np
import pytest

from elastic_ps.core.compression import Compression
from elastic_ps.core.errors import ConfigurationError, CoordinatorLost
from elastic_ps.data.sampler import Sampler
from elastic_ps.worker.script.key_store import WorkerKeyStore
from elastic_ps.worker.script.numpy_array import NumpyArray
from tests.elastic_ps.worker.instant_job import elastic_job, instant_job

VALUE = NumpyArray(np.ones(2, np.float32))


class Job:
    """A job that takes all that is declared, as often as it is not `away`."""

    def __init__(self):
        self.node, self.staging = None, SimpleNamespace(rehearsing=False)
        self.declared, self.away = [], 0
        self.is_sync, self.local = True, []  # what each declaration says of where updates are made

    def declare(self, _store, tensors, _optimizer, local, _first):
        self.local.append(local)
        if self.away:
            self.away -= 1
            raise CoordinatorLost("away")
        self.declared.extend(tensor.key for tensor in tensors)
        return []


@pytest.mark.parametrize("has_parameters", [True, False])
def test_the_job_is_told_that_servers_hold_sums_and_no_parameters(has_parameters):
    """A script finds out at its first push, when it has declared its keys."""
    job = Job()
    store = WorkerKeyStore(job, 0)
    store.init(["s:a"], [VALUE])
    if has_parameters:  # that a Trainer updates; else the script's pulls have what it keeps on the servers
        store._parameters["s:a"] = [VALUE]
    store.set_local_update()
    assert job.local == [False, *([True] if has_parameters else [])]
    assert job.declared == ["s:a"]


class Unreadable(NumpyArray):
    """An array whose values cannot be read, as a computation of MXNet's has failed."""

    def read(self):
        raise ArithmeticError

    def memory(self):
        return None


def test_keys_that_are_refused_with_one_that_is_known_can_be_initialized_afterwards():
    job, value = Job(), VALUE
    store = WorkerKeyStore(job, 0)
    store.init(["s:b"], [value])
    with pytest.raises(ConfigurationError, match="key b: initialized twice"):
        store.init(["s:a", "s:b"], [value] * 2)
    store.init(["s:a"], [value])
    assert job.declared == ["s:b", "s:a"]


@pytest.mark.parametrize(
    ("key", "why"),
    [
        ("s:a\udc80", r"key 'a\\udc80': a text that is not Unicode"),
        ("s:a\0", r"key 'a\\x00': a text with a zero in it"),
        ("s:" + "k" * 16_001, "key 'kkk.*': 16001 characters, of which at most 16000 are taken"),
    ],
)
def test_a_key_that_cannot_be_sent_is_refused_and_costs_no_other(key, why):
    job = Job()
    store = WorkerKeyStore(job, 0)
    with pytest.raises(ConfigurationError, match=why):
        store.init(["s:b", key], [VALUE] * 2)
    store.init(["s:b"], [VALUE])
    assert job.declared == ["s:b"]


def test_keys_are_initialized_again_after_what_was_no_fault_of_theirs():
    job = Job()
    store = WorkerKeyStore(job, 0)
    with pytest.raises(ArithmeticError):
        store.init(["s:a", "s:b"], [VALUE, Unreadable(np.ones(2))])
    job.away = 1
    with pytest.raises(CoordinatorLost):
        store.init(["s:a", "s:b"], [VALUE] * 2)
    store.init(["s:a", "s:b"], [VALUE] * 2)
    assert job.declared == ["s:a", "s:b"]


@pytest.mark.parametrize("size", [1, 3])
@pytest.mark.parametrize("overlap", [None, False, True])
def test_an_out_of_another_shape_is_refused_before_anything_is_pushed(size, overlap):
    """The value's bytes were copied over the end of the smaller one's memory."""
    out = NumpyArray(np.zeros(size, np.float32))
    with instant_job() as (job, exchanges):
        store = job.open_store()
        store.init(["s:a"], [VALUE])
        with (
            pytest.raises(
                ConfigurationError, match=rf"key a: pulled with shape \({size},\), but initialized with \(2,"
            ),
            nullcontext() if overlap is None else store.combined(overlap),
        ):
            store.pushpull(["s:a"], [[VALUE]], [[out]])
        job.buffer.close_exchange()
        assert exchanges == []
    assert not out.values.any()


def test_what_quantization_left_out_of_gradients_that_were_dropped_does_not_count():
    out = NumpyArray(np.zeros(2, np.float32))
    with instant_job() as (job, exchanges):
        store = job.open_store()
        store.set_compression(Compression("2bit", threshold=2.0))
        store.init(["s:a", "s:b"], [VALUE] * 2)
        with pytest.raises(ArithmeticError), store.combined():
            store.pushpull(["s:a", "s:b"], [[VALUE], [Unreadable(np.ones(2, np.float32))]], [[out]] * 2)
        store.pushpull(["s:b"], [[VALUE]], [[out]])
        store.pushpull(["s:a"], [[VALUE]], [[out]])
        assert exchanges == [["s:b"], ["s:a"]]
    assert out.values.tolist() == [1, 1], "the gradient of 1 is below the threshold"


@pytest.mark.parametrize("kind", ["2bit", "topk"])
def test_steps_are_not_skipped_for_gradients_that_compression_hides(kind):
    with instant_job() as (job, _):
        compressing, skipping = job.open_store(), job.open_store()
        compressing.set_compression(Compression(kind))
        compressing.set_skip_overflow(False)
        with pytest.raises(ConfigurationError, match=f"gradient compression {kind}: it hides gradients that are not"):
            compressing.set_skip_overflow(True)
        skipping.set_skip_overflow(True)
        skipping.set_compression(Compression("bfloat16"))
        with pytest.raises(ConfigurationError, match=f"gradient compression {kind}: it hides gradients that are not"):
            skipping.set_compression(Compression(kind))
        assert (compressing.skip_overflow, skipping.compression) == (False, Compression("bfloat16"))


def test_an_out_of_another_shape_than_the_value_is_not_broadcast_to():
    job, out = Job(), NumpyArray(np.zeros(1, np.float32))
    store = WorkerKeyStore(job, 0)
    with pytest.raises(
        ConfigurationError, match=r"key b: broadcast to an array with shape \(1,\), but initialized with"
    ):
        store.broadcast(["s:a", "s:b"], [VALUE] * 2, [[VALUE], [out]])
    assert job.declared == []
    store.init(["s:a", "s:b"], [VALUE] * 2)


@pytest.mark.parametrize("combined", [False, True])
def test_a_gradient_of_a_key_that_is_averaged_since_the_first_batch_is_refused(combined):
    """The key's value was pushed in its place."""
    frozen, trained = NumpyArray(np.ones(2, np.float32)), NumpyArray(np.ones(2, np.float32))
    with elastic_job() as (job, exchanges):
        store = job.open_store()
        for number, _ in enumerate(Sampler(8, 4)):
            if number == 0:
                store.broadcast(["s:a", "s:b"], [frozen, trained], [[frozen], [trained]])
            pushed = ["s:b", "s:a"] if number == 2 else ["s:b"]
            with (
                pytest.raises(ConfigurationError, match="key a: it was not pushed in the first batch, so the workers")
                if number == 2
                else nullcontext(),
                store.combined(overlap=True) if combined else nullcontext(),
            ):
                store.pushpull(pushed, [[VALUE]] * len(pushed), [[trained], [frozen]][: len(pushed)])
    assert exchanges == [["s:a", "s:b"], []], "nothing of what is refused is pushed"


@pytest.mark.parametrize("verb", ["push and pull", "pushpull", "combined"])
def test_arrays_that_are_only_pulled_have_the_jobs_values_behind_the_rehearsal(verb):
    """A joiner's first gradient was of its own weights, and that of a step that it has left of what it had made."""
    weight, seen = NumpyArray(np.ones(2, np.float32)), []

    def exchange(store):
        if verb == "push and pull":
            store.push(["s:a"], [[VALUE]])
            store.pull(["s:a"], [[weight]])
            return
        with store.combined(overlap=True) if verb == "combined" else nullcontext():
            store.pushpull(["s:a"], [[VALUE]], [[weight]])

    with elastic_job() as (job, exchanges):
        store = job.open_store()
        for _ in range(2):
            for _ in Sampler(8, 4):
                if not seen:
                    store.init(["s:a"], [weight])
                seen.append(weight.values.tolist())
                if len(seen) == 2:  # its first step, which the script leaves
                    weight.values[:] = 7
                    break
                exchange(store)
                if len(seen) == 1:
                    weight.values[:] = 7
    assert exchanges == [["s:a"]] * 2
    assert seen == [[1, 1], [1, 1], [1, 1], [2, 2]]
    assert not job.node.inbox.model.tensors[0].auxiliary
