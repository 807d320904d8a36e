"""Declarations: tensors, optimizers, data."""

from dataclasses import replace

import pytest

from coordinator.core import effects as ef
from coordinator.core import events as ev
from coordinator.core import node_answers as na
from coordinator.core import replies
from coordinator.core.job import StopOrder
from coordinator.core.plans.plan import Phase, Plan, PlanKind
from coordinator.core.protocol import step
from elastic_ps.core.data_order import DataSpec
from elastic_ps.core.model import Tensor
from elastic_ps.core.optimizer import OptimizerSpec
from tests.coordinator.played_job import ASYNC as ASYNC_JOB
from tests.coordinator.played_job import DATA, TENSORS, World

SGD = OptimizerSpec("sgd", {"momentum": 0.9}).to_json()


def started(workers=2, servers=2):
    world = World(workers, servers, declare=False)
    world.settle()
    return world


def answered(world, number):
    for _ in range(3):
        world.turn()
    return world.replies.get(number)


def test_a_declaration_is_answered_when_every_server_knows_it():
    world = started()
    assert world.declare(world.node("w0"), TENSORS, DATA, optimizer=SGD) is None
    for name, known in (("s0", False), ("s1", False), ("s0", False), ("w0", False), ("s1", True)):  # they try it first
        node = world.node(name)
        while node.inbox:
            world.hear(node)
        while node.outbox:
            world.speak(node)
        assert (world.asked in world.replies) == known
    reply = world.replies[world.asked]
    assert len(reply.tensors) == len(TENSORS)
    assert len(reply.assignment) == len(world.state.job.model.blocks)
    assert list(reply.optimizers) == [SGD]
    assert not reply.warnings


def test_nothing_is_taken_in_between_a_death_and_the_plan_without_the_dead():
    """Its tables had blocks that servers had not heard of, and all of them ended. Found by the world (843263)."""
    world = World(3, 2, data=ASYNC_JOB)
    world.settle()
    growth = world.state.job.growth
    world.ask(ev.ScaleAsked, 4, 0)
    world.until(Phase.ARMED)
    world.replace_dead = False
    for node in world.alive:
        if node.id != "w1":
            node.switch()
            while node.outbox:
                world.speak(node)
    world.declare(world.node("w0"), [Tensor(0, "i:late", (64,), "float32")], ASYNC_JOB, optimizer=SGD)
    asked = world.asked
    world.kill(world.node("w1"))
    world.launcher()
    assert world.plan.kind is PlanKind.DEATH
    assert world.state.job.growth == growth, "it waits"
    world.settle()
    assert world.state.job.growth == growth + 1
    assert asked in world.replies


def test_a_late_answer_to_an_extend_that_was_sent_twice_is_none_to_the_next():
    """Its stream was reset behind the first; what was declared since is still on its way to that server."""
    world = started()
    server, other = world.node("s0"), world.node("s1")
    world.declare(world.node("w0"), TENSORS[:4], DATA)
    world.hear(server)
    world.listen(server)  # anew
    world.hear(other)
    world.speak(server)
    world.speak(other)
    assert world.asked in world.replies
    world.declare(world.node("w1"), TENSORS, DATA)
    world.hear(other)
    world.speak(other)
    while not server.outbox:
        world.hear(server)
    world.speak(server)
    assert (len(server.tables[0]), world.asked in world.replies) == (4, False)
    while not server.outbox:
        world.hear(server)
    world.speak(server)
    assert (len(server.tables[0]), world.asked in world.replies) == (len(TENSORS), True)


def test_servers_are_balanced_and_known_blocks_stay():
    world = started()
    world.declare(world.node("w0"), TENSORS[:4], DATA)
    world.settle()
    before = world.state.job.configuration.assignment
    world.declare(world.node("w1"), TENSORS, DATA)
    world.settle()
    after = world.state.job.configuration.assignment
    assert after[: len(before)] == before
    loads = [after.count(server) for server in (0, 1)]
    assert max(loads) - min(loads) <= 1


def test_the_same_declaration_again_changes_nothing_and_is_answered():
    world = started()
    world.declare(world.node("w0"), TENSORS, DATA, optimizer=SGD)
    world.settle()
    before = world.state.job
    reply = world.declare(world.node("w1"), TENSORS, DATA, optimizer=SGD)
    assert len(reply.tensors) == len(TENSORS)
    assert world.state.job is before


