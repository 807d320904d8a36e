"""An `Oracle` knows how a job must come out, whatever happens to it, and asks production for none of that.

Each tensor has an entry for each sample. A sample's gradient is one at its own entry, and the optimizer adds it: the
parameters count how often each sample was used. So those of the job's end are known, and under "sync" those of each
version; see `Expected`.
"""

import zlib
from contextlib import closing
from typing import Any

import numpy as np

from coordinator.core.plans.plan import Phase
from coordinator.server.ledger_files import Ledger
from elastic_ps.core.model import members
from elastic_ps.server.blocks.applied_batches import BatchId
from elastic_ps.server.phases import BlockStatus
from elastic_ps.transport.frame_kinds import Kind
from tests.world.faults.job_draw import JobDraw
from tests.world.kernel.scheduler import DEAD
from tests.world.oracles.expected import Expected
from tests.world.oracles.keeping import Keeping
from tests.world.programs import Watch
from tests.world.training import number_of

BEYOND_THE_LEASE = 30.0
"""Seconds, after a lease, within which a job goes on after the last fault, or its coordinator's last start or end: one
that ends again and again is started after ever longer pauses, of 30 s at most."""

BEYOND_THE_LEASE_SERVERLESS = 180.0
"""Likewise of a job without servers: the members of a group that has failed, and of which nobody is gone, end one after
the other, 30 s each, and their group takes up to a minute to be given up."""

MOST_THREADS, MOST_CONNECTIONS = 80, 60
"""Of a process of a job this small."""

_OF_GROUPS = 6
"""Connections beyond these for each peer whose machine is gone: nothing breaks those of gloo and of its store with it,
nor those by which a group with it was being made, and they stay until they are given up after a minute."""

MOST_WAITING, MOST_MODELS_WAITING = 1 << 13, 20
"""Bytes that wait to be sent to one peer, or so many of this job's models where these are larger."""

_LOOK_SECONDS = 2.0


