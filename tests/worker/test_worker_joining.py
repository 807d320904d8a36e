"""How a worker comes to the job's parameters, whatever breaks on the way: first values, a restored job, a shadow."""

import numpy as np
import pytest
from played_server import ALL, BLOCK_BYTES, MODEL, S0, S1, SPLIT, TENSORS, value
from worker_harness import ONE, THREE, TWO, Aside, Play

from elastic_ps.core import codec
from elastic_ps.core.errors import ConfigurationError
from elastic_ps.transport.frames import Kind
from elastic_ps.transport.memory import Action, Fault
from elastic_ps.worker.parameters import First, declare, enter, follow
from protos import elastic_pb2 as pb

MODEL_KEYS = [tensor.key for tensor in TENSORS]


@pytest.fixture
def joiner():
    made = Play(node="w2")
    yield made
    made.close()


def first_value(key):
    return np.concatenate([value(0, block) for block in MODEL.blocks_of[MODEL.index[0, key]]])


def declaring(play, workers=("w0", "w1"), keys=MODEL_KEYS):
    """A job at its start whose script has initialized `keys`, and where the model has been declared."""
    play.begin(workers)
    tensors = [codec.tensor_to_pb(tensor) for tensor in TENSORS]
    play.session.declared = lambda _request: pb.DeclareReply(tensors=tensors, assignment=SPLIT, warnings=["lr differs"])
    return Aside(declare, play.node, pb.DeclareRequest(), First(set(keys), first_value))


def given(server):
    """The first values that a server was given: by block."""
    found = {}
    for item in server.of(Kind.INIT):
        ((first, count),) = item.frame.runs
        parts = [item.data[number * BLOCK_BYTES : (number + 1) * BLOCK_BYTES] for number in range(count)]
        found.update(zip(range(first, first + count), parts, strict=True))
    return found


def asked(server):
    return [
        block
        for item in server.of(Kind.PULL)
        for first, count in item.frame.runs
        for block in range(first, first + count)
    ]


def test_the_chief_gives_first_values_and_takes_what_the_servers_then_hold(play):
    running = declaring(play)
    for server, blocks in zip(play.servers.values(), (S0, S1), strict=True):
        server.await_frames(Kind.PULL)
        assert given(server) == {block: value(0, block).tobytes() for block in blocks}
        assert asked(server) == blocks
        assert not running.ended
        server.answer(0, blocks, ONE)
    assert running.result() == ["lr differs"]
    assert play.holds(0)


def test_another_worker_only_takes(play):
    running = declaring(play, workers=("w1", "w0"))
    for server, blocks in zip(play.servers.values(), (S0, S1), strict=True):
        server.await_frames(Kind.PULL)
        server.answer(0, blocks, ONE)
    running.result()
    assert not any(server.of(Kind.INIT) for server in play.servers.values())


def test_a_worker_that_is_ahead_does_not_hold_up_the_chief(play):
    """Its next key is in the tables already; the chief comes to it in its own time."""
    running = declaring(play, keys=MODEL_KEYS[:1])
    s0, s1 = play.servers.values()
    s0.await_frames(Kind.PULL)
    assert given(s0).keys() == {0, 1}
    assert asked(s0) == [0, 1]
    s0.answer(0, [0, 1], ONE)
    running.result()
    assert not s1.received[1:]  # than the NOTICE


@pytest.mark.parametrize("workers", [("w0", "w1"), ("w1", "w0")])
def test_other_keys_than_another_workers_are_refused(play, workers):
    running = declaring(play, workers, keys=MODEL_KEYS[2:])
    rank = workers.index("w0")
    with pytest.raises(
        ConfigurationError, match=rf"key 0: another .* in kvstore 0 where this one \(rank {rank}\) .* 2;"
    ):
        running.result()


def test_a_restored_job_takes_a_new_key_that_comes_first(play):
    play.node.inherited = True
    running = declaring(play, ("w1", "w0"), keys=MODEL_KEYS[2:])
    for server, block in zip(play.servers.values(), (4, 5), strict=True):
        server.await_frames(Kind.PULL)
        server.answer(0, [block], ONE)
    assert running.result() == ["lr differs"]
    assert not any(given(server) for server in play.servers.values())


@pytest.mark.parametrize(("kind", "sender"), [(Kind.INIT, "w0"), (Kind.PULL, "w0"), (Kind.VALUE, "s0")])
def test_a_connection_that_breaks_while_first_values_travel(play, kind, sender):
    s0, s1 = play.servers.values()
    with play.network.faults(Fault(Action.CUT, kind, sender=sender, receiver="s0" if sender == "w0" else "w0")):
        running = declaring(play)
        if kind is Kind.VALUE:
            s0.await_frames(Kind.PULL)
            s0.received.clear()
            s0.answer(0, S0, ONE)
        play.session.await_failed("s0")
    s0.await_frames(Kind.PULL)
    assert given(s0).keys() == set(S0)
    assert asked(s0)[-len(S0) :] == S0
    s0.answer(0, S0, ONE)
    s1.answer(0, S1, ONE)
    running.result()
    assert play.holds(0)


