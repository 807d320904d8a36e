"""What a follower is told of its owner's ledger, beside the records of what is streamed."""

from collections.abc import Sequence

import numpy as np
import pytest

from elastic_ps.core.configuration import ConfigId
from elastic_ps.core.model import Model, Run, Tensor
from elastic_ps.core.segments import mask_of
from elastic_ps.server.blocks.block_store import ServerBlockStore
from elastic_ps.server.copying import snapshot_pieces
from elastic_ps.server.copying.follow_source import FollowSource
from elastic_ps.server.copying.streamed_blocks import Mask
from elastic_ps.server.copying.told_entries import ToldEntries
from elastic_ps.server.phases import BlockStatus
from elastic_ps.server.state.unreported_entries import ServerLedger
from elastic_ps.transport.frame_kinds import Kind
from tests.elastic_ps.server.copying.sent_frames import SentFrames

BLOCKS = 10
FIRST = ConfigId(1, 1)
EVERY = [(0, BLOCKS)]
NONE = np.zeros(BLOCKS, dtype=bool)


def ledger_of(entries: int, runs: Sequence[Run] = EVERY) -> ServerLedger:
    ledger = ServerLedger("s0")
    for version in range(entries):
        ledger.append(FIRST, version, runs, ())
    return ledger


@pytest.fixture
def store() -> ServerBlockStore:
    made = ServerBlockStore(Model((Tensor(0, "i:0", (32 * BLOCKS,), "float32"),), 128))
    made.allocate(range(BLOCKS), BlockStatus.PRIMARY)
    return made


def test_a_stream_tells_each_entry_once_and_not_for_each_piece(
    store: ServerBlockStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(snapshot_pieces, "PIECE_BYTES", 128)
    link, ledger = SentFrames(), ledger_of(1000)
    source = FollowSource(store, link, written=ledger.unkept)  # type: ignore[arg-type]
    source.wants(~NONE, FIRST)
    while source.has_work:
        source.next_piece()
    assert [frame.kind for frame in link.frames].count(Kind.SNAPSHOT) == BLOCKS
    assert link.told() == list(range(1000))
    assert all(frame.meta.written_runs == ((0, BLOCKS),) for frame in link.frames if frame.kind is Kind.RECORD)  # type: ignore[attr-defined]


def test_what_was_withdrawn_is_told_again(store: ServerBlockStore) -> None:
    link, ledger = SentFrames(), ledger_of(3)
    source = FollowSource(store, link, written=ledger.unkept)  # type: ignore[arg-type]
    source.wants(NONE.copy(), FIRST)
    source.begin_plan(~NONE, ConfigId(1, 2), live=True)
    source.next_piece()
    assert link.told() == [0, 1, 2]
    source._fall_back()
    assert not link.told()
    source.send_rest(np.arange(BLOCKS))
    assert link.told() == [0, 1, 2]


def blocks(*some: int) -> Mask:
    mask = NONE.copy()
    mask[list(some)] = True
    return mask


def news(told: ToldEntries, wanted: Mask, streamed: Mask, ledger: ServerLedger) -> dict[int, list[int]]:
    return {
        sequence: np.flatnonzero(mask_of(runs)).tolist()
        for sequence, _, runs in told.news(wanted, streamed, ledger.unkept)
    }


def test_entries_that_get_more_blocks_and_later_ones_are_told_of_what_is_to_come() -> None:
    told, ledger = ToldEntries(), ledger_of(2, [(0, 4)])
    both = blocks(3, 4, 5)
    assert news(told, both, NONE, ledger) == {0: [3], 1: [3]}
    assert not news(told, both, blocks(3), ledger)
    ledger.append(FIRST, 1, [(4, 1)], ())  # a chunk more of the last step
    assert news(told, both, blocks(3), ledger) == {1: [4]}
    ledger.append(FIRST, 2, EVERY, ())
    assert news(told, both, blocks(3), ledger) == {2: [4, 5]}  # the other has it with its record
    assert not news(told, both, both, ledger)


def test_blocks_that_come_to_be_wanted_are_told_from_the_beginning() -> None:
    told, ledger = ToldEntries(), ledger_of(2)
    ledger.kept(1)
    assert news(told, blocks(0), NONE, ledger) == {1: [0]}
    assert news(told, blocks(0, 7), blocks(0), ledger) == {1: [7]}
    ledger.append(FIRST, 2, EVERY, ())
    assert news(told, blocks(0, 7), blocks(0), ledger) == {2: [7]}


def test_blocks_that_were_not_wanted_for_a_while_lack_nothing() -> None:
    told, ledger = ToldEntries(), ledger_of(1)
    assert news(told, blocks(0, 1), NONE, ledger) == {0: [0, 1]}
    ledger.append(FIRST, 1, EVERY, ())
    assert news(told, blocks(1, 2), NONE, ledger) == {0: [0, 1, 2], 1: [0, 1, 2]}  # the first is not wanted
    ledger.append(FIRST, 2, EVERY, ())
    assert news(told, blocks(0), blocks(1, 2), ledger) == {2: [0]}
