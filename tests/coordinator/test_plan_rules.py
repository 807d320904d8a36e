"""Each rule of a plan, on a played job."""

import pytest
from played_job import DATA, TENSORS, World

from coordinator import effects as ef
from coordinator import events as ev
from coordinator.plan import Kind, Migration, Phase, Plan
from coordinator.transitions import TRANSITIONS, ImpossibleTransitionError, Trigger, advance
from elastic_ps.core.configuration import Role
from elastic_ps.core.model import Tensor


def sent(world, kind, node=None):
    return [
        e.directive
        for e in world.effects
        if isinstance(e, ef.Send) and isinstance(e.directive, kind) and node in (None, e.node)
    ]


def text(reply) -> str:
    assert isinstance(reply, ef.Refuse), f"not refused: {reply}"
    return reply.text


# ---- the table -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("phase", Phase)
@pytest.mark.parametrize("trigger", Trigger)
def test_a_pair_is_in_the_table_or_raises_with_the_history(phase, trigger):
    plan = advance(Plan(7, Kind.SCALE, "operator", 1.0), Trigger.COMPLETE, 2.0)
    plan = Plan(**{**plan.__dict__, "phase": phase})
    rows = [row for row in TRANSITIONS if (row.source, row.trigger) == (phase, trigger)]
    if rows:
        assert advance(plan, trigger, 3.0).phase is rows[0].target
        assert len(rows) == 1
    else:
        with pytest.raises(ImpossibleTransitionError, match=r"plan 7 .*complete -> ASSIGNED at 2\.000"):
            advance(plan, trigger, 3.0)


def test_an_armed_plan_has_no_way_to_be_cancelled():
    assert not [row for row in TRANSITIONS if row.source is Phase.ARMED and row.target is Phase.CANCELLED]


# ---- start -----------------------------------------------------------------------------------------------------------


def test_a_job_starts_when_the_expected_have_registered():
    world = World(2, 2, declare=False)
    for role in (Role.WORKER, Role.SERVER, Role.SERVER):
        world.spawn(role)
    assert world.plan.phase is Phase.REGISTERED
    world.spawn(Role.WORKER)
    assert world.plan.phase is Phase.ASSIGNED
    assert world.plan.number == (1, 1)
    world.settle()
    assert world.counts == (2, 2)
    assert [plan.kind for plan in world.records] == [Kind.START]


def test_registration_is_idempotent_by_nonce():
    world = World(declare=False)
    node = world.spawn(Role.WORKER)
    again = world.ask(ev.Joined, Role.WORKER, "127.0.0.1", 0, 1, node.nonce)
    assert again.node == node.id
    assert list(world.state.job.nodes) == [node.id]


def test_a_start_goes_on_without_the_late_and_names_them():
    world = World(3, 1, declare=False)
    world.replace_dead = False
    for role in (Role.WORKER, Role.SERVER):
        world.spawn(role)
    world.settle()
    assert world.counts == (1, 1)
    assert world.records[0].missing == ("2 workers",)
    assert world.state.job.goal.workers == 1


def test_a_start_waits_for_one_of_each_and_says_so():
    world = World(1, 1, declare=False)
    world.spawn(Role.WORKER)
    world.tick(31)
    assert world.plan.phase is Phase.REGISTERED
    assert "1 server" in world.state.job.reason


# ---- scale -----------------------------------------------------------------------------------------------------------


def test_joins_and_leaves_go_in_one_plan():
    world = World(3, 1)
    world.ask(ev.ScaleAsked, 1, 3)
    world.settle()
    assert world.counts == (1, 3)
    plan = world.records[-1]
    assert (plan.id, set(plan.joiners), set(plan.leavers)) == (2, {"s1", "s2"}, {"w1", "w2"})
    assert plan.suspension["w0"] == 1.5
    assert sum(plan.moved.values()) > 0
    times = plan.times
    assert plan.started <= times.assigned <= times.prepared <= times.first_switched <= times.last_switched


