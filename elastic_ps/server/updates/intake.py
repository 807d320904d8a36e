"""`Intake` cuts what a push brings where its blocks are judged differently. Both ways of updating begin with it."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from elastic_ps.core.configuration import NodeId
from elastic_ps.core.errors import ProtocolError
from elastic_ps.core.model import Run
from elastic_ps.core.segments import stretches
from elastic_ps.optimizers.gradient_sum import Contribution
from elastic_ps.server.phases import BlockVerdict, Bytes, Given
from elastic_ps.server.state.server_state import ServerState
from elastic_ps.transport.frame_metas import PushMeta
from elastic_ps.transport.frames import Frame


@dataclass(frozen=True)
class Piece:
    """A `Piece` is one run of a push."""

    run: Run
    given: Given
    data: Contribution | None


class Intake:
    """`Intake` yields the parts of a push that are to be kept or answered, and holds the others.

    Called under the state's lock.

    Args:
        state: the server's.
        hold: keeps a part of a push until something changes.
    """

    def __init__(self, state: ServerState, hold: Callable[[NodeId, Frame, list[Contribution]], None]):
        self._state = state
        self._keep_waiting = hold

    def parts(
        self, node: NodeId, frame: Frame, data: list[Contribution], judge: Callable[[Run], Bytes]
    ) -> Iterator[tuple[BlockVerdict, Piece]]:
        """Yield the parts of a push to keep and to answer; hold those that have to wait.

        Args:
            node: the worker who pushed.
            frame: the push.
            data: the payload of each run.
            judge: gives a `BlockVerdict` for each block of a run.

        Raises:
            ProtocolError: blocks of another server.
        """
        store = self._state.store
        for piece in self._pieces(frame, data):
            first = piece.run[0]
            judged = judge(piece.run)
            for low, high in stretches(judged):
                raw = store.part(piece.run, piece.data, low, high) if piece.data is not None else None
                part = Piece((first + low, high - low), piece.given, raw)
                verdict = BlockVerdict(judged.item(low))
                if verdict is BlockVerdict.HOLD:
                    self._hold(node, frame, part)
                elif verdict is BlockVerdict.FOREIGN:
                    raise ProtocolError(f"{node} pushed blocks {part.run} that {self._state.node} does not own")
                else:
                    yield verdict, part

    def _pieces(self, frame: Frame, data: list[Contribution]) -> list[Piece]:
        pieces = [Piece(run, Given.GRADIENT, part) for run, part in zip(frame.runs, data, strict=True)]
        push = frame.of(PushMeta)
        given = Given.EMPTY if push.empty else Given.ABSENT
        self._state.store.span(push.absent)
        return pieces + [Piece(run, given, None) for run in push.absent]

    def _hold(self, node: NodeId, frame: Frame, piece: Piece) -> None:
        runs, absent = ((), (piece.run,)) if piece.data is None else ((piece.run,), ())
        meta = replace(frame.of(PushMeta), runs=runs, absent=absent)
        part = Frame(meta, frame.configuration, frame.version, frame.samples)
        self._keep_waiting(node, part, [piece.data] if piece.data is not None else [])
