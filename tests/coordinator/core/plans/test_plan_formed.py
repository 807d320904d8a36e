"""How a plan begins: at the start of a job, and where an operator or a node wishes for other numbers."""

import pytest

from coordinator.core import effects as ef
from coordinator.core import events as ev
from coordinator.core.plans.plan import Phase, PlanKind
from elastic_ps.core.configuration import Role
from elastic_ps.core.model import Tensor
from tests.coordinator.core.nodes.troubled_jobs import passing, unreplaced
from tests.coordinator.played_job import ASYNC, DATA, OPTIMIZER, TENSORS, World, text

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
    assert [plan.kind for plan in world.records] == [PlanKind.START]


def test_registration_is_idempotent_by_nonce():
    world = World(declare=False)
    node = world.spawn(Role.WORKER)
    again = world.ask(ev.Joined, Role.WORKER, "127.0.0.1", 0, 1, node.nonce)
    assert again.node == node.id
    assert list(world.state.job.nodes) == [node.id]


def test_another_process_of_the_same_nonce_joins_when_the_first_one_is_gone():
    """Its machine came back, and `--nonce-prefix` is in a unit of it: it has nothing of what the first one had."""
    world = unreplaced(3, 1)
    nonce = world.node("w1").nonce
    for host, port, pid in (("127.0.0.1", 0, 2), ("127.0.0.2", 0, 1), ("127.0.0.1", 5, 1)):
        refused = world.ask(ev.Joined, Role.WORKER, host, port, pid, nonce)
        assert f"w1 (pid 1 on 127.0.0.1) has joined this job as {nonce}" in text(refused)
        assert refused.why is ef.Why.AGAIN
    for _ in range(16):
        passing(world, 1, "w1")
        joined = world.ask(ev.Joined, Role.WORKER, "127.0.0.1", 0, 2, nonce)  # it is no sign of life of the first one
    assert "w1" not in world.state.job.nodes
    assert joined.node == "w3"
    world.post(ev.Exited(world.now, nonce, "", 137))
    assert "w3" not in world.state.job.nodes, "its end counts, as it is the one that joined"


def test_the_end_of_a_process_that_was_refused_is_not_that_of_its_namesake():
    world = unreplaced(3, 1)
    nonce = world.node("w1").nonce
    world.ask(ev.Joined, Role.WORKER, "127.0.0.1", 0, 2, nonce)
    world.post(ev.Exited(world.now, nonce, "", 1))
    assert "w1" in world.state.job.nodes
    world.post(ev.Exited(world.now, nonce, "", 1))  # nobody else has come meanwhile
    assert "w1" in world.state.job.dead


def test_a_start_goes_on_without_the_late_and_names_them():
    world = World(3, 1, declare=False)
    world.replace_dead = False
    for role in (Role.WORKER, Role.SERVER):
        world.spawn(role)
    world.settle()
    assert world.counts == (1, 1)
    assert world.records[0].missing == ("2 workers",)
    assert world.state.job.goal.workers == 1
    (told,) = [line for line in world.logs if "not registered within" in line]
    late = "plan 1: not registered within 30 s: 2 workers"
    assert told == f"{late}: the job goes on without, and wants 1 worker, 1 server now"


def test_a_start_waits_for_one_of_each_and_says_so():
    world = World(1, 1, declare=False)
    world.spawn(Role.WORKER)
    world.silence(seconds=31)
    assert world.plan.phase is Phase.REGISTERED
    assert "1 server" in world.state.job.reason


def test_time_in_which_the_coordinator_did_not_run_is_no_time_to_join_in():
    """Nobody could register with it: it would want fewer nodes than were asked for, and end those that come."""
    world = World(1, 1)
    world.replace_dead = False
    world.ask(ev.ScaleAsked, 2, 0)
    world.tick()
    world.tick(60)
    assert world.plan.phase is Phase.REGISTERED
    world.spawn(Role.WORKER)
    world.settle()
    assert world.counts == (2, 1)


# ---- scale -----------------------------------------------------------------------------------------------------------


def test_launchers_are_told_who_does_not_belong_to_the_configuration_yet():
    world = World(1, 1)
    assert world.wanted.joining == ()
    world.ask(ev.ScaleAsked, 2, 0)
    node = world.spawn(Role.WORKER)
    assert world.wanted.joining == (node.id,)
    world.settle()
    assert world.counts == (2, 1)
    assert world.wanted.joining == ()


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


