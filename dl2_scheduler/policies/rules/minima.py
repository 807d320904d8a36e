"""Minima over one worker and one server, which the rules of the published code do not know."""

from dl2_scheduler.cluster.errors import BadInput
from dl2_scheduler.cluster.snapshot import Snapshot


def refuse_minima(snapshot: Snapshot) -> None:
    """Refuse jobs that need more than one worker and one server to run, or have no servers.

    Raises:
        BadInput: with the first of them.
    """
    for state in snapshot.jobs:
        if not state.job.has_servers:
            raise BadInput(
                f"job {state.job.id} has no servers; published rules and the paper's network give every job both "
                "workers and servers: use another policy"
            )
        least = state.job.min_workers, state.job.min_servers
        if least != (1, 1):
            raise BadInput(
                f"job {state.job.id} needs {least[0]} workers and {least[1]} servers to run; published rules and the "
                "paper's network know minima of one only: use another policy"
            )
