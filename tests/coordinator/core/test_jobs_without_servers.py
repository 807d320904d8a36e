"""Jobs whose workers all-reduce: the core has plans and ledger for them, and no servers, ever."""

import pytest

from coordinator.core import events as ev
from coordinator.core.job import JobPhase
from coordinator.core.plans.plan import Phase, PlanKind
from elastic_ps.core.configuration import NO_CONFIGURATION, Role
from tests.coordinator.played_job import World, text


def test_it_starts_and_trains_without_servers():
    world = World(2, 0)
    job = world.state.job
    assert job.phase is JobPhase.RUNNING
    assert [worker.id for worker in job.configuration.workers] == ["w0", "w1"]
    assert job.configuration.servers == ()
    assert job.model.blocks
    assert job.optimizers, "nobody has to try it"


def test_its_workers_scale_and_servers_are_refused():
    world = World(2, 0)
    world.ask(ev.ScaleAsked, 3)
    world.settle()
    assert world.state.history[-1].phase is Phase.COMMITTED
    assert len(world.state.job.configuration.workers) == 3
    assert text(world.ask(ev.ScaleAsked, 0, 1)).startswith("this job has no servers, and gets none")
    world.ask(ev.ScaleAsked, 1)
    world.settle()
    assert len(world.state.job.configuration.workers) == 1


def test_without_launcher_the_line_to_run_names_the_mode():
    """Without it the worker was refused."""
    world = World(2, 0, join_options="--coordinator h:1")
    line = "elasticrun --role worker --coordinator h:1 --mode all-reduce SCRIPT [ARGUMENTS]"
    assert world.ask(ev.ScaleAsked, 3).lines == (line,)


def test_members_are_told_of_the_latest_group_that_has_failed():
    world = World(3, 0)
    number = world.state.job.configuration.id
    told = []
    for name, group in (("w0", (number, 1)), ("w1", (number, 2)), ("w1", (NO_CONFIGURATION, 0))):
        world.post(ev.Reported(world.now, name, 0, group=group))
        told.append(world.state.failed_group)
    assert told == [(number, 1), (number, 2), (number, 1)]
    world.post(ev.Exited(world.now, world.node("w0").nonce, "w0", 1))
    assert world.state.failed_group == (NO_CONFIGURATION, 0)


@pytest.mark.parametrize(("workers", "joining", "leaving"), [(3, 1, ()), (1, 0, ("w1",))])
def test_a_dry_run_says_who_comes_and_goes(workers, joining, leaving):
    reply = World(2, 0).ask(ev.ScaleAsked, workers, dry_run=True)
    assert (reply.joining_workers, reply.leaving, reply.moves) == (joining, leaving, ())


@pytest.mark.parametrize("count", [1, 2])
def test_where_all_are_drained_a_member_stays_until_another_has_followed_it(count):
    world = World(count, 0)
    drained = [worker.id for worker in world.state.job.configuration.workers]
    for name in drained:
        world.ask(ev.DrainAsked, name)
    world.settle()
    plans = [plan for plan in world.state.history if plan.kind is PlanKind.SCALE]
    assert all(plan.phase is Phase.COMMITTED for plan in plans)
    roster = set(drained)
    for plan in plans:
        assert roster - set(plan.leavers), f"plan {plan.id} leaves nobody whom a joiner could follow"
        roster = roster - set(plan.leavers) | set(plan.joiners)
    assert roster == {worker.id for worker in world.state.job.configuration.workers}
    assert len(roster) == 1
    assert not roster & set(drained)


def test_the_drain_of_the_last_worker_is_over_when_it_is_out():
    """Another one comes first, by a plan of its own: the machine under the drained one may be switched off then."""
    world = World(1, 0)
    reply = world.ask(ev.DrainAsked, "w0")
    assert (reply.queued, reply.plan) == (True, 0)
    assert reply.request not in world.until(Phase.ARMED).requests
    while world.plan is not None and reply.request not in world.plan.requests:
        assert [request.number for request in world.state.job.goal.wishes] == [reply.request]
        world.turn()
    world.settle()
    assert "w0" not in world.state.job.members
    assert world.records[-1].requests == (reply.request,)
    assert world.records[-1].leavers == ("w0",)