def test_a_joiner_that_asks_to_leave_in_its_first_step_and_dies_is_not_replaced():
    """It pushes other keys than all others, and so would the next one."""
    world = World(2, 1)
    world.ask(ev.ScaleAsked, 3, 0)
    world.until(Phase.ARMED)
    while "w2" not in world.state.job.members:
        world.turn()
    assert world.plan is not None, "it is not committed before its first step is made"
    world.ask(ev.LeaveAsked, "w2", Role.WORKER)
    world.kill(world.node("w2"))
    world.settle()
    assert world.counts == (2, 1)
    assert world.state.job.goal.workers == 2
    assert world.state.job.goal.drains == frozenset()


def test_a_node_that_registers_by_itself_is_a_wish():
    world = World(2, 1)
    node = world.spawn(Role.WORKER)
    world.settle()
    assert node.id in world.state.job.configuration.ranks
    assert world.records[-1].cause == f"{node.id} registered"


def test_a_plan_without_launcher_says_what_to_run():
    world = World(1, 1, join_options="--coordinator h:1")
    reply = world.ask(ev.ScaleAsked, 2, 3)
    line = "elasticrun --role {} --coordinator h:1"
    assert sorted(reply.lines) == [line.format("server")] * 2 + [f"{line.format('worker')} SCRIPT [ARGUMENTS]"]
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
    assert (reply.joining_workers, reply.joining_servers, list(reply.leaving)) == (0, 1, [])
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


# ---- what the data allows --------------------------------------------------------------------------------------------


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


@pytest.mark.parametrize("data", [DATA, None])
def test_more_servers_than_blocks_hold_up_only_those_that_join(data):
    world = World(2, 3, declare=False)
    world.settle()
    world.declare(world.node("w0"), [Tensor(0, "i:0", (4,), "float32")], data, optimizer=OPTIMIZER)
    world.settle()
    assert "4 servers, but the model has only 1 block," in text(world.ask(ev.ScaleAsked, 0, 4))
    if data is None:
        assert "sampler = elastic_ps.Sampler" in text(world.ask(ev.ScaleAsked, 3, 0))
        assert "sampler = elastic_ps.Sampler" in text(world.ask(ev.DrainAsked, "w0"))
    else:
        world.ask(ev.ScaleAsked, 3, 0)
        world.settle()
    world.ask(ev.DrainAsked, "s1")
    world.settle()
    assert world.counts == (2 if data is None else 3, 2)


def test_a_sync_step_has_a_sample_for_each_worker():
    world = World(2, 1)
    assert "a global batch of 10 samples" in text(world.ask(ev.ScaleAsked, 11, 0, dry_run=True))
    assert "a global batch of 10 samples" in text(world.ask(ev.ScaleAsked, 11, 0))
    reply = world.ask(ev.ScaleAsked, 10, 0)
    assert (reply.joining_workers, reply.joining_servers) == (8, 0)
    assert World(2, 1, data=ASYNC).ask(ev.ScaleAsked, 11, 0).joining_workers == 9


def test_an_accepted_request_says_who_leaves():
    assert World(3, 1).ask(ev.DrainAsked, "w0").leaving == ("w0",)


def test_a_dead_worker_of_static_data_is_not_replaced():
    world = static_world()
    world.kill(world.node("w1"))
    world.settle()
    assert world.counts == (1, 1)
    assert world.state.job.goal.workers == 1


def test_local_updates_refuse_joins_only():
    world = static_world(data=DATA, local_update=True)
    assert "its optimizers live in the workers" in text(world.ask(ev.ScaleAsked, 3, 0))
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


def test_a_joiner_that_is_dismissed_and_does_not_end_holds_up_no_other_plan():
    """It is told of its end alone, and answers to nothing that the job declares meanwhile."""
    world = World(2, 1)
    world.ask(ev.ScaleAsked, 3, 1)
    world.until(Phase.SYNCING)
    world.node("w2").frozen = True
    world.ask(ev.CancelAsked)
    world.declare(world.node("w0"), (Tensor(0, "i:new", (16,), "float32"),), DATA)
    world.ask(ev.ScaleAsked, 2, 2)
    for _ in range(6):
        world.turn()
    assert "w2" in world.state.job.nodes, "it has a lease yet"
    assert (world.state.job.plan, len(world.state.job.configuration.servers)) == (None, 2)