def test_another_shape_is_an_error_that_names_the_key():
    world = started()
    world.declare(world.node("w0"), TENSORS, DATA)
    world.settle()
    before = world.state.job
    reply = world.declare(world.node("w1"), [Tensor(0, "i:2", (7,), "float32")], DATA)
    assert isinstance(reply, ef.Refuse)
    assert reply.why is ef.Why.INVALID
    assert "key 2: declared as (7,) float32" in reply.text
    assert world.state.job is before


def test_other_settings_of_an_optimizer_are_warnings_that_name_them_and_the_first_stay():
    world = started()
    world.declare(world.node("w0"), TENSORS, DATA, optimizer=SGD)
    world.settle()
    other = OptimizerSpec("sgd", {"momentum": 0.5}).to_json()
    reply = world.declare(world.node("w1"), TENSORS, DATA, optimizer=other)
    assert list(reply.warnings) == ["optimizer: args.momentum = 0.5 is ignored, the job has 0.9"]
    assert world.state.job.optimizers == (SGD,)


def test_parameter_groups_in_another_order_are_an_error_as_learning_rates_go_by_their_numbers():
    world = started()
    keys = [tensor.key for tensor in TENSORS[:3]]

    def told(*groups):
        grouped = {key: {"group": float(group)} for key, group in zip(keys, groups, strict=True) if group}
        return OptimizerSpec("torch.SGD", {}, grouped).to_json()

    world.declare(world.node("w0"), TENSORS, DATA, optimizer=told(0, 1, 2))
    world.settle()
    before = world.state.job
    reply = world.declare(world.node("w1"), TENSORS, DATA, optimizer=told(1, 0, 2))
    assert isinstance(reply, ef.Refuse)
    assert reply.why is ef.Why.INVALID
    assert f"parameter {keys[0][2:]} is in group 1 of this script's optimizer, and in group 0 of the" in reply.text
    assert world.state.job is before
    fewer = world.declare(world.node("w1"), TENSORS, DATA, optimizer=told(0, 1, 0))  # it updates one less, say
    assert len(fewer.tensors) == len(TENSORS)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"samples": 500, "global_batch": 20}, "data has samples 500, batch size 20, and the job's 1000, 10: give"),
        ({"last": "drop"}, "data has last 'drop', and the job's 'short'"),
        ({"loss": "mean"}, "data has loss 'mean', and the job's 'sum'"),
        ({"order": "given"}, "data has order 'given', and the job's 'shuffled'"),
        ({"exchanges": 2}, "data has exchanges of a step 2, and the job's 1"),
    ],
)
def test_other_data_is_an_error_as_workers_divide_it_by_their_own_scripts(changes, says):
    world = started()
    world.declare(world.node("w0"), TENSORS, DATA, optimizer=SGD)
    world.settle()
    before = world.state.job
    reply = world.declare(world.node("w1"), TENSORS, replace(DATA, **changes), optimizer=SGD)
    assert isinstance(reply, ef.Refuse)
    assert reply.why is ef.Why.INVALID
    assert says in reply.text
    assert world.state.job is before


def test_an_order_that_an_earlier_release_did_not_tell_is_the_next_scripts():
    world = started()
    for data in (replace(DATA, order=""), DATA):
        world.declare(world.node("w0"), TENSORS, data, optimizer=SGD)
        world.settle()
    assert world.state.job.data == DATA
    assert isinstance(world.declare(world.node("w1"), TENSORS, replace(DATA, order="given"), optimizer=SGD), ef.Refuse)


def test_another_rule_is_one_warning():
    world = started()
    world.declare(world.node("w0"), TENSORS, DATA, optimizer=SGD)
    world.settle()
    reply = world.declare(world.node("w1"), TENSORS, DATA, optimizer=OptimizerSpec("adam", {"beta1": 0.9}).to_json())
    assert list(reply.warnings) == ["optimizer adam is ignored, the job has sgd"]


