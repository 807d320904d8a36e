"""Back to a checkpoint, and from one that cannot be loaded to an older one."""

from played_job import World

from coordinator import effects as ef
from coordinator import events as ev
from coordinator.plan import Phase
from coordinator.state import JobPhase
from coordinator.wishes import RESTORE
from elastic_ps.core.configuration import Role


def restoring(kept=2):
    """A job that goes back to the newest of its checkpoints, whose servers have been told to load it; all of them."""
    world = World(2, 2, checkpoint="/ck")
    manifests = []
    for _ in range(kept):
        for _ in range(5):
            world.turn()
        world.ask(ev.CheckpointAsked)
        manifests.append(world.saved())
    world.kill(world.node("s1"))
    world.launcher()
    world.post(ev.CheckpointFound(world.now, manifests[-1].url, manifests[-1].manifest))
    world.until(Phase.ASSIGNED)
    return world, manifests


def cannot_load(world):
    """A server of the start says so, twice."""
    server = next(node.id for node in world.alive if node.role is Role.SERVER)
    event = ev.Unreadable(world.now, server, world.plan.number, "block 0 in s0.bin is damaged")
    world.post(event)
    if server in world.state.job.nodes:
        world.post(event)
    return [effect for effect in world.effects if isinstance(effect, ef.FindCheckpoint)][-1]


def test_a_checkpoint_that_a_server_cannot_load_gives_way_to_the_next_older():
    world, (older, newest) = restoring()
    term = world.state.job.term
    find = cannot_load(world)
    assert (find.urls, find.damaged) == ((newest.url, older.url), {newest.url})
    assert any("cannot load /ck" in line and "block 0 in s0.bin is damaged" in line for line in world.logs)
    looked = world.effects.count(find)
    world.kill_coordinator()
    assert world.effects.count(find) == looked + 1, "it looks again, and still knows"
    world.post(ev.CheckpointFound(world.now, older.url, older.manifest))
    world.settle()
    assert world.counts == (2, 2)
    assert world.state.job.term == term + 2, "the restart's and the restore's"
    assert world.sent(ef.Prepare)[-1].restore == older.url
    assert world.state.job.voids[-1].version == older.manifest["version"]
    assert not any(node.exited == 1 for node in world.nodes), "no process dies of it"


def test_the_plan_of_a_restore_tells_why():
    world, _ = restoring(1)
    assert world.plan.cause == f"{RESTORE}server s1 died (killed by signal 9)"


def test_where_no_checkpoint_can_be_loaded_the_job_fails_with_the_reason():
    world, _ = restoring(1)
    cannot_load(world)
    world.post(ev.CheckpointFound(world.now, error="/ck/version-1 is damaged"))
    assert world.state.job.phase is JobPhase.FAILED
    assert "block 0 in s0.bin is damaged" in world.state.job.reason
    assert "there is no checkpoint to go back to" in world.state.job.reason


def test_a_job_that_has_saved_nothing_goes_back_to_what_it_began_from():
    world = World(2, 1, restore="/begun")
    world.kill(world.node("s0"))
    world.launcher()
    find = next(effect for effect in world.effects if isinstance(effect, ef.FindCheckpoint))
    assert find.roots == ("", "/begun")


def test_a_checkpoint_that_is_written_again_is_whole_again():
    world, (newest,) = restoring(1)
    cannot_load(world)
    assert world.state.job.damaged == {newest.url}
    world.post(ev.ManifestWritten(world.now, newest.url, 1))
    assert not world.state.job.damaged