def test_a_death_is_a_plan_of_the_survivors():
    world = World(3, 0)
    world.kill(world.node("w0"), -9)
    world.settle()
    deaths = [plan for plan in world.state.history if plan.kind is PlanKind.DEATH]
    assert [plan.phase for plan in deaths] == [Phase.COMMITTED]
    assert world.state.job.configuration.workers[0].id == "w1"


def test_its_workers_save_a_checkpoint_together():
    world = World(3, 0)
    world.ask(ev.CheckpointAsked, "/ckpt")
    written = world.saved()
    files = {entry["file"] for entry in written.manifest.blocks.values()}
    assert files == {"w0.bin", "w1.bin", "w2.bin"}
    assert world.state.job.checkpoints == (written.url,)
    assert world.state.saving is None


def test_a_death_while_it_is_saved_begins_the_checkpoint_anew_with_the_survivors():
    world = World(3, 0)
    world.ask(ev.CheckpointAsked, "/ckpt")
    first = world.state.saving
    assert first.clock is not None
    world.kill(world.node("w1"), -9)
    written = world.saved()
    assert {entry["file"] for entry in written.manifest.blocks.values()} == {"w0.bin", "w2.bin"}
    assert written.manifest.version > first.clock, "what w0 answers to the first order is of other parts"
    world.settle()


def test_when_all_workers_have_died_it_goes_back_to_its_checkpoint():
    world = World(2, 0)
    world.ask(ev.CheckpointAsked, "/ckpt")
    written = world.saved()
    for name in ("w0", "w1"):
        world.kill(world.node(name), -9)
    world.launcher()
    assert world.state.job.loading
    world.post(ev.CheckpointFound(world.now, written.url, written.manifest))
    world.settle()
    job = world.state.job
    assert (job.phase, job.term) == (JobPhase.RUNNING, 2)
    assert [(void.term, void.version) for void in job.voids] == [(2, written.manifest.version)]
    starts = [plan for plan in world.state.history if plan.kind is PlanKind.START]
    assert starts[-1].restore == written.url


def test_without_a_checkpoint_it_fails_when_all_workers_have_died():
    world = World(2, 0)
    for name in ("w0", "w1"):
        world.kill(world.node(name), -9)
    world.settle()
    assert world.state.job.phase is JobPhase.FAILED
    assert world.state.job.reason.endswith(
        "start jobs with --checkpoint URL --checkpoint-interval SECONDS to survive this"
    )


def test_nothing_is_saved_once_workers_have_finished():
    world = World(2, 0)
    world.report(world.node("w0"), finished=True)
    assert text(world.ask(ev.CheckpointAsked, "/ckpt")).startswith("there is nothing more to save")


def test_who_is_of_the_other_mode_is_refused():
    world = World(1, 0)
    assert text(world.ask(ev.Joined, Role.SERVER, "h", 1, 1, "n1")) == (
        "this job has no servers, and gets none: its workers all-reduce"
    )
    assert text(world.ask(ev.Joined, Role.WORKER, "h", 0, 1, "n2")).endswith("start it with --mode all-reduce")
    world = World(1, 1)
    assert text(world.ask(ev.Joined, Role.WORKER, "h", 1, 1, "n3")).endswith("without --mode")


def test_a_drain_of_the_last_worker_whose_plan_is_given_up_is_not_told_as_done():
    """The plan before, by which another worker comes, does not bring it about, and so does not tell of it."""
    world = World(1, 0)
    asked = world.ask(ev.DrainAsked, "w0")
    world.ask(ev.CancelAsked)
    world.settle()
    assert "w0" in world.state.job.members
    assert world.state.job.withdrawn[asked.request].startswith("given up with plan 2: ")
