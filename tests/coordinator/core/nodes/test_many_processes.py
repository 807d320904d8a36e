"""Processes register without end: the coordinator keeps as many as a job can have, and wants no more."""

import pytest

from coordinator.core.nodes import membership, rebuilding
from elastic_ps.core.configuration import Role
from tests.coordinator.core.nodes.lost_journals import lost
from tests.coordinator.played_job import World


def test_no_more_processes_are_registered_than_a_job_can_have(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(2, 1)
    monkeypatch.setattr(membership, "MOST_NODES", 4)
    late = [world.spawn(Role.WORKER) for _ in range(5)]
    assert [node.exited for node in late] == [None, None, 1, 1, 1]
    assert world.state.job.goal.workers == 4
    world.settle()
    assert world.counts == (4, 1)
    assert world.spawn(Role.SERVER).exited is None, "of the other role there is room"


def test_a_known_process_is_answered_again_where_there_is_no_room(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(2, 1)
    monkeypatch.setattr(membership, "MOST_NODES", 2)
    world.register(world.node("w1"))
    assert world.node("w1").exited is None


def test_a_coordinator_without_a_journal_keeps_as_many_nonces(monkeypatch: pytest.MonkeyPatch) -> None:
    world = lost(World(1, 1))
    monkeypatch.setattr(rebuilding, "MOST_NODES", 2)
    for _ in range(9):
        world.spawn(Role.WORKER)
    assert len(world.state.rebuilding.knocked) == 4
