"""The chief decides the factor on all gradients of an exchange, once, whoever is the chief."""

from collections.abc import Sequence
from typing import Any

from elastic_ps.core.configuration import ConfigId
from elastic_ps.core.gradient_norm import factor_of
from elastic_ps.core.model import runs
from elastic_ps.core.optimizer import Hyper
from elastic_ps.transport.frame_kinds import Kind
from elastic_ps.transport.frame_metas import FactorMeta, SquaresMeta
from elastic_ps.transport.frames import Frame
from tests.elastic_ps.worker.played_server import S0, S1, SPLIT, PlayedServer
from tests.elastic_ps.worker.worker_harness import ONE, TWO, Play

HYPER = Hyper(max_norm=1.0)
SQUARES = {block: float(block + 1) for block in (*S0, *S1)}
FACTOR = factor_of(SQUARES.values(), HYPER)


def tell(server: PlayedServer, blocks: Sequence[int], number: ConfigId = ONE, version: int = 0) -> None:
    """SQUARES of blocks that a server keeps."""
    squares = tuple(SQUARES[block] for block in blocks)
    meta = SquaresMeta(runs=tuple(runs(blocks)), squares=squares, hyper=HYPER)
    server.connections[-1].send(Frame(meta, number, version))


def told(server: PlayedServer, number: ConfigId, count: int = 1) -> list[float]:
    return [item.frame.of(FactorMeta).factor for item in server.await_frames(Kind.FACTOR, count, number)]


def test_all_servers_are_told_when_all_squares_are_here(play: Play) -> None:
    play.start(SPLIT)
    s0, s1 = play.servers.values()
    running = play.exchange()
    s0.await_push(S0, ONE)
    tell(s0, S0)
    tell(s1, S1[:2])
    s1.answer(1, S1[2:], ONE)  # auxiliary: nobody asks for its norm
    factor = factor_of([SQUARES[block] for block in (*S0, *S1[:2])], HYPER)
    assert told(s0, ONE) == told(s1, ONE) == [factor]
    s0.answer(1, S0, ONE, factor=factor)
    s1.answer(1, S1[:2], ONE, factor=factor)
    play.check_completes(running, 1)
    assert play.node.norm.decided.of(0) == factor


def test_a_server_that_asks_again_is_told_the_same(play: Play) -> None:
    play.start(SPLIT)
    s0, s1 = play.servers.values()
    running = play.exchange()
    s0.await_push(S0, ONE)
    tell(s0, S0)
    tell(s1, S1)
    assert told(s1, ONE) == [FACTOR]
    tell(s1, S1[:1])
    assert told(s1, ONE, 2) == [FACTOR, FACTOR]
    for server, blocks in ((s0, S0), (s1, S1)):
        server.answer(1, blocks, ONE, factor=FACTOR)
    play.check_completes(running, 1)


def test_who_is_no_chief_decides_nothing(play: Play) -> None:
    play.begin(("w1", "w0"))
    play.extend(SPLIT)
    whole = [(0, 6)]
    play.node.inbox.buffers(0, whole)
    play.node.inbox.arrived(0, whole)
    s0, s1 = play.servers.values()
    running = play.exchange()
    s0.await_push(S0, ONE)
    tell(s0, S0)
    tell(s1, S1)
    for server, blocks in ((s0, S0), (s1, S1)):
        server.answer(1, blocks, ONE, factor=0.25)
    play.check_completes(running, 1)
    assert not s0.of(Kind.FACTOR)
    assert play.node.norm.decided.of(0) == 0.25


def after_a_death(play: Play, of_values: Any) -> tuple[PlayedServer, PlayedServer]:
    """The other worker, the chief, has died; s1 says what it holds by `of_values`, and s0 asks anew."""
    play.start(SPLIT, ("w1", "w0"))
    s0, s1 = play.servers.values()
    running = play.exchange()
    s0.await_push(S0, ONE)
    alone = play.configuration(2, SPLIT, ("w0",))
    play.prepare(alone, dead=["w1"])
    play.adopt(alone)
    assert running.result() is False  # the step is divided anew
    again = play.exchange()
    s0.await_push(S0, TWO)
    of_values(s1)
    tell(s0, S0, TWO)
    assert told(s0, TWO) == told(s1, TWO)
    s0.answer(1, S0, TWO, factor=told(s0, TWO)[0])
    if of_values is not applied:
        s1.answer(1, S1, TWO, factor=told(s1, TWO)[0])
    play.check_completes(again, 1)
    return s0, s1


def applied(server: PlayedServer) -> None:
    server.answer(1, S1, TWO, factor=0.125)


def test_the_next_chief_decides_what_some_server_has_applied(play: Play) -> None:
    _, s1 = after_a_death(play, applied)
    assert told(s1, TWO) == [0.125]


def test_the_next_chief_decides_anew_what_nobody_has_applied(play: Play) -> None:
    _, s1 = after_a_death(play, lambda server: tell(server, S1, TWO))
    assert told(s1, TWO)[-1] == FACTOR


def test_squares_of_another_configuration_are_not_taken(play: Play) -> None:
    play.start(SPLIT)
    s0, s1 = play.servers.values()
    running = play.exchange()
    s0.await_push(S0, ONE)
    tell(s0, S0, version=7)
    tell(s1, S1)
    tell(s0, S0)
    assert told(s0, ONE) == [FACTOR]
    for server, blocks in ((s0, S0), (s1, S1)):
        server.answer(1, blocks, ONE, factor=FACTOR)
    play.check_completes(running, 1)
