"""A server dies while a plan is under way, or while another one leaves: its followers own its blocks."""

import pytest

from coordinator.core import events as ev
from coordinator.core import node_answers as na
from coordinator.core.job import JobPhase
from coordinator.core.plans.plan import MigrationMode, Phase, PlanKind
from tests.coordinator.core.nodes.replicated_jobs import MODES, check_survived, protected, replicated
from tests.sweeps import sweep

PHASES = [Phase.REGISTERED, Phase.ASSIGNED, Phase.SYNCING, Phase.ARMED]
BEGUN = [(phase, victim) for phase in PHASES for victim in ("s0", "s1", "s2", "s3")]
BEGUN.remove((Phase.REGISTERED, "s3"))  # which is started then


@pytest.mark.parametrize("data", sweep(MODES))
@pytest.mark.parametrize(("phase", "victim"), BEGUN)
def test_server_dies_in_a_plan(phase, victim, data):
    world = replicated(data=data)
    world.ask(ev.ScaleAsked, 3, 4)
    world.until(phase)
    assert world.node(victim)
    world.kill(world.node(victim))
    world.settle()
    check_survived(world)
    assert world.counts == (3, 4)


@pytest.mark.parametrize("phase", [Phase.ASSIGNED, Phase.ARMED])
@pytest.mark.parametrize("victim", ["s0", "s1", "s2", "s3"])
def test_server_dies_in_a_plan_that_pauses(phase, victim):
    """Nothing has been copied before the switch: what the old followers have is all that there is."""
    world = replicated()
    world.ask(ev.ScaleAsked, 3, 4, migration=MigrationMode.PAUSE)
    world.until(phase)
    world.kill(world.node(victim))
    world.settle()
    check_survived(world)
    assert world.counts == (3, 4)


@pytest.mark.parametrize(
    ("phase", "victim"),
    [(Phase.ASSIGNED, "s0"), (Phase.ASSIGNED, "s1"), (Phase.ARMED, "s0"), (Phase.ARMED, "s1"), (None, "s0")],
)
def test_last_but_one_server_leaves_and_one_of_the_two_dies(victim, phase):
    """The last one may be lost till then, and from then on takes the job with it; who leaves may always be lost."""
    world = replicated(servers=2)
    world.ask(ev.DrainAsked, "s1")
    world.until(phase) if phase is not None else world.settle()
    assert world.node(victim)
    world.kill(world.node(victim))
    world.settle()
    if world.state.job.phase is JobPhase.FAILED:
        assert (victim, phase) == ("s0", None), world.describe()
        assert "server s0 died" in world.state.job.reason
    else:
        assert world.state.job.term == 1, "nothing was restored"
        assert len(world.state.job.configuration.servers) == 1 or protected(world)


@pytest.mark.parametrize("phase", [Phase.ASSIGNED, Phase.ARMED])
@pytest.mark.parametrize("victim", ["s0", "s1", "s2"])
@pytest.mark.parametrize("leaver", ["s0", "s2"])
def test_server_dies_while_one_leaves(phase, victim, leaver):
    world = replicated()
    world.ask(ev.DrainAsked, leaver)
    world.until(phase)
    world.kill(world.node(victim))
    world.settle()
    check_survived(world)


def test_leaver_dies_before_its_blocks_have_arrived():
    world = replicated()
    world.ask(ev.DrainAsked, "s2")
    world.until(Phase.ARMED)
    world.post(na.Switched(world.now, "s2", world.plan.number))
    world.kill(world.node("s2"))
    world.launcher()
    assert world.plan.kind is PlanKind.DEATH
    world.settle()
    check_survived(world)
