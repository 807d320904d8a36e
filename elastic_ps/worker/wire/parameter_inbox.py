"""A `ParameterInbox` collects parameters until all blocks of a version are here (protocol, invariant 5).

A worker's tensors stay at version v while replies of v+1 gather beside it: in memory of the worker's own, or where a
server of the same host holds them. A shadow may receive several later versions before one is complete: the first that
is complete is installed. Versions that passed while its connection was broken are never sent to it, so it need not be
the next. It keeps a few of the complete ones, as its script may be busy for long, and few that lack blocks.
"""

from collections import defaultdict
from collections.abc import Sequence
from itertools import groupby
from operator import itemgetter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from elastic_ps.core.model import Model, Run, members, runs
from elastic_ps.core.segments import has_any
from elastic_ps.core.sparse_rows import Rows, rows_of
from elastic_ps.native.bulk import Addresses
from elastic_ps.native.library import address
from elastic_ps.transport.shared_memory import Image

Slab = NDArray[np.uint8]

_SPARE = 2
"""Images of versions that are over, for the next ones: to touch new memory costs more than to fill it."""

_MOST_LATER, _MOST_WHOLE = 16, 3
"""Versions on their way at a time, and those of them that are complete. A member has two."""

_CHANGED, _MISSING, _RECEIVED = -2, -1, 0
"""Where a block of a version is: as in the version before, but for some rows; nowhere; in the buffers. From 1 on: in
other memory, most often of its server's.
"""


class _Arrivals:
    """`_Arrivals` has one version's blocks, each at its place in one of several images of the whole model."""

    def __init__(self, blocks: int, received: Image):
        self.received = received
        self.receiving = 0  # frames that are on their way to there
        self.shared: list[Slab] = []
        self.marks: list[NDArray[np.int64]] = []  # of the servers whose memory that is
        self.spoilt = False
        self.where = np.full(blocks, _MISSING, dtype=np.int64)
        self.updates: dict[int, int] = defaultdict(int)  # by store
        self.changed: list[tuple[Run, Rows]] = []

    @property
    def complete(self) -> bool:
        return bool((self.where != _MISSING).all())

    def has(self, wanted: NDArray[np.bool_]) -> bool:
        return not has_any(wanted & (self.where == _MISSING))

    def number(self, image: Slab, mark: Slab | None = None) -> int:
        """Return the place in `where` of an image, a server's if it has a mark."""
        for number, known in enumerate(self.shared):
            if known is image:
                return number + 1
        self.shared.append(image)
        if mark is not None:
            self.marks.append(mark.view(np.int64))
        return len(self.shared)

    def image(self, number: int) -> Slab:
        return self.received.array if number == _RECEIVED else self.shared[number - 1]


