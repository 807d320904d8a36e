"""What the transport in memory does beyond the contract: faults."""

import pytest

from elastic_ps.core.errors import PeerLost
from elastic_ps.testing.frame_faults import FaultAction, FrameFault
from elastic_ps.testing.memory_transport import MemoryNetwork, MemoryTransport
from elastic_ps.transport.frame_kinds import Kind
from elastic_ps.transport.frame_metas import PushMeta
from elastic_ps.transport.frames import Frame
from tests.elastic_ps.transport.wiring import TIMEOUT, TOKEN, Aside, numbered, take


class Pair:
    def __init__(self, network):
        self.network = network
        self.listener = MemoryTransport(TOKEN, network, "s0").listen("here")
        self.worker = MemoryTransport(TOKEN, network, "w0").connect(*self.listener.address, "s0")
        self.server = self.listener.accept()


@pytest.fixture
def pair():
    made = Pair(MemoryNetwork())
    yield made
    made.worker.close()
    made.listener.close()


def versions(connection, count):
    return [take(connection)[0].version for _ in range(count)]


def test_both_ends_know_each_other(pair):
    assert (pair.worker.peer, pair.server.peer) == ("s0", "w0")


def test_a_dropped_frame_never_comes(pair):
    with pair.network.faults(FrameFault(FaultAction.DROP, Kind.VALUE, version=1)):
        for number in range(3):
            pair.server.send(numbered(number), [b"abc"])
        assert versions(pair.worker, 2) == [0, 2]


def test_a_duplicated_frame_comes_twice_with_its_payload(pair):
    with pair.network.faults(FrameFault(FaultAction.DUPLICATE, Kind.VALUE)):
        pair.server.send(numbered(1), [b"abc"])
        pair.server.send(numbered(2))
        assert [take(pair.worker)[1] for _ in range(3)] == [b"abc", b"abc", b""]


def test_reversed_frames_come_last_first_once_all_are_sent(pair):
    with pair.network.faults(FrameFault(FaultAction.REVERSE, Kind.VALUE, times=3)):
        for number in range(4):
            pair.server.send(numbered(number))
        assert versions(pair.worker, 4) == [2, 1, 0, 3]


def test_held_frames_come_when_they_are_released(pair):
    hold = FrameFault(FaultAction.HOLD, Kind.VALUE, skip=1, times=2)
    with pair.network.faults(hold):
        for number in range(4):
            pair.server.send(numbered(number))
        assert hold.fired.wait(TIMEOUT)
        assert versions(pair.worker, 2) == [0, 3]
        hold.release()
        assert versions(pair.worker, 2) == [1, 2]


def test_what_is_still_held_comes_when_the_faults_end(pair):
    with pair.network.faults(FrameFault(FaultAction.HOLD, Kind.VALUE)):
        pair.server.send(numbered(1))
        pair.server.send(numbered(2))
    assert versions(pair.worker, 2) == [2, 1]


def test_a_cut_frame_breaks_the_connection_in_its_midst(pair):
    with pair.network.faults(FrameFault(FaultAction.CUT, Kind.VALUE)):
        pair.server.send(numbered(1), [bytes(1000)])
    assert pair.worker.receive().payload_bytes == 1000
    with pytest.raises(PeerLost):
        pair.worker.receive_into([bytearray(1000)])
    for end in (pair.worker, pair.server):
        with pytest.raises(PeerLost):
            end.send(numbered(2))


def test_faults_strike_only_what_they_name(pair):
    others = [
        FrameFault(FaultAction.DROP, Kind.VALUE, sender="s1"),
        FrameFault(FaultAction.DROP, Kind.VALUE, receiver="w1"),
        FrameFault(FaultAction.DROP, Kind.VALUE, version=9),
        FrameFault(FaultAction.DROP, Kind.PUSH),
    ]
    with pytest.raises(AssertionError, match="have not fired"), pair.network.faults(*others):
        pair.server.send(numbered(1))
    assert versions(pair.worker, 1) == [1]
    assert not any(fault.fired.is_set() for fault in others)


def test_a_fault_that_has_not_fired_fails_the_test_and_hides_no_other_failure(pair):
    fault = FrameFault(FaultAction.DROP, Kind.VALUE, times=2)
    with pytest.raises(AssertionError, match="DROP"), pair.network.faults(fault):
        pair.server.send(numbered(1))
    with pytest.raises(ValueError, match="the test's own"), pair.network.faults(fault):
        raise ValueError("the test's own")


def test_no_fault_strikes_after_its_block(pair):
    fault = FrameFault(FaultAction.DROP, Kind.VALUE, times=2)
    with pytest.raises(AssertionError, match="DROP"), pair.network.faults(fault):
        pair.server.send(numbered(1))
    pair.server.send(numbered(2))
    assert versions(pair.worker, 1) == [2]


def test_a_full_stream_makes_its_sender_wait_with_the_payload_not_yet_read():
    pair = Pair(MemoryNetwork(capacity=10))
    values = bytearray(b"old")
    pair.worker.send(numbered(1), [b"more than ten bytes"])
    sending = Aside(pair.worker.send, Frame(PushMeta()), [values])
    sending.started.wait(TIMEOUT)
    values[:] = b"new"
    assert versions(pair.server, 1) == [1]
    sending.result()
    assert take(pair.server)[1] == b"new"
    pair.worker.close()
    pair.listener.close()