def test_workers_leave_from_the_highest_rank_and_servers_by_bytes():
    world = World(3, 3)
    loads = {s: len(blocks) for s, blocks in world.state.job.configuration.blocks_of.items()}
    world.ask(ev.ScaleAsked, 2, 2)
    world.settle()
    plan = world.records[-1]
    sizes = {s: sum(64 for _ in range(loads[s])) for s in loads}
    least = min(sizes.values())
    gone = next(node for node in plan.leavers if node.startswith("s"))
    assert sizes[gone] == least
    assert "w2" in plan.leavers


def test_a_named_node_leaves_and_rank_0_may():
    world = World(2, 2)
    assert world.ask(ev.DrainAsked, "w0").plan == 2
    world.settle()
    assert world.state.job.configuration.chief == "w1"
    assert world.state.job.goal.workers == 1


def test_a_workers_plan_moves_no_block():
    world = World(2, 3)
    before = world.state.job.configuration.assignment
    world.ask(ev.ScaleAsked, 1, 0)
    world.settle()
    assert world.state.job.configuration.assignment == before


def test_a_node_that_asks_to_leave_is_drained():
    world = World(2, 2)
    world.ask(ev.LeaveAsked, "s0", Role.SERVER)
    world.settle()
    assert world.counts == (2, 1)
    assert world.records[-1].cause == "s0 asked to leave"


def test_a_node_that_registers_by_itself_is_a_wish():
    world = World(2, 1)
    node = world.spawn(Role.WORKER)
    world.settle()
    assert node.id in world.state.job.configuration.ranks
    assert world.records[-1].cause == f"{node.id} registered"


def test_a_plan_without_launcher_says_what_to_run():
    world = World(1, 1, join_command="run {role}")
    reply = world.ask(ev.ScaleAsked, 2, 3)
    assert sorted(reply.lines) == ["run server", "run server", "run worker"]
    world.settle()
    world.post(ev.Attached(world.now, 1))
    assert not world.ask(ev.ScaleAsked, 3, 3).lines


def test_join_timeout_goes_on_without_the_missing():
    world = World(1, 1)
    world.replace_dead = False
    world.ask(ev.ScaleAsked, 3, 0)
    world.spawn(Role.WORKER)
    world.settle()
    assert world.counts == (2, 1)
    assert world.records[-1].missing == ("1 worker",)


def test_join_timeout_with_nobody_cancels_and_says_who():
    world = World(1, 1)
    world.replace_dead = False
    world.ask(ev.ScaleAsked, 1, 2)
    world.settle()
    assert world.counts == (1, 1)
    assert world.records[-1].phase is Phase.CANCELLED
    assert "not registered within 30 s: 1 server" in world.records[-1].reason
    assert world.wanted.starting_servers == 0


def test_dry_run_changes_nothing_and_shows_the_moves():
    world = World(2, 1)
    before = world.state.job
    reply = world.ask(ev.ScaleAsked, 2, 2, dry_run=True)
    assert world.state.job == before
    assert reply.bytes_to_move == sum(move.bytes for move in reply.moves) > 0
    assert {move.source for move in reply.moves} == {"s0"}
    assert reply.seconds_estimated > 0


def test_the_latest_request_waits_in_the_queue():
    world = World(1, 1)
    world.ask(ev.ScaleAsked, 2, 0)
    assert world.ask(ev.ScaleAsked, 4, 0).queued
    assert world.ask(ev.ScaleAsked, 3, 2).queued
    world.settle()
    assert world.counts == (3, 2)
    assert [plan.phase for plan in world.records] == [Phase.COMMITTED] * 3


def test_no_wait_refuses_while_a_plan_runs():
    world = World(1, 1)
    world.ask(ev.ScaleAsked, 2, 0)
    assert "plan 2 is under way (REGISTERED)" in text(world.ask(ev.ScaleAsked, 3, 0, queue=False))
    assert "under way" in text(world.ask(ev.DrainAsked, "w0", queue=False))


def test_a_scale_to_what_is_makes_no_plan():
    world = World(2, 1)
    reply = world.ask(ev.ScaleAsked, 2, 1)
    assert (reply.plan, reply.queued) == (0, False)


