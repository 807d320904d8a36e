"""How a shadow comes to the job's parameters, whatever breaks on the way, and when it is a member."""

import threading

import pytest

from elastic_ps.control import codec
from elastic_ps.core.data_order import DataSpec
from elastic_ps.core.errors import ConfigurationError
from elastic_ps.testing.frame_faults import FaultAction, FrameFault
from elastic_ps.transport.frame_kinds import Kind, Reason
from elastic_ps.transport.frame_metas import NoticeMeta
from elastic_ps.worker.wire.parameters import FirstValues, declare, enter, follow
from elastic_ps.worker.wire.worker_node import WorkerNode
from protos import elastic_pb2 as pb
from tests.elastic_ps.waiting import until
from tests.elastic_ps.worker.played_server import ALL, S0, S1, SPLIT, TENSORS, TIMEOUT
from tests.elastic_ps.worker.worker_harness import ONE, THREE, TWO, Aside, Play


@pytest.fixture
def joiner():
    made = Play(node="w2")
    yield made
    made.close()


def joining(play, number=2, prepared=True):
    """Its plan: workers w0, w1 and now w2."""
    configuration = play.configuration(number, SPLIT, workers=("w0", "w1", "w2"))
    if prepared:
        play.prepare(configuration)
    else:
        play.order_prepare(configuration)
    return configuration


def followed(node):
    """Follow the job; returns the version that it held when that was over."""
    follow(node)
    with node.changed:
        return node.version


def test_a_shadow_follows_the_job_and_is_a_member_from_the_clock(joiner):
    joiner.welcome(joiner.configuration(1, SPLIT))
    configuration = joining(joiner)
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
    following = Aside(followed, joiner.node)
    assert joiner.session.await_answer(pb.SYNCED, TWO).version == 8
    joiner.arm(configuration, clock=10)
    assert joiner.session.await_answer(pb.ARMED, TWO).version == 8
    for version in (9, 10):
        s0.answer(version, S0, ONE)
    s0.say(Kind.NOTICE, TWO)
    joiner.session.await_answer(pb.SWITCHED, TWO)
    assert not following.ended  # it is a member of a job at version 10, and holds 8
    for version in (9, 10):
        s1.answer(version, S1, ONE)  # what a server says under the new configuration comes behind all of the old
    s1.say(Kind.NOTICE, TWO)
    assert following.result() == 10, "it was a member before its values were whole"
    assert joiner.holds(10)
    assert joiner.node.is_member


def test_who_came_before_the_first_declaration_is_refused_with_another_model(joiner):
    """The job has one by the Welcome of its plan; it joined with less, and trained that."""
    joiner.welcome(joiner.configuration(1, ()), tensors=())
    joiner.welcome(joiner.configuration(1, SPLIT))
    joining(joiner)
    model = FirstValues({tensor.key for tensor in TENSORS[1:]}, lambda key: None, whole=True)
    with pytest.raises(ConfigurationError, match="the job has 0, which this script's model lacks: give all workers"):
        declare(joiner.node, pb.DeclareRequest(), model)


def test_a_shadow_reports_what_it_copies_until_it_holds_a_version(joiner):
    """Its coordinator waits for it as long as that grows; the steps after it tell nothing of its rehearsal."""
    joiner.welcome(joiner.configuration(1, SPLIT))
    joining(joiner)
    s0, s1 = joiner.servers.values()
    for server in (s0, s1):
        server.await_frames(Kind.SUBSCRIBE, number=ONE)
    node, copied = joiner.node, [0]
    entering = Aside(enter, node)
    for server, version, blocks in ((s0, 7, S0), (s1, 8, S1), (s0, 8, S0)):
        server.answer(version, blocks, ONE)
        with node.changed:
            assert node.changed.wait_for(lambda: node.report().copied > copied[-1], TIMEOUT)
        copied.append(node.report().copied)
    entering.result()
    Aside(follow, node)
    for server, blocks in ((s0, S0), (s1, S1)):
        server.answer(9, blocks, ONE)
    until(lambda: node.version == 9)
    assert node.report().copied == copied[-1]


def test_a_shadow_whose_subscription_was_lost_asks_again(joiner):
    joiner.welcome(joiner.configuration(1, SPLIT))
    s0, s1 = joiner.servers.values()
    with joiner.network.faults(FrameFault(FaultAction.CUT, Kind.SUBSCRIBE, receiver="s1")):
        joining(joiner)
        s1.await_connections(2)
    s1.await_frames(Kind.SUBSCRIBE)
    entering = Aside(enter, joiner.node)
    s0.answer(3, S0, ONE)
    s1.answer(3, S1, ONE)
    entering.result()
    assert joiner.holds(3)


