"""`GroupBlocks` are all blocks of the job, which each worker reads when a job without servers starts from a checkpoint.

The script has made no model yet then, so they are kept as they lie in the files, until it has rehearsed. Each worker
reads everything: whoever dies before the first step, the others have it.
"""

from collections.abc import Sequence

from elastic_ps.core.configuration import ConfigId
from elastic_ps.server.checkpoints.files import BlockManifest, SavedBlock
from elastic_ps.torch.allreduce.checkpoints.replica_blocks import ReadBlock
from elastic_ps.torch.allreduce.group_state import GroupState
from protos import elastic_pb2 as pb


class GroupBlocks:
    """`GroupBlocks` are a worker's, as a `BlockHolder`, which has the docstrings.

    Args:
        state: the worker's.

    Attributes:
        term: of the start that they are for. A death soon after it, behind a restart of the coordinator, has another.
    """

    def __init__(self, state: GroupState):
        self.term = 0
        self._state = state
        self._read: dict[int, ReadBlock] = {}
        self._version = 0
        self._taken = False

    def missing(self) -> Sequence[int]:
        """See `BlockHolder.missing`."""
        return [] if self._taken else [block.id for block in self._state.model.blocks if block.id not in self._read]

    def check(self, block: int, entry: SavedBlock) -> None:
        """See `BlockHolder.check`: what the optimizer keeps is known when the script has made it."""

    def fill(self, block: int, entry: SavedBlock, data: bytes, manifest: BlockManifest) -> None:
        """See `BlockHolder.fill`."""
        self._read[block] = ReadBlock(entry, data)
        self._state.copied += len(data)
        self._version = manifest.version

    def prepared(self, number: ConfigId) -> None:
        """See `BlockHolder.prepared`."""
        state = self._state
        with state.changed:
            if self.missing():
                return  # another configuration is prepared by now: its own Prepare goes on with them
            if self.version is not None:
                state.held = self.version
            state.awaits_blocks = False
            state.preparation_advanced()
            state.changed.notify_all()

    def failed(self, number: ConfigId, kind: "pb.Answer", detail: str) -> None:
        """See `BlockHolder.failed`: the coordinator takes the job back to another checkpoint."""
        self._state.session.acknowledge(kind, number, detail=detail)

    @property
    def version(self) -> int | None:
        """The version of the blocks, once all are here; None: the job does not start from a checkpoint."""
        return self._version if self._read and not self.missing() else None

    def taken(self) -> dict[int, ReadBlock]:
        """Return the blocks that were read, and forget them; empty: the job does not start from a checkpoint."""
        with self._state.changed:
            self._taken = True
            read, self._read = self._read, {}
            return read
