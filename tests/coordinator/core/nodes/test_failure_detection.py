"""Who is blamed and when: silence, separation, answers that do not come, evictions; what people are told of it."""

import pytest

from coordinator.core import effects as ef
from coordinator.core import events as ev
from coordinator.core import node_answers as na
from coordinator.core.job import JobPhase
from coordinator.core.nodes.suspicions import removal_cost, suspicions
from coordinator.core.plans.plan import Phase, PlanKind
from coordinator.core.state import ReportedWait
from coordinator.server.status_view import status
from tests.coordinator.played_job import STATIC, World, text


def unreplaced(workers, servers, **settings):
    """A job whose launcher starts nobody in the place of the dead."""
    world = World(workers, servers, **settings)
    world.replace_dead = False
    return world


def cut(world, a, b):
    """The two report that they cannot reach each other, from now on."""
    for one, other in ((a, b), (b, a)):
        world.node(one).waits.append(ReportedWait(other, "no answer to a probe", world.now, unreachable=True))


def mended(world):
    for node in world.alive:
        node.waits.clear()


def passing(world, seconds, *silent):
    """Time passes; all but the silent ones act. Returns who is in the job then."""
    for _ in range(int(seconds * 2)):
        for node in list(world.alive):
            if node.id not in silent:
                if not node.connected:
                    world.listen(node)
                while node.inbox:
                    world.hear(node)
                while node.outbox and node.exited is None:
                    world.speak(node)
                world.report(node)
        world.tick()
    return set(world.state.job.nodes)


def told(world):
    return list(status(world.state, world.now).waiting)


# ---- silence ---------------------------------------------------------------------------------------------------------


def test_a_member_that_falls_silent_is_expelled_though_nobody_complains_about_it():
    world = unreplaced(3, 1)
    assert "w1" in passing(world, 14, "w1"), "a lease and a grace"
    assert "w1" not in passing(world, 2, "w1")
    assert world.state.job.configuration.ranks.keys() == {"w0", "w2"}
    assert any("w1 is gone: it has been silent for 16 s" in line for line in world.logs)


def test_a_member_that_a_peer_cannot_reach_either_is_expelled_when_its_lease_runs_out():
    world = unreplaced(3, 1)
    world.node("s0").waits.append(ReportedWait("w1", "no answer to a probe", world.now, unreachable=True))
    assert "w1" in passing(world, 9, "w1")
    assert "w1" not in passing(world, 2, "w1")


def test_a_complaint_that_is_not_repeated_does_not_count_any_more():
    world = World(3, 1)
    world.node("s0").waits.append(ReportedWait("w1", "connection reset", world.now, unreachable=True))
    passing(world, 2)
    mended(world)
    assert "w1" in passing(world, 13, "w1"), "only silence speaks against it"


def test_a_server_that_falls_silent_sends_the_job_back_to_its_checkpoint():
    world = World(2, 2, checkpoint="file:///nowhere")
    passing(world, 16, "s1")
    assert world.state.job.phase is JobPhase.RESTORING
    assert "server s1 died (it has been silent for" in world.state.job.reason


@pytest.mark.parametrize("phase", [Phase.REGISTERED, Phase.ASSIGNED, Phase.SYNCING, Phase.ARMED])
@pytest.mark.parametrize("name", ["w0", "w1", "w3"])
def test_a_worker_that_freezes_in_any_phase_of_a_plan_does_not_stop_it(phase, name):
    world = World(3, 1)
    world.ask(ev.ScaleAsked, 4, 2)
    if phase is Phase.REGISTERED:
        world.launcher()
    else:
        world.until(phase)
    frozen = world.node(name)
    assert frozen is not None
    begun = world.now
    while name in world.state.job.nodes:
        passing(world, 0.5, name)
        assert world.now - begun < 17, f"nobody blames {name}: {world.describe()}"
    world.kill(frozen)  # as its launcher does
    world.settle()
    assert world.counts == (4, 2)


def test_launchers_are_told_whose_processes_are_to_be_killed():
    world = World(4, 1)
    nonces = [world.node(name).nonce for name in ("w1", "w2")]
    world.kill(world.node("w0"))
    world.launcher()
    passing(world, 16, "w1")
    world.ask(ev.EvictAsked, "w2")
    assert list(world.wanted.expelled) == nonces, "not w0's, which was seen to end"
    assert list(world.wanted.evicted) == nonces[1:], "which is no failure"


def test_a_drain_of_a_frozen_node_ends():
    world = World(3, 1)
    world.ask(ev.DrainAsked, "w1")
    assert "w1" not in passing(world, 20, "w1")
    world.kill(world.node("w1"))
    world.settle()
    assert world.counts == (2, 1)


