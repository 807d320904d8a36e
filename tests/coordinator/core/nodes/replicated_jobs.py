"""Jobs whose blocks have followers, and what holds when one has survived a death."""

from coordinator.core.job import JobPhase
from coordinator.core.plans.protection import protection
from tests.coordinator.played_job import ASYNC, DATA, SSP, World

MODES = [DATA, ASYNC, SSP]


def replicated(workers=2, servers=3, **named):
    world = World(workers, servers, replicas=1, **named)
    for _ in range(4):
        world.turn()
    return world


def protected(world):
    found = protection(world.state.job)
    return found.blocks == found.all_blocks > 0


def check_survived(world, term=1):
    """Nothing was restored, everyone trains, all blocks are protected again."""
    assert world.state.job.phase is JobPhase.RUNNING, world.describe()
    assert world.state.job.term == term, world.describe()
    assert protected(world) or len(world.state.job.configuration.servers) == 1
    before = max(node.version for node in world.alive)
    for _ in range(6):
        world.turn()
    assert max(node.version for node in world.alive) > before, world.describe()
    world.check_batches()
