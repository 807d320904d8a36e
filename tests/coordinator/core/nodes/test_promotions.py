"""A server dies and nothing is lost: its followers own its blocks, and get followers again."""

from dataclasses import replace

import pytest

from coordinator.core import effects as ef
from coordinator.core import events as ev
from coordinator.core import node_answers as na
from coordinator.core.job import JobPhase
from coordinator.core.plans.plan import Phase, PlanKind
from coordinator.core.plans.promotion import HoldingKind
from coordinator.core.plans.protection import protection
from elastic_ps.core.configuration import Role
from elastic_ps.core.errors import ConfigurationError
from elastic_ps.core.model import Tensor
from tests.coordinator.core.nodes.replicated_jobs import MODES, check_survived, protected, replicated
from tests.coordinator.played_job import TENSORS, World, text
from tests.coordinator.played_node import PlayedNode


@pytest.mark.parametrize("data", MODES)
def test_server_dies_and_nothing_is_lost(data):
    world = replicated(data=data)
    assert protected(world)
    world.kill(world.node("s1"))
    world.settle()
    check_survived(world)
    kinds = [plan.kind for plan in world.records if plan.phase is Phase.COMMITTED]
    assert kinds.count(PlanKind.DEATH) == 1
    assert world.counts == (2, 3), "another server has taken its place"


def have_only(monkeypatch, blocks):
    """Nobody but their owners has had other blocks than the first ones."""
    holdings = PlayedNode.holdings

    def known(holding):
        if holding.kind is HoldingKind.OWNED:
            return holding
        runs = ((first, min(count, blocks - first)) for first, count in holding.runs)
        return replace(holding, runs=tuple(run for run in runs if run[1] > 0))

    monkeypatch.setattr(PlayedNode, "holdings", lambda node: tuple(map(known, holdings(node))))


def test_server_dies_before_followers_have_first_values_and_the_chief_gives_them_again(monkeypatch):
    world = replicated()
    before = len(world.state.job.model.blocks)
    have_only(monkeypatch, before)
    more = tuple(Tensor(0, f"i:new{number}", (40,), "float32") for number in range(6))
    world.declare(world.node("w0"), (*TENSORS, *more))
    while len(world.state.job.model.blocks) == before:
        world.tick()
    grown = world.state.job.configuration
    assert "s1" in {grown.primary(block) for block in range(before, len(grown.assignment))}
    world.kill(world.node("s1"))
    world.settle()
    check_survived(world)


@pytest.mark.parametrize("landed", [False, True])
def test_restored_blocks_are_never_given_first_values(monkeypatch, landed):
    """What a checkpoint has brought to their owner alone is not what a script's first values are."""
    world = replicated(servers=2, checkpoint="/ck")
    world.ask(ev.CheckpointAsked)
    manifest = world.saved()
    for name in ("s0", "s1"):
        world.kill(world.node(name))
    world.launcher()
    world.post(ev.CheckpointFound(world.now, manifest.url, manifest.manifest))
    have_only(monkeypatch, 0)
    world.until(Phase.ARMED)
    while landed and world.state.job.configuration is None:
        for node in list(world.alive):
            while node.inbox and world.state.job.configuration is None:
                world.hear(node)
            while node.outbox and world.state.job.configuration is None:
                world.speak(node)
    term = world.state.job.term
    world.kill(next(node for node in world.alive if node.role is Role.SERVER))
    for _ in range(6):
        world.launcher()
        world.tick()
        for node in list(world.alive):
            while node.inbox:
                world.hear(node)
            while node.outbox:
                world.speak(node)
    assert world.state.job.phase is JobPhase.RESTORING or world.state.job.term > term, world.describe()


