"""A worker leaves by an armed plan, and ends, while the death of another one is being settled."""

import pytest

from coordinator.core import events as ev
from coordinator.core.job import JobPhase
from coordinator.core.plans.plan import Phase, PlanKind
from tests.coordinator.played_job import World


def mourning(workers: int = 3) -> World:
    """The last worker has switched, as it leaves; another one has died, and nobody has answered to that plan yet."""
    world = World(workers, 1)
    world.replace_dead = False
    world.ask(ev.ScaleAsked, workers - 1, 1)
    world.until(Phase.ARMED)
    world.node(f"w{workers - 1}").switch()
    dead = world.node("w1")
    dead.exited = 137
    world.post(ev.Exited(world.now, dead.nonce, "w1", 137))
    assert (world.plan.kind, world.plan.phase) == (PlanKind.DEATH, Phase.ASSIGNED)
    return world


def test_its_end_is_no_death_and_needs_no_further_plan():
    world = mourning()
    plan = world.plan.id
    world.kill(world.node("w2"), 0)
    world.launcher()
    assert (world.state.job.dead, world.plan.id) == ({"w1"}, plan)
    assert not [line for line in world.logs if "w2 is gone" in line]
    world.replace_dead = True
    world.settle()
    assert world.counts == (2, 1)
    assert [plan.kind for plan in world.records if plan.kind is PlanKind.DEATH] == [PlanKind.DEATH]


def test_its_end_fails_no_job_of_which_others_have_finished():
    world = mourning(4)
    world.report(world.node("w0"), finished=True)
    world.kill(world.node("w3"), 0)
    world.launcher()
    assert not world.state.job.crashed
    world.report(world.node("w2"), finished=True)
    for _ in range(10):
        world.turn()
    assert world.state.job.phase is JobPhase.FINISHED, world.describe()


@pytest.mark.parametrize("status", [1, 137])
def test_one_that_does_not_end_in_order_is_dead(status):
    world = mourning()
    world.kill(world.node("w2"), status)
    world.launcher()
    assert world.state.job.dead == {"w1", "w2"}
