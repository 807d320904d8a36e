"""Back to a checkpoint, and from one that cannot be loaded to an older one."""

import pytest

from coordinator.core import effects as ef
from coordinator.core import events as ev
from coordinator.core import node_answers as na
from coordinator.core.checkpoints.manifest import CheckpointSearch
from coordinator.core.job import JobPhase
from coordinator.core.plans.plan import Phase
from coordinator.core.plans.scale_goal import RESTORE
from coordinator.server.status_view import status
from elastic_ps.core.configuration import Role
from tests.coordinator.core.checkpoints.lost_servers import without_a_server
from tests.coordinator.played_job import DATA, IDENTITY, OPTIMIZER, STATIC, TENSORS, World, text


def restoring(kept=2):
    """A job that goes back to the newest of its checkpoints, whose servers have been told to load it; all of them."""
    world, manifests = without_a_server(kept, "/ck")
    world.post(ev.CheckpointFound(world.now, manifests[-1].url, manifests[-1].manifest))
    world.until(Phase.ASSIGNED)
    return world, manifests


def cannot_load(world):
    """A server of the start says so, twice."""
    server = next(node.id for node in world.alive if node.role is Role.SERVER)
    event = na.CheckpointUnreadable(world.now, server, world.plan.number, "block 0 in s0.bin is damaged")
    world.post(event)
    if server in world.state.job.nodes:
        world.post(event)
    return [effect for effect in world.effects if isinstance(effect, ef.FindCheckpoint)][-1]


def test_a_checkpoint_that_a_server_cannot_load_gives_way_to_the_next_older():
    world, (older, newest) = restoring()
    term = world.state.job.term
    find = cannot_load(world)
    assert (find.search.known, find.search.passed) == ((newest.url, older.url), {newest.url})
    assert any("cannot load /ck" in line and "block 0 in s0.bin is damaged" in line for line in world.logs)
    looked = world.effects.count(find)
    world.kill_coordinator()
    assert world.effects.count(find) == looked + 1, "it looks again, and still knows"
    world.post(ev.CheckpointFound(world.now, older.url, older.manifest))
    world.settle()
    assert world.counts == (2, 2)
    assert world.state.job.term == term + 2, "the restart's and the restore's"
    assert world.sent(ef.Prepare)[-1].restore == older.url
    assert world.state.job.voids[-1].version == older.manifest.version
    assert not any(node.exited == 1 for node in world.nodes), "no process dies of it"


def test_launchers_are_told_by_name_whose_processes_a_restore_ends():
    """Also where one follows another, and a process that the first was to end is still there."""
    world, (older, newest) = without_a_server(2, "/ck")
    world.node("w1").frozen = True
    (frozen,) = world.frozen
    world.post(ev.CheckpointFound(world.now, newest.url, newest.manifest))
    assert set(world.wanted.restarting) == {node.nonce for node in world.nodes if node.exited is None}
    world.until(Phase.ASSIGNED)
    for node in [node for node in world.alive if node.nonce in world.wanted.restarting]:
        if not node.connected:  # it was started before the checkpoint was found
            world.listen(node)
        while node.inbox and node.exited is None:
            world.hear(node)
        while node.outbox and node.exited is None:
            world.speak(node)
    world.launcher()  # it has seen them end
    assert world.wanted.restarting == (frozen.nonce,)
    cannot_load(world)
    world.post(ev.CheckpointFound(world.now, older.url, older.manifest))
    assert set(world.wanted.restarting) == {node.nonce for node in world.nodes if node.exited is None}
    assert len(world.wanted.restarting) == 5


def test_what_is_asked_while_the_checkpoint_is_looked_for_is_refused_when_it_is_found():
    """Else the script would wait for its answer for ever, and the job for the script's end."""
    world = World(2, 2, checkpoint="/ck")
    world.turn()
    world.ask(ev.CheckpointAsked)
    manifest = world.saved()
    world.kill(world.node("s1"))
    world.launcher()
    assert world.state.job.loading
    assert world.declare(world.node("w1")) is None, "it waits"
    asked = world.asked
    world.post(ev.CheckpointFound(world.now, manifest.url, manifest.manifest))
    assert "restored from" in text(world.replies[asked])
    world.settle()
    assert world.counts == (2, 2)


def test_a_process_that_was_started_before_the_checkpoint_is_found_is_wanted_all_the_time():
    """Its launcher would end it and start another, and it could register meanwhile, and be drained."""
    world = World(2, 2, checkpoint="/ck")
    world.ask(ev.CheckpointAsked)
    saved = world.saved()
    world.replace_dead = False
    world.kill(world.node("s1"))
    world.launcher()
    assert world.state.job.loading
    assert (world.wanted.starting_workers, world.wanted.starting_servers) == (0, 1)
    world.post(ev.CheckpointFound(world.now, saved.url, saved.manifest))
    assert (world.wanted.starting_workers, world.wanted.starting_servers) == (2, 2)


