"""Which blocks one frame of a stream brings."""

import numpy as np
import pytest

from elastic_ps.core.configuration import ConfigId
from elastic_ps.core.model import Model, Tensor, members
from elastic_ps.server.blocks.applied_batches import BatchId
from elastic_ps.server.blocks.block_store import ServerBlockStore
from elastic_ps.server.copying.follow_source import FollowSource
from elastic_ps.server.phases import BlockStatus
from elastic_ps.transport.frames import encode
from tests.elastic_ps.server.copying.sent_frames import SentFrames

BLOCKS, WORKERS = 2000, 500


@pytest.fixture
def store() -> ServerBlockStore:
    """Small blocks that have taken a batch of each of many workers."""
    made = ServerBlockStore(Model((Tensor(0, "i:0", (32 * BLOCKS,), "float32"),), 128))
    made.allocate(range(BLOCKS), BlockStatus.PRIMARY)
    for worker in range(WORKERS):
        made.applied.take(BatchId(f"w{worker}", 10**15), (0, BLOCKS))
    return made


@pytest.mark.parametrize("paused", [False, True])
def test_what_snapshots_say_of_small_blocks_fits_their_frames(store: ServerBlockStore, paused: bool) -> None:
    """No follower took a frame of more, and the stream began again without end."""
    link, every = SentFrames(), np.ones(BLOCKS, dtype=bool)
    source = FollowSource(store, link)  # type: ignore[arg-type]
    if paused:
        source.wants(~every, ConfigId(1, 1))
        source.begin_plan(every, ConfigId(1, 2), live=False)
        source.send_rest(np.arange(BLOCKS))
    else:
        source.wants(every, ConfigId(1, 1))
        while source.has_work:
            source.next_piece()
    assert list(members(run for frame in link.frames for run in frame.runs)) == list(range(BLOCKS))
    assert [encode(frame) for frame in link.frames]
