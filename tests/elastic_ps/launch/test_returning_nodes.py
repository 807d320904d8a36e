"""How many processes of other launchers a restore has ended that have not come back."""

from elastic_ps.core.configuration import Role
from elastic_ps.launch.decide import WantedNodes
from elastic_ps.launch.processes.returning_nodes import ReturningNodes


def wanted(nodes: dict[str, str], restarting: tuple[str, ...] = ()) -> WantedNodes:
    return WantedNodes(nodes=nodes, restarting=frozenset(restarting))


def away(returning: ReturningNodes, now: float) -> dict[Role, int]:
    return dict(returning.away(now))


def test_a_coordinator_that_has_begun_anew_brings_nobody_back_twice() -> None:
    returning = ReturningNodes(30.0)
    returning.observe(wanted({"one": "w1", "two": "w2"}, ("one", "two")), now=0.0)
    returning.observe(wanted({"again": "w3"}), now=1.0)
    assert away(returning, 1.0) == {Role.WORKER: 1}
    returning.observe(wanted({}), now=2.0)  # it asks its nodes
    returning.observe(wanted({"again": "w3", "two": "w2"}, ("two",)), now=3.0)
    assert away(returning, 3.0) == {Role.WORKER: 1}


def test_nobody_is_waited_for_longer_than_a_minute() -> None:
    """`--join-timeout` may be of hours, and a process that ended otherwise meanwhile is not started again."""
    returning = ReturningNodes(36_000.0)
    returning.observe(wanted({"one": "s1"}, ("one",)), now=0.0)
    assert away(returning, 59.0) == {Role.SERVER: 1}
    assert away(returning, 60.0) == {}
