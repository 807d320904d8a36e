"""Deaths of members, and a coordinator that is started again in the middle of a plan."""

import json

import pytest

from coordinator.core import effects as ef
from coordinator.core import events as ev
from coordinator.core import node_answers as na
from coordinator.core.checkpoints.ledger_voids import Void
from coordinator.core.job import CancelOrder, JobPhase
from coordinator.core.plans.plan import Phase, PlanKind
from coordinator.server.status_view import status
from elastic_ps.core.configuration import ConfigId
from tests.coordinator.played_job import DATA, STATIC, TENSORS, World


@pytest.mark.parametrize("phase", [Phase.REGISTERED, Phase.ASSIGNED, Phase.SYNCING])
def test_a_death_before_armed_cancels_and_builds_on_the_old_table(phase):
    world = World(3, 1)
    world.ask(ev.ScaleAsked, 3, 2)
    world.until(phase)
    world.kill(world.node("w1"))
    world.launcher()
    plan = world.plan
    assert (plan.kind, plan.dead) == (PlanKind.DEATH, {"w1"})
    assert [worker.id for worker in plan.target.workers] == ["w0", "w2"]
    assert len(plan.target.servers) == 1
    assert world.records[-1].phase is Phase.CANCELLED
    world.settle()
    assert world.counts == (3, 2), "the wish is taken up again, the dead worker is replaced"


def test_a_node_that_is_gone_is_forgotten():
    """A job that is scaled for months would have thousands of them in each state of its coordinator."""
    world = World(3, 1)
    world.kill(world.node("w1"))
    world.settle()
    state = world.state
    assert state.extended <= state.job.nodes.keys()
    assert state.vitals.keys() | state.welcomed <= state.job.nodes.keys()


def test_a_death_after_armed_builds_on_the_new_table():
    world = World(3, 1)
    world.ask(ev.ScaleAsked, 3, 2)
    armed = world.until(Phase.ARMED)
    world.kill(world.node("w1"))
    world.launcher()
    plan = world.plan
    assert plan.kind is PlanKind.DEATH
    assert plan.target.servers == armed.target.servers
    assert plan.absorbed[0].id == armed.id
    assert not world.sent(CancelOrder)
    world.settle()
    assert {p.id: p.phase for p in world.records}[armed.id] is Phase.COMMITTED


def test_a_second_death_keeps_what_the_first_carried():
    world = World(3, 1)
    world.ask(ev.ScaleAsked, 3, 2)
    armed = world.until(Phase.ARMED)
    for name in ("w1", "w2"):
        world.kill(world.node(name))
        world.launcher()
    assert world.plan.dead == {"w1", "w2"}
    assert world.plan.absorbed[0].id == armed.id
    assert world.plan.target.servers == armed.target.servers
    world.settle()
    assert world.counts == (3, 2)


def test_a_dead_worker_of_a_static_job_is_not_replaced_and_its_share_of_the_data_is_missed():
    world = World(3, 1, data=STATIC)
    world.kill(world.node("w1"))
    world.launcher()
    assert world.plan.cause == "death of w1; nobody trains on its share of the data"
    world.settle()
    assert world.counts == (2, 1)
    warning = "w1 died and is not replaced: nobody trains on its share of the data (static)"
    assert warning in world.logs
    world.kill_coordinator()
    assert status(world.state, world.now).reason == warning


def test_a_dead_server_without_checkpoint_ends_the_job_with_the_reason():
    world = World(2, 2)
    world.kill(world.node("s1"))
    world.launcher()
    assert world.state.job.phase is JobPhase.FAILED
    assert "server s1 died (killed by signal 9)" in world.state.job.reason
    assert "--checkpoint" in world.state.job.reason
    world.settle()
    for _ in range(3):
        world.turn()  # everyone hears of it
    assert sorted(node.exited for node in world.nodes) == [1, 1, 1, 137]


@pytest.mark.parametrize(
    ("exit_status", "why"), [(1, "exit status 1"), (137, "killed by signal 9"), (255, "exit status 255")]
)
def test_a_death_is_told_as_what_it_was(exit_status, why):
    world = World(2, 1)
    world.kill(world.node("w1"), exit_status)
    world.launcher()
    assert f"w1 is gone: {why}" in world.logs


def test_a_server_that_dies_before_anything_is_trained_starts_the_job_again():
    world = World(2, 1, declare=False)
    world.settle()
    term = world.state.job.term
    world.kill(world.node("s0"))
    world.settle()
    assert world.counts == (2, 1)
    assert world.state.job.term == term + 1
    assert sum(node.exited == 75 for node in world.nodes) == 2


