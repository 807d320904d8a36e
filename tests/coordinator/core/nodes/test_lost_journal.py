"""A coordinator that dies with all it has written: its nodes' words make a state again, at any instant of a scaling."""

from dataclasses import replace

import pytest

from coordinator.core import effects as ef
from coordinator.core import events as ev
from coordinator.core import node_answers as na
from coordinator.core.job import JobPhase
from coordinator.core.nodes.rebuilding import PATIENCE_SECONDS, SETTLE_SECONDS
from coordinator.core.plans.plan import Phase, PlanKind
from elastic_ps.core.configuration import NO_CONFIGURATION, Role
from elastic_ps.core.model import Tensor
from tests.coordinator.core.nodes.lost_journals import lost, wait_in_vain
from tests.coordinator.played_job import ASYNC, DATA, IDENTITY, OPTIMIZER, STATIC, TENSORS, World, text
from tests.sweeps import sweep


def scale_out_and_in(world, turns=12):
    for count in (2, 1):
        world.ask(ev.ScaleAsked, count, count)
        for _ in range(turns):
            world.turn()


class Losing(World):
    """Its journal is lost where another's coordinator would only die."""

    def kill_coordinator(self):
        self.lost_at = {node.id: (node.number, node.version) for node in self.alive if node.is_member}
        self.lose_journal()


def effects_of():
    world = World(1, 1)
    before = len(world.effects)
    scale_out_and_in(world)
    return len(world.effects) - before


@pytest.mark.parametrize("at", sweep(range(effects_of())))
def test_lost_at_any_effect_the_job_goes_on_from_where_it_is(at):
    world = Losing(1, 1)
    world.kill_after = at
    scale_out_and_in(world)
    world.settle()
    assert world.kill_after is None, "nobody was killed"
    job = world.state.job
    assert (job.phase, job.term) == (JobPhase.RUNNING, 2), world.describe()
    assert world.counts in ((1, 1), (2, 2)), world.describe()
    assert {node.role for node in world.alive} == set(Role)
    assert (job.model.tensors, job.optimizers, job.data) == (TENSORS, (OPTIMIZER,), DATA)
    assert job.model.block_bytes == 64
    for name, (number, version) in world.lost_at.items():
        node = world.node(name)
        assert node is None or (node.number >= number and node.version >= version), "training went back"
    world.ask(ev.ScaleAsked, 3, 2)
    world.settle()
    assert world.counts == (3, 2), "and it scales on"


def test_nothing_is_decided_before_everyone_has_spoken():
    world = lost(World(2, 1))
    told = text(world.ask(ev.ScaleAsked, 3, 1))
    assert "asks its nodes" in told
    for name in ("w0", "s0"):
        world.listen(world.node(name))
    for _ in range(10):  # 5 s
        world.tick()
    assert world.state.job.phase is JobPhase.REBUILDING
    assert not [effect for effect in world.effects if isinstance(effect, ef.Send) and effect.node == "none"]
    before = len(world.effects)
    world.listen(world.node("w1"))
    world.tick()
    assert world.state.job.phase is JobPhase.RUNNING
    assert world.counts == (2, 1)
    assert world.effects[before:], "they are told"
    world.settle()
    assert world.state.job.members.keys() == {"w0", "w1", "s0"}


def test_an_answer_to_what_was_declared_before_is_none_to_what_is_declared_since():
    """A server repeats it until it is taken: its coordinator was away, and had lost its journal when it came back."""
    world = World(2, 1)
    before = world.state.job.growth
    lost(world).settle()
    more = Tensor(1, "i:0", (16,), "float32")
    assert world.declare(world.node("w0"), (more,), DATA, store=1, optimizer=OPTIMIZER) is None
    world.post(na.Tried(world.now, "s0", OPTIMIZER))
    call = world.asked
    world.post(na.Extended(world.now, "s0", before))
    assert call not in world.replies, "the server has not heard of it"
    world.settle()
    assert call in world.replies


def test_launchers_start_nothing_meanwhile():
    world = lost(World(2, 1))
    assert (world.wanted.starting_workers, world.wanted.starting_servers) == (0, 0)


def test_a_worker_that_does_not_come_is_dead_when_its_lease_has_run_out():
    world = World(3, 1)
    world.kill(world.node("w2"))
    world.exits.clear()  # told to the coordinator that is gone
    lost(world)
    world.settle()
    assert world.counts == (3, 1)
    assert "w2" not in world.state.job.members
    assert world.records[0].kind is PlanKind.DEATH
    assert all("w2" in node.dead for node in world.alive if node.id in ("w0", "w1", "s0"))
    assert world.node("w2000") is not None, "a name that nobody remembers is not used again"