def test_adopt_carries_what_was_decided():
    world = replicated()
    before = world.state.job.configuration
    world.replace_dead = False
    world.kill(world.node("s1"))
    for _ in range(3):
        world.turn()
    prepared = next(d for d in world.sent(ef.Prepare, "w0") if d.dead)
    assert prepared.dead == ("s1",)
    assert prepared.configuration.assignment == before.assignment, "what the death builds on"
    adopt = next(d for d in world.sent(ef.Adopt, "w0") if d.decided)
    decided = adopt.decided
    assert decided.id == prepared.configuration.id == adopt.number
    assert [server.id for server in decided.servers] == ["s0", "s2"]
    for block in range(len(before.assignment)):
        dead = before.primary(block) == "s1"
        assert decided.primary(block) == (before.follower(block) if dead else before.primary(block))
        kept = None if dead or before.follower(block) == "s1" else before.follower(block)
        assert decided.follower(block) == kept
    promoted = {block for first, count in adopt.promoted for block in range(first, first + count)}
    assert promoted == {block for block in range(len(before.assignment)) if before.primary(block) == "s1"}


def test_followers_are_made_again_without_another_server():
    world = replicated()
    world.replace_dead = False
    world.kill(world.node("s1"))
    for _ in range(12):
        world.turn()
    assert protected(world), world.describe()
    assert [plan.cause for plan in world.records if plan.background]
    assert world.counts == (2, 2)


def test_two_servers_become_one_and_nobody_follows():
    world = replicated(servers=2)
    world.replace_dead = False
    world.kill(world.node("s0"))
    for _ in range(12):
        world.turn()
    assert world.state.job.configuration.followers == ()
    assert not protected(world)
    assert world.state.job.phase is JobPhase.RUNNING


def test_log_says_that_one_server_protects_nothing():
    said = "the job has one server: no block is protected until a second one joins"
    world = replicated(servers=2)
    assert said not in world.logs
    world.replace_dead = False
    world.kill(world.node("s0"))
    for _ in range(12):
        world.turn()
    assert world.logs.count(said) == 1
    assert World(2, 1, replicas=1).logs.count(said) == 1
    assert said not in World(2, 1).logs


def test_second_death_among_unprotected_blocks_costs_the_job_without_a_checkpoint():
    world = replicated(servers=2)
    world.kill(world.node("s0"))
    world.kill(world.node("s1"))
    world.settle()
    assert world.state.job.phase is JobPhase.FAILED
    assert "server s1 died" in world.state.job.reason


@pytest.mark.parametrize("data", MODES)
def test_worker_and_server_die_together(data):
    world = replicated(workers=3, data=data)
    world.kill(world.node("w1"))
    world.kill(world.node("s2"))
    world.settle()
    check_survived(world)


@pytest.mark.parametrize("first", ["s0", "s1", "s2"])
@pytest.mark.parametrize("second", ["s0", "s1", "s2", "s3", "w1"])
def test_servers_die_one_after_the_other(first, second):
    """The second when all is protected again."""
    world = replicated(servers=4, workers=3)
    world.kill(world.node(first))
    world.settle()
    if world.node(second) is not None:
        world.kill(world.node(second))
    world.settle()
    check_survived(world)


def test_worker_dies_before_the_servers_death_is_decided():
    world = replicated(workers=3)
    world.kill(world.node("s1"))
    world.launcher()
    assert world.plan.undecided
    world.kill(world.node("w2"))
    world.launcher()
    assert world.plan.dead == {"s1", "w2"}
    assert world.plan.absorbed == ()
    world.settle()
    check_survived(world)


def test_worker_dies_when_the_servers_death_is_decided():
    """Who was promoted may not have heard of it: the new configuration keeps it, and is decided from new answers."""
    world = replicated(workers=3)
    world.kill(world.node("s1"))
    world.until(Phase.ARMED)
    decided = world.plan.target
    world.kill(world.node("w2"))
    world.launcher()
    assert world.plan.undecided
    assert world.plan.dead == {"s1", "w2"}
    world.until(Phase.ARMED)
    assert world.plan.target.assignment == decided.assignment
    world.settle()
    check_survived(world)