class Oracle(Watch):
    """See the module. The first thing that is wrong ends the world.

    Args:
        draw: of the job.
    """

    def __init__(self, draw: JobDraw):
        self.world: Any = None
        self.steps = 0
        self.waiting = 0  # bytes, at most
        self._draw = draw
        self._progress = 0.0
        self._awaited = 0.0  # when a process was last awaited that has no way to the coordinator
        self._versions: dict[Any, int] = {}  # by process
        self._weights: dict[int, int] = {}  # by version, a checksum
        self._values: dict[Any, int] = {}  # by version and runs, a checksum
        self._owners: dict[tuple[Any, int], Any] = {}  # by configuration and block
        self.scripts_ended = 0
        self.expected = Expected(draw)
        self.keeping = Keeping(self)

    def wrong(self, why: str) -> None:
        """Take note of what is wrong."""
        self.world.fail(why)

    # ---- scripts -----------------------------------------------------------------------------------------------------

    def started(self, process: Any) -> None:
        """See `Watch`."""
        self.world.guarantee.started(process)

    def stepped(self, process: Any, job: Any, arrays: list[Any]) -> None:
        """See `Watch`."""
        self.steps += 1
        if self._draw.mode == "sync":
            self.world.guarantee.stepped(process, self.expected.step(job.node.version))
        self._progress = self.world.scheduler.now
        if self._draw.mode == "sync":
            self._check_sync(process, job.node.version, arrays)
        elif not all(self.expected.may_be(array, tensor) for tensor, array in enumerate(arrays)):
            self.wrong(f"{process} has parameters that no sample can make: {arrays[0]}")

    def pulled(self, process: Any, job: Any, arrays: list[Any]) -> None:
        """See `Watch`."""
        version = job.node.version
        for tensor, array in enumerate(arrays):
            right = self.expected.is_of(array, tensor, version) if self._draw.mode == "sync" else True
            if not (right and self.expected.may_be(array, tensor)):
                self.wrong(f"{process} has pulled tensor {tensor} of version {version} as {array.tolist()}")

    def counted(self, process: Any, own: int, before: list[Any], arrays: list[Any]) -> None:
        """See `Watch`: a worker's push counts once; in a sync job so do those of others that are there."""
        self.steps += 1
        self._progress = self.world.scheduler.now
        most = 1 if self._draw.mode == "sync" else np.inf
        for number, (old, new) in enumerate(zip(before, arrays, strict=True)):
            more = new - old
            if more[own] != 1 or (more < 0).any() or (more > most).any() or new[self._draw.workers :].any():
                self.wrong(f"{process}: a push counts so in tensor {number}: {old.tolist()}, {new.tolist()}")

    def _check_sync(self, process: Any, version: int, arrays: list[Any]) -> None:
        if version < self._versions.get(process, 0):
            self.wrong(f"{process} went back from version {self._versions[process]} to {version}")
        self._versions[process] = version
        for number, array in enumerate(arrays):
            if not self.expected.is_of(array, number, version):
                self.wrong(f"{process}: tensor {number} of version {version} is {array.tolist()}")
        checksum = zlib.crc32(b"".join(array.tobytes() for array in arrays[: self._draw.tensors]))
        if self._weights.setdefault(version, checksum) != checksum:
            self.wrong(f"{process}: the parameters of version {version} differ from another worker's")

    def finished(self, process: Any, arrays: list[Any]) -> None:
        """See `Watch`."""
        self.scripts_ended += 1
        self._progress = self.world.scheduler.now
        for number, array in enumerate([] if self._draw.static else arrays):  # else all was said in its steps
            if not self.expected.is_last(array, number):
                self.wrong(f"{process}: tensor {number} is no such at the end: {array.tolist()}")

    def crashed(self, process: Any, error: Exception) -> None:
        """See `Watch`."""
        if not self.world.joining.has_given_up(process, error):
            self.wrong(f"the script of {process} has raised {error!r}")

    def ended(self) -> None:
        """Check what is known when the launcher has ended with status 0."""
        if not self.scripts_ended:
            self.wrong("the job has ended, and no script came to its end")
        injector = self.world.injector
        partial = (
            self._draw.static or injector.late or injector.journal_lost
        )  # a server died with entries, or the ledger begins anew
        if self.scripts_ended and not partial:
            self._audit()

    def _audit(self) -> None:
        """Check that the ledger has each sample of each epoch once, for each block."""
        job = self.world.injector.state.job
        draw, positions = self._draw, self._draw.positions
        times = np.zeros((len(job.model.blocks), draw.epochs, positions), np.int64)
        with closing(Ledger(self.world.folder / "ledger.jsonl")) as ledger:
            ledger.load()
            for entry in ledger.entries(job.voids):
                if not entry.voided:
                    for start, count in zip(entry.runs[::2], entry.runs[1::2], strict=True):
                        for part in entry.slices:
                            times[start : start + count, entry.epoch, part.low : part.high] += 1
        step = np.arange(draw.epochs)[:, None] * draw.steps_per_epoch + np.arange(positions) // draw.batch
        for block in job.model.blocks:
            number = number_of(job.model.tensors[block.tensor].key)
            if number >= 0:
                times[block.id] += ~self.expected.course(number).pushed[step]
        if (times != 1).any():
            block, epoch, position = (int(at[0]) for at in np.nonzero(times != 1))
            found = times[block, epoch, position]
            self.wrong(f"the ledger has sample {position} of epoch {epoch} {found} times for block {block}")

    # ---- the network -------------------------------------------------------------------------------------------------

    def overwritten(self, process: Any, sender: Any, frame: Any) -> None:
        """See `Watch`: a push that has been answered may come again, late, and is not used; neither are values by a
        worker that the job goes on without, which looks before its script does, nor by a shadow those before the ones
        that it begins with: at these `stepped` looks.
        """
        if frame.kind is Kind.PUSH and not self._counts(process.server, frame):
            return
        if frame.kind is Kind.VALUE and not self._takes_part(process):
            return
        self.wrong(f"{process} uses {frame.kind.name} {frame.version} of {sender}, who has written to it meanwhile")

    def _takes_part(self, process: Any) -> bool:
        """Return whether a worker is one of those that its job has, or goes over to have, and knows it."""
        job = self.world.injector.state.job
        if process.environment["ELASTIC_NONCE"] in job.expelled or not process.job.node.is_member:
            return False
        target = job.plan.target if job.plan is not None and job.plan.phase is Phase.ARMED else job.configuration
        return target is None or process.job.node.session.node in target.ranks

    def _counts(self, server: Any, frame: Any) -> bool:
        """Return whether a push brings gradients of an update that its server has still to make."""
        store = server.store
        mine = [(block, 1) for block in members(frame.runs) if store.status[block] == BlockStatus.PRIMARY]
        if self._draw.mode == "sync":
            return any(store.versions[block] == frame.version for block, _ in mine)
        return not all(store.applied.has(BatchId(*frame.meta.batch), run).all() for run in mine)

    def sent(self, process: Any, frame: Any, payload: Any) -> None:
        """See `Watch`."""
        if frame.kind is not Kind.VALUE:
            return
        for start, count in frame.runs:
            for block in range(start, start + count):
                owner = self._owners.setdefault((frame.configuration, block), process)
                if owner is not process:
                    self.wrong(f"{owner} and {process} both give block {block} in configuration {frame.configuration}")
        if self._draw.mode == "sync" and frame.payload_bytes:
            checksum = zlib.crc32(b"".join(payload))
            term = frame.configuration.term if self._draw.static else 0  # shares of those who died are trained no more
            key = frame.version, tuple(frame.runs), frame.meta.rows, term
            if self._values.setdefault(key, checksum) != checksum:
                self.wrong(f"{process}: blocks {key[1]} of version {frame.version} differ from what was given before")

    # ---- time --------------------------------------------------------------------------------------------------------

    def look(self) -> None:
        """Look whether the job goes on, again and again."""
        scheduler = self.world.scheduler
        injector = self.world.injector
        if self.world.joining.is_awaited():
            self._awaited = scheduler.now
        patience = BEYOND_THE_LEASE_SERVERLESS if self._draw.serverless else BEYOND_THE_LEASE
        waited = scheduler.now - max(self._progress, injector.last, self.world.coordinator_changed, self._awaited)
        asked = BEYOND_THE_LEASE + self._draw.lease if injector.journal_lost else 0.0  # nodes, for who does not come
        if waited > self._draw.lease + patience + asked:
            self.wrong(f"no step for {waited:.0f} s after the last fault and the last step")
        for process, threads in scheduler.threads().items():
            gone = {end.other.process for end in process.ends if end.lasting and end.other.process.state == DEAD}
            if threads > MOST_THREADS or len(process.ends) > MOST_CONNECTIONS + _OF_GROUPS * len(gone):
                self.wrong(f"{process} has {threads} threads and {len(process.ends)} connections")
            waiting = max((link.backlog for link in process.links if not link.closed), default=0)
            self.waiting = max(self.waiting, waiting)
            if waiting > max(MOST_WAITING, MOST_MODELS_WAITING * self._draw.model_bytes):
                self.wrong(f"{process} has {waiting} bytes waiting for one peer")
        scheduler.call_at(scheduler.now + _LOOK_SECONDS, self.look)