def test_when_most_fall_silent_the_coordinator_doubts_itself_for_three_leases_and_then_acts():
    world = unreplaced(4, 1)
    world.post(ev.Attached(world.now, 1))
    assert len(passing(world, 35, "w1", "w2", "w3")) == 5
    assert any("3 of 5 leases ran out together" in line for line in world.logs)
    assert passing(world, 10, "w1", "w2", "w3") == {"w0", "s0"}


def test_a_coordinator_that_hears_nobody_at_all_decides_nothing():
    world = World(2, 1)
    world.post(ev.Attached(world.now, 1))
    world.post(ev.Attached(world.now, -1))
    names = {node.id for node in world.alive}
    assert passing(world, 100, *names) == names
    assert len(told(world)) == 3


def test_nodes_that_come_back_within_the_doubt_are_kept():
    world = World(3, 1)
    assert len(passing(world, 20, "w0", "w1", "w2")) == 4
    passing(world, 1)
    assert not world.state.doubted_since
    assert len(passing(world, 20)) == 4
    assert world.plan is None


def test_after_a_silence_of_its_own_the_coordinator_gives_everybody_a_new_lease():
    world = World(3, 1)
    passing(world, 1)
    world.tick(500)  # it was stopped, or its machine was
    assert set(world.state.job.nodes) == {"w0", "w1", "w2", "s0"}
    assert any("the coordinator did not run for 500 s" in line for line in world.logs)
    assert "w1" in passing(world, 14, "w1"), "it may not have heard it meanwhile"
    assert "w1" not in passing(world, 2, "w1")


# ---- separation ------------------------------------------------------------------------------------------------------


def test_a_worker_and_a_server_that_cannot_reach_each_other_while_both_report_are_parted_within_a_lease():
    world = unreplaced(3, 2)
    cut(world, "w1", "s1")
    assert "w1" in passing(world, 9)
    assert passing(world, 2) == {"w0", "w2", "s0", "s1"}, "a worker's leaving loses nothing"
    assert any("w1 is gone: it has had no way to s1" in line for line in world.logs)


def test_one_direction_is_enough():
    world = unreplaced(3, 2)
    world.node("s1").waits.append(ReportedWait("w2", "its pushes of version 4", world.now, unreachable=True))
    assert passing(world, 11) == {"w0", "w1", "s0", "s1"}


def test_what_is_mended_in_time_parts_nobody():
    world = World(3, 2)
    cut(world, "w1", "s1")
    passing(world, 8)
    mended(world)
    assert len(passing(world, 20)) == 5
    assert world.plan is None


def test_a_frozen_node_is_not_taken_for_one_that_is_apart():
    """Its peers cannot reach it; who of them leaves for it would be a mistake."""
    world = World(1, 2, checkpoint="file:///nowhere")
    world.node("w0").waits.append(ReportedWait("s1", "no answer to a probe", world.now, unreachable=True))
    passing(world, 12, "s1")
    assert "w0" in world.state.job.nodes
    assert "server s1 died" in world.state.job.reason


def test_no_plan_is_armed_onto_a_server_that_a_member_cannot_reach():
    world = World(2, 1)
    world.ask(ev.ScaleAsked, 2, 2)
    world.until(Phase.ASSIGNED)
    world.replace_dead = False
    cut(world, "w1", "s1")
    for _ in range(20):
        passing(world, 0.5)
        assert world.plan is None or world.plan.phase is not Phase.ARMED
    passing(world, 3)
    assert "s1" not in world.state.job.nodes, "it is no member yet: the one that costs least"
    assert {"w0", "w1", "s0"} == set(world.state.job.members)
    assert world.records[-1].phase is Phase.CANCELLED


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


# ---- evictions -------------------------------------------------------------------------------------------------------


def test_an_evicted_worker_is_gone_at_once_and_replaced():
    world = World(3, 1)
    frozen = world.node("w1")
    reply = world.ask(ev.EvictAsked, "w1", "by an operator")
    assert reply.outcome == "w1 is expelled; the others go on without it"
    assert world.plan.dead == {"w1"}
    world.kill(frozen)
    world.settle()
    assert world.counts == (3, 1)


def test_an_eviction_that_would_fail_the_job_is_refused():
    world = World(2, 1)
    why = text(world.ask(ev.EvictAsked, "s0"))
    assert "no checkpoint to go back to" in why
    assert "elasticctl checkpoint job" in why
    assert "s0" in world.state.job.nodes


