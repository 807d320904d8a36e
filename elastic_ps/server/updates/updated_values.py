"""In a `sync` job the values that updates have made are sent to all workers, and to shadows, in the memory itself."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from elastic_ps.core.configuration import NodeId
from elastic_ps.core.model import Run
from elastic_ps.core.segments import Raw, grown, joined, runs_of
from elastic_ps.server.phases import BlockStatus, having
from elastic_ps.server.state.server_state import ServerState
from elastic_ps.transport.frame_metas import ValueMeta
from elastic_ps.transport.frames import Frame


class UpdatedValues:
    """`UpdatedValues` sends values by VALUE frames. Called under the state's lock.

    Args:
        state: the server's.
    """

    def __init__(self, state: ServerState):
        self._state = state
        self._untold = np.zeros(0, dtype=bool)  # by block: the workers have not been sent what it has come to
        self._untold_rows: dict[Run, NDArray[np.int64]] = {}  # of untold runs of which only some rows have changed
        self._rows_for: Sequence[NodeId] = ()  # the workers who have all other rows

    def send_updated(self, version: int, updated: Sequence[Run], rows: Sequence[tuple[Run, NDArray[np.int64]]]) -> None:
        """Send what blocks have come to.

        Args:
            version: their new one.
            updated: runs of them.
            rows: those of the runs of which only some rows have changed, with the rows' numbers.
        """
        by_rows = {segment for segment, _ in rows}
        self._tell(self._state.gathering.workers, version, [run for run in updated if run not in by_rows])
        self._tell_rows(version, rows)

    def withhold(self, updated: Sequence[Run], rows: Sequence[tuple[Run, NDArray[np.int64]]]) -> None:
        """Remember what workers are to be told once followers have it: runs, and those of some rows, also these."""
        self._untold = grown(self._untold, len(self._state.store.status))
        for first, count in updated:
            self._untold[first : first + count] = True
        if self._rows_for != self._state.gathering.workers:
            self._rows_for, self._untold_rows = self._state.gathering.workers, {}
        self._untold_rows.update(rows)

    def tell(self) -> None:
        """Send what was withheld, and what followers have by now."""
        state, store = self._state, self._state.store
        if not self._untold.any():
            return
        self._untold = grown(self._untold, len(store.status))
        self._untold &= having(store.status, BlockStatus.PRIMARY)  # who owns the others tells of them
        if self._rows_for != state.gathering.workers:
            self._untold_rows = {}  # who has come since needs all of them
        ready = self._untold & state.may_tell()
        self._untold &= ~ready
        rows = [(run, numbers) for run, numbers in self._untold_rows.items() if ready[run[0] : sum(run)].all()]
        for version in np.unique(store.versions[ready]).tolist():
            found = ready & (store.versions == version)
            changed = [(run, numbers) for run, numbers in rows if found[run[0]]]
            for first, count in (run for run, _ in changed):
                found[first : first + count] = False
            self._tell(state.gathering.workers, version, runs_of(found))
            self._tell_rows(version, changed)
        self._untold_rows = {
            run: numbers for run, numbers in self._untold_rows.items() if self._untold[run[0] : sum(run)].all()
        }

    def _tell(self, workers: Sequence[NodeId], version: int, updated: Sequence[Run]) -> None:
        state = self._state
        for cut in state.store.values.by_image(joined(updated)):
            frame = state.frame(ValueMeta(runs=tuple(cut), factor=state.store.decided.of(version - 1)), version)
            payload = [piece for run in cut for piece in state.store.values.pieces(run)]
            for worker in workers:
                # Not copied: nobody updates these blocks again before this worker has pushed for them again, which it
                # does only after it has their values.
                state.outbox.send(worker, frame, payload)
            self._tell_shadows(frame, cut, payload)

    def _tell_rows(self, version: int, updated: Sequence[tuple[Run, NDArray[np.int64]]]) -> None:
        """Send the values of blocks of which some rows have changed: where values travel, only those rows do."""
        if not updated:
            return
        state = self._state
        sharing = [worker for worker in state.gathering.workers if state.outbox.shares(worker)]
        self._tell(sharing, version, [run for run, _ in updated])
        if len(sharing) == len(state.gathering.workers):
            return
        found = [state.store.row_values(run, numbers) for run, numbers in updated]
        factor = state.store.decided.of(version - 1)
        meta = ValueMeta(runs=tuple(run for run, _ in updated), rows=tuple(map(len, found)), factor=factor)
        frame = state.frame(meta, version)
        for worker in state.gathering.workers:
            if worker not in sharing:
                state.outbox.send(worker, frame, [part for rows in found for part in rows.payload()])

    def _tell_shadows(self, frame: Frame, runs: list[Run], payload: list[Raw]) -> None:
        state = self._state
        shadows = [shadow for node, shadow in state.subscriptions.items() if node not in state.gathering.workers]
        prepared = state.standing.prepared if state.standing.clock is not None else None
        armed = prepared.ranks if prepared is not None else {}
        taking = [shadow for shadow in shadows if shadow.takes(frame.version, shadow.node in armed)]
        listening = [shadow for shadow in taking if state.outbox.is_connected(shadow.node)]
        # Where it is a member with the version that it switches at, nobody writes over that without its push; if an
        # earlier one changes under its eyes, it has not used it.
        reading = {shadow.node for shadow in listening if shadow.node in armed and state.outbox.shares(shadow.node)}
        copies = [piece.copy() for piece in payload] if len(reading) < len(listening) else []
        for shadow in listening:
            state.outbox.send(shadow.node, frame, payload if shadow.node in reading else copies)
        for shadow in state.subscriptions.values():
            for run in runs:
                (shadow.owes if shadow in shadows and shadow not in taking else shadow.sent)(run)
        if len(taking) < len(shadows):
            state.changed.notify_all()  # who sends them when the job stands still

    def send(self, node: NodeId, blocks: NDArray[np.int64]) -> None:
        """Send the values of blocks in one frame for each version.

        Copied, unlike those of an update: the worker may have them already by another connection, go on, and see them
        change under way.
        """
        state = self._state
        versions = state.store.versions[blocks]
        for version in np.unique(versions).tolist():
            runs = list(state.store.alike(np.unique(blocks[versions == version])))
            pieces = [piece.copy() for run in runs for piece in state.store.values.pieces(run)]
            meta = ValueMeta(runs=tuple(runs), factor=state.store.decided.of(version - 1))
            state.outbox.send(node, state.frame(meta, version), pieces)
