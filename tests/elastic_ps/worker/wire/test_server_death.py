"""A server dies and its followers go on: what a worker tells, forgets and pushes again."""

import pytest

from elastic_ps.control import codec
from elastic_ps.core.errors import EXIT_RESTART, JobEnded
from elastic_ps.core.model import members
from elastic_ps.transport.frame_kinds import Kind
from protos import elastic_pb2 as pb
from tests.elastic_ps.worker.played_server import ALL, S0, S1, SPLIT
from tests.elastic_ps.worker.worker_harness import ONE, TWO


def die(play, server):
    play.servers[server].stop_listening()
    play.servers[server].connections[-1].close()
    play.await_apart(server)


def bury(play):
    """Prepare what s0's death leaves, undecided."""
    play.prepare(play.configuration(2, [0] * 6, servers=("s1",)), dead=["s0"])
    return play.session.await_answer(pb.PREPARED, TWO)


def decide(play):
    decided = play.configuration(2, [0] * 6, servers=("s1",))
    number = codec.config_id_to_pb(decided.id)
    play.direct(adopt=pb.Adopt(configuration=number, decided=codec.configuration_to_pb(decided)))
    play.session.await_answer(pb.SWITCHED, TWO)


def test_a_worker_tells_what_it_has_seen_and_pushes_the_open_step_to_who_goes_on(play):
    play.start(SPLIT)
    s0, s1 = play.servers.values()
    running = play.exchange()
    s0.await_push(S0, ONE)
    s1.await_push(S1, ONE)
    s0.answer(1, [0], ONE)
    s1.answer(1, [2], ONE)
    play.await_missing(1, [1, 3, 4, 5])
    die(play, "s0")
    answer = bury(play)
    seen = {
        block: one.version
        for one in answer.holdings
        for block in members(zip(one.runs[::2], one.runs[1::2], strict=True))
    }
    assert {one.kind for one in answer.holdings} == {pb.Holding.SEEN}
    assert seen == {block: int(block == 2) for block in ALL}, "what the dead had sent and is not installed is forgotten"
    s1.say(Kind.NOTICE, TWO)
    s1.answer(1, [3], ONE)
    play.await_missing(1, [0, 1, 4, 5])
    assert play.node.standing.config_id == ONE, "nobody adopts it on a peer's word"
    decide(play)
    assert s1.await_push([0, 1, 4, 5], TWO) == {block: play.gradient(block) for block in (0, 1, 4, 5)}
    s1.answer(1, [0, 1, 4, 5], TWO)
    play.check_completes(running, 1)


def test_a_worker_connects_again_to_a_server_that_was_to_leave_and_goes_on(play):
    """The one that all blocks went to has died before it had them."""
    play.start(SPLIT)
    s0 = play.servers["s0"]
    running = play.exchange()
    s0.await_push(S0, ONE)
    moved = play.configuration(2, [0] * 6, servers=("s1",))
    play.prepare(moved)
    play.adopt(moved)
    die(play, "s1")
    play.prepare(play.configuration(3, [0] * 6, servers=("s1",)), dead=["s1"])
    decided = play.configuration(3, [0] * 6, servers=("s0",))
    number = codec.config_id_to_pb(decided.id)
    play.direct(adopt=pb.Adopt(configuration=number, decided=codec.configuration_to_pb(decided)))
    s0.await_push(ALL, decided.id)
    s0.answer(1, ALL, decided.id)
    play.check_completes(running, 1)


def test_an_answer_is_waited_for_by_nobody_who_cannot_be_reached(play):
    """Else the death of two servers would wait for the second one's connection."""
    play.start(SPLIT)
    die(play, "s0")
    die(play, "s1")
    assert bury(play).answer == pb.PREPARED


@pytest.mark.parametrize("first", ["next", "one after"])
def test_a_joiner_that_an_owner_has_not_told_all_before_it_died_joins_anew(play, first):
    """Its heir holds what was made without the joiner; the other one waits for what the joiner would make of the next.

    Both waited for ever: the next version lacked the heir's blocks, the one after it the other's.
    """
    play.start(SPLIT)
    s0, s1 = play.servers.values()
    running = play.exchange()
    answers = [lambda: s0.answer(1, S0, ONE), lambda: s1.answer(2, S1, ONE)]
    for answer in answers if first == "next" else answers[::-1]:
        assert not running.ended
        answer()
    with pytest.raises(JobEnded, match="of version 1 blocks are lacking whose server has died") as ended:
        running.result()
    assert ended.value.status == EXIT_RESTART, "it has failed at nothing"
