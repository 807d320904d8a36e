"""Others define keys of which a worker has not heard yet."""

from dataclasses import replace

import pytest

from elastic_ps.core.errors import PeerLost
from elastic_ps.transport.frame_kinds import Kind
from elastic_ps.transport.frame_metas import ValueMeta
from elastic_ps.transport.frames import Frame
from tests.elastic_ps.worker.played_server import ALL
from tests.elastic_ps.worker.wire.test_push_exchange import link_to
from tests.elastic_ps.worker.worker_harness import ONE


def test_a_worker_without_samples_says_so_to_servers_of_which_it_knows_no_block(play):
    play.start([0] * len(ALL))
    s0, s1 = play.servers.values()
    running = play.exchange(replace(play.push(present=()), samples=0, empty=True))
    for server, absent in ((s0, ((0, len(ALL)),)), (s1, ())):
        (item,) = server.await_frames(Kind.PUSH)
        meta = item.frame.meta
        assert (meta.empty, meta.runs, meta.absent, item.data) == (True, (), absent, b"")
    s0.answer(1, ALL, ONE)
    play.check_completes(running, 1)


def test_a_worker_with_samples_does_not(play):
    play.start([0] * len(ALL))
    s0, s1 = play.servers.values()
    running = play.exchange()
    s0.answer(1, ALL, ONE)
    play.check_completes(running, 1)
    assert not s1.of(Kind.PUSH)


def test_values_of_blocks_of_which_it_has_not_heard_are_sent_once_more(play):
    play.start([0] * len(ALL))
    frame = Frame(ValueMeta(runs=[[0, len(ALL) + 1]]), ONE, 1, payload_bytes=64)
    with pytest.raises(PeerLost, match="of which this worker will hear"):
        play.node.buffers(link_to("s0"), frame)
