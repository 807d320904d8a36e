"""Memory of records: used again when they have been sent or applied, and never before."""

from types import SimpleNamespace

import numpy as np
import pytest

from elastic_ps.core.errors import ProtocolError
from elastic_ps.core.model import Model, Tensor
from elastic_ps.server.blocks.block_store import Store
from elastic_ps.server.connections import FOLLOW, Peer
from elastic_ps.server.migration.update_records import SLOTS, Records
from elastic_ps.server.phases import Status
from elastic_ps.transport.frame_metas import RecordMeta
from elastic_ps.transport.frames import Frame
from elastic_ps.transport.shared_image import Image
from tests.elastic_ps.server.server_harness import Job, Jobs
from tests.elastic_ps.server.server_reference import SGD, TENSORS

MODEL = Model((Tensor(0, "i:0", (32,), "float32"), Tensor(0, "i:1", (32,), "float32")), 128)
FLOAT = np.dtype(np.float32)


@pytest.fixture
def store() -> Store:
    made = Store(MODEL)
    made.allocate(range(2), Status.PRIMARY)
    return made


def at(store: Store, version: int) -> Store:
    store.versions[:] = version
    return store


def test_a_followers_memory_has_room_for_some_versions_and_others_travel(store: Store) -> None:
    records = Records(store, [Image(SLOTS * MODEL.slab_bytes)])
    taken = [records.take((0, 2), FLOAT) for version in range(SLOTS + 1) if at(store, version)]
    assert [slot for _, slot, _ in taken] == [*range(SLOTS), None]
    assert not any(np.shares_memory(one, other) for one, _, _ in taken for other, _, _ in taken if one is not other)
    at(store, SLOTS + 1)
    records.applied(1)
    assert records.take((0, 1), FLOAT)[1] == 1
    assert records.take((1, 1), FLOAT)[1] == 1  # another segment of the same version
    _, _, sent = taken[-1]
    assert sent is not None
    sent()
    at(store, SLOTS + 2)
    memory, slot, _ = records.take((0, 2), FLOAT)
    assert slot is None
    assert np.shares_memory(memory, taken[-1][0])


def test_memory_that_the_follower_has_not_made_large_enough_is_not_used(store: Store) -> None:
    image = Image(MODEL.slab_bytes)
    records = Records(store, [image])
    assert records.take((0, 2), FLOAT)[1] == 0
    at(store, 1)
    assert records.take((0, 2), FLOAT)[1] is None
    image.grow(SLOTS * MODEL.slab_bytes)
    at(store, 2)
    assert records.take((0, 2), FLOAT)[1] == 1


@pytest.mark.parametrize("slot", [0, SLOTS, -1, None, "x"])
def test_what_was_not_sent_cannot_be_applied(store: Store, slot: object) -> None:
    with pytest.raises(ProtocolError, match="which has none"):
        Records(store, [Image(SLOTS * MODEL.slab_bytes)]).applied(slot)


def test_what_travels_is_not_received_where_records_lie(jobs: Jobs) -> None:
    job = jobs.begin(Job(TENSORS, SGD))
    job.prepare_two(synced=False)
    server = job.servers["s1"]
    records, _ = server.shares(FOLLOW)
    link = SimpleNamespace(peer="s0", closed=False, connection=SimpleNamespace(lying=lambda: ()))
    assert job.prepared is not None
    block = job.prepared.blocks_of["s1"][0]
    frame = Frame(RecordMeta(runs=[[block, 1]]), job.prepared.id)
    (buffer,) = server.buffers(Peer(link, FOLLOW, records), frame)  # type: ignore[arg-type]  # of a link, what is asked
    assert buffer.nbytes
    assert not np.shares_memory(buffer, records.array)
