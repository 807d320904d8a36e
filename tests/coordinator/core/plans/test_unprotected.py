"""What people are told of protection: how much there is, and why it is not all."""

from dataclasses import replace

import pytest

from coordinator.core import events as ev
from coordinator.core.plans.plan import Phase
from coordinator.core.plans.unprotected import UnprotectedCause
from coordinator.server import status_view
from tests.coordinator.core.plans.test_protection import protecting
from tests.coordinator.played_job import World


def told(world):
    """What a status says of protection."""
    return status_view.status(world.state, world.now).protection


def test_job_that_is_protected_says_so_without_a_cause():
    world = World(2, 3, replicas=1)
    found = told(world)
    status = status_view.status(world.state, world.now)
    assert (found.blocks, found.bytes) == (status.blocks, status.bytes)
    assert (found.cause, found.why, found.retry_seconds) == ("", "", 0)


def test_job_that_asks_for_no_replicas_says_nothing():
    world = World(2, 3)
    assert not status_view.status(world.state, world.now).HasField("protection")


def test_job_that_has_ended_says_nothing():
    world = World(2, 3, replicas=1)
    world.ask(ev.StopAsked)
    world.settle()
    assert world.state.job.ended
    assert not status_view.status(world.state, world.now).HasField("protection")


def test_plan_that_makes_followers_is_named():
    world = protecting()
    found = told(world)
    assert found.cause == UnprotectedCause.MAKING_FOLLOWERS
    assert found.why.endswith(f" no follower; plan {world.plan.id} makes them")
    assert 0 < found.blocks < len(world.state.job.model.blocks)
    world.until(Phase.ARMED)
    assert told(world) == found, "it counts when it is committed"
    for _ in range(6):
        world.turn()
    assert not told(world).cause


def test_server_that_is_gone_is_named_until_the_others_have_agreed():
    world = World(2, 3, replicas=1)
    world.kill(world.node("s1"))
    world.launcher()
    found = told(world)
    assert found.cause == UnprotectedCause.SERVER_GONE
    assert found.why == f"s1 is gone; plan {world.plan.id} settles who owns and follows what"


@pytest.mark.parametrize(("wanted", "words"), [(1, ""), (2, ": another one is awaited")])
def test_only_server_has_nobody_to_follow_it(wanted, words):
    world = World(2, wanted, replicas=1)
    world.replace_dead = False
    if wanted > 1:
        world.kill(world.node("s1"))
        for _ in range(8):
            world.turn()
    found = told(world)
    assert (found.blocks, found.cause) == (0, UnprotectedCause.ONE_SERVER)
    assert found.why == f"nobody can follow the only server{words}"


def test_plan_that_was_given_up_is_named_with_the_time_of_the_next():
    world = protecting()
    given_up = world.plan.id
    world.ask(ev.CancelAsked)
    world.replace_dead = False
    found = told(world)
    assert found.cause == UnprotectedCause.GIVEN_UP
    assert found.why.endswith(f"; plan {given_up} was given up (cancelled by the operator)")
    assert 20 < found.retry_seconds <= 30


def test_plan_that_was_given_up_before_a_restore_holds_up_nothing_after_it():
    world = protecting(checkpoint="file:///ck")
    world.ask(ev.CancelAsked)
    world.ask(ev.CheckpointAsked)
    saved = world.saved()
    assert world.state.protect_after > world.now
    for server in ("s0", "s2"):
        world.kill(world.node(server))
    world.launcher()
    world.post(ev.CheckpointFound(world.now, saved.url, saved.manifest))
    assert world.state.protect_after == 0


def test_job_whose_scripts_end_makes_no_followers_any_more():
    world = protecting()
    world.ask(ev.CancelAsked)
    state = replace(world.state, job=replace(world.state.job, finished=frozenset({"w1"}), plan=None))
    found = status_view.status(state, world.now + 60).protection
    assert found.cause == UnprotectedCause.FINISHING


def test_what_comes_first_is_named():
    world = protecting()
    world.ask(ev.CancelAsked)
    quiet = replace(world.state, job=replace(world.state.job, plan=None))
    assert status_view.status(quiet, world.now + 60).protection.why.endswith("; they are made shortly")


def test_job_without_parameters_has_nothing_to_protect():
    world = World(2, 2, declare=False, replicas=1)
    assert (told(world).cause, told(world).why) == (UnprotectedCause.STARTING, "the job is starting")
    world.settle()
    found = told(world)
    assert (found.cause, found.why) == (UnprotectedCause.STARTING, "no script has declared parameters yet")


@pytest.mark.parametrize(("servers", "replicas", "unprotects"), [(1, 1, True), (2, 1, False), (1, 0, False)])
def test_operator_is_told_when_nothing_will_be_protected(servers, replicas, unprotects):
    world = World(2, 3, replicas=replicas)
    assert world.ask(ev.ScaleAsked, 2, servers, dry_run=True).unprotects is unprotects
    assert world.ask(ev.ScaleAsked, 2, servers).unprotects is unprotects


def test_operator_is_told_that_a_drain_leaves_one_server():
    world = World(2, 2, replicas=1)
    assert world.ask(ev.DrainAsked, "s1").unprotects
    world.settle()
    assert not world.ask(ev.DrainAsked, "s0").unprotects, "nothing is protected before, too"