def test_an_evicted_server_of_a_job_with_a_checkpoint_sends_it_back():
    world = World(2, 1, checkpoint="file:///nowhere")
    world.ask(ev.CheckpointAsked)
    world.saved()
    reply = world.ask(ev.EvictAsked, "s0")
    assert reply.outcome == "s0 is expelled; the job goes back to its last checkpoint"
    assert world.state.job.phase is JobPhase.RESTORING


def test_an_unknown_node_is_not_evicted():
    world = World(2, 1)
    reply = world.ask(ev.EvictAsked, "w9")
    assert (reply.why, "its nodes: s0, w0, w1" in reply.text) == (ef.Why.NOT_FOUND, True)


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


# ---- what the coordinator could not hear -------------------------------------------------------------------------


def test_a_server_that_was_stopped_together_with_the_coordinator_is_not_taken_for_one_that_is_apart():
    """Their machine stood still: workers elsewhere told meanwhile, truly, that they cannot reach the server."""
    world = World(2, 2, checkpoint="file:///nowhere")
    passing(world, 1)
    lost = world.now
    world.now += 60
    for name in ("w0", "w1"):
        world.node(name).waits.append(ReportedWait("s1", "no answer to a probe", lost, unreachable=True))
    world.tick()
    passing(world, 3)  # reports that were on their way, until probes are answered again
    mended(world)
    passing(world, 20)
    assert world.state.job.phase is JobPhase.RUNNING, world.state.job.reason
    assert world.state.job.nodes.keys() == {"w0", "w1", "s0", "s1"}


def test_a_server_beside_the_coordinator_is_not_blamed_when_the_network_to_the_others_comes_back():
    world = World(2, 2, checkpoint="file:///nowhere")
    passing(world, 20, "w0", "w1", "s0")
    for name in ("w0", "w1", "s0"):
        world.node(name).waits.append(ReportedWait("s1", "no answer to a probe", world.now - 19, unreachable=True))
    passing(world, 2)
    mended(world)
    passing(world, 20)
    assert world.state.job.phase is JobPhase.RUNNING, world.state.job.reason
    assert world.state.job.nodes.keys() == {"w0", "w1", "s0", "s1"}


def test_who_was_silent_and_is_still_apart_when_it_is_heard_again_is_expelled_a_lease_later():
    world = unreplaced(3, 2)
    passing(world, 20)
    passing(world, 9, "w1")
    world.node("w1").waits.append(ReportedWait("s1", "no answer to a probe", world.now - 9, unreachable=True))
    assert "w1" in passing(world, 9)
    assert "w1" not in passing(world, 3)


def test_a_bad_way_to_the_coordinator_does_not_excuse_a_separation_without_end():
    world = unreplaced(3, 2)
    cut(world, "w1", "s1")
    for _ in range(4):
        passing(world, 6, "w1")
        passing(world, 0.5)
    assert "w1" not in world.state.job.nodes, "out within 30 s"


# ---- what an armed plan makes of nodes ----------------------------------------------------------------------------


def test_a_server_of_an_armed_plan_is_not_given_up_for_a_worker():
    world = unreplaced(3, 1)
    world.ask(ev.ScaleAsked, 3, 2)
    world.replace_dead = True
    world.until(Phase.ARMED)
    world.replace_dead = False
    assert "s1" not in world.state.job.members
    cut(world, "w1", "s1")
    names = [node.id for node in world.alive]
    for _ in range(24):
        world.tick()
        for name in names:
            if world.node(name) is not None:
                world.report(world.node(name))
    assert "w1" not in world.state.job.nodes
    assert "s1" in world.state.job.nodes, "its loss ends a job without a checkpoint"
    assert not world.state.job.ended


def test_the_last_worker_of_an_armed_plan_is_not_given_up_for_a_server_that_holds_nothing():
    world = unreplaced(2, 1)
    world.ask(ev.ScaleAsked, 1, 1)
    world.until(Phase.ARMED)
    (leaver,) = world.plan.leavers
    stays = next(iter(world.plan.target.ranks))
    assert removal_cost(world.state.job, frozenset({stays})).restores
    assert not removal_cost(world.state.job, frozenset({leaver})).restores


def test_a_server_of_an_armed_plan_is_not_evicted_where_the_job_would_fail():
    world = World(3, 1)
    world.ask(ev.ScaleAsked, 3, 2)
    world.until(Phase.ARMED)
    assert "no checkpoint to go back to" in text(world.ask(ev.EvictAsked, "s1"))
    world.settle()
    assert world.counts == (3, 2)
