"""A node is silent where the coordinator has not heard it for some time."""

from coordinator.core.job import DurableJob
from coordinator.core.state import State
from elastic_ps.core.configuration import NodeId


def silent(state: State, now: float, leases: float = 1.0) -> frozenset[NodeId]:
    """Return the nodes that have not been heard for some time: whose lease has run out.

    Args:
        state: of the coordinator.
        now: unix seconds.
        leases: the time.
    """
    seconds = leases * state.settings.lease
    told = ((name, state.vitals.get(name)) for name in state.job.nodes)
    return frozenset(name for name, vitals in told if vitals is not None and now - vitals.heard > seconds)


def heard_at(state: State, name: NodeId, now: float) -> float:
    """Return when a node was last heard, in unix seconds; one of which nothing is known yet is heard `now`.

    Args:
        state: of the coordinator.
        name: of the node.
        now: unix seconds.
    """
    vitals = state.vitals.get(name)
    return vitals.heard if vitals else now


def waited_for(job: DurableJob) -> frozenset[NodeId]:
    """Return the nodes that do not end anyhow."""
    return frozenset(name for name, node in job.nodes.items() if not node.departing and name not in job.finished)


def most_are_silent(state: State, now: float) -> bool:
    """Return whether more than half of the nodes are silent, so that the fault may be the coordinator's own."""
    expected = waited_for(state.job)
    return 2 * len(silent(state, now) & expected) > len(expected) > 1
