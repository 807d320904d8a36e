"""Memory of records: used again when they have been sent or applied, and never before."""

import errno
from collections.abc import Callable
from types import SimpleNamespace

import numpy as np
import pytest

from elastic_ps.core.errors import ProtocolError
from elastic_ps.core.model import Model, Run, Tensor
from elastic_ps.core.segments import Array
from elastic_ps.server.blocks.block_store import ServerBlockStore
from elastic_ps.server.connections import FOLLOW, Peer
from elastic_ps.server.copying.update_records import RECORDED_VERSIONS, UpdateRecords
from elastic_ps.server.phases import BlockStatus
from elastic_ps.transport.frame_metas import RecordMeta
from elastic_ps.transport.frames import Frame
from elastic_ps.transport.shared_memory import Image
from tests.elastic_ps.server.server_harness import Job, Jobs
from tests.elastic_ps.server.server_reference import SGD, TENSORS

MODEL = Model((Tensor(0, "i:0", (32,), "float32"), Tensor(0, "i:1", (32,), "float32")), 128)
FLOAT = np.dtype(np.float32)


@pytest.fixture
def store() -> ServerBlockStore:
    made = ServerBlockStore(MODEL)
    made.allocate(range(2), BlockStatus.PRIMARY)
    return made


def take(records: UpdateRecords, segment: Run, version: int) -> tuple[Array, int | None, Callable[[], None] | None]:
    """Send a record of a segment: its memory, its number there, what is called when it has been sent."""
    place = records.place(version)
    return records.memory(place, segment, FLOAT), *records.sending(place)


def test_a_followers_memory_has_room_for_some_versions_and_others_travel(store: ServerBlockStore) -> None:
    records = UpdateRecords(store, [Image(RECORDED_VERSIONS * MODEL.slab_bytes)])
    taken = [take(records, (0, 2), version) for version in range(RECORDED_VERSIONS + 1)]
    assert [slot for _, slot, _ in taken] == [*range(RECORDED_VERSIONS), None]
    assert not any(np.shares_memory(one, other) for one, _, _ in taken for other, _, _ in taken if one is not other)
    records.followed(0)
    assert records.place(RECORDED_VERSIONS).number < 0  # it is held, but may not have been applied
    records.followed(1)
    assert take(records, (0, 1), RECORDED_VERSIONS + 1)[1] == 0
    assert take(records, (1, 1), RECORDED_VERSIONS + 1)[1] == 0  # another segment of the same version
    _, _, sent = taken[-1]
    assert sent is not None
    sent()
    memory, slot, _ = take(records, (0, 2), RECORDED_VERSIONS + 2)
    assert slot is None
    assert np.shares_memory(memory, taken[-1][0])


def test_a_record_needs_no_descriptor(store: ServerBlockStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is made in the middle of an update, which cannot be undone."""

    def scarce(*_: object) -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    small = Image(MODEL.slab_bytes - 1)
    monkeypatch.setattr(Image, "__init__", scarce)
    monkeypatch.setattr(Image, "follow", scarce)
    memory, slot, _ = take(UpdateRecords(store, [small]), (0, 2), 0)
    assert (slot, memory.nbytes, memory.any()) == (None, MODEL.slab_bytes, False)


def test_records_that_travel_take_what_is_written_and_not_the_model(store: ServerBlockStore) -> None:
    """Where a model exceeds a machine's memory, its servers have parts of it: as a whole it is refused."""
    large = SimpleNamespace(slab_bytes=1 << 42, span=MODEL.span)
    memory, slot, _ = take(UpdateRecords(SimpleNamespace(model=large), ()), (0, 2), 0)  # type: ignore[arg-type]
    memory[...] = 1
    assert (slot, memory.nbytes) == (None, MODEL.slab_bytes)


def test_memory_that_the_follower_has_not_made_large_enough_is_not_used(store: ServerBlockStore) -> None:
    image = Image(MODEL.slab_bytes)
    records = UpdateRecords(store, [image])
    assert take(records, (0, 2), 0)[1] == 0
    assert take(records, (0, 2), 1)[1] is None
    image.grow(RECORDED_VERSIONS * MODEL.slab_bytes)
    assert take(records, (0, 2), 2)[1] == 1


def test_withdrawn_records_keep_no_memory(store: ServerBlockStore) -> None:
    records = UpdateRecords(store, [Image(RECORDED_VERSIONS * MODEL.slab_bytes)])
    assert [take(records, (0, 2), version)[1] for version in (0, 1)] == [0, 1]
    records.followed(1)  # the first was never sent
    assert take(records, (0, 2), 2)[1] == 0
    records.followed(0)
    assert take(records, (0, 2), 3)[1] == 1


@pytest.mark.parametrize("slot", [0, RECORDED_VERSIONS, -1])
def test_what_was_not_sent_cannot_be_followed(store: ServerBlockStore, slot: int) -> None:
    with pytest.raises(ProtocolError, match="none lies there"):
        UpdateRecords(store, [Image(RECORDED_VERSIONS * MODEL.slab_bytes)]).followed(slot)


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