@pytest.mark.parametrize(
    ("event", "arguments", "says"),
    [
        (ev.ScaleAsked, (1, 100), "the model has only 36 blocks"),
        (ev.DrainAsked, ("w9",), "no node named 'w9'"),
        (ev.DrainAsked, ("s0",), "the last server"),
        (ev.LeaveAsked, ("w0", Role.WORKER), "the last worker"),
        (ev.LeaveAsked, ("w0", Role.SERVER), "w0 is a worker"),
        (ev.CancelAsked, (), "no plan is under way"),
        (ev.CheckpointAsked, (), "no folder for checkpoints"),
    ],
)
def test_refusals_say_what_is_wrong(event, arguments, says):
    world = World(1, 1)
    before = world.state.job
    assert says in text(world.ask(event, *arguments))
    assert world.state.job == before


# ---- static data, local updates --------------------------------------------------------------------------------------


def static_world(workers=2, servers=1, **named):
    world = World(workers, servers, declare=False)
    world.settle()
    world.declare(world.node("w0"), TENSORS, **named)
    world.settle()
    return world


def test_static_data_refuses_workers_with_the_lines_that_help_and_lets_servers_scale():
    world = static_world()
    for event, arguments in ((ev.ScaleAsked, (3, 0)), (ev.ScaleAsked, (1, 0)), (ev.DrainAsked, ("w1",))):
        assert "sampler = elastic_ps.Sampler" in text(world.ask(event, *arguments))
    assert world.spawn(Role.WORKER).exited == 1
    world.ask(ev.ScaleAsked, 0, 3)
    world.settle()
    assert world.counts == (2, 3)


def test_a_dead_worker_of_static_data_is_not_replaced():
    world = static_world()
    world.kill(world.node("w1"))
    world.settle()
    assert world.counts == (1, 1)
    assert world.state.job.goal.workers == 1


def test_local_updates_refuse_joins_only():
    world = static_world(data=DATA, local_update=True)
    assert "update_on_kvstore=False" in text(world.ask(ev.ScaleAsked, 3, 0))
    world.ask(ev.ScaleAsked, 1, 0)
    world.settle()
    assert world.counts == (1, 1)


def test_a_wish_from_before_the_data_is_known_ends_with_the_reason():
    world = World(1, 1, declare=False)
    world.settle()
    world.ask(ev.ScaleAsked, 2, 0)
    world.until(Phase.SYNCING)
    world.declare(world.node("w0"), TENSORS)
    world.settle()
    assert world.counts == (1, 1)
    assert "data: static" in world.records[-1].reason
    assert len(world.alive) == 2, "the joiner was sent home"


# ---- cancel ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("phase", [Phase.REGISTERED, Phase.ASSIGNED, Phase.SYNCING])
def test_an_operator_cancels_before_armed(phase):
    world = World(2, 1)
    world.ask(ev.ScaleAsked, 3, 2)
    world.until(phase)
    assert world.ask(ev.CancelAsked).plan == 2
    world.settle()
    assert world.counts == (2, 1)
    assert world.records[-1].reason == "cancelled by the operator"
    assert world.wanted.starting_workers == world.wanted.starting_servers == 0


def test_an_armed_plan_is_not_cancelled():
    world = World(2, 1)
    world.ask(ev.ScaleAsked, 3, 2)
    world.until(Phase.ARMED)
    assert "armed" in text(world.ask(ev.CancelAsked))
    world.settle()
    assert world.counts == (3, 2)


def test_a_process_started_for_a_withdrawn_wish_is_sent_home():
    world = World(2, 1)
    world.post(ev.Attached(world.now, 1))
    world.ask(ev.ScaleAsked, 3, 1)
    world.ask(ev.CancelAsked)
    late = world.spawn(Role.WORKER)
    world.settle()
    assert late.exited == 0
    assert world.counts == (2, 1)


