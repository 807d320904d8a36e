"""When a worker goes over to the next configuration, and what becomes of the exchange under way."""

import pytest

from elastic_ps.core.data_order import DataSpec
from elastic_ps.core.errors import JobEnded
from elastic_ps.transport.frame_kinds import Kind
from elastic_ps.transport.frame_metas import ValueMeta
from elastic_ps.transport.frames import Frame
from protos import elastic_pb2 as pb
from tests.elastic_ps.worker.played_server import ALL, S0, S1, SPLIT, TIMEOUT
from tests.elastic_ps.worker.worker_harness import ONE, TWO


def test_a_newer_configurations_notice_is_adopted_and_what_is_missing_pushed_to_its_owners(play):
    play.start(SPLIT)
    s0, s1 = play.servers.values()
    running = play.exchange()
    s0.await_push(S0, ONE)
    s1.await_push(S1, ONE)
    s0.answer(1, [0], ONE)
    play.await_missing(1, ALL[1:])
    moved = play.configuration(2, [0, 1, 1, 1, 1, 0])
    play.prepare(moved)
    s1.say(Kind.NOTICE, TWO)
    play.session.await_answer(pb.SWITCHED, TWO)
    assert s0.await_push([5], TWO) == {5: play.gradient(5)}
    assert s1.await_push([1, 2, 3, 4], TWO) == {block: play.gradient(block) for block in (1, 2, 3, 4)}
    for server in (s0, s1):
        server.await_frames(Kind.NOTICE, number=TWO)
        kinds = [item.frame.kind for item in server.received if item.frame.configuration == TWO]
        assert kinds[0] is Kind.NOTICE
        assert {item.frame.version for item in server.of(Kind.PUSH, TWO)} == {0}
    s0.answer(1, [5], TWO)
    s1.answer(1, [1, 2, 3, 4], TWO)
    play.check_completes(running, 1)


@pytest.mark.parametrize("consistency", ["sync", "async"])
def test_values_of_who_owns_their_blocks_no_more_count_only_where_all_servers_have_the_same(play, consistency):
    """Two owners' answers were received into the same memory, which a script read while the slower one still came."""
    play.start(SPLIT)
    play.node.data = DataSpec(True, 16, 4, consistency=consistency)
    s0, s1 = play.servers.values()
    running = play.exchange()
    s1.await_push(S1, ONE)
    moved = play.configuration(2, [1] * 6)
    play.prepare(moved)
    play.adopt(moved)
    s0.answer(1, S0, TWO)
    node = play.node
    with node.changed:
        assert node.changed.wait_for(lambda: "s0" not in node.membership.unheard, TIMEOUT)
    assert play.missing(1) == (S1 if consistency == "sync" else ALL)
    s1.answer(1, ALL, TWO)
    play.check_completes(running, 1)


def test_what_an_old_owner_was_sending_at_the_switch_does_not_count_where_values_differ(play):
    play.start(SPLIT)
    play.node.data = DataSpec(True, 16, 4, consistency="async")
    node = play.node
    link = node.peers.link("s0")
    frame = Frame(ValueMeta(runs=((0, 2),)), ONE, 1, payload_bytes=128)
    (late,) = node.buffers(link, frame)
    moved = play.configuration(2, [1] * 6)
    play.prepare(moved)
    play.adopt(moved)
    running = play.exchange()
    play.servers["s1"].answer(1, ALL, TWO)
    play.check_completes(running, 1)
    memoryview(late)[:] = b"\xff" * 128
    node.arrived(link, frame)
    assert play.holds(1)


@pytest.mark.parametrize("how", ["notice", "refusal", "reply", "adopt"])
def test_where_the_roster_has_changed_the_step_is_given_back_to_the_script(play, how):
    play.start(SPLIT)
    s0, s1 = play.servers.values()
    running = play.exchange()
    s0.await_push(S0, ONE)
    s1.await_push(S1, ONE)
    alone = play.configuration(2, SPLIT, workers=("w0",))
    play.prepare(alone)
    if how == "notice":
        s0.say(Kind.NOTICE, TWO)
    elif how == "refusal":
        s0.say(Kind.REFUSED, TWO, reason="stale", detail="", configuration=[1, 2])
    elif how == "reply":
        s0.answer(1, S0, TWO)
    else:
        play.adopt(alone)
    assert running.result() is False
    assert play.node.version == 0
    assert play.node.configuration == alone
    again = play.exchange()
    s1.await_push(S1, TWO)
    s0.answer(1, S0, TWO)
    s1.answer(1, S1, TWO)
    play.check_completes(again, 1)


def test_a_version_that_is_complete_is_not_done_again(play):
    play.start(SPLIT)
    s0, s1 = play.servers.values()
    running = play.exchange()
    s0.await_push(S0, ONE)
    s1.await_push(S1, ONE)
    play.prepare(play.configuration(2, SPLIT, workers=("w0",)))
    s0.answer(1, S0, ONE)
    play.await_missing(1, S1)
    s1.answer(1, S1, TWO)  # the last reply, and the news that its sender has switched
    play.session.await_answer(pb.SWITCHED, TWO)
    play.check_completes(running, 1)


