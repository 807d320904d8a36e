"""A process that has not joined is excused where no coordinator could hear it, and nowhere else."""

from types import SimpleNamespace

import pytest

from elastic_ps.core.errors import CoordinatorLost, JobEnded
from tests.world.kernel.scheduler import Process
from tests.world.oracles.joining import Joining

LOST = CoordinatorLost("no coordinator answers")


def made(now=100.0, blocked=()):
    coordinator, server = Process("coordinator-2", "coordinator", 2), Process("server-3", "server", 3)
    server.environment["ELASTIC_NONCE"] = "nonce"
    world = SimpleNamespace(
        scheduler=SimpleNamespace(now=now),
        network=SimpleNamespace(is_blocked=lambda source, target: (source.role, target.role) in blocked),
        processes=[coordinator, server],
        coordinator_changed=now - 5.0,
    )
    return world, Joining(world)


def test_who_gives_up_is_excused_where_coordinators_did_not_run_for_long():
    world, joining = made()
    server = world.processes[1]
    assert joining.has_given_up(server, LOST)
    assert not joining.has_given_up(server, JobEnded("cannot join", 1))
    world.coordinator_changed = 70.0
    assert not joining.has_given_up(server, LOST)


def test_who_gives_up_is_excused_where_it_is_cut_off_and_has_not_joined():
    world, joining = made(blocked={("coordinator", "server")})
    world.coordinator_changed = 0.0
    server = world.processes[1]
    assert joining.has_given_up(server, LOST)
    joining.saw(SimpleNamespace(nodes={"s0": SimpleNamespace(nonce="nonce")}))
    assert not joining.has_given_up(server, LOST)


@pytest.mark.parametrize(("began", "ended", "excused"), [(0.0, 55.0, True), (40.0, 65.0, False)])
def test_a_coordinator_that_has_ended_counts_for_what_it_ran_meanwhile(began, ended, excused):
    world, joining = made()
    world.scheduler.now = ended
    joining.coordinator_ended(began)
    world.scheduler.now, world.coordinator_changed = 115.0, 114.0
    assert joining.has_given_up(world.processes[1], LOST) == excused


def test_a_process_that_has_no_way_is_awaited_until_it_has_to_have_given_up():
    world, joining = made(blocked={("coordinator", "server")})
    assert joining.is_awaited()
    world.scheduler.now += 76.0
    assert not joining.is_awaited()


def test_nobody_awaits_a_process_that_has_a_way_or_has_joined():
    assert not made()[1].is_awaited()
    _, joining = made(blocked={("server", "coordinator")})
    joining.saw(SimpleNamespace(nodes={"s0": SimpleNamespace(nonce="nonce")}))
    assert not joining.is_awaited()
