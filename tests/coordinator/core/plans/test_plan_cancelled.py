"""Plans that end before they are armed, and what becomes of the wish."""

import pytest

from coordinator.core import effects as ef
from coordinator.core import events as ev
from coordinator.core.plans.plan import Phase
from elastic_ps.core.configuration import Role
from elastic_ps.core.model import Tensor
from tests.coordinator.played_job import World, text


@pytest.mark.parametrize("phase", [Phase.REGISTERED, Phase.ASSIGNED, Phase.SYNCING])
def test_an_operator_cancels_before_armed(phase):
    world = World(2, 1)
    world.ask(ev.ScaleAsked, 3, 2)
    world.until(phase)
    reply = world.ask(ev.CancelAsked)
    assert (reply.plan, reply.workers, reply.servers) == (2, 2, 1)
    world.settle()
    assert world.counts == (2, 1)
    assert world.records[-1].reason == "cancelled by the operator"
    assert world.wanted.starting_workers == world.wanted.starting_servers == 0


def test_an_armed_plan_is_not_cancelled():
    world = World(2, 1)
    world.ask(ev.ScaleAsked, 3, 2)
    world.until(Phase.ARMED)
    assert "armed" in text(world.ask(ev.CancelAsked))
    world.settle()
    assert world.counts == (3, 2)


def test_a_process_started_for_a_withdrawn_wish_is_sent_home():
    world = World(2, 1)
    world.post(ev.Attached(world.now, 1))
    world.ask(ev.ScaleAsked, 3, 1)
    world.ask(ev.CancelAsked)
    late = world.spawn(Role.WORKER)
    world.settle()
    assert late.exited == 0
    assert world.counts == (2, 1)


def test_who_comes_behind_a_restore_was_not_started_for_a_wish_withdrawn_before():
    """A worker that a person started then was sent home, for the one that had not come."""
    world = World(2, 2, checkpoint="file:///saved")
    world.post(ev.Attached(world.now, 1))
    world.ask(ev.ScaleAsked, 3, 2)
    world.ask(ev.CancelAsked)
    world.ask(ev.CheckpointAsked)
    manifest = world.saved()
    world.kill(world.node("s0"))
    world.turn()
    world.post(ev.CheckpointFound(world.now, manifest.url, manifest.manifest))
    world.settle()
    assert world.counts == (2, 2)
    by_hand = world.spawn(Role.WORKER)
    world.settle()
    assert by_hand.exited is None
    assert world.counts == (3, 2)


def test_the_plan_that_an_operator_has_seen_is_cancelled_and_no_other():
    """It may have ended, and the next one begun, before the request came."""
    world = World(2, 1)
    world.ask(ev.ScaleAsked, 3, 1)
    seen = world.until(Phase.ASSIGNED).id
    world.ask(ev.ScaleAsked, 2, 2)
    assert text(world.ask(ev.CancelAsked, seen + 7)) == (
        f"there is no plan {seen + 7}; plan {seen} (operator) is under way"
    )
    first = world.ask(ev.CancelAsked, seen)
    assert first.plan == seen
    assert world.plan.id == seen + 1, "what was queued"
    assert world.ask(ev.CancelAsked, seen).plan == seen, "its answer was lost"
    assert world.plan.id == seen + 1
    assert world.ask(ev.CancelAsked).plan == seen + 1, "a client of an earlier release"
    assert text(world.ask(ev.CancelAsked, 1)) == "plan 1 is over (COMMITTED); none is under way"


def test_a_plan_that_a_death_has_cancelled_is_not_cancelled_for_the_operator():
    """What was asked for is still wanted, and the next plan does it."""
    world = World(2, 1)
    world.ask(ev.ScaleAsked, 3, 1)
    seen = world.until(Phase.ASSIGNED).id
    world.kill(world.node("w0"))
    world.launcher()
    assert f"plan {seen} is over (CANCELLED: death of w0); plan" in text(world.ask(ev.CancelAsked, seen))


@pytest.mark.parametrize("phase", [Phase.ASSIGNED, Phase.SYNCING])
@pytest.mark.parametrize("role", Role)
def test_a_joiner_that_dies_cancels_the_plan_and_the_wish_is_taken_up_again(phase, role):
    world = World(2, 1)
    world.ask(ev.ScaleAsked, 3, 2)
    world.until(phase)
    joiner = next(node for node in world.alive if node.role is role and node.id in world.plan.joiners)
    world.kill(joiner)
    world.settle()
    assert world.counts == (3, 2)
    assert joiner.id not in world.state.job.members
    cancelled = next(plan for plan in world.records if plan.phase is Phase.CANCELLED)
    assert f"{joiner.id} died while it joined" in cancelled.reason


def test_a_silent_joiner_is_dead_without_a_failed_exchange():
    world = World(2, 1)
    world.replace_dead = False
    world.ask(ev.ScaleAsked, 3, 1)
    joiner = world.spawn(Role.WORKER)
    world.silence(joiner.id)
    assert joiner.id not in world.state.job.nodes
    assert world.records[-1].phase is Phase.CANCELLED


def test_new_tensors_before_armed_cancel_and_the_wish_is_taken_up_again():
    world = World(2, 1)
    world.ask(ev.ScaleAsked, 3, 2)
    world.until(Phase.SYNCING)
    world.declare(world.node("w0"), [Tensor(0, "s:new", (4,), "float32")])
    world.settle()
    assert world.counts == (3, 2)
    assert [plan.phase for plan in world.records[1:]] == [Phase.CANCELLED, Phase.COMMITTED]
    assert len(world.state.job.configuration.assignment) == len(world.state.job.model.blocks)


def test_new_tensors_while_armed_decide_the_plan_at_once():
    world = World(2, 1)
    world.ask(ev.ScaleAsked, 3, 2)
    world.until(Phase.ARMED)
    world.declare(world.node("w0"), [Tensor(0, "s:new", (4,), "float32")])
    assert world.plan.decided
    assert world.sent(ef.Adopt)
    world.settle()
    assert world.counts == (3, 2)
    assert world.records[-1].phase is Phase.COMMITTED
