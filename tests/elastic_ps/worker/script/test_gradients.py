"""Where gradients lie: in memory that is shared with their block's server, or in the worker's own."""

import threading
import weakref
from types import SimpleNamespace

import numpy as np
import pytest

from elastic_ps.core.compression import Compression
from elastic_ps.core.configuration import ConfigId, Configuration, Member, Role
from elastic_ps.core.model import Model, Tensor
from elastic_ps.core.sparse_rows import Rows
from elastic_ps.native.bulk import move
from elastic_ps.transport.shared_memory import Image
from elastic_ps.worker.script.gradients import Gradients
from elastic_ps.worker.script.numpy_array import NumpyArray

MODEL = Model((Tensor(0, "i:0", (70,), "float32"), Tensor(0, "i:1", (3,), "float64")), 128)
EVERY = (0, 4)  # blocks: three of the first tensor, one of the second


@pytest.fixture
def shared():
    return {"s0": Image(MODEL.slab_bytes), "s1": None}


@pytest.fixture
def state(shared):
    servers = tuple(Member(name, Role.SERVER, "h", 1) for name in shared)
    made = SimpleNamespace(
        changed=threading.Condition(),
        generation=0,
        inbox=SimpleNamespace(model=MODEL),
        configuration=Configuration(ConfigId(1, 1), (), servers, (0, 1, 0, 0)),
        peers=SimpleNamespace(gradients=lambda server, nbytes: shared[server]),
    )

    def assign(*assignment):
        made.configuration = Configuration(ConfigId(1, made.configuration.id.number + 1), (), servers, assignment)
        made.generation += 1

    made.assign = assign
    return made


def write(gradients, value):
    for index, tensor in enumerate(MODEL.tensors):
        gradients.write_gradient(index, [NumpyArray(np.full(tensor.shape, value, tensor.dtype))] * 2)
    gradients.finish_writing()


def check(parts, value):
    data = np.concatenate(parts)
    assert data[:280].view("f4").tolist() == [value] * 70
    assert data[320:344].view("f8").tolist() == [value] * 3
    assert not data[280:320].any()
    assert not data[344:].any()


def inside(part, image):
    return np.shares_memory(part, image.array)


def test_each_block_lies_where_its_server_reads_it(state, shared):
    gradients = Gradients(state)
    write(gradients, 3)
    parts = gradients.parts(EVERY)
    check(parts, 6)
    assert [inside(part, shared["s0"]) for part in parts] == [True, False, True]
    assert inside(parts[0], shared["s0"])
    assert np.array_equal(shared["s0"].array[MODEL.span((2, 2))], parts[2])


def test_what_has_been_written_stays_where_it_is_when_owners_change(state, shared):
    gradients = Gradients(state)
    write(gradients, 1)
    state.assign(1, 1, 1, 1)
    check(gradients.parts(EVERY), 2)
    assert [inside(part, shared["s0"]) for part in gradients.parts(EVERY)] == [True, False, True]
    write(gradients, 2)
    (part,) = gradients.parts(EVERY)
    check([part], 4)
    assert not inside(part, shared["s0"])


def test_a_step_that_is_made_again_leaves_alone_what_servers_may_still_read(state, shared):
    gradients = Gradients(state)
    write(gradients, 1)
    before = gradients.parts(EVERY)
    gradients.step_again()
    write(gradients, 5)
    check(before, 2)
    (part,) = gradients.parts(EVERY)
    check([part], 10)
    gradients.step_done()
    write(gradients, 3)
    assert [inside(part, shared["s0"]) for part in gradients.parts(EVERY)] == [True, False, True]
    check(gradients.parts(EVERY), 6)


def test_a_connection_that_is_mended_brings_other_memory(state, shared):
    gradients = Gradients(state)
    write(gradients, 1)
    shared["s0"] = Image(MODEL.slab_bytes)
    state.generation += 1
    check(gradients.parts(EVERY), 2)
    write(gradients, 2)
    assert inside(gradients.parts(EVERY)[0], shared["s0"])


def test_the_model_may_grow(state, shared):
    gradients = Gradients(state)
    write(gradients, 1)
    state.inbox.model = MODEL.extended([Tensor(0, "i:2", (5,), "float32")])
    shared["s0"].grow(state.inbox.model.slab_bytes)
    state.configuration = state.configuration.extended((0, 1, 0, 0, 0))
    gradients.write_gradient(2, [NumpyArray(np.full(5, 7, "f4"))])
    gradients.finish_writing()
    check(gradients.parts(EVERY), 2)
    assert gradients.parts((4, 1))[0][:20].view("f4").tolist() == [7] * 5


def test_what_quantization_leaves_out_comes_with_the_next_gradient_of_the_key(state):
    gradients = Gradients(state)
    compression = Compression("2bit", threshold=1.0)

    def pushed(value):
        gradients.write_gradient(0, [NumpyArray(np.full(70, value, "f4"))], compression)
        gradients.finish_writing()
        return float(np.concatenate(gradients.parts((0, 3))).view("f4")[0])

    assert pushed(0.75) == 0
    gradients.step_again()  # what the first attempt has left out does not count
    assert pushed(0.5) == 0
    gradients.step_done()
    assert pushed(0.5) == 1
    gradients.step_done()
    assert pushed(-1.25) == -1
    gradients.step_done()
    assert pushed(np.nan) == 0
    gradients.step_done()
    assert pushed(1.0) == 1  # a nan is not kept for ever


def test_memory_that_is_mapped_anew_while_gradients_are_moved_is_kept_until_they_are(state, shared, monkeypatch):
    gradients, image = Gradients(state), shared["s0"]
    state.assign(0, 0, 0, 0)
    before, alive = weakref.ref(image.array), []

    def moved(*places):
        image.grow(2 * MODEL.slab_bytes)
        alive.append(before() is not None)
        move(*places)

    monkeypatch.setattr("elastic_ps.worker.script.gradients.move", moved)
    arrays = [NumpyArray(np.full(tensor.shape, 2.0, tensor.dtype)) for tensor in MODEL.tensors]
    assert gradients.write_gradients(np.arange(2), arrays).tolist() == [True, True]
    assert alive == [True]
    assert image.array[:280].view("f4").tolist() == [2.0] * 70
    assert before() is None


@pytest.mark.parametrize("dtype", ["float16", "float64"])
@pytest.mark.parametrize("kind", ["float16", "bfloat16", "2bit", "topk"])
def test_a_gradient_of_another_element_type_is_compressed_as_the_keys_own(state, kind, dtype):
    values = np.linspace(-2, 2, 70).astype(dtype)
    found = []
    for given in (values, values.astype("float32")):
        gradients = Gradients(state)
        gradients.write_gradient(0, [NumpyArray(given)], Compression(kind))
        gradients.finish_writing()
        found.append(np.concatenate(gradients.parts((0, 3))).tobytes())
    assert found[0] == found[1]


class _SomeRows(NumpyArray):
    def stored_rows(self):
        return Rows(np.array([1, 5]), self.values)


def test_rows_of_another_element_type_travel_as_the_keys_own(state):
    state.inbox.model = Model((Tensor(0, "i:0", (8, 2), "float32"),), 128)
    gradients = Gradients(state)
    gradients.write_gradient(0, [_SomeRows(np.full((2, 2), 1.5))] * 2)
    assert gradients.rows(0).values.dtype == np.float32
    assert gradients.rows(0).values.tolist() == [[3, 3]] * 2
