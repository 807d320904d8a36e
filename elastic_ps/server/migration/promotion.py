"""When a server has died, the others tell what they have of its blocks, and go on with the copies that are chosen."""

from collections.abc import Sequence

import numpy as np

from elastic_ps.control.codec import runs_to_pb
from elastic_ps.core.segments import runs_of
from elastic_ps.server.blocks.block_store import ServerBlockStore
from elastic_ps.server.migration.follow_sources import FollowSources
from elastic_ps.server.phases import BlockStatus
from elastic_ps.server.state.acknowledged import NOTHING
from elastic_ps.server.state.server_state import ServerState
from protos import elastic_pb2 as pb

_KINDS = {
    BlockStatus.PRIMARY: pb.Holding.OWNED,
    BlockStatus.LEAVING: pb.Holding.LEAVING,
    BlockStatus.FOLLOWER: pb.Holding.COPY,
    BlockStatus.FROZEN: pb.Holding.FROZEN,
}


def holdings(store: ServerBlockStore) -> list[pb.Holding]:
    """Return what a server has of blocks that have values: as what, at which versions."""
    found = []
    for status, kind in _KINDS.items():
        held = (store.status == status) & (store.versions > NOTHING)  # a copy that is not whole yet is none
        for version in np.unique(store.versions[held]).tolist():
            runs = runs_to_pb(runs_of(held & (store.versions == version)))
            found.append(pb.Holding(kind=kind, version=version, runs=runs))
    return found


def promote(state: ServerState, sources: FollowSources, blocks: Sequence[int]) -> None:
    """Own at once the blocks for which the configuration in force has chosen this server's copies.

    Other copies of promoted blocks are dropped, also those of which this server took itself for the owner.

    Args:
        state: the server's.
        sources: its streams.
        blocks: all that are promoted, here or elsewhere.
    """
    current, status = state.standing.current, state.store.status
    if not blocks or current is None:
        return
    sources.take_back(np.asarray(blocks, dtype=np.int64))
    mine = np.asarray([block for block in blocks if current.primary(block) == state.node], dtype=np.int64)
    copies = mine[np.isin(status[mine], (BlockStatus.FOLLOWER, BlockStatus.FROZEN, BlockStatus.LEAVING))]
    is_whole = state.store.versions[copies] != NOTHING
    status[copies[is_whole]] = BlockStatus.PRIMARY
    state.store.allocate(copies[~is_whole], BlockStatus.EMPTY)  # nobody has seen them: the chief gives first values
    owned = (BlockStatus.PRIMARY, BlockStatus.EMPTY, BlockStatus.LEAVING)
    others = [block for block in blocks if current.primary(block) != state.node and status[block] != BlockStatus.ABSENT]
    gone = [block for block in others if status[block] in owned or not state.is_named(block)]
    state.ledger.wait_no_more(np.asarray(gone, dtype=np.int64))
    state.release_in_step(gone)
    state.allocate([block for block in gone if state.is_named(block)], BlockStatus.FOLLOWER)
