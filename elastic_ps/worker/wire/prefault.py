"""Memory that new owners share with this worker is touched before it is needed.

To touch memory first costs several times what it costs to write: the first steps with new owners would bear it all.
"""

import time
from collections.abc import Iterator

from elastic_ps.core.configuration import Configuration, NodeId
from elastic_ps.core.model import Run, runs
from elastic_ps.transport.shared_memory import Image
from elastic_ps.worker.wire.worker_state import WorkerState

_PIECE = 1 << 20
_PAUSE = 3.0
"""In times of what a piece took: a quarter of a core."""

_LOOK_SECONDS = 0.05


def populate(state: WorkerState, configuration: Configuration) -> None:
    """Touch a little at a time what workers and servers will exchange under `configuration`, while it is wanted.

    Gradients come first: their values the new owners touch themselves meanwhile, which leaves less to do here.
    """
    gained = dict(_gained(state, configuration))
    for images in slice(0, 1), slice(1, 3):
        for server, blocks in gained.items():
            for image in state.peers.shared(server)[images]:
                for run in blocks:
                    if not _populate(state, configuration, image, run):
                        return


def _gained(state: WorkerState, configuration: Configuration) -> Iterator[tuple[NodeId, list[Run]]]:
    """Yield by server the blocks that it gains; who joins has exchanged none with any, though it follows all."""
    with state.changed:
        current = None if state.is_shadow else state.standing.current
    owned = current.blocks_of if current is not None else {}
    for server, blocks in configuration.blocks_of.items():
        yield server, list(runs(sorted(set(blocks) - set(owned.get(server, ())))))


def _populate(state: WorkerState, configuration: Configuration, image: Image, run: Run) -> bool:
    """Touch a run; False: nobody needs it any more."""
    span = state.inbox.model.span(run)
    for low in range(span.start, span.stop, _PIECE):
        high = min(low + _PIECE, span.stop)
        while image.array.nbytes < high and _is_wanted(state, configuration):  # a joining server grows into its model
            time.sleep(_LOOK_SECONDS)
            image.follow()
        if not _is_wanted(state, configuration):
            return False
        started = time.perf_counter()
        image.populate(low, high)
        time.sleep(_PAUSE * (time.perf_counter() - started))
    return True


def _is_wanted(state: WorkerState, configuration: Configuration) -> bool:
    with state.changed:
        standing = state.standing
        known = standing.decided(configuration.id) or standing.config_id == configuration.id
        return known and state.ended is None