def test_servers_that_hold_sums_of_gradients_are_not_saved():
    """A restore would write these into the script's parameters."""
    world = World(1, 1, declare=False, data=STATIC, checkpoint="/ck", checkpoint_interval=5.0)
    world.settle()
    world.declare(world.node("w0"), TENSORS, STATIC, local_update=True)
    world.settle()
    assert "hold sums of gradients and no parameters" in text(world.ask(ev.CheckpointAsked))
    for _ in range(40):
        world.tick()
        world.turn()
    assert world.state.saving is None


def test_a_worker_that_comes_while_the_checkpoint_is_looked_for_begins_with_it():
    """None could join the job as it was; this one was started in the place of the last that has died."""
    world = World(1, 1, declare=False, data=STATIC, checkpoint="/ck")
    world.settle()
    world.declare(world.node("w0"), TENSORS, STATIC)
    world.settle()
    world.ask(ev.CheckpointAsked)
    saved = world.saved()
    world.kill(world.node("w0"))
    world.launcher()
    assert world.state.job.loading
    (worker,) = (node for node in world.alive if node.role is Role.WORKER)
    world.post(ev.CheckpointFound(world.now, saved.url, saved.manifest))
    world.settle()
    assert worker.exited == 75, "it is started again"
    assert world.counts == (1, 1)


def test_what_was_declared_is_not_said_again_while_the_checkpoint_is_looked_for():
    """It would be said of the configuration in force, and some nodes have switched to one with other servers."""
    world = World(2, 2, checkpoint="/ck")
    world.ask(ev.CheckpointAsked)
    saved = world.saved()
    world.ask(ev.ScaleAsked, 2, 3)
    world.until(Phase.ARMED)
    switched = world.node("w0")
    switched.switch()
    while switched.outbox:
        world.speak(switched)
    world.kill(world.node("s1"))
    world.launcher()
    assert world.state.job.loading
    assert switched.number > world.state.job.configuration.id
    world.listen(switched)
    assert not [told for told in switched.inbox if isinstance(told, ef.Extend)]
    world.post(ev.CheckpointFound(world.now, saved.url, saved.manifest))
    world.settle()
    assert world.counts == (2, 3)


def test_the_version_falls_back_with_the_job_to_its_checkpoint():
    world = World(2, 1, checkpoint="/ck")
    world.ask(ev.CheckpointAsked)
    saved = world.saved()
    for _ in range(20):
        world.turn()
    world.kill(world.node("w1"))  # what it told of is kept without it
    world.turn()
    trained = world.state.version
    world.kill(world.node("s0"))
    world.launcher()
    world.post(ev.CheckpointFound(world.now, saved.url, saved.manifest))
    assert trained > saved.manifest.version == world.state.version


def test_the_plan_of_a_restore_tells_why():
    world, _ = restoring(1)
    assert world.plan.cause == f"{RESTORE}server s1 died (killed by signal 9)"


def test_where_no_checkpoint_can_be_loaded_the_job_fails_with_the_reason():
    world, _ = restoring(1)
    cannot_load(world)
    world.post(ev.CheckpointFound(world.now, error="/ck/version-1 is damaged"))
    assert world.state.job.phase is JobPhase.FAILED
    assert "block 0 in s0.bin is damaged" in world.state.job.reason
    assert "the job cannot go back: " in world.state.job.reason


def test_a_job_that_has_saved_nothing_goes_back_to_what_it_began_from():
    world = World(2, 1, restore="/begun")
    world.kill(world.node("s0"))
    world.launcher()
    find = next(effect for effect in world.effects if isinstance(effect, ef.FindCheckpoint))
    assert find.search == CheckpointSearch(IDENTITY, restore="/begun")


def test_a_checkpoint_that_is_written_again_is_whole_again():
    world, (newest,) = restoring(1)
    cannot_load(world)
    assert world.state.job.damaged == {newest.url}
    world.post(ev.ManifestWritten(world.now, newest.url, 1))
    assert not world.state.job.damaged


def test_a_damaged_one_is_none_of_the_three_that_are_kept():
    world, (older, newest) = restoring()
    cannot_load(world)
    world.post(ev.CheckpointFound(world.now, older.url, older.manifest))
    world.settle()
    world.ask(ev.CheckpointAsked)
    saved = world.saved()
    assert saved.damaged == {newest.url}
    assert world.state.job.checkpoints == (older.url, saved.url)


