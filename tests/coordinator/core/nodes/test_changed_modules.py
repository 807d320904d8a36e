"""A user edits the module of update rules while the job runs: no server that would load it may join."""

import pytest

from coordinator.core import effects as ef
from coordinator.core import events as ev
from coordinator.core.checkpoints.ending import anew
from elastic_ps.core.configuration import Role
from elastic_ps.core.module_file import ModuleFile
from tests.coordinator.core.nodes.troubled_jobs import unreplaced
from tests.coordinator.played_job import World

BEFORE, AFTER = (ModuleFile("rules", "/home/me/rules.py", digest) for digest in ("aa", "bb"))
REFUSAL = "/home/me/rules.py is not what this job's servers have loaded as module rules: put it back as it was, or"


@pytest.fixture
def world():
    """Its servers have loaded what there was before."""
    world = unreplaced(1, 1, declare=False)
    world.modules = (BEFORE,)
    world.spawn(Role.WORKER)
    world.spawn(Role.SERVER)
    world.settle()
    return world


def joined(world, *modules, role=Role.SERVER):
    """What a process that finds these on the disk is answered."""
    world.spawned += 1
    return world.ask(
        ev.Joined, role, "127.0.0.1", int(role is Role.SERVER), 1, f"nonce-{world.spawned}", modules=modules
    )


def test_a_server_that_would_load_other_code_is_refused(world):
    reply = joined(world, AFTER)
    assert isinstance(reply, ef.Refuse)
    assert reply.text.startswith(REFUSAL)


def test_a_server_that_finds_the_same_may_join_from_wherever_it_lies(world):
    assert joined(world, ModuleFile("rules", "/mnt/rules.py", BEFORE.digest), ModuleFile("more", "/more.py", "cc")).node
    assert REFUSAL[14:40] in joined(world, ModuleFile("more", "/more.py", "dd")).text, "what it brought counts too"


def test_a_module_without_a_file_is_not_compared(world):
    assert joined(world, ModuleFile("rules")).node
    assert joined(world, AFTER).text.startswith(REFUSAL)


def test_no_server_that_is_left_is_needed_to_know(world):
    world.kill(world.node("s0"))
    world.launcher()
    assert joined(world, AFTER).text.startswith(REFUSAL)


def test_a_coordinator_without_its_journal_learns_it_from_the_servers(world):
    world.lose_journal()
    for _ in range(60):
        world.turn()
    assert world.state.rebuilding is None
    assert joined(world, AFTER).text.startswith(REFUSAL)


def test_a_job_that_is_started_again_takes_what_there_is():
    world = World(1, 1)
    world.modules = (BEFORE,)
    again = anew(world.state.job, world.state.job.goal, world.state.job.term + 1, None)
    assert not again.modules
