"""Jobs whose coordinator has lost its journal."""

from coordinator.core.job import JobPhase
from coordinator.core.nodes.rebuilding import PATIENCE_SECONDS


def lost(world):
    """The journal is lost; returns the status seen meanwhile."""
    world.lose_journal()
    assert world.state.job.phase is JobPhase.REBUILDING
    return world


def wait_in_vain(world):
    """Longer than anybody is waited for."""
    before = world.now
    while world.now < before + world.state.settings.lease + PATIENCE_SECONDS:
        world.turn()
    for _ in range(4):
        world.turn()