def test_a_checkpoint_that_the_job_had_gone_back_behind_brings_back_its_updates():
    """It came to be whole when the job had gone back to one before it, and then that job was lost too."""
    world = World(2, 2, checkpoint="/ck")
    world.turn()
    world.ask(ev.CheckpointAsked)
    older = world.saved()
    world.ask(ev.CheckpointAsked)
    slow = world.saved()
    term = world.state.job.term
    for found in (older, slow):
        world.kill(next(node for node in world.alive if node.role is Role.SERVER))
        world.launcher()
        world.post(ev.CheckpointFound(world.now, found.url, found.manifest))
        world.settle()
    between = slow.manifest.version - 1
    assert older.manifest.version <= between
    kept = [all(void.kept(old, between, ((0, 1),)) for void in world.state.job.voids) for old in (term, term + 1)]
    assert kept == [True, False]


# ---- from time to time -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("loss", ["kill_coordinator", "lose_journal"])
def test_the_interval_of_checkpoints_does_not_begin_anew_with_each_coordinator(loss):
    world = World(1, 1, checkpoint="/ck", checkpoint_interval=60.0)
    world.turn()
    begun = world.now
    getattr(world, loss)()
    world.saved(turns=40)
    assert world.now < begun + 30.0


def test_a_job_that_begins_is_saved_after_one_interval():
    world = World(1, 1, checkpoint="/ck", checkpoint_interval=60.0)
    before = len(world.effects)
    while world.now < 1050.0:
        world.turn()
    assert world.state.version
    assert not [effect for effect in world.effects[before:] if isinstance(effect, ef.WriteManifest)]
    world.saved(turns=40)


def test_a_checkpoint_that_could_not_be_written_is_in_the_status_until_one_is():
    world = World(1, 1, checkpoint="/ck")
    world.turn()
    for error in ("the disk is full", ""):
        before = len(world.effects)
        world.ask(ev.CheckpointAsked)
        for _ in range(20):
            world.turn()
            if written := [effect for effect in world.effects[before:] if isinstance(effect, ef.WriteManifest)]:
                break
        world.post(ev.ManifestWritten(world.now, written[0].url, 0 if error else 10, error))
        told = status(world.state, world.now)
        assert bool(told.unsaved) is bool(error)
        assert error in told.unsaved
        assert told.checkpoint == ("" if error else written[0].url)


@pytest.mark.slow
def test_a_server_that_loads_for_long_is_waited_for_as_long_as_blocks_come():
    """Else a checkpoint that takes longer is begun again and again."""
    world, _ = restoring()
    slow = world.plan.target.servers[0].id
    others = [node for node in world.alive if node.id != slow]

    def passing(seconds, grows):
        for second in range(seconds):
            for node in others:
                world.report(node)
            if slow in world.state.job.nodes:
                held = world.state.vitals[slow].bytes + (grows if second % 300 == 0 else 0)
                world.post(ev.Reported(world.now, slow, 0, bytes=held))
            world.tick(1.0)

    for node in others:
        if not node.connected:
            world.listen(node)
        while node.inbox:
            world.hear(node)
        while node.outbox and node.exited is None:
            world.speak(node)
    passing(1500, grows=100)
    assert slow in world.state.job.nodes
    assert world.plan.phase is Phase.ASSIGNED
    passing(620, grows=0)
    assert slow not in world.state.job.nodes


def saved_with_one_block(servers):
    """A job of which nobody knew at its start how few blocks there would be, and its checkpoint."""
    world = World(1, servers, declare=False, checkpoint="/ck")
    world.settle()
    world.declare(world.node("w0"), TENSORS[:1], DATA, optimizer=OPTIMIZER)
    world.settle()
    world.turn()
    world.ask(ev.CheckpointAsked)
    return world, world.saved()


def test_a_job_that_began_with_more_servers_than_blocks_goes_back_with_as_many_as_hold_something():
    """Found by the simulated world."""
    world, saved = saved_with_one_block(servers=3)
    world.kill(world.node(world.state.job.configuration.primary(0)))
    world.launcher()
    world.post(ev.CheckpointFound(world.now, saved.url, saved.manifest))
    world.settle()
    assert world.state.job.phase is JobPhase.RUNNING
    assert world.counts == (1, 1)


@pytest.mark.parametrize("restores", [False, True])
def test_a_server_that_no_block_is_left_for_is_sent_home(restores):
    """Found by the simulated world (seed 192): it was wanted, as it had come, and the restored job failed for that."""
    world, saved = saved_with_one_block(servers=1)
    if restores:
        world.kill(world.node("s0"))
        world.launcher()
        world.post(ev.CheckpointFound(world.now, saved.url, saved.manifest))
        assert world.state.job.configuration is None
    servers = [world.spawn(Role.SERVER) for _ in range(2)]
    world.settle()
    assert servers[-1].exited == 0
    assert world.state.job.phase is JobPhase.RUNNING
    assert world.counts == (1, 1)
