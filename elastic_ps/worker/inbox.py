"""Parameters that arrive, until all blocks of a version are here (protocol, invariant 5).

A worker's tensors stay at version v while replies of v+1 gather in a slab of their own. A shadow may receive several
later versions before one is complete: each has its slab, and the first that is complete is installed. Versions that
passed while its connection was broken are never sent to it, so it need not be the next.
"""

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from elastic_ps.core.model import Model, Run, runs

Slab = NDArray[np.uint8]


class _Arrivals:
    """One version's blocks."""

    def __init__(self, slab: Slab, blocks: int):
        self.slab = slab
        self.have = np.zeros(blocks, dtype=bool)
        self.updates: dict[int, int] = defaultdict(int)  # by store

    @property
    def complete(self) -> bool:
        return bool(self.have.all())


class Inbox:
    """Values of the installed version, and of later ones on their way. Not thread-safe: its owner holds a lock."""

    def __init__(self, model: Model):
        self.model = model
        self.version: int | None = None
        self._spare: list[Slab] = []
        self._installed = self._arrivals()
        self._later: dict[int, _Arrivals] = defaultdict(self._arrivals)

    def _arrivals(self) -> _Arrivals:
        slab = self._spare.pop() if self._spare else np.zeros(self.model.slab_bytes, dtype=np.uint8)
        return _Arrivals(slab, len(self.model.blocks))

    def grow(self, model: Model) -> None:
        """Make room for tensors that were declared; their values have to come yet. No buffer may be in use."""
        self.model = model
        self._spare.clear()
        for arrivals in (self._installed, *self._later.values()):
            slab, have = np.zeros(model.slab_bytes, dtype=np.uint8), np.zeros(len(model.blocks), dtype=bool)
            slab[: arrivals.slab.nbytes], have[: len(arrivals.have)] = arrivals.slab, arrivals.have
            arrivals.slab, arrivals.have = slab, have

    def buffers(self, version: int, block_runs: Sequence[Run]) -> list[Slab] | None:
        """Where to receive a VALUE frame; None where nothing of it is wanted."""
        arrivals = self._for(version)
        if arrivals is None or all(arrivals.have[first : first + count].all() for first, count in block_runs):
            return None
        return [arrivals.slab[self.model.span(run)] for run in block_runs]

    def arrived(self, version: int, block_runs: Sequence[Run], updates: int = 0) -> None:
        """The buffers of these blocks, of one store, are filled; `updates`: the most that any of them has had."""
        arrivals = self._for(version)
        if arrivals is None:
            return
        for first, count in block_runs:
            arrivals.have[first : first + count] = True
        if updates:
            store = self.model.tensors[self.model.blocks[block_runs[0][0]].tensor].store
            arrivals.updates[store] = max(arrivals.updates[store], updates)

    def updates(self, store: int) -> int:
        """The most that any tensor of `store` had had, as servers told with the installed values (async, ssp)."""
        return self._installed.updates[store]

    def _for(self, version: int) -> _Arrivals | None:
        if self.version is None or version > self.version:
            return self._later[version]
        return self._installed if version == self.version else None

    def next_version(self) -> int | None:
        """The first later version whose blocks are all here; None while something lacks."""
        return min((version for version, arrivals in self._later.items() if arrivals.complete), default=None)

    def install(self, version: int) -> None:
        """Make `version`, which is complete, the installed one."""
        self._spare.append(self._installed.slab)
        self._installed = self._later.pop(version)
        self.version = version
        for old in [known for known in self._later if known <= version]:
            self._spare.append(self._later.pop(old).slab)
        del self._spare[2:]

    def begin(self, version: int) -> None:
        """Start at `version` with nothing installed: a job whose model is still empty."""
        self.version = version

    def missing(self, version: int) -> list[Run]:
        """Runs of blocks of `version` that have not come."""
        arrivals = self._for(version)
        have = arrivals.have if arrivals is not None else np.ones(len(self.model.blocks), dtype=bool)
        return list(runs(np.flatnonzero(~have).tolist()))

    def forget(self, block_runs: Sequence[Run], version: int) -> None:
        """Empty the slab of what a dead server had answered for `version`."""
        if version in self._later:
            for first, count in block_runs:
                self._later[version].have[first : first + count] = False

    def holds(self, index: int) -> bool:
        """Whether all blocks of a tensor are here at the installed version."""
        blocks = self.model.blocks_of[index]
        have = self._installed.have[blocks.start : blocks.stop]
        return self.version is not None and len(have) == len(blocks) and bool(have.all())

    def tensor(self, index: int) -> NDArray[Any]:
        """The installed values of a tensor, in its shape; valid until the next `install`."""
        return tensor_view(self.model, self._installed.slab, index)


def tensor_view(model: Model, slab: Slab, index: int) -> NDArray[Any]:
    """A tensor's part of a whole-model slab, in its shape and dtype."""
    tensor = model.tensors[index]
    start = model.blocks[model.blocks_of[index].start].position
    return slab[start : start + tensor.nbytes].view(tensor.dtype).reshape(tensor.shape)
