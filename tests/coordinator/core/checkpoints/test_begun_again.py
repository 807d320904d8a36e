"""A job whose processes are all gone begins again under a journal that is there: its names and its ledger go on."""

import pytest

from coordinator.core import events as ev
from coordinator.core.checkpoints.ending import anew
from coordinator.core.job import JobPhase
from coordinator.core.plans.plan import Phase
from coordinator.core.plans.scale_goal import ScaleGoal
from coordinator.core.state import State
from elastic_ps.core.configuration import Role
from tests.coordinator.played_job import ASYNC, DATA, TENSORS, World


def trained(**settings):
    """A job that has trained and saved itself; its checkpoint."""
    world = World(2, 1, checkpoint="/ck", **settings)
    for _ in range(5):
        world.turn()
    world.ask(ev.CheckpointAsked)
    saved = world.saved()
    for _ in range(5):
        world.turn()
    return world, saved


def begin_again(world, found, workers=1, servers=2):
    """All its processes end without a word, and a coordinator of term 7 begins again."""
    for node in world.alive:
        node.exited = 137
    job = anew(world.journal.load(world.state.settings).job, ScaleGoal(workers, servers), 7, found)
    world.state = State(world.state.settings, job)
    world.post(ev.Started(world.now, 7))
    world.post(ev.Attached(world.now, 1))
    return world


def manifest_of(saved):
    return saved.url, saved.manifest


@pytest.mark.parametrize("phase", [None, Phase.REGISTERED, Phase.ASSIGNED, Phase.ARMED])
def test_it_goes_on_from_its_checkpoint_with_names_that_nobody_had(phase):
    world, saved = trained()
    if phase is not None:
        world.ask(ev.ScaleAsked, 3, 2)
        world.until(phase)
    before = world.state.job
    begin_again(world, manifest_of(saved))
    world.settle()
    job = world.state.job
    assert (job.phase, job.term, world.counts) == (JobPhase.RUNNING, 7, (1, 2)), world.describe()
    assert not job.members.keys() & before.nodes.keys()
    assert job.number > before.number
    assert job.plans > before.plans
    assert (job.model.tensors, job.data, job.seed) == (TENSORS, DATA, before.seed)
    (void,) = job.voids
    assert (void.term, void.version) == (7, saved.manifest.version)


def test_a_job_that_was_ended_begins_again():
    world, saved = trained()
    world.ask(ev.StopAsked, True, "suspended")
    assert world.state.job.ended
    begin_again(world, manifest_of(saved))
    world.settle()
    assert (world.state.job.phase, world.counts) == (JobPhase.RUNNING, (1, 2)), world.describe()


def test_what_was_never_saved_does_not_count():
    world = World(2, 1)
    begin_again(world, None)
    job = world.state.job
    assert (job.model.tensors, job.optimizers, job.data, job.configuration) == ((), (), None, None)
    assert not job.voids[-1].kept(1, 0, ((0, 1),))
    world.settle()
    assert {node.role for node in world.alive} == set(Role)
    assert world.state.job.phase is not JobPhase.FAILED


def test_from_nothing_it_saves_at_versions_that_it_saved_before():
    world, saved = trained()
    before = world.state.job.saves
    begin_again(world, None)
    assert (before, world.state.job.saves) == (saved.manifest.version, 0)


def test_which_batches_are_done_is_what_the_checkpoint_says():
    world, saved = trained(data=ASYNC)
    begin_again(world, manifest_of(saved))
    assert world.state.job.voids[-1].floors == saved.manifest.floors == ((0, len(saved.manifest.blocks), 3),)
