"""Who is blamed and when: answers and waits that do not end; what people are told of it."""

import pytest

from coordinator.core import events as ev
from coordinator.core import node_answers as na
from coordinator.core.nodes.failure_detection import LONG_SECONDS, suspicions
from coordinator.core.plans.plan import Phase, PlanKind
from coordinator.core.state import ReportedWait
from tests.coordinator.core.nodes.troubled_jobs import cut, passing, told, unreplaced
from tests.coordinator.played_job import STATIC, World

# ---- answers that do not come ----------------------------------------------------------------------------------------


def deaf(world, name, seconds):
    """A node reports and never acts on a directive."""
    for _ in range(int(seconds * 2)):
        passing(world, 0.5, name)
        if name in world.state.job.nodes:
            world.report(world.node(name))


def test_a_plan_that_a_member_never_prepares_is_given_up_by_name():
    world = World(2, 1)
    world.ask(ev.ScaleAsked, 2, 2)
    world.until(Phase.ASSIGNED)
    deaf(world, "w1", 32)
    assert world.records[-1].phase is Phase.CANCELLED
    assert world.records[-1].reason.startswith("w1 has not answered PREPARED of plan")
    assert "w1" in world.state.job.nodes, "it trains"
    assert world.plan is None, "and is not asked for the same again"


def test_a_joiner_that_never_prepares_is_expelled():
    world = World(2, 1)
    world.ask(ev.ScaleAsked, 2, 2)
    world.until(Phase.ASSIGNED)
    assert world.node("s1") is not None
    deaf(world, "s1", 32)
    assert "s1" not in world.state.job.nodes


def test_a_death_plan_does_not_wait_for_a_survivor_that_never_prepares():
    world = unreplaced(3, 1)
    world.kill(world.node("w1"))
    world.launcher()
    assert world.plan.kind is PlanKind.DEATH
    deaf(world, "w2", 35)
    assert "w2" not in world.state.job.nodes
    assert world.state.job.configuration.ranks.keys() == {"w0"}


@pytest.mark.parametrize("restarts", [False, True])
def test_after_a_silence_of_its_own_the_coordinator_gives_everybody_new_time_for_answers(restarts):
    """It stood still, or was away, while a plan was assigned: nobody could answer."""
    world = unreplaced(3, 1)
    world.kill(world.node("w1"))
    world.launcher()
    assert (world.plan.kind, world.plan.phase) == (PlanKind.DEATH, Phase.ASSIGNED)
    world.now += 100
    if restarts:
        world.kill_coordinator()
    world.tick()
    assert set(world.state.job.nodes) == {"w0", "w2", "s0"}
    deaf(world, "w2", 25)
    assert "w2" in world.state.job.nodes
    deaf(world, "w2", 10)
    assert "w2" not in world.state.job.nodes


@pytest.mark.parametrize("joiner", ["w2", "s1"])
def test_a_joiner_is_waited_for_as_long_as_blocks_come_to_it(joiner):
    world = World(2, 1)
    world.ask(ev.ScaleAsked, 3, 2)
    world.until(Phase.ASSIGNED)
    names = [node.id for node in world.alive]
    for _ in range(3):
        for name in names:
            node = world.node(name)
            if not node.connected:
                world.listen(node)
            while node.inbox:
                world.hear(node)
            while node.outbox:
                if (node.id, node.outbox[0][0]) == (joiner, na.Synced):
                    node.outbox.popleft()
                else:
                    world.speak(node)
    assert world.plan.phase is Phase.SYNCING
    copied = 0

    def copying(seconds, grows):
        nonlocal copied
        for second in range(0, seconds, 2):
            for name in world.state.job.nodes:
                copied += grows if second % 500 == 0 else 0
                world.post(ev.Reported(world.now, name, copied=copied if name == joiner else 0, version=0))
            world.tick(2.0)

    copying(1500, grows=100)  # the last time 500 s ago
    assert joiner in world.state.job.nodes
    assert world.plan.phase is Phase.SYNCING
    copying(110, grows=0)
    assert joiner not in world.state.job.nodes
    assert f"{joiner} died while it joined: it has not answered SYNCED" in world.records[-1].reason


# ---- what people are told --------------------------------------------------------------------------------------------


def test_the_status_says_who_is_waited_for_and_until_when():
    world = World(3, 2)
    assert told(world) == []
    passing(world, 1)
    cut(world, "w1", "s1")
    passing(world, 6, "w2")
    separation, silence = told(world)
    assert separation == "w1 has had no way to s1 for 6 s: w1 is expelled in 4 s"
    assert silence == "w2 has been silent for 6 s: w2 is expelled in 8 s"


def test_a_wait_for_a_peer_that_answers_its_probes_is_told_and_blames_nobody():
    world = World(3, 1, data=STATIC)
    world.node("s0").waits.append(ReportedWait("w1", "its push of version 7", world.now))
    assert len(passing(world, 100)) == 4
    assert told(world) == ["w1 has kept s0 waiting (its push of version 7) for 100 s"]
    assert sum("has kept s0 waiting" in line for line in world.logs) == 1, "once"


def test_every_suspicion_that_ends_somebody_has_a_deadline():
    world = World(3, 2)
    world.ask(ev.ScaleAsked, 4, 3)
    world.until(Phase.SYNCING)
    cut(world, "w1", "s1")
    passing(world, 6, "w2")
    for suspicion in suspicions(world.state, world.now):
        assert suspicion.until is not None
        assert suspicion.until - suspicion.since <= 600


# ---- waits between servers -------------------------------------------------------------------------------------------


def waiting_for(world, name, peer):
    world.node(name).waits.append(ReportedWait(peer, "its acknowledgement of updates", world.now))


@pytest.mark.slow
def test_a_server_that_gives_another_nothing_for_long_is_expelled():
    """It answers its probes, and it runs no script that would have to end first."""
    world = unreplaced(2, 3, replicas=1)
    waiting_for(world, "s0", "s1")
    waiting_for(world, "s1", "s2")
    found = passing(world, LONG_SECONDS - 1)
    said = [line for line in told(world) if "is expelled in" in line]
    assert said == ["s2 has kept s1 waiting (its acknowledgement of updates) for 599 s: s2 is expelled in 1 s"]
    assert "s2" in found, "s1 waits itself, and is not to blame"
    assert "s2" not in passing(world, 2)


@pytest.mark.slow
def test_of_servers_that_wait_for_each_other_one_is_expelled():
    world = unreplaced(2, 3, replicas=1)
    waiting_for(world, "s0", "s1")
    waiting_for(world, "s1", "s0")
    before = passing(world, LONG_SECONDS - 1)
    assert len(before - passing(world, 2)) == 1


@pytest.mark.slow
def test_a_worker_that_does_not_switch_though_that_is_decided_is_expelled():
    world = unreplaced(2, 2, replicas=1)
    world.kill(world.node("s1"))
    world.until(Phase.ARMED)
    world.node("w1").on_adopt = lambda _adopt: None
    assert "w1" in passing(world, LONG_SECONDS - 1)
    assert "w1" not in passing(world, 2)