def test_a_dead_server_sends_the_job_back_to_its_checkpoint():
    world = World(2, 2, checkpoint="/ck")
    for _ in range(5):
        world.turn()
    world.ask(ev.CheckpointAsked)
    manifest = world.saved()
    assert world.replies[world.asked].version == manifest.manifest.version
    saved = manifest.manifest.version
    old = set(world.state.job.nodes)
    term = world.state.job.term
    world.kill(world.node("s1"))
    world.launcher()
    assert world.state.job.phase is JobPhase.RESTORING
    find = next(e for e in world.effects if isinstance(e, ef.FindCheckpoint))
    assert find.search.known == (manifest.url,)
    world.post(ev.CheckpointFound(world.now, manifest.url, manifest.manifest))
    assert world.state.job.term == term + 1, "whoever trained on beside it is fenced"
    world.settle()
    assert world.state.job.phase is JobPhase.RUNNING
    assert world.counts == (2, 2)
    assert not old & set(world.state.job.nodes)
    assert world.state.job.model.tensors == TENSORS
    assert world.state.job.data == DATA
    assert world.state.job.voids[-1] == Void(term + 1, saved, latest=term)
    assert world.sent(ef.Prepare)[-1].restore == manifest.url
    assert world.state.job.restore == "", "a server that joins later takes its blocks from the others"


def test_a_checkpoint_clock_that_came_too_late_is_set_again():
    world = World(1, 1, checkpoint="/ck")
    world.ask(ev.CheckpointAsked)
    first = world.state.saving
    world.post(na.Late(world.now, "s0", ConfigId(1, 1), first.clock + 3))
    assert world.state.saving.clock > first.clock + 3
    assert world.state.saving.url != first.url


def test_arming_waits_for_a_checkpoint():
    world = World(1, 1, checkpoint="/ck")
    world.ask(ev.CheckpointAsked)
    world.node("s0").handle = lambda directive: (
        None if isinstance(directive, ef.SaveBlocks) else type(world.node("s0")).handle(world.node("s0"), directive)
    )
    world.ask(ev.ScaleAsked, 1, 2)
    for _ in range(10):
        world.turn()
    assert world.plan.phase is Phase.SYNCING
    saving = world.state.saving
    blocks = {str(block): {"file": "s0.bin"} for block in range(len(world.state.job.model.blocks))}
    world.post(na.Saved(world.now, "s0", saving.clock, json.dumps({"blocks": blocks})))
    world.post(ev.ManifestWritten(world.now, saving.url, 1))
    assert world.plan.phase is Phase.ARMED


# ---- restarts --------------------------------------------------------------------------------------------------------


def test_a_restart_before_armed_cancels_and_plans_again_under_a_new_number():
    world = World(2, 1)
    world.ask(ev.ScaleAsked, 3, 2)
    plan = world.until(Phase.SYNCING)
    world.kill_coordinator()
    assert world.records[-1].reason == "the coordinator restarted"
    assert world.state.job.term == 2
    world.settle()
    assert world.counts == (3, 2)
    assert world.state.job.configuration.id > plan.number


def test_a_restart_from_armed_asks_everyone_first_and_arms_again():
    world = World(2, 1)
    world.ask(ev.ScaleAsked, 3, 2)
    plan = world.until(Phase.ARMED)
    world.kill_coordinator()
    world.effects.clear()
    nodes = list(world.alive)
    for node in nodes[:-1]:
        world.listen(node)
    assert not world.sent((ef.Arm, ef.Adopt))
    world.listen(nodes[-1])
    arms = world.sent(ef.Arm)
    assert {arm.number for arm in arms} == {plan.number}
    assert min(arm.clock for arm in arms) > plan.clock
    world.settle()
    assert world.state.job.configuration.id == plan.number


def test_a_restart_that_finds_a_node_switched_lets_the_rest_adopt():
    world = World(2, 1)
    world.ask(ev.ScaleAsked, 3, 2)
    plan = world.until(Phase.ARMED)
    node = world.node("w0")
    if node.number != plan.number:
        while node.inbox:
            world.hear(node)
        node.switch()
    world.kill_coordinator()
    world.effects.clear()
    for each in world.alive:
        world.listen(each)
    assert not world.sent(ef.Arm)
    assert world.sent(ef.Adopt)
    world.settle()
    assert world.state.job.configuration.id == plan.number


def test_a_leaver_that_went_while_the_coordinator_was_away_does_not_hold_the_plan():
    world = World(2, 1)
    world.ask(ev.DrainAsked, "w1")
    plan = world.until(Phase.ARMED)
    world.node("w1").exited = 0  # and nobody tells
    world.kill_coordinator()
    world.replace_dead = False
    for _ in range(60):
        world.turn()
        if world.plan is None:
            break
    assert world.state.job.configuration.id in (plan.number, ConfigId(2, plan.number.number + 1))


def test_an_exit_of_a_former_process_is_not_taken_for_that_of_the_node_which_has_its_id_now():
    """The former one was of a coordinator whose journal somebody has deleted."""
    world = World(2, 1)
    world.post(ev.Exited(world.now, "worker-of-before", "w0", 137))
    assert ("w0" in world.state.job.nodes, world.state.job.dead) == (True, frozenset())
    world.post(ev.Exited(world.now, world.node("w0").nonce, "w7", 137))
    assert world.state.job.dead == {"w0"}