def test_a_model_of_more_blocks_than_anybody_can_keep_is_refused_before_they_are_made():
    world = started()
    reply = world.declare(world.node("w0"), [Tensor(0, "i:9", (1 << 36,), "float32")])
    assert isinstance(reply, ef.Refuse)
    assert "more than 1048576: give larger --block-bytes" in reply.text
    assert not world.state.job.model.tensors


def test_each_store_has_its_optimizer():
    world = started()
    world.declare(world.node("w0"), TENSORS, DATA)
    world.settle()
    world.declare(world.node("w0"), [Tensor(2, "i:0", (4,), "float32")], store=2, optimizer=SGD)
    world.settle()
    assert world.state.job.optimizers == ("", "", SGD)


@pytest.mark.parametrize("text", ['{"name": 3', "[" * 100_000], ids=["cut off", "deep"])
def test_a_text_that_is_no_optimizer_is_refused(text):
    world = started()
    reply = world.declare(world.node("w0"), TENSORS, optimizer=text)
    assert isinstance(reply, ef.Refuse)
    assert "not an optimizer" in reply.text


def test_a_restarted_coordinator_asks_the_servers_again_before_it_answers():
    world = started()
    world.declare(world.node("w0"), TENSORS, DATA)
    world.kill_coordinator()
    assert world.declare(world.node("w0"), TENSORS, DATA) is None, "it does not know what the servers know"
    assert len(answered(world, world.asked).tensors) == len(TENSORS)


def test_static_data_gives_way_to_a_sampler():
    world = started()
    world.declare(world.node("w0"), TENSORS, DataSpec())
    world.settle()
    assert not world.state.job.elastic
    world.declare(world.node("w0"), [], DATA)
    world.settle()
    assert world.state.job.data == DATA
    world.declare(world.node("w1"), [], DataSpec())
    assert world.state.job.data == DATA


ASYNC = DataSpec(True, 1000, 10, consistency="async")
SSP = DataSpec(True, 1000, 10, consistency="ssp", staleness=2)
STATIC_ASYNC = DataSpec(consistency="async")


@pytest.mark.parametrize(
    ("known", "new", "says"),
    [
        (DATA, ASYNC, 'this worker\'s consistency is "async", but the job\'s is "sync"'),
        (ASYNC, SSP, 'this worker\'s consistency is "ssp" with staleness 2, but the job\'s is "async"'),
        (SSP, replace(SSP, staleness=3), 'is "ssp" with staleness 3, but the job\'s is "ssp" with staleness 2'),
        (STATIC_ASYNC, DataSpec(), 'is "sync", but the job\'s is "async"'),
        (DataSpec(), STATIC_ASYNC, 'is "async", but the job\'s is "sync"'),
        (STATIC_ASYNC, DATA, 'is "sync", but the job\'s is "async"'),
        (DATA, STATIC_ASYNC, 'is "async", but the job\'s is "sync"'),
    ],
)
def test_another_consistency_is_an_error(known, new, says):
    world = started()
    world.declare(world.node("w0"), TENSORS, known, optimizer=SGD)
    world.settle()
    reply = world.declare(world.node("w1"), TENSORS, new, optimizer=SGD)
    assert isinstance(reply, ef.Refuse)
    assert reply.why is ef.Why.INVALID
    assert says in reply.text
    assert world.state.job.data == known


def test_static_data_says_nothing_yet_about_a_samplers_consistency():
    world = started()
    world.declare(world.node("w0"), TENSORS, DataSpec(), optimizer=SGD)
    world.settle()
    world.declare(world.node("w0"), [], ASYNC)
    world.declare(world.node("w1"), [], DataSpec())
    world.settle()
    assert world.state.job.data == ASYNC


@pytest.mark.parametrize("data", [ASYNC, SSP, STATIC_ASYNC])
def test_without_a_common_step_only_servers_update(data):
    world = started()
    reply = world.declare(world.node("w0"), TENSORS, data, local_update=True)
    assert "let no worker run its own" in reply.text
    world.settle()
    assert not world.state.job.model.tensors


def test_without_a_common_step_a_sampler_needs_an_optimizer():
    world = started()
    reply = world.declare(world.node("w0"), TENSORS, ASYNC)
    assert "needs an optimizer on the servers" in reply.text
    assert "key store 0 has none" in reply.text
    moving = [Tensor(0, "s:mean", (4,), "float32", auxiliary=True)]
    assert world.declare(world.node("w0"), moving, ASYNC) is None, "nothing in it is trained"
    world.settle()
    assert world.state.job.data == ASYNC