def test_a_shadow_subscribes_once_on_a_connection_that_a_directive_sees_first(joiner):
    """A connection is known before its own thread says so: the Prepare that comes between subscribes on it."""
    opened, go_on, done = threading.Semaphore(0), threading.Event(), threading.Semaphore(0)

    def connected(server):
        opened.release()
        assert go_on.wait(TIMEOUT)
        WorkerNode.connected(joiner.node, server)
        done.release()

    joiner.node.connected = connected
    joiner.welcome(joiner.configuration(1, SPLIT))
    configuration = joining(joiner, prepared=False)
    assert all(opened.acquire(timeout=TIMEOUT) for _ in joiner.servers)
    joiner.order_prepare(configuration)
    joiner.session.await_answer(pb.PREPARED, configuration.id)
    go_on.set()
    assert all(done.acquire(timeout=TIMEOUT) for _ in joiner.servers)
    for name, server in joiner.servers.items():
        joiner.node.peers.send(name, joiner.node.frame(NoticeMeta()))
        server.await_frames(Kind.NOTICE)  # behind all that was sent before
        assert len(server.of(Kind.SUBSCRIBE)) == 1


def test_a_shadow_subscribes_at_a_server_that_could_not_be_reached_at_first(joiner):
    joiner.welcome(joiner.configuration(1, SPLIT))
    s1 = joiner.servers["s1"]
    s1.stop_listening()
    joining(joiner, prepared=False)
    joiner.await_apart("s1")
    s1.listen_again()
    (subscription,) = s1.await_frames(Kind.SUBSCRIBE)
    assert subscription.frame.configuration == ONE


def test_a_shadow_skips_versions_that_passed_while_a_connection_was_broken(joiner):
    joiner.welcome(joiner.configuration(1, SPLIT))
    configuration = joining(joiner)
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
    joiner.arm(configuration, clock=5)
    joiner.adopt(configuration)
    following.result()
    assert joiner.holds(5)


def test_a_joiner_that_waited_for_its_plan_follows_what_came_into_force_meanwhile(joiner):
    """It registers under configuration 1, another plan brings 2, its own is 3."""
    joiner.welcome(joiner.configuration(1, [0] * 6, servers=("s0",)))
    joiner.welcome(joiner.configuration(2, SPLIT))
    configuration = joining(joiner, number=3)
    s0, s1 = joiner.servers.values()
    for server in (s0, s1):
        server.await_frames(Kind.SUBSCRIBE, number=TWO)
    entering = Aside(enter, joiner.node)
    s0.answer(5, S0, TWO)
    s1.answer(5, S1, TWO)
    entering.result()
    joiner.adopt(configuration)
    assert joiner.node.configuration == configuration


def test_a_shadow_whose_plan_was_cancelled_starts_again_from_the_tables_that_came_after(joiner):
    joiner.welcome(joiner.configuration(1, [0] * 6, servers=("s0",)))
    first = joiner.configuration(2, [0] * 6, workers=("w0", "w1", "w2"), servers=("s0",))
    joiner.prepare(first)
    s0, s1 = joiner.servers.values()
    s0.await_frames(Kind.SUBSCRIBE, number=ONE)
    entering = Aside(enter, joiner.node)
    s0.answer(4, ALL, ONE)
    entering.result()
    joiner.direct(cancel=pb.CancelPlan(configuration=pb.ConfigId(term=1, number=2), reason="a death"))
    joiner.session.await_answer(pb.CANCELLED, TWO)
    joiner.welcome(joiner.configuration(3, SPLIT))  # and its blocks have moved on, unseen
    configuration = joining(joiner, number=4)
    following = Aside(follow, joiner.node)
    for server in (s0, s1):
        server.await_frames(Kind.SUBSCRIBE, number=THREE)
    s0.answer(9, S0, THREE)
    joiner.await_missing(9, S1)
    assert not any(answer.answer == pb.SYNCED for answer in joiner.session.answers)  # it holds nothing yet
    s1.answer(9, S1, THREE)
    joiner.session.await_answer(pb.SYNCED, configuration.id)
    joiner.adopt(configuration)
    following.result()
    assert joiner.holds(9)


def test_a_member_takes_no_table_from_a_welcome_that_it_has_not_prepared(play):
    play.start(SPLIT)
    play.welcome(play.configuration(5, [0] * 6))
    assert play.node.standing.config_id == ONE


def test_a_reconnected_member_learns_from_the_welcome_that_its_plan_was_decided(play):
    play.start(SPLIT)
    moved = play.configuration(2, [1] * 6)
    play.prepare(moved)
    play.welcome(moved)
    play.session.await_answer(pb.SWITCHED, TWO)
    assert play.node.configuration == moved