def test_who_becomes_chief_while_first_values_are_awaited_gives_them(play):
    running = declaring(play, workers=("w1", "w0"))
    s0, s1 = play.servers.values()
    s0.await_frames(Kind.PULL)
    alone = play.table(2, SPLIT, workers=("w0",))
    play.prepare(alone)
    play.adopt(alone)
    for server, blocks in ((s0, S0), (s1, S1)):
        server.await_frames(Kind.PULL, number=TWO)
        assert given(server).keys() == set(blocks)
        server.answer(0, blocks, TWO)
    running.result()


def test_a_restored_job_begins_at_its_checkpoints_version(play):
    play.direct(welcome=pb.Welcome(tensors=[codec.tensor_to_pb(tensor) for tensor in TENSORS]))
    table = play.table(1, SPLIT)
    play.prepare(table)
    play.adopt(table)
    s0, s1 = play.servers.values()
    with play.network.faults(Fault(Action.CUT, Kind.VALUE, sender="s1")):
        running = Aside(enter, play.node)
        s0.await_frames(Kind.PULL)
        s1.await_frames(Kind.PULL)
        s0.answer(40, S0, ONE)
        s1.answer(40, S1, ONE)
        s1.await_connections(2)
    s1.await_frames(Kind.PULL, 2)
    s1.answer(40, S1, ONE)
    running.result()
    assert play.holds(40)


# ---- shadows -----------------------------------------------------------------------------------------------------


def joining(play, number=2):
    """Its plan: workers w0, w1 and now w2."""
    table = play.table(number, SPLIT, workers=("w0", "w1", "w2"))
    play.prepare(table)
    return table


def test_a_shadow_follows_the_job_and_is_a_member_from_the_clock(joiner):
    joiner.welcome(joiner.table(1, SPLIT))
    table = joining(joiner)
    s0, s1 = joiner.servers.values()
    for server in (s0, s1):
        assert len(server.await_frames(Kind.SUBSCRIBE, number=ONE)) == 1
    entering = Aside(enter, joiner.node)
    s0.answer(7, S0, ONE)
    s1.answer(8, S1, ONE)  # a step ahead
    assert not entering.ended
    s0.answer(8, S0, ONE)
    entering.result()
    assert joiner.holds(8)
    following = Aside(follow, joiner.node)
    assert joiner.session.await_answer(pb.SYNCED, TWO).version == 8
    joiner.arm(table, clock=10)
    assert joiner.session.await_answer(pb.ARMED, TWO).version == 8
    for version in (9, 10):
        s0.answer(version, S0, ONE)
    s0.say(Kind.NOTICE, TWO)
    joiner.session.await_answer(pb.SWITCHED, TWO)
    assert not following.ended  # it is a member of a job at version 10, and holds 8
    for version in (9, 10):
        s1.answer(version, S1, TWO)
    following.result()
    assert joiner.holds(10)
    assert joiner.node.is_member


def test_a_shadow_whose_subscription_was_lost_asks_again(joiner):
    joiner.welcome(joiner.table(1, SPLIT))
    s0, s1 = joiner.servers.values()
    with joiner.network.faults(Fault(Action.CUT, Kind.SUBSCRIBE, receiver="s1")):
        joining(joiner)
        s1.await_connections(2)
    s1.await_frames(Kind.SUBSCRIBE)
    entering = Aside(enter, joiner.node)
    s0.answer(3, S0, ONE)
    s1.answer(3, S1, ONE)
    entering.result()
    assert joiner.holds(3)


def test_a_shadow_subscribes_at_a_server_that_could_not_be_reached_at_first(joiner):
    joiner.welcome(joiner.table(1, SPLIT))
    s1 = joiner.servers["s1"]
    s1.stop_listening()
    joining(joiner)
    joiner.session.await_failed("s1")
    s1.listen_again()
    (subscription,) = s1.await_frames(Kind.SUBSCRIBE)
    assert subscription.frame.configuration == ONE


def test_a_shadow_skips_versions_that_passed_while_a_connection_was_broken(joiner):
    joiner.welcome(joiner.table(1, SPLIT))
    table = joining(joiner)
    s0, s1 = joiner.servers.values()
    entering = Aside(enter, joiner.node)
    s0.answer(3, S0, ONE)
    s1.answer(3, S1, ONE)
    entering.result()
    following = Aside(follow, joiner.node)
    joiner.session.await_answer(pb.SYNCED, TWO)
    s1.connections[-1].close()
    s0.answer(4, S0, ONE)
    s0.answer(5, S0, ONE)
    s1.await_connections(2)
    s1.answer(5, S1, ONE)  # a server sends what it has, not what it had
    joiner.arm(table, clock=5)
    joiner.adopt(table)
    following.result()
    assert joiner.holds(5)


