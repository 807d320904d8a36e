"""What nobody remembers when a journal is lost, requests and the beginning of the ledger: that is known for good."""

import json

from coordinator.core import events as ev
from coordinator.core.job import DurableJob
from coordinator.core.plans.plan import MigrationMode, Phase
from coordinator.dataclass_json import decode, encode
from coordinator.server.status_view import status
from tests.coordinator.core.nodes.lost_journals import lost
from tests.coordinator.played_job import World


def test_a_ledger_began_late_for_good():
    """A coordinator that came back from its new journal took the ledger for whole, and the audit accused the job."""
    world = World(2, 1)
    assert not status(world.state, world.now).ledger_began_late
    lost(world)
    world.settle()
    assert status(world.state, world.now).ledger_began_late
    world.kill_coordinator()
    world.settle()
    assert not status(world.state, world.now).rebuilt
    assert status(world.state, world.now).ledger_began_late


def test_requests_of_before_are_known_to_be_forgotten_each_time():
    world = World(2, 1)
    for _ in range(2):
        before = world.ask(ev.ScaleAsked, 3, 1).request
        assert before > status(world.state, world.now).forgotten
        lost(world)
        world.settle()
        assert before <= status(world.state, world.now).forgotten
        world.ask(ev.ScaleAsked, 2, 1)
        world.settle()


def test_a_journal_of_an_earlier_release_knows_that_one_was_lost():
    world = lost(World(1, 1))
    world.settle()
    record = encode(world.state.job)
    del record["forgotten"]
    record["goal"]["migration"] = "pause"  # that goals had
    world.journal.job = json.dumps(record)
    assert decode(DurableJob, record).goal == world.state.job.goal
    world.kill_coordinator()
    assert status(world.state, world.now).ledger_began_late


def test_a_pause_that_was_asked_for_is_over_with_its_plan():
    world = World(2, 2)
    world.ask(ev.ScaleAsked, 2, 3, migration=MigrationMode.PAUSE)
    world.ask(ev.DrainAsked, "w1")
    world.settle()
    world.ask(ev.DrainAsked, "s1")
    world.settle()
    world.kill(world.node("w0"))
    world.settle()
    assert [plan.migration.value for plan in world.records[1:3]] == ["pause", "live"]
    assert {plan.migration for plan in world.records[3:]} == {MigrationMode.LIVE}


def test_a_plan_that_takes_a_request_up_again_moves_blocks_as_it_asks():
    world = World(1, 1)
    world.ask(ev.ScaleAsked, 1, 2, migration=MigrationMode.PAUSE)
    world.until(Phase.SYNCING)
    world.kill(world.node("s1"))
    world.settle()
    assert [(plan.phase.value, plan.migration.value) for plan in world.records[1:]] == [
        ("CANCELLED", "pause"),
        ("COMMITTED", "pause"),
    ]
