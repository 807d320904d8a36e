"""Jobs in trouble, for tests of failure detection: nodes that fall silent, or that cannot reach each other."""

from coordinator.core import events as ev
from coordinator.core.state import ReportedWait
from coordinator.server.status_view import status
from tests.coordinator.played_job import World


def unreplaced(workers, servers, **settings):
    """A job whose launcher starts nobody in the place of the dead."""
    world = World(workers, servers, **settings)
    world.replace_dead = False
    return world


def with_checkpoint(world):
    """The job, once it has a checkpoint to go back to."""
    world.ask(ev.CheckpointAsked)
    world.saved()
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