def test_a_joiner_that_waited_for_its_plan_follows_what_came_into_force_meanwhile(joiner):
    """It registers under configuration 1, another plan brings 2, its own is 3."""
    joiner.welcome(joiner.table(1, [0] * 6, servers=("s0",)))
    joiner.welcome(joiner.table(2, SPLIT))
    table = joining(joiner, number=3)
    s0, s1 = joiner.servers.values()
    for server in (s0, s1):
        server.await_frames(Kind.SUBSCRIBE, number=TWO)
    entering = Aside(enter, joiner.node)
    s0.answer(5, S0, TWO)
    s1.answer(5, S1, TWO)
    entering.result()
    joiner.adopt(table)
    assert joiner.node.configuration == table


def test_a_shadow_whose_plan_was_cancelled_starts_again_from_the_tables_that_came_after(joiner):
    joiner.welcome(joiner.table(1, [0] * 6, servers=("s0",)))
    first = joiner.table(2, [0] * 6, workers=("w0", "w1", "w2"), servers=("s0",))
    joiner.prepare(first)
    s0, s1 = joiner.servers.values()
    s0.await_frames(Kind.SUBSCRIBE, number=ONE)
    entering = Aside(enter, joiner.node)
    s0.answer(4, ALL, ONE)
    entering.result()
    joiner.direct(cancel=pb.CancelPlan(configuration=pb.ConfigId(term=1, number=2), reason="a death"))
    joiner.session.await_answer(pb.CANCELLED, TWO)
    joiner.welcome(joiner.table(3, SPLIT))  # and its blocks have moved on, unseen
    table = joining(joiner, number=4)
    following = Aside(follow, joiner.node)
    for server in (s0, s1):
        server.await_frames(Kind.SUBSCRIBE, number=THREE)
    s0.answer(9, S0, THREE)
    joiner.await_missing(9, S1)
    assert not any(answer.answer == pb.SYNCED for answer in joiner.session.answers)  # it holds nothing yet
    s1.answer(9, S1, THREE)
    joiner.session.await_answer(pb.SYNCED, table.id)
    joiner.adopt(table)
    following.result()
    assert joiner.holds(9)


def test_a_member_takes_no_table_from_a_welcome_that_it_has_not_prepared(play):
    play.start(SPLIT)
    play.welcome(play.table(5, [0] * 6))
    assert play.node.standing.number == ONE


def test_a_reconnected_member_learns_from_the_welcome_that_its_plan_was_decided(play):
    play.start(SPLIT)
    moved = play.table(2, [1] * 6)
    play.prepare(moved)
    play.welcome(moved)
    play.session.await_answer(pb.SWITCHED, TWO)
    assert play.node.configuration == moved


def test_a_plan_that_was_cancelled_is_not_prepared_again(play):
    play.start(SPLIT)
    moved = play.table(2, [1] * 6)
    play.prepare(moved)
    play.direct(cancel=pb.CancelPlan(configuration=codec.config_id_to_pb(TWO)))
    said = len(play.session.answers)
    play.direct(prepare=pb.Prepare(configuration=codec.configuration_to_pb(moved)))  # a late repetition
    play.direct(adopt=pb.Adopt(configuration=codec.config_id_to_pb(TWO)))
    assert [answer.answer for answer in play.session.answers[said:]] == [pb.CANCELLED]
    assert play.node.standing.number == ONE


def test_a_joiner_does_not_wait_for_a_clock_that_came_too_late(joiner):
    """Armed again for version 9 when somebody had switched at 5 already: nobody gets past 5 without the joiner."""
    joiner.welcome(joiner.table(1, SPLIT))
    table = joining(joiner)
    s0, s1 = joiner.servers.values()
    entering = Aside(enter, joiner.node)
    s0.answer(4, S0, ONE)
    s1.answer(4, S1, ONE)
    entering.result()
    following = Aside(follow, joiner.node)
    joiner.session.await_answer(pb.SYNCED, TWO)
    joiner.arm(table, clock=9)
    s0.answer(5, S0, ONE)
    s0.say(Kind.NOTICE, TWO)
    joiner.session.await_answer(pb.SWITCHED, TWO)
    assert not following.ended  # the other server may have more of the old configuration to say
    s1.answer(5, S1, ONE)
    s1.say(Kind.NOTICE, TWO)
    following.result()
    assert joiner.holds(5)
