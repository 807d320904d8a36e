"""This module says whom a server waits for: workers' pushes, the chief's factor, followers' acknowledgements."""

import numpy as np

from elastic_ps.core.segments import has_any
from elastic_ps.node.peer_watch import Awaited
from elastic_ps.server.state.server_state import ServerState


def awaited_peers(state: ServerState) -> list[Awaited]:
    """Return the workers whose pushes lack in updates that others have begun (none in an async or ssp job), and the
    followers that have not acknowledged updates. Called under the state's lock.
    """
    acknowledged = state.acknowledged
    behind = acknowledged.lacking(state.owned(), state.store.versions) if acknowledged.guards else []
    return _awaited_pushes(state) + [
        Awaited(node, "its acknowledgement of updates", acknowledged.times(node))
        for node in behind
        if node not in state.standing.dead
    ]


def _awaited_pushes(state: ServerState) -> list[Awaited]:
    given = state.gathering.given
    if not has_any(given):  # `Given.NOTHING` is 0
        return []
    begun = given.any(axis=0)
    version = int(state.store.versions[begun].min())
    what = f"its push of version {version}"
    lacking = np.flatnonzero(~given[:, begun].all(axis=1)).tolist()
    if not lacking:  # gradients wait for the factor on all of them, or are being applied, as it is here
        if state.store.decided.of(version) is not None:
            return []
        what, lacking = f"its FACTOR for version {version}", [0]
    workers = [state.gathering.workers[rank] for rank in lacking]
    return [Awaited(worker, what) for worker in workers if worker not in state.standing.dead]