@pytest.mark.parametrize("phase", [Phase.ASSIGNED, Phase.SYNCING])
@pytest.mark.parametrize("role", Role)
def test_a_joiner_that_dies_cancels_the_plan_and_the_wish_is_taken_up_again(phase, role):
    world = World(2, 1)
    world.ask(ev.ScaleAsked, 3, 2)
    world.until(phase)
    joiner = next(node for node in world.alive if node.role is role and node.id in world.plan.joiners)
    world.kill(joiner)
    world.settle()
    assert world.counts == (3, 2)
    assert joiner.id not in world.state.job.members
    cancelled = next(plan for plan in world.records if plan.phase is Phase.CANCELLED)
    assert f"{joiner.id} died while it joined" in cancelled.reason


def test_a_silent_joiner_is_dead_without_a_failed_exchange():
    world = World(2, 1)
    world.replace_dead = False
    world.ask(ev.ScaleAsked, 3, 1)
    joiner = world.spawn(Role.WORKER)
    for _ in range(24):
        for node in world.alive:
            if node is not joiner:
                world.report(node)
        world.tick()
    assert joiner.id not in world.state.job.nodes
    assert world.records[-1].phase is Phase.CANCELLED


def test_new_tensors_before_armed_cancel_and_the_wish_is_taken_up_again():
    world = World(2, 1)
    world.ask(ev.ScaleAsked, 3, 2)
    world.until(Phase.SYNCING)
    world.declare(world.node("w0"), [Tensor(0, "s:new", (4,), "float32")])
    world.settle()
    assert world.counts == (3, 2)
    assert [plan.phase for plan in world.records[1:]] == [Phase.CANCELLED, Phase.COMMITTED]
    assert len(world.state.job.configuration.assignment) == len(world.state.job.model.blocks)


def test_new_tensors_while_armed_decide_the_plan_at_once():
    world = World(2, 1)
    world.ask(ev.ScaleAsked, 3, 2)
    world.until(Phase.ARMED)
    world.declare(world.node("w0"), [Tensor(0, "s:new", (4,), "float32")])
    assert world.plan.decided
    assert sent(world, ef.Adopt)
    world.settle()
    assert world.counts == (3, 2)
    assert world.records[-1].phase is Phase.COMMITTED


# ---- the switch ------------------------------------------------------------------------------------------------------


def test_the_clock_is_a_step_boundary_ahead_of_every_version():
    world = World(2, 1)
    for _ in range(7):
        world.turn()
    world.ask(ev.ScaleAsked, 2, 2)
    plan = world.until(Phase.ARMED)
    assert plan.clock > max(node.version for node in world.alive)


def test_late_sets_a_later_clock_for_all_while_nobody_has_switched():
    world = World(2, 1)
    world.ask(ev.ScaleAsked, 2, 2)
    first = world.until(Phase.ARMED)
    world.post(ev.Late(world.now, "w0", first.number, first.clock + 5))
    assert world.plan.clock > first.clock + 5
    assert world.plan.rearms == 1
    assert {arm.clock for arm in sent(world, ef.Arm, "s0")} == {first.clock, world.plan.clock}
    second = world.plan
    world.post(ev.Late(world.now, "w1", first.number, first.clock + 1))
    assert world.plan == second, "an answer to the order before the last changes nothing"
    world.settle()


def test_from_the_first_switched_nobody_is_armed_any_more():
    world = World(2, 1)
    world.ask(ev.ScaleAsked, 2, 2)
    plan = world.until(Phase.ARMED)
    world.post(ev.Switched(world.now, "w0", plan.number, plan.clock))
    world.post(ev.Late(world.now, "w1", plan.number, plan.clock + 9))
    assert world.plan.clock == plan.clock
    adopt = ef.Adopt(plan.number)
    assert adopt not in sent(world, ef.Adopt, "w0")
    assert adopt in sent(world, ef.Adopt, "w1")
    assert adopt in sent(world, ef.Adopt, "s1")


def test_a_leavers_exit_is_a_switch():
    world = World(2, 1)
    world.ask(ev.DrainAsked, "w1")
    plan = world.until(Phase.ARMED)
    world.kill(world.node("w1"), 0)
    world.launcher()
    assert world.plan.decided
    assert sent(world, ef.Adopt, "w0")
    world.settle()
    assert world.counts == (1, 1)
    assert world.records[-1].id == plan.id
    assert world.records[-1].phase is Phase.COMMITTED


