"""How many processes of other launchers a restore has ended that have not come back."""

import pytest

from coordinator.core.job import JobPhase
from coordinator.server.wire import wanted_to_pb
from elastic_ps.core.configuration import Role
from elastic_ps.launch import decide
from elastic_ps.launch.decide import WantedNodes
from elastic_ps.launch.processes.returning_nodes import ReturningNodes
from elastic_ps.launch.restart_budget import RestartBudget
from tests.coordinator.played_job import World


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


@pytest.mark.parametrize("seconds", [1.0, 60.0])
def test_the_next_one_is_started_in_time_to_join(seconds: float) -> None:
    returning = ReturningNodes(seconds)
    returning.observe(wanted({"one": "s1"}, ("one",)), now=0.0)
    assert away(returning, 0.49 * seconds) == {Role.SERVER: 1}
    assert away(returning, 0.5 * seconds) == {}


def test_a_job_does_not_come_to_want_fewer_for_a_node_that_does_not_come_back() -> None:
    """The real coordinator waits for as long as its launcher was to wait before it started another one."""
    world = World(2, 1, declare=False)
    world.settle()
    world.replace_dead = False
    returning, budget = ReturningNodes(world.state.settings.join_timeout), RestartBudget(0)
    for name in ("w0", "s0"):
        returning.started(world.node(name).nonce)  # w1 is of another launcher
    world.kill(world.node("s0"))
    world.launcher()
    assert world.state.job.phase is JobPhase.RESTORING
    for _ in range(int(4 * world.state.settings.join_timeout)):
        told = WantedNodes.from_pb(wanted_to_pb(world.wanted))
        returning.observe(told, world.now)
        for action in decide.plan(told, (), budget, away=returning.away(world.now)):
            assert isinstance(action, decide.StartProcesses)
            for _ in range(action.count):
                returning.started(world.spawn(action.role).nonce)
        world.turn()
    assert world.counts == (2, 1)
    assert world.state.job.goal.workers == 2


def test_nobody_is_waited_for_longer_than_a_minute() -> None:
    """`--join-timeout` may be of hours, and a process that ended otherwise meanwhile is not started again."""
    returning = ReturningNodes(36_000.0)
    returning.observe(wanted({"one": "s1"}, ("one",)), now=0.0)
    assert away(returning, 59.0) == {Role.SERVER: 1}
    assert away(returning, 60.0) == {}
