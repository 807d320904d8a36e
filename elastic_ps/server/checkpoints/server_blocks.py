"""`ServerBlocks` lets a `Restorer` fill a server's blocks."""

from collections.abc import Sequence

import numpy as np

from elastic_ps.core.configuration import ConfigId
from elastic_ps.server.checkpoints.files import BlockManifest, SavedBlock
from elastic_ps.server.migration.plan_steps import PlanSteps
from elastic_ps.server.phases import BlockStatus
from elastic_ps.server.state.server_state import ServerState
from protos import elastic_pb2 as pb


class ServerBlocks:
    """`ServerBlocks` are a server's, as a `BlockHolder`, which has the docstrings.

    Args:
        state: the server's.
        plan_steps: the same server's.
    """

    def __init__(self, state: ServerState, plan_steps: PlanSteps):
        self._state = state
        self._plan_steps = plan_steps

    def missing(self) -> Sequence[int]:
        """See `BlockHolder.missing`."""
        found: list[int] = self._state.store.held(BlockStatus.EMPTY).tolist()
        return found

    def check(self, block: int, entry: SavedBlock) -> None:
        """See `BlockHolder.check`."""
        store = self._state.store
        states = [(name, array.dtype.name, array.nbytes) for name, array in store.states((block, 1)).items()]
        entry.check_layout(block, store.tensor(block).name, int(store.extents[block]), states)

    def fill(self, block: int, entry: SavedBlock, data: bytes, manifest: BlockManifest) -> None:
        """See `BlockHolder.fill`."""
        store, image = self._state.store, np.frombuffer(data, dtype=np.uint8)
        store.load((block, 1), image, entry.version, [entry.count], manifest.applied(block))
        store.status[block] = BlockStatus.PRIMARY

    def prepared(self, number: ConfigId) -> None:
        """See `BlockHolder.prepared`."""
        self._plan_steps.prepared(number)

    def failed(self, number: ConfigId, kind: "pb.Answer", detail: str) -> None:
        """See `BlockHolder.failed`."""
        self._plan_steps.forget(number)
        self._state.control.acknowledge(kind, number, detail=detail)