@pytest.mark.parametrize("data", MODES)
def test_one_server_protects_nothing_and_two_do_again(data):
    world = replicated(data=data)
    world.ask(ev.ScaleAsked, 2, 1)
    world.settle()
    assert world.state.job.configuration.followers == ()
    assert protection(world.state.job).blocks == 0
    check_survived(world)
    world.ask(ev.ScaleAsked, 2, 2)
    world.settle()
    check_survived(world)
    assert protected(world)


@pytest.mark.parametrize("phase", [Phase.ASSIGNED, Phase.ARMED])
def test_coordinator_is_started_again_in_a_servers_death(phase):
    world = replicated()
    world.kill(world.node("s1"))
    world.until(phase)
    world.kill_coordinator()
    world.settle()
    check_survived(world, term=2)


@pytest.mark.parametrize("kind", [na.Arrived, na.Followed])
def test_plan_is_not_committed_before_its_copies_are_level(kind):
    """They are states: what was not heard is said again."""
    world = replicated(servers=2)
    world.ask(ev.ScaleAsked, 2, 3)
    world.until(Phase.ARMED)
    assert world.plan.followed
    assert "s2" in world.plan.receivers
    for _ in range(8):
        for node in world.alive:
            while node.inbox:
                world.hear(node)
            node.outbox = type(node.outbox)(answer for answer in node.outbox if answer[0] is not kind)
            while node.outbox:
                world.speak(node)
            world.train(node)
            world.report(node)
        world.tick()
    assert world.plan is not None, f"committed without {kind}"
    assert world.plan.target == world.state.job.configuration
    world.settle()
    check_survived(world)


def test_operator_comes_before_a_background_plan():
    world = replicated()
    world.replace_dead = False
    world.kill(world.node("s1"))
    for _ in range(20):
        world.launcher()
        for node in list(world.alive):
            while node.inbox and not (world.plan and world.plan.background):
                world.hear(node)
            while node.outbox and not (world.plan and world.plan.background):
                world.speak(node)
        if world.plan and world.plan.background:
            break
        world.tick()
    assert world.plan.background, world.describe()
    assert world.plan.open_ended
    world.ask(ev.ScaleAsked, 1, 2)
    assert not world.plan.background
    world.settle()
    assert world.counts == (1, 2)
    assert protected(world)


def test_unprotected_job_loses_its_server_as_before():
    world = World(2, 2)
    world.kill(world.node("s1"))
    world.settle()
    assert world.state.job.phase is JobPhase.FAILED


def test_protected_server_may_be_evicted():
    world = replicated()
    reply = world.ask(ev.EvictAsked, "s1")
    assert "the others go on without it" in reply.outcome
    world.kill(world.node("s1"))
    world.settle()
    check_survived(world)
    lone = World(2, 2)
    assert "no checkpoint to go back to" in text(lone.ask(ev.EvictAsked, "s1"))


@pytest.mark.parametrize("dead", ["s0", "s1", "s2"])
def test_a_server_dies_while_the_news_of_new_tensors_is_lost_on_its_way_to_the_others(dead):
    """They hear of these in the Welcome of their next streams; no Extend is said before the death's plan is over."""
    world = replicated()
    world.declare(world.node("w0"), [Tensor(0, "s:late", (16 * 6,), "float32")])
    for server in ("s0", "s1", "s2"):
        world.node(server).connected = False
        world.node(server).inbox.clear()
    world.kill(world.node(dead))
    world.settle()
    check_survived(world)


def test_new_tensors_are_followed_at_once():
    world = replicated()
    configuration = world.state.job.configuration
    assert len(configuration.followers) == len(configuration.assignment)
    extend = world.sent(ef.Extend, "s0")[-1]
    assert extend.followers == configuration.followers


@pytest.mark.parametrize("replicas", [-1, 2])
def test_other_numbers_of_replicas_are_refused(replicas):
    with pytest.raises(ConfigurationError, match="a block has none, or one"):
        World(1, 1, replicas=replicas)