def test_a_server_that_does_not_come_costs_the_job_its_progress():
    world = World(2, 2)
    world.kill(world.node("s1"))
    world.exits.clear()
    lost(world)
    wait_in_vain(world)
    assert world.state.job.phase is JobPhase.FAILED
    assert "s1 did not answer, and the job has no checkpoint" in world.state.job.reason


@pytest.mark.parametrize("late", ["w", "s", "ws"])
def test_those_without_whom_the_job_would_go_back_may_come_late(late):
    """The way to a coordinator's new place is not open at once, nor for all at once."""
    world = lost(World(2, 2))
    for node in world.alive:
        if node.role[0] not in late:
            world.listen(node)
    for _ in range(2 * int(world.state.settings.lease + PATIENCE_SECONDS) - 2):
        world.tick()
    assert world.state.job.phase is JobPhase.REBUILDING
    for node in world.alive:
        if node.role[0] in late:
            world.listen(node)
    world.tick(SETTLE_SECONDS)
    assert (world.state.job.phase, world.counts) == (JobPhase.RUNNING, (2, 2))


def test_a_coordinator_to_which_nobody_comes_concludes_nothing():
    """All nodes live and train, behind connections that are half open."""
    world = World(2, 2)
    for _ in range(50):
        world.turn()
    trained = max(node.version for node in world.alive)
    lost(world)
    for _ in range(900):
        world.tick(1.0)
    assert world.state.job.phase is JobPhase.REBUILDING
    assert "no node has come to it: it waits for the job's nodes" in world.state.job.reason
    assert sum("no node has come to it" in line for line in world.logs) == 1, "told once"
    assert (world.wanted.starting_workers, world.wanted.starting_servers) == (0, 0)
    world.settle()
    assert (world.state.job.phase, world.counts) == (JobPhase.RUNNING, (2, 2))
    assert world.state.version >= trained


def test_a_new_process_shows_that_the_way_is_open_and_the_others_have_time_from_then_on():
    world = lost(World(2, 1))
    world.tick(900.0)
    world.spawn(Role.WORKER)
    world.tick(world.state.settings.lease + PATIENCE_SECONDS - 1.0)
    assert world.state.job.phase is JobPhase.REBUILDING
    for node in world.alive[:3]:
        world.listen(node)
    world.settle()
    assert world.state.job.members.keys() >= {"w0", "w1", "s0"}


def test_a_new_process_is_not_the_whole_job_though_it_began_with_no_more():
    """Found by the simulated world: a job with a worker and a server had been scaled up, and others of it lived."""
    world = World(1, 1)
    world.ask(ev.ScaleAsked, 2, 1)
    world.settle()
    lost(world)
    for role in (Role.WORKER, Role.SERVER):
        world.spawn(role)
    world.tick(SETTLE_SECONDS - 1.0)
    assert world.state.job.phase is JobPhase.REBUILDING
    for node in world.alive[:3]:
        world.listen(node)
    world.settle()
    assert world.state.job.members.keys() >= {"w0", "w1", "s0"}


def test_new_processes_for_a_part_of_the_job_are_enough_in_the_end():
    world = World(2, 1)
    for node in world.alive:
        world.kill(node)
    world.exits.clear()
    lost(world)
    world.spawn(Role.WORKER)
    world.tick(world.state.settings.lease + PATIENCE_SECONDS + 1.0)
    assert world.state.job.phase is JobPhase.RESTORING


@pytest.mark.parametrize("holder_dies", [True, False])
@pytest.mark.parametrize("noticed", ["after they came", "before they came", "never"])
def test_a_plan_for_which_one_who_has_not_come_was_armed_is_never_cancelled(holder_dies, noticed):
    """Of the Arms only one has reached its node, which switches by its clock and tells its peers."""
    world = World(3, 1)
    world.replace_dead = False
    world.ask(ev.ScaleAsked, 2, 1)
    plan = world.until(Phase.ARMED)
    holder = next(node for node in world.alive if node.role is Role.WORKER and node.id not in {"w0", *plan.leavers})
    for node in world.alive:
        if node is not holder:
            node.inbox = type(node.inbox)(d for d in node.inbox if not isinstance(d, ef.Arm))
    while holder.inbox:
        world.hear(holder)
    assert holder.clock == plan.clock
    others = [node for node in world.alive if node is not holder]
    lost(world)
    if noticed == "after they came":
        for node in others:
            world.listen(node)
    while holder.number != plan.number:
        for node in (*others, holder):
            world.train(node)
    if noticed != "never":
        for node in others:
            world.notice(node)
            assert node.number == plan.number
    for node in others:
        if not node.connected:
            world.listen(node)
    if holder_dies:
        world.kill(holder)
        world.exits.clear()
    while world.state.rebuilding is not None:
        world.tick()
    world.settle()  # a node that is told to cancel what is in force there fails the test
    assert world.state.job.configuration.id > plan.number
    assert world.state.job.members.keys() == {"s0", "w0"}
    assert holder.exited is not None