class ParameterInbox:
    """A `ParameterInbox` has the installed version, and later ones on their way. Not thread-safe: its owner holds a
    lock.
    """

    def __init__(self, model: Model):
        self.model = model
        self.version: int | None = None
        self._spare: list[Image] = []
        self._kept = Image()  # blocks of which only changed rows arrive
        self._installed = self._arrivals()
        self._later: dict[int, _Arrivals] = defaultdict(self._arrivals)
        self._given_up: set[int] = set()  # later versions that will not be whole: some of their blocks were dropped

    def _arrivals(self) -> _Arrivals:
        return _Arrivals(len(self.model.blocks), self._spare.pop() if self._spare else Image())

    def grow(self, model: Model) -> None:
        """Make room for tensors that were declared; their values have to come yet."""
        self.model = model
        for arrivals in (self._installed, *self._later.values()):
            new = np.full(len(model.blocks) - len(arrivals.where), _MISSING, dtype=np.int64)
            arrivals.where = np.append(arrivals.where, new)

    def wants(self, version: int, block_runs: Sequence[Run]) -> bool:
        """Return whether some of these blocks of a version are missing."""
        if version in self._given_up:
            return False
        arrivals = self._for(version)
        if arrivals is None:
            return False
        return any(has_any(arrivals.where[first : first + count] == _MISSING) for first, count in block_runs)

    def buffers(self, version: int, block_runs: Sequence[Run]) -> list[Slab]:
        """Return where to receive blocks of a version that is wanted."""
        arrivals = self._for(version)
        assert arrivals is not None
        arrivals.receiving += 1
        arrivals.received.grow(self.model.slab_bytes)
        return [arrivals.received.array[self.model.span(run)] for run in block_runs]

    def arrived(
        self,
        version: int,
        block_runs: Sequence[Run],
        updates: int = 0,
        image: Slab | None = None,
        mark: Slab | None = None,
    ) -> None:
        """Take note that these blocks of a version, of one store, are here.

        Those that had come before stay where they are.

        Args:
            version: the version of the blocks.
            block_runs: the blocks that are here.
            updates: the most that any of them has had.
            image: uint8 of the model's slab, memory of their server's in which they stay until this worker's next push;
                None: they are in the buffers.
            mark: of that memory: the latest version that has been begun there.
        """
        arrivals = self._for(version)
        if arrivals is None:
            return
        number = _RECEIVED if image is None else arrivals.number(image, mark)
        arrivals.receiving -= image is None
        before = arrivals.where.copy()
        for first, count in block_runs:  # of which there may be many, of a block each
            arrivals.where[first : first + count] = number
        np.copyto(arrivals.where, before, where=before != _MISSING)
        if updates:
            store = self.model.tensors[self.model.blocks[block_runs[0][0]].tensor].store
            arrivals.updates[store] = max(arrivals.updates[store], updates)
        if len(self._later) > 1 and arrivals.complete:
            whole = sorted(known for known, each in self._later.items() if each.complete)
            for older in [known for known in self._later if known < whole[-_MOST_WHOLE:][0]]:
                self._drop(older)

    def changed(self, version: int, run: Run, rows: Rows) -> None:
        """Take note that blocks of the version after the installed are what is installed, but for some rows.

        Where that version is installed by now, another owner of the blocks was faster. What the installed version
        lacks, as others have defined it, is not wanted: when this worker's script comes to it, it asks for all of it.

        Args:
            version: the version of the blocks.
            run: the blocks, of one tensor.
            rows: the rows that have changed, with their new values.
        """
        arrivals = self._for(version)
        if arrivals is None or arrivals is self._installed:
            return
        there = (self._installed.where[run[0] : sum(run)] != _MISSING).nonzero()[0] + run[0]
        for first, count in runs(there.tolist()):
            part = rows_of(self.model, (first, count))
            assert part is not None, "else these rows were not known"
            arrivals.changed.append(((first, count), rows.between(part)))
            arrivals.where[first : first + count] = _CHANGED

    def updates(self, store: int) -> int:
        """Return the most updates of any tensor of `store`, as servers told with the installed values (async, ssp)."""
        return self._installed.updates[store]

    def _for(self, version: int) -> _Arrivals | None:
        if self.version is None or version > self.version:
            if version not in self._later and len(self._later) >= _MOST_LATER:
                self._make_room()
            return self._later[version]
        return self._installed if version == self.version else None

    def _make_room(self) -> None:
        """Drop a version that lacks blocks of a server whose path is slow: it has left out those of the smallest powers
        of two (see `Subscription`). The latest stays: it may be that of the clock, which every server sends.
        """
        latest = max(self._later)
        lacking = [version for version, arrivals in self._later.items() if not arrivals.complete and version < latest]
        for version in sorted(lacking, key=lambda version: (version & -version, version)):
            if self._drop(version):
                return

    def _drop(self, version: int) -> bool:
        """Drop a version that is not wanted; False where a part of it is just coming."""
        if self._later[version].receiving:
            return False
        self._use_again(self._later.pop(version))
        self._given_up.add(version)
        return True

    def next_after(self) -> int | None:
        """Return the first later version that has all blocks of the installed one; None while something lacks.

        Others may have defined tensors that this worker's script comes to later: it asks for their values then.
        """
        held = self._held
        return min((version for version, new in self._later.items() if new.has(held)), default=None)

    def is_torn(self) -> bool:
        """Return whether a member's next version can never be whole: of what it lacks the one after that is here.

        So it is with a joiner to which an owner that has died had no way. Its heir holds the version after, which was
        made without the joiner; others wait with theirs for what this worker would make of the next.
        """
        next_one, after = (self._later.get((self.version or 0) + ahead) for ahead in (1, 2))
        if next_one is None or after is None:
            return False
        held = self._held
        lacking = held & (next_one.where == _MISSING)
        return has_any(lacking) and after.has(lacking) and not after.has(held)

    def next_version(self) -> int | None:
        """Return the first later version whose blocks are all here; None while something lacks."""
        return min((version for version, arrivals in self._later.items() if arrivals.complete), default=None)

    def install(self, version: int) -> None:
        """Make `version`, which is complete, the installed one."""
        new = self._later.pop(version)
        for run, rows in new.changed:
            self._change(new, run, rows)
        new.spoilt = bool(new.changed) and self.is_overwritten()
        self._use_again(self._installed)
        self._installed = new
        self.version = version
        self._given_up = {known for known in self._given_up if known > version}
        for old in [known for known in self._later if known <= version]:
            self._use_again(self._later.pop(old))

    def _use_again(self, old: _Arrivals) -> None:
        """Keep the memory of a version that is over, unless a slow server is still sending what another had sooner."""
        if not old.receiving and len(self._spare) < _SPARE:
            self._spare.append(old.received)

    def _change(self, new: _Arrivals, run: Run, rows: Rows) -> None:
        """Change rows in the memory that is kept for them, to which blocks come from where they are installed."""
        self._kept.grow(self.model.slab_bytes)
        kept, installed = self._kept.array, self._installed
        for block in range(run[0], sum(run)):
            where = int(installed.where[block])
            if where in (_RECEIVED, _MISSING) or not np.may_share_memory(installed.image(where), kept):
                span = self.model.span((block, 1))
                kept[span] = installed.image(where)[span]
        new.where[run[0] : sum(run)] = new.number(kept)
        held = rows_of(self.model, run)
        assert held is not None, "else these rows were not known"
        tensor = self.model.tensors[self.model.blocks[run[0]].tensor]
        values = kept[self.model.span(run)][: len(held) * tensor.row_bytes].view(tensor.dtype)
        values.reshape(len(held), -1)[rows.numbers - held.start] = rows.values

    def is_overwritten(self) -> bool:
        """Return whether a server may have written over what is installed: no server waits for this worker any more."""
        installed, most = self._installed, (self.version or 0) + 1
        return installed.spoilt or any(int(mark[0]) > most for mark in installed.marks)

    def begin(self, version: int) -> None:
        """Start at `version` with nothing installed: a job whose model is still empty."""
        self.version = version

    @property
    def _held(self) -> NDArray[np.bool_]:
        """By block, whether the installed version has it."""
        held: NDArray[np.bool_] = self._installed.where != _MISSING
        return held

    def missing(self, version: int) -> list[Run]:
        """Return the runs of blocks of `version` that have not come."""
        arrivals = self._for(version)
        return list(runs((arrivals.where == _MISSING).nonzero()[0].tolist())) if arrivals is not None else []

    def behind(self, version: int) -> list[Run]:
        """Return those of `missing` that the installed version has: `next_after` waits for them."""
        held = self._held
        return list(runs(block for block in members(self.missing(version)) if held[block]))

    def latest(self) -> NDArray[np.int64]:
        """Return the latest version of each block that has come, installed or not; -1: none."""
        latest = np.full(len(self.model.blocks), -1)
        versions = {**self._later, **({self.version: self._installed} if self.version is not None else {})}
        for version, arrivals in sorted(versions.items()):
            latest[arrivals.where != _MISSING] = version
        return latest

    def forget(self, block_runs: Sequence[Run], version: int) -> None:
        """Forget these blocks of a version: the server that had sent them is dead, and what it said is void."""
        if version in self._later:
            later = self._later[version]
            for first, count in block_runs:
                later.where[first : first + count] = _MISSING
            later.changed = [(run, rows) for run, rows in later.changed if later.where[run[0]] != _MISSING]

    def forget_coming(self) -> None:
        """Forget each later version of which a part is just coming: its memory will be written to after the version is
        whole, where another server sends the same blocks sooner.
        """
        for version in [known for known, arrivals in self._later.items() if arrivals.receiving]:
            del self._later[version]

    def holds(self, index: int) -> bool:
        """Return whether all blocks of a tensor are here at the installed version."""
        blocks = self.model.blocks_of[index]
        where = self._installed.where[blocks.start : blocks.stop].tolist()
        return self.version is not None and len(where) == len(blocks) and _MISSING not in where

    def parts(self, index: int) -> list[NDArray[Any]]:
        """Return the installed values of a tensor, flat and in order; valid until the next `install`."""
        blocks, installed = self.model.blocks_of[index], self._installed
        tensor = self.model.tensors[index]
        where = installed.where[blocks.start : blocks.stop].tolist()
        if len(set(where)) == 1:  # also most of those that are cut in blocks
            start = self.model.blocks[blocks.start].position
            return [installed.image(where[0])[start : start + tensor.nbytes].view(tensor.dtype)]
        found = []
        left = tensor.nbytes  # the rest of the last block is padding
        for number, group in groupby(zip(blocks, where, strict=True), key=itemgetter(1)):
            members = [block for block, _ in group]
            span = self.model.span((members[0], len(members)))
            part = installed.image(number)[span][:left]
            found.append(part.view(tensor.dtype))
            left -= part.nbytes
        return found

    def addresses(self, tensors: Addresses) -> Addresses:
        """Return the addresses of the installed values of tensors, until the next `install`; 0: not in one piece, or
        not here.
        """
        if self.version is None:
            return np.zeros(len(tensors), dtype=np.int64)
        installed = self._installed
        where, alike = self.model.whole(installed.where, tensors)
        images = [address(installed.image(number)) for number in range(len(installed.shared) + 1)]
        lies = np.array(images)[np.maximum(where, 0)] + self.model.extents[tensors, 1]
        return np.where(alike & (where >= 0), lies, 0)

    def tensor(self, index: int) -> NDArray[Any]:
        """Return the installed values of a tensor, in its shape: the memory itself, or a copy of several parts."""
        parts = self.parts(index)
        whole = parts[0] if len(parts) == 1 else np.concatenate(parts)
        return whole.reshape(self.model.tensors[index].shape)