def test_a_script_without_sampler_sets_its_optimizer_after_its_keys():
    world = started()
    world.declare(world.node("w0"), TENSORS, STATIC_ASYNC)
    world.settle()
    world.declare(world.node("w0"), [], STATIC_ASYNC, optimizer=SGD)
    world.settle()
    assert world.state.job.optimizers == (SGD,)


def test_a_command_runs_on_every_server_and_its_errors_are_named():
    world = started()
    assert world.ask(ev.CommandAsked, "w0", 4, 3, "body") is None
    run = world.state.running[0]
    assert run.waiting == {"s0", "s1"}
    world.post(na.Commanded(world.now, "s0", run.id))
    world.post(na.Commanded(world.now, "s0", run.id))
    assert world.asked not in world.replies
    world.post(na.Commanded(world.now, "s1", run.id, "no such handler"))
    assert "s1: no such handler" in world.replies[world.asked].text


def test_a_command_whose_handler_takes_long_is_sent_once_a_stream():
    world = started()
    world.ask(ev.CommandAsked, "w0", 4, 3, "body")
    for _ in range(18):  # 9 s
        for node in world.alive:
            world.report(node)
        world.tick(0.5)
    assert world.sent(ef.RunCommand, "s0") == [ef.RunCommand(4, 3, "body")]
    world.break_streams()
    world.listen(world.node("s0"))
    assert world.sent(ef.RunCommand, "s0") == [ef.RunCommand(4, 3, "body")] * 2


def test_an_answer_to_one_command_completes_no_other_after_a_restart():
    world = started()
    world.ask(ev.CommandAsked, "w0", 4, 1, "of w0")
    world.kill_coordinator()
    for node in world.alive:
        world.listen(node)
    world.ask(ev.CommandAsked, "w1", 5, 2, "of w1")
    second = world.asked
    for server in ("s0", "s1"):
        world.post(na.Commanded(world.now, server, 4))
    assert second not in world.replies
    world.ask(ev.CommandAsked, "w0", 4, 1, "of w0")  # it asks again: servers answer from memory
    for server in ("s0", "s1"):
        world.post(na.Commanded(world.now, server, 4))
    assert isinstance(world.replies[world.asked], replies.CommandReply)


def test_a_command_that_is_asked_for_again_answers_who_asked_last():
    world = started()
    world.ask(ev.CommandAsked, "w0", 4, 1, "body")
    first = world.asked
    world.post(na.Commanded(world.now, "s0", 4))
    world.ask(ev.CommandAsked, "w0", 4, 1, "body")
    world.post(ev.Withdrawn(world.now, first))
    world.post(na.Commanded(world.now, "s1", 4))
    assert isinstance(world.replies[world.asked], replies.CommandReply)


def test_a_command_before_the_first_commit_reaches_the_servers_that_scripts_have_adopted():
    world = started()
    first = world.state.job.configuration
    starting = Plan(1, PlanKind.START, "start", world.now, phase=Phase.ARMED, target=first, number=first.id)
    state = replace(world.state, job=replace(world.state.job, configuration=None, plan=starting))
    asking, _ = step(state, ev.CommandAsked(world.now, 7, "w0", 4, 3, "body"))
    assert asking.running[-1].waiting == {"s0", "s1"}


def test_who_has_been_told_to_end_is_not_left_waiting_for_its_declaration():
    """A joiner that declares while the job goes back to its checkpoint hung, and held up the start: found by a soak."""
    world = started()
    node = world.state.job.nodes["w1"]
    nodes = {**world.state.job.nodes, "w1": replace(node, stop=StopOrder("restored", restart=True))}
    world.state = replace(world.state, job=replace(world.state.job, nodes=nodes))
    reply = world.declare(world.node("w1"), TENSORS, DATA)
    assert reply.why is ef.Why.ENDING
    assert not world.state.declarations
    world.ask(ev.CommandAsked, "w1", 4, 1, "body")
    assert world.replies[world.asked].why is ef.Why.ENDING, "else its script would end with an error"