def test_a_drained_worker_tells_both_tables_servers_and_ends(play):
    play.start(SPLIT)
    running = play.exchange()
    s0, s1 = play.servers.values()
    s0.await_push(S0, ONE)
    play.prepare(play.configuration(2, [0] * 6, workers=("w1",), servers=("s0",)))
    s0.say(Kind.NOTICE, TWO)
    with pytest.raises(JobEnded, match="drained") as raised:
        running.result()
    assert raised.value.status == 0
    play.session.await_answer(pb.SWITCHED, TWO)
    s0.await_frames(Kind.NOTICE, number=TWO)
    s1.await_frames(Kind.NOTICE, number=TWO)


def test_at_the_clock_a_worker_switches_between_two_steps(play):
    play.start(SPLIT)
    s0, s1 = play.servers.values()
    moved = play.configuration(2, [1] * 6)
    play.prepare(moved)
    play.arm(moved, clock=1)
    play.session.await_answer(pb.ARMED, TWO)
    running = play.exchange()
    s0.answer(1, S0, ONE)
    s1.answer(1, S1, ONE)
    assert running.result() is True
    assert play.session.await_answer(pb.SWITCHED, TWO).version == 1
    running = play.exchange()
    s1.await_push(ALL, TWO)
    s1.answer(2, ALL, TWO)
    assert running.result() is True
    assert not s0.pushed(TWO)


def test_the_clock_waits_for_the_end_of_a_sampler_step(play):
    play.start(SPLIT)
    s0, s1 = play.servers.values()
    moved = play.configuration(2, [1] * 6)
    play.prepare(moved)
    play.arm(moved, clock=1)
    running = play.exchange(boundary=False)
    s0.answer(1, S0, ONE)
    s1.answer(1, S1, ONE)
    running.result()
    assert play.node.standing.config_id == ONE


def test_in_pause_mode_a_worker_waits_for_resume(play):
    play.start(SPLIT)
    s0, s1 = play.servers.values()
    moved = play.configuration(2, [1] * 6)
    play.prepare(moved, mode=pb.PAUSE)
    play.arm(moved, clock=1)
    running = play.exchange()
    s0.answer(1, S0, ONE)
    s1.answer(1, S1, ONE)
    play.session.await_answer(pb.SWITCHED, TWO)
    s0.await_frames(Kind.NOTICE, number=TWO)
    assert not running.ended
    play.direct(resume=pb.Resume(configuration=pb.ConfigId(term=1, number=2)))
    assert running.result() is True
    switched = [answer for answer in play.session.answers if answer.answer == pb.SWITCHED]
    assert len(switched) == 3  # the start's, at the clock, after


def test_in_pause_mode_a_worker_that_a_decision_overtakes_tells_how_long_it_waited(play):
    """It switched before its clock; its step still ends only when the new owners have their blocks."""
    play.start(SPLIT)
    moved = play.configuration(2, [1] * 6)
    play.prepare(moved, mode=pb.PAUSE)
    play.arm(moved, clock=5)
    play.direct(adopt=pb.Adopt(configuration=pb.ConfigId(term=1, number=2)))
    assert play.session.await_answer(pb.SWITCHED, TWO).suspension_ms == 0
    play.session.answers.clear()
    play.direct(resume=pb.Resume(configuration=pb.ConfigId(term=1, number=2)))
    assert play.session.await_answer(pb.SWITCHED, TWO).suspension_ms > 0
    play.session.answers.clear()
    play.direct(resume=pb.Resume(configuration=pb.ConfigId(term=1, number=2)))  # sent again after a reconnect
    assert not play.session.answers


def test_a_table_is_prepared_when_all_its_servers_are_connected_and_who_is_not_is_told(play):
    """Else it would be armed, and the next exchange with the server that cannot be reached would never end."""
    play.start([0] * 6)
    s1 = play.servers["s1"]
    s1.stop_listening()
    s1.connections[-1].close()
    play.await_apart("s1")
    moved = play.configuration(2, SPLIT)
    play.order_prepare(moved)
    assert not any(answer.answer == pb.PREPARED and answer.configuration == TWO for answer in play.session.answers)
    assert list(play.node.seen().apart) == ["s1"]
    s1.listen_again()
    play.session.await_answer(pb.PREPARED, TWO)
    assert not play.node.seen().apart


def test_who_lacks_values_says_of_whom(play):
    play.start(SPLIT)
    s0, s1 = play.servers.values()
    running = play.exchange()
    s0.await_push(S0, ONE)
    assert [(one.peer, one.what) for one in play.node.seen().awaited] == [
        ("s0", "the values of version 1"),
        ("s1", "the values of version 1"),
    ]
    s0.answer(1, S0, ONE)
    play.await_missing(1, S1)
    assert [one.peer for one in play.node.seen().awaited] == ["s1"]
    s1.answer(1, S1, ONE)
    play.check_completes(running, 1)
    assert not play.node.seen().awaited


def test_probes_are_answered_and_no_frame_of_the_job(play):
    play.start(SPLIT)
    s0 = play.servers["s0"]
    s0.say(Kind.PING, ONE)
    s0.await_frames(Kind.PONG)
    s0.say(Kind.PONG, ONE)
    running = play.exchange()
    s0.await_push(S0, ONE)
    for server, blocks in zip(play.servers.values(), (S0, S1), strict=True):
        server.answer(1, blocks, ONE)
    play.check_completes(running, 1)