def test_committed_comes_after_the_first_step_of_the_new_configuration():
    world = World(1, 1)
    world.ask(ev.ScaleAsked, 1, 2)
    plan = world.until(Phase.ARMED)
    for name in ("w0", "s0", "s1"):
        world.post(ev.Switched(world.now, name, plan.number, plan.clock))
    assert world.state.job.configuration == plan.target
    assert world.plan.phase is Phase.ARMED, "frozen copies may still be needed"
    world.post(ev.Reported(world.now, "w0", plan.clock))
    assert world.plan is not None
    world.post(ev.Reported(world.now, "w0", plan.clock + 1))
    assert world.plan is None
    assert sent(world, ef.Committed, "s0")[-1].number == plan.number


def test_unanswered_directives_are_sent_again_by_the_tick_and_on_reconnect():
    world = World(1, 1)
    world.ask(ev.ScaleAsked, 1, 2)
    world.until(Phase.ASSIGNED)
    node = world.node("w0")
    node.inbox.clear()
    count = len(sent(world, ef.Prepare, "w0"))
    for _ in range(6):
        world.tick()
    assert len(sent(world, ef.Prepare, "w0")) > count
    count = len(sent(world, ef.Prepare, "w0"))
    world.listen(node)
    assert len(sent(world, ef.Prepare, "w0")) == count + 1
    world.settle()


def test_pause_mode_resumes_workers_when_every_block_has_arrived():
    world = World(2, 1)
    world.ask(ev.ScaleAsked, 2, 2, migration=Migration.PAUSE)
    plan = world.until(Phase.ARMED)
    assert plan.migration is Migration.PAUSE
    for name in ("w0", "w1", "s0", "s1"):
        world.post(ev.Switched(world.now, name, plan.number, plan.clock))
    assert not sent(world, ef.Resume)
    world.post(ev.Arrived(world.now, "s1", plan.number))
    assert len(sent(world, ef.Resume, "w0")) == len(sent(world, ef.Resume, "w1")) == 1
    assert not sent(world, ef.Resume, "s0")
    world.post(ev.Switched(world.now, "w0", plan.number, plan.clock, 12.5))
    world.post(ev.Reported(world.now, "w0", plan.clock + 1))
    assert world.plan is None
    world.post(ev.Switched(world.now, "w1", plan.number, plan.clock + 1, 13.5))
    assert world.records[-1].suspension == {"w0": 12.5, "w1": 13.5}, "a figure that comes late is not lost"


def test_a_server_that_falls_back_to_pause_is_in_the_record():
    world = World(1, 1)
    world.ask(ev.ScaleAsked, 1, 2)
    world.until(Phase.SYNCING)
    world.post(ev.Synced(world.now, "s1", world.plan.number, 0, "pause"))
    world.settle()
    assert world.records[-1].fell_back == ("s1",)


# ---- the end ---------------------------------------------------------------------------------------------------------


def test_the_job_ends_when_every_worker_has_finished():
    world = World(2, 1)
    world.report(world.node("w0"), finished=True)
    assert not world.state.job.ended
    world.post(ev.Exited(world.now, "", "w1", 0))
    assert world.state.job.phase == "finished"
    assert sent(world, type(world.state.job.nodes["s0"].stop), "s0")
    assert world.wanted.ended
    assert not world.wanted.failed


def test_a_finishing_job_takes_no_plan():
    world = World(2, 1)
    world.report(world.node("w0"), finished=True)
    assert "finishing" in text(world.ask(ev.ScaleAsked, 3, 0))
    assert world.wanted.starting_workers == 0


def test_a_worker_that_crashes_after_the_last_step_fails_the_job_by_name():
    world = World(2, 1)
    world.report(world.node("w0"), finished=True)
    world.kill(world.node("w1"), 1)
    world.launcher()
    assert world.state.job.phase == "failed"
    assert "w1: exit status 1" in world.state.job.reason


def test_stop_ends_the_job_and_refuses_newcomers():
    world = World(1, 1)
    world.ask(ev.StopAsked)
    assert world.wanted.ended
    assert "has ended" in text(world.ask(ev.Joined, Role.WORKER, "h", 0, 1, "new"))
