"""This module knows which versions of blocks their followers have, and so which may be told."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from elastic_ps.core.configuration import NodeId
from elastic_ps.core.model import Run
from elastic_ps.core.segments import has_any

NOTHING, EVERY = -1, np.iinfo(np.int64).max


class AcknowledgedVersions:
    """`AcknowledgedVersions` keeps what each follower has acknowledged. Guarded by `ServerState.changed`.

    Attributes:
        guards: whether any block waits for a follower, or is to have one. Else all below costs nothing.
        told: int64 by block: the latest version that may be told, which its follower in force has acknowledged.
        level: by block, whether its follower in force has had all of it at once since it is in force.
    """

    def __init__(self) -> None:
        self.guards = False
        self.told = np.zeros(0, dtype=np.int64)
        self.level = np.zeros(0, dtype=bool)
        self._versions: dict[NodeId, NDArray[np.int64]] = {}  # by follower and block
        self._required: dict[NodeId, NDArray[np.bool_]] = {}
        self._times: dict[NodeId, int] = {}  # by follower: how often it has acknowledged anything

    def grow(self, blocks: int) -> None:
        """Take in that the model has `blocks` blocks now; whom they wait for, `require` says."""
        new = blocks - len(self.told)
        if not new:
            return
        self.told = np.pad(self.told, (0, new), constant_values=EVERY)
        self.level = np.pad(self.level, (0, new), constant_values=False)
        for node, versions in self._versions.items():
            self._versions[node] = np.pad(versions, (0, new), constant_values=NOTHING)
        for node, required in self._required.items():
            self._required[node] = np.pad(required, (0, new))

    def require(self, followers: Sequence[NodeId | None]) -> None:
        """Wait for these followers, by block, and for no other; None: for nobody."""
        self.told = np.full(len(followers), EVERY)
        self.level = np.array([node is None for node in followers], dtype=bool)
        self._required = {}
        for node in set(followers) - {None}:
            assert node is not None
            self._required[node] = np.array([each == node for each in followers], dtype=bool)
            self._tell(node)
        self.guards = bool(self._required)

    def of(self, follower: NodeId) -> NDArray[np.int64]:
        """Return by block what a follower has acknowledged; -1: nothing."""
        if follower not in self._versions:
            self._versions[follower] = np.full(len(self.told), NOTHING)
        return self._versions[follower]

    def heard(self, follower: NodeId, runs: Sequence[Run], version: int) -> None:
        """Take note that a follower holds runs of blocks at a version.

        Args:
            follower: the server.
            runs: the blocks.
            version: theirs.
        """
        self._times[follower] = self.times(follower) + 1
        versions = self.of(follower)
        for first, count in runs:
            window = slice(first, first + count)
            np.maximum(versions[window], version, out=versions[window])
        self._tell(follower)

    def times(self, follower: NodeId) -> int:
        """Return how often a follower has acknowledged anything: as long as that grows it is at work."""
        return self._times.get(follower, 0)

    def forget(self, follower: NodeId, blocks: NDArray[np.int64]) -> None:
        """Forget what a follower has acknowledged of blocks: it gets them anew."""
        self.of(follower)[blocks] = NOTHING
        self._tell(follower)

    def are_level(self, blocks: NDArray[np.int64], versions: NDArray[np.int64]) -> bool:
        """Return whether the followers in force have had blocks, by id, as they were then, or are now; `versions`: of
        all blocks.
        """
        self.level[blocks] |= self.told[blocks] >= versions[blocks]
        return bool(self.level[blocks].all())

    def lacking(self, blocks: NDArray[np.int64], versions: NDArray[np.int64]) -> list[NodeId]:
        """Return the followers in force that lack what some blocks, by id, have come to; `versions`: of all blocks."""
        late = self.told[blocks] < versions[blocks]
        if not has_any(late):
            return []
        behind = np.zeros(len(self.told), dtype=bool)
        behind[blocks] = late
        return [node for node, required in self._required.items() if has_any(required & behind)]

    def _tell(self, follower: NodeId) -> None:
        if (required := self._required.get(follower)) is not None:
            self.told[required] = self.of(follower)[required]