def test_a_plan_for_which_nobody_can_have_been_armed_is_cancelled():
    """A worker has not come, but a server that is to gain blocks has not caught up."""
    world = World(2, 1)
    world.replace_dead = False
    world.ask(ev.ScaleAsked, 2, 2)
    world.spawn(Role.SERVER)
    plan = world.until(Phase.SYNCING)
    lost(world)
    gainer = next(node for node in world.alive if node.id in plan.receivers)
    gainer.synced = NO_CONFIGURATION
    world.kill(world.node("w1"))
    world.exits.clear()
    world.settle()
    assert all(node.cancelled == plan.number for node in world.alive if node.id in ("w0", "s0"))


def test_with_a_checkpoint_it_goes_back_by_itself():
    world = World(2, 2, checkpoint="file:///saved")
    world.kill(world.node("s1"))
    world.exits.clear()
    lost(world)
    wait_in_vain(world)
    found = [effect for effect in world.effects if isinstance(effect, ef.FindCheckpoint)]
    assert (found[0].search.folder, found[0].search.identity) == ("file:///saved", IDENTITY), "which its nodes know"
    assert world.state.job.phase is JobPhase.RESTORING


def test_the_book_of_batches_cannot_be_rebuilt():
    world = lost(World(2, 1, data=ASYNC))
    for _ in range(40):
        world.turn()
    assert world.state.job.phase is JobPhase.FAILED
    assert "the book of this job's batches" in world.state.job.reason


def test_static_async_data_has_no_book():
    world = lost(World(2, 1, data=STATIC))
    world.settle()
    assert (world.counts, world.state.job.phase) == ((2, 1), JobPhase.RUNNING)


@pytest.mark.parametrize("told_anew", [False, True])
def test_checkpoints_without_a_common_version_are_numbered_on(told_anew):
    """They were named anew from the workers' versions: one took an older one's folder, and was not the newest."""
    world = World(2, 1, data=STATIC, checkpoint="file:///saved")
    world.state = replace(world.state, job=replace(world.state.job, saves=500))  # more than workers make steps here
    if told_anew:
        world.listen(world.node("s0"))
        world.turn()
    else:
        world.ask(ev.CheckpointAsked)
        world.saved()
    lost(world)
    world.settle()
    world.ask(ev.CheckpointAsked)
    assert world.saved().manifest.version == 502 - told_anew


def test_a_higher_term_that_a_restore_had_raised_is_passed():
    world = World(2, 1)
    for node in world.alive:
        node.term = 7
    lost(world)
    world.settle()
    assert world.state.job.term == 8


def test_killed_while_it_asks_it_asks_again():
    world = lost(World(2, 1))
    world.listen(world.node("w0"))
    world.kill_coordinator()  # its new journal says that it was asking
    assert world.state.job.phase is JobPhase.REBUILDING
    world.settle()
    assert world.counts == (2, 1)


def test_who_waits_to_join_is_a_wish():
    world = World(1, 1)
    world.replace_dead = False
    world.ask(ev.ScaleAsked, 2, 2)
    world.spawn(Role.WORKER)  # the other has not come
    world.turn()
    assert world.plan.phase is Phase.REGISTERED
    lost(world)
    world.settle()
    assert world.counts == (2, 1)


def test_nodes_of_another_history_have_no_part():
    world = World(2, 1)
    world.ask(ev.DrainAsked, "w1")
    plan = world.until(Phase.ARMED)
    old = world.node("w1")
    for node in world.alive:
        if node is not old:
            node.switch()
    lost(world)
    world.settle()
    assert world.counts == (1, 1)
    assert plan.number == world.state.job.configuration.id
    assert old.exited == 0