def test_a_plan_that_was_cancelled_is_not_prepared_again(play):
    play.start(SPLIT)
    moved = play.configuration(2, [1] * 6)
    play.prepare(moved)
    play.direct(cancel=pb.CancelPlan(configuration=codec.config_id_to_pb(TWO)))
    said = len(play.session.answers)
    play.direct(prepare=pb.Prepare(configuration=codec.configuration_to_pb(moved)))  # a late repetition
    play.direct(adopt=pb.Adopt(configuration=codec.config_id_to_pb(TWO)))
    assert [answer.answer for answer in play.session.answers[said:]] == [pb.CANCELLED]
    assert play.node.standing.config_id == ONE


def test_a_joiner_does_not_wait_for_a_clock_that_came_too_late(joiner):
    """Armed again for version 9 when somebody had switched at 5 already: nobody gets past 5 without the joiner."""
    joiner.welcome(joiner.configuration(1, SPLIT))
    configuration = joining(joiner)
    s0, s1 = joiner.servers.values()
    entering = Aside(enter, joiner.node)
    s0.answer(4, S0, ONE)
    s1.answer(4, S1, ONE)
    entering.result()
    following = Aside(follow, joiner.node)
    joiner.session.await_answer(pb.SYNCED, TWO)
    joiner.arm(configuration, clock=9)
    s0.answer(5, S0, ONE)
    s0.say(Kind.NOTICE, TWO)
    joiner.session.await_answer(pb.SWITCHED, TWO)
    assert not following.ended  # the other server may have more of the old configuration to say
    s1.answer(5, S1, ONE)
    s1.say(Kind.NOTICE, TWO)
    following.result()
    assert joiner.holds(5)


ASYNC = codec.data_to_pb(DataSpec(True, 16, 4, consistency="async"))


def test_a_joiner_without_a_common_version_takes_its_values_again_after_a_plan_without_it(joiner):
    """Its own plan 2 is cancelled, 3 comes into force without it, 4 takes it in."""
    joiner.welcome(joiner.configuration(1, SPLIT), data=ASYNC)
    joining(joiner)
    entering = Aside(enter, joiner.node)
    give(joiner, ONE)
    entering.result()
    following = Aside(follow, joiner.node)
    joiner.session.await_answer(pb.SYNCED, TWO)
    joiner.direct(cancel=pb.CancelPlan(configuration=codec.config_id_to_pb(TWO)))
    joiner.welcome(joiner.configuration(3, SPLIT), data=ASYNC)
    configuration = joining(joiner, number=4)
    give(joiner, THREE)
    joiner.session.await_answer(pb.SYNCED, configuration.id)
    joiner.adopt(configuration)
    give(joiner, configuration.id, version=1)
    following.result()
    assert joiner.holds(1)


def give(play, number, version=0):
    """Both servers are asked for their blocks, and answer."""
    for server, blocks in zip(play.servers.values(), (S0, S1), strict=True):
        server.await_frames(Kind.PULL, number=number)
        server.answer(version, blocks, number)


def armed_without_s1(joiner):
    """It is armed for version 9 of a plan by which s1 leaves, and holds 5; returns the configuration, and its script's
    thread.
    """
    joiner.welcome(joiner.configuration(1, SPLIT))
    configuration = joiner.configuration(2, [0] * 6, workers=("w0", "w1", "w2"), servers=("s0",))
    joiner.prepare(configuration)
    entering = Aside(enter, joiner.node)
    for server, blocks in zip(joiner.servers.values(), (S0, S1), strict=True):
        server.await_frames(Kind.SUBSCRIBE)
        server.answer(5, blocks, ONE)
    entering.result()
    following = Aside(follow, joiner.node)
    joiner.session.await_answer(pb.SYNCED, TWO)
    joiner.arm(configuration, clock=9)
    return configuration, following


def test_a_joiner_does_not_wait_for_a_server_that_has_left_and_whose_connection_broke(joiner):
    """Adopted before the clock: s1 tells it by a NOTICE, which was lost, and nobody connects to it any more."""
    configuration, following = armed_without_s1(joiner)
    joiner.servers["s0"].say(Kind.NOTICE, TWO)
    joiner.session.await_answer(pb.SWITCHED, TWO)
    joiner.adopt(configuration)
    assert not following.ended
    joiner.servers["s1"].connections[-1].close()
    following.result()
    assert joiner.holds(5)


def test_a_joiner_hears_from_a_refusal_that_a_server_has_switched(joiner):
    """The connection broke as s1 switched, and so left: it has nothing to say any more but that."""
    _, following = armed_without_s1(joiner)
    s0, s1 = joiner.servers.values()
    s1.connections[-1].close()
    s1.await_connections(2)
    s1.await_frames(Kind.SUBSCRIBE, 2)
    s0.say(Kind.NOTICE, TWO)
    joiner.session.await_answer(pb.SWITCHED, TWO)
    s1.say(Kind.REFUSED, ONE, reason=Reason.STALE, detail="this is configuration 1.2", configuration=TWO)
    following.result()
    assert joiner.holds(5)
