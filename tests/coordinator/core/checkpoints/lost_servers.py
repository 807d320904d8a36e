"""Jobs that have lost a server, for tests of what they restore from."""

from coordinator.core import events as ev
from tests.coordinator.played_job import World


def without_a_server(kept, checkpoint):
    """A job that has lost a server; the manifests of the checkpoints that it keeps, oldest first."""
    world = World(2, 2, checkpoint=checkpoint)
    manifests = []
    for _ in range(kept):
        for _ in range(5):
            world.turn()
        world.ask(ev.CheckpointAsked)
        manifests.append(world.saved())
    world.kill(world.node("s1"))
    world.launcher()
    return world, manifests
