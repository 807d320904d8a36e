"""Where a push is received: in its sender's own memory, which nobody adds up while it is written to."""

import numpy as np
import pytest

from elastic_ps.core.compression import Compression
from elastic_ps.core.configuration import ConfigId
from elastic_ps.core.data_order import DataSpec
from elastic_ps.core.errors import ProtocolError
from elastic_ps.transport.frame_metas import PushMeta
from elastic_ps.transport.frames import Frame
from elastic_ps.transport.shared_memory import Image
from elastic_ps.transport.shm_transport import ShmTransport
from tests.elastic_ps.server.server_desk import FIRST, Desk, travelled
from tests.elastic_ps.server.server_harness import TOKEN, Job, Jobs
from tests.elastic_ps.server.server_reference import HYPER, SGD, TENSORS


@pytest.fixture
def desk() -> Desk:
    """In a sync job of three workers, static data."""
    return Desk(TENSORS, data=DataSpec())


def frame(desk: Desk, number: ConfigId = FIRST, version: int = 0) -> Frame:
    return Frame(PushMeta(runs=desk.every, hyper=HYPER.to_dict()), number, version, 1)


def pushed(desk: Desk, node: str) -> np.ndarray:
    slab = desk.slab()
    desk.arrives(node, frame(desk), slab)
    return slab


def test_what_is_being_received_does_not_count(desk: Desk) -> None:
    first, _ = pushed(desk, "w0"), pushed(desk, "w1")
    # the same worker again, with another gradient
    desk.worker_frames.buffers("w1", frame(desk), desk.gradients["w1"], lambda: None)
    last = pushed(desk, "w2")
    assert desk.state.store.versions.max() == 0
    again = pushed(desk, "w1")
    desk.reference.update([first, again, last], [1, 1, 1])
    assert desk.image() == desk.reference.slab.tobytes()


@pytest.mark.parametrize(
    ("node", "number"),
    [("w0", ConfigId(1, 0)), ("w0", ConfigId(1, 2)), ("w9", FIRST)],
    ids=["stale", "newer", "stranger"],
)
def test_what_is_not_served_leaves_the_senders_memory_alone(desk: Desk, node: str, number: ConfigId) -> None:
    (buffer,) = desk.worker_frames.buffers(node, frame(desk, number), desk.gradients["w0"], lambda: None)
    assert buffer.nbytes == desk.model.slab_bytes
    assert not np.shares_memory(buffer, desk.gradients["w0"].array)
    assert not desk.state.held


def test_memory_that_is_not_touched_is_not_taken() -> None:
    image = Image(1 << 40)  # more than any test machine has
    image.array[1 << 30] = 1
    image.grow(1 << 41)
    assert image.array[1 << 30] == 1
    assert image.array.nbytes == 1 << 41


def test_cleared_memory_is_zero_at_both_ends_of_its_pages() -> None:
    image = Image(1 << 16)
    image.array[...] = 1
    image.clear(100, 50_000)
    image.clear(60_000, 60_010)
    assert np.flatnonzero(image.array == 0).tolist() == [*range(100, 50_000), *range(60_000, 60_010)]


@pytest.mark.parametrize("compression", [Compression("float16"), Compression("topk", ratio=0.1)], ids=str)
def test_a_compressed_push_is_what_was_quantized(desk: Desk, compression: Compression) -> None:
    slabs = []
    for node in ("w0", "w1", "w2"):
        runs = [(block, 1) for block in range(*desk.every[0])]
        plain = [run for run in runs if desk.state.store.treatment(run[0]).dtype != np.float32]
        coded = [run for run in runs if run not in plain]
        slab = desk.slab()
        for run in coded:
            part = slab[desk.model.span(run)].view(np.float32)
            part[...] = compression.quantized(part)
        data = [compression.encode(slab[desk.model.span(run)].view(np.float32)) for run in coded]
        meta = {"runs": coded, "encoded": {**compression.tell(), "nbytes": [part.nbytes for part in data]}}
        desk.arrives(node, Frame(PushMeta(**meta, hyper=HYPER.to_dict()), FIRST, 0, 1), np.concatenate(data))
        if plain:
            rest = np.concatenate([slab[desk.model.span(run)] for run in plain])
            desk.arrives(node, Frame(PushMeta(runs=plain, hyper=HYPER.to_dict()), FIRST, 0, 1), rest)
        slabs.append(slab)
    desk.reference.update(slabs, [1, 1, 1])
    assert desk.image() == desk.reference.slab.tobytes()


@pytest.mark.parametrize(
    "encoded",
    [7, {}, {"type": "zip", "nbytes": [1]}, {"type": "2bit"}, {"type": "2bit", "nbytes": [1, 2]}]
    + [{"type": "2bit", "nbytes": [size]} for size in (-1, "x", 1 << 40)],
    ids=str,
)
def test_an_encoding_that_is_none_is_refused_before_anything_is_allocated(desk: Desk, encoded: object) -> None:
    push = Frame(PushMeta(runs=[[0, 1]], encoded=encoded), FIRST, 0, 1)
    with pytest.raises(ProtocolError):
        desk.worker_frames.buffers("w0", travelled(push), desk.gradients["w0"], lambda: None)


def test_populated_memory_holds_what_it_held() -> None:
    image = Image(1 << 20)
    image.array[5000] = 7
    image.populate(4999, 1 << 20)
    seen = Image.attached(image.read_only(), writable=False)
    seen.populate(0, 1 << 20)
    assert np.flatnonzero(seen.array).tolist() == [5000]


def test_a_late_push_is_not_received_where_the_worker_writes_its_next_gradients(jobs: Jobs) -> None:
    """It had asked this server for values which another has sent it meanwhile."""
    job = jobs.begin(Job(TENSORS, SGD, transport=ShmTransport(TOKEN)))
    late = job.check_step(0)[1]
    shared = job.workers["w1"].shared("s0")
    with job.servers["s0"].state.changed:  # it is slow
        job.push("w1", 0, late)
        slabs = [job.random_slab() for _ in range(2)]
        shared[: slabs[1].nbytes] = slabs[1]
        job.push("w1", 1, shared)
    job.push("w0", 1, slabs[0])
    assert job.configuration is not None
    job.check_settled(1, slabs)
