"""A `GroupSaver` writes this worker's part of a checkpoint beside training.

All workers hold the same bits at the checkpoint's version, so each saves some blocks. A step waits while they are
copied in memory; they are written on another thread.
"""

import json
import logging
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass

from elastic_ps.core.configuration import ConfigId
from elastic_ps.core.errors import ConfigurationError, StorageError
from elastic_ps.server.checkpoints.files import BlockFileWriter
from elastic_ps.system import storage
from elastic_ps.torch.allreduce.checkpoints.replica_blocks import CopiedBlock, ReplicaBlocks
from elastic_ps.torch.allreduce.group_state import GroupState
from protos import elastic_pb2 as pb

log = logging.getLogger(__name__)


@dataclass
class _Order:
    """An `_Order` is a Save directive, and how far it has been carried out.

    Attributes:
        clock: version to save.
        url: folder of the checkpoint.
        number: of the configuration whose members save it.
        begun: the blocks are being copied, or have been.
        contents: JSON for SAVED; "": the blocks are not written yet.
        told: SAVED has been answered.
    """

    clock: int
    url: str
    number: ConfigId
    begun: bool = False
    contents: str = ""
    told: bool = False


class GroupSaver:
    """A `GroupSaver` carries out Save directives: the last one counts.

    Args:
        state: the worker's.
    """

    def __init__(self, state: GroupState):
        self._state = state
        self._blocks: ReplicaBlocks | None = None
        self._order: _Order | None = None
        self._given_up = ""
        self._stored = 0  # the coordinator has the ledger's entries below this version

    def begin(self, blocks: ReplicaBlocks) -> None:
        """Save these from now on: the script has rehearsed."""
        self._blocks = blocks

    def save(self, clock: int, url: str, given_up: str = "") -> None:
        """Save this worker's blocks at version `clock` into folder `url`; SAVED or LATE is answered.

        Args:
            clock: the version.
            url: of the folder.
            given_up: folder of an order that came to nothing. Where each machine has its own, nobody else clears it.
        """
        state = self._state
        with state.changed:
            if given_up and given_up != self._given_up:
                self._given_up = given_up
                name = f"{state.session.node}.bin"
                threading.Thread(target=storage.take_back, args=(given_up, name), name="take-back", daemon=True).start()
            order, number = self._order, state.standing.config_id
            if order is not None and (order.url, order.number) == (url, number):
                order.told = False
                self._tell(order)
            elif state.held >= clock:  # the script may be in its next step already, and change its statistics
                self._late(clock)
            else:
                self._order = _Order(clock, url, number)

    def reached(self) -> None:
        """Copy this worker's blocks, if its version is the one to save. Called by the script's thread between steps."""
        state, started = self._state, time.monotonic()
        with state.changed:
            order, blocks = self._order, self._blocks
            if order is None or order.begun or blocks is None or state.held < order.clock:
                return
            if state.held > order.clock:
                self._order = None  # asked again, it is answered again
                self._late(order.clock)
                return
            order.begun = True
            rank, size = state.configuration.ranks.get(state.session.node), len(state.configuration.workers)
        if rank is None:
            return  # it has left meanwhile, and its part is others'
        try:
            copied = blocks.copy(blocks.part(rank, size))
        except ConfigurationError as error:
            self._written(order, json.dumps({"url": order.url, "error": str(error)}))
            return
        log.info(
            "copied %d blocks of version %d in %.1f ms", len(copied), order.clock, (time.monotonic() - started) * 1e3
        )
        threading.Thread(target=self._write, args=(order, copied), name="checkpoint", daemon=True).start()

    def stored(self, version: int) -> None:
        """Take note that the coordinator has the ledger's entries below a version."""
        with self._state.changed:
            self._stored = max(self._stored, version)
            if self._order is not None:
                self._tell(self._order)

    # ---- inside ------------------------------------------------------------------------------------------------------

    def _late(self, clock: int) -> None:
        state = self._state
        state.session.acknowledge(pb.LATE, state.standing.config_id, max(state.held, clock + 1))

    def _write(self, order: _Order, copied: Sequence[CopiedBlock]) -> None:
        name = f"{self._state.session.node}.bin"
        try:
            storage.make_folder(order.url)
            with storage.writing(f"{order.url}/{name}") as file:
                writer = BlockFileWriter(file, name)
                for block in copied:
                    writer.write_block(block.block, order.clock, block.count, block.written())
            contents = writer.contents(order.url)
        except (StorageError, FileNotFoundError) as error:
            log.error("the checkpoint at version %d cannot be written: %s", order.clock, error)  # noqa: TRY400
            why = f"{self._state.session.node} cannot write to {order.url}: {error}"
            contents = json.dumps({"url": order.url, "error": why})
        self._written(order, contents)

    def _written(self, order: _Order, contents: str) -> None:
        with self._state.changed:
            order.contents = contents
            self._tell(order)
        self._state.session.report_soon()

    def _tell(self, order: _Order) -> None:
        """Answer SAVED once, when all updates that the checkpoint holds are in the coordinator's ledger.

        Were all workers to die before that, nobody could tell the ledger of them. Called under the lock.
        """
        if order is self._order and order.contents and not order.told and self._stored >= order.clock:
            order.told = True
            self._state.session.acknowledge(pb.SAVED, order.number, order.clock, detail=order.contents)
