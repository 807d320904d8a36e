"""A connection's queue: what is sent, what may be taken back, and who hears of its end."""

import threading
from collections.abc import Callable, Sequence

import numpy as np
import pytest

from elastic_ps.core.errors import ElasticError, PeerLost
from elastic_ps.transport.base import Buffer
from elastic_ps.transport.frames import Frame
from elastic_ps.transport.send_queue import Link
from tests.elastic_ps.transport.wiring import TIMEOUT, numbered


class Gate:
    """A connection that sends one frame for each `let`, and fails when told to."""

    peer = "s0"

    def __init__(self) -> None:
        self.begun: list[int] = []
        self.error: Exception | None = None
        self.closed = 0
        self.has_room = False
        self._changed = threading.Condition()
        self._allowed = 0

    def send(self, frame: Frame, payload: Sequence[Buffer] = ()) -> None:
        with self._changed:
            self.begun.append(frame.version)
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._allowed or self.closed or self.error)
            self._allowed -= 1
            if self.error is not None:
                raise self.error
            if self.closed:
                raise PeerLost("s0", "closed here")

    def offer(self, frame: Frame, payload: Sequence[Buffer] = ()) -> bool:
        with self._changed:
            if self.has_room:
                self.begun.append(frame.version)
            return self.has_room

    def receive(self) -> Frame:
        raise PeerLost("s0", "closed there")

    def receive_into(self, buffers: Sequence[Buffer]) -> None:
        """No frame has a payload."""

    def close(self) -> None:
        with self._changed:
            self.closed += 1
            self._changed.notify_all()

    def let(self, count: int) -> None:
        with self._changed:
            self._allowed += count
            self._changed.notify_all()

    def fail(self, error: Exception) -> None:
        with self._changed:
            self.error = error
            self._changed.notify_all()

    def await_begun(self, count: int) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.begun) >= count, TIMEOUT)


class Owner:
    """Who opened the link."""

    def __init__(self) -> None:
        self.gate = Gate()
        self.reasons: list[ElasticError] = []
        self.lost = threading.Event()
        self.idle = threading.Event()
        self.link = Link("s0", self.gate, self._lost, self.idle.set)

    def _lost(self, link: Link, error: ElasticError) -> None:
        assert link is self.link
        self.reasons.append(error)
        self.lost.set()

    def queue(self, *versions: int, sent: Callable[[], None] | None = None) -> None:
        for version in versions:
            self.link.enqueue(numbered(version), [np.zeros(8, dtype=np.uint8)], sent)


@pytest.fixture
def owner():
    made = Owner()
    yield made
    made.link.close()


def test_frames_go_in_order_and_their_sender_hears_of_it(owner: Owner) -> None:
    sent = threading.Event()
    owner.queue(1, 2)
    owner.queue(3, sent=sent.set)
    owner.gate.await_begun(1)
    assert (owner.link.backlog, owner.link.oldest_version(), owner.link.is_idle) == (24, 1, False)
    assert not owner.link.flush(0)
    owner.gate.let(3)
    assert owner.link.flush(TIMEOUT)
    assert sent.wait(TIMEOUT)
    assert owner.idle.wait(TIMEOUT)
    assert owner.gate.begun == [1, 2, 3]
    assert (owner.link.backlog, owner.link.oldest_version(), owner.link.is_idle) == (0, None, True)


def test_a_frame_goes_at_once_where_there_is_room_and_nothing_waits(owner: Owner) -> None:
    owner.gate.has_room = True
    owner.queue(1)
    assert (owner.gate.begun, owner.link.is_idle) == ([1], True)
    owner.gate.has_room = False
    owner.queue(2)
    owner.gate.await_begun(2)
    owner.gate.has_room = True
    owner.queue(3)
    assert owner.gate.begun == [1, 2]
    owner.gate.let(2)
    assert owner.link.flush(TIMEOUT)
    sent = threading.Event()
    owner.queue(4, sent=sent.set)  # told by the sender's thread, which holds no lock of who sends
    owner.gate.await_begun(4)
    assert not sent.is_set()
    owner.gate.let(1)
    assert sent.wait(TIMEOUT)
    assert owner.gate.begun == [1, 2, 3, 4]


def test_a_sign_of_life_that_waits_or_has_gone_concerns_nobody(owner: Owner) -> None:
    owner.link.probe()
    owner.gate.let(1)
    assert owner.link.flush(TIMEOUT)
    owner.queue(1)
    owner.link.probe()
    owner.gate.await_begun(2)
    assert not owner.link.is_idle
    assert not owner.idle.is_set()
    owner.gate.let(1)
    assert owner.idle.wait(TIMEOUT)
    owner.gate.await_begun(3)
    assert owner.link.is_idle
    assert not owner.link.flush(0)


def test_what_has_not_begun_can_be_withdrawn(owner: Owner) -> None:
    owner.queue(1, 2, 3)
    owner.gate.await_begun(1)
    owner.link.withdraw()
    assert owner.link.backlog == 8
    owner.queue(4)
    owner.gate.let(2)
    assert owner.link.flush(TIMEOUT)
    assert owner.gate.begun == [1, 4]


def test_memory_of_what_is_withdrawn_is_given_back(owner: Owner) -> None:
    given: list[None] = []
    owner.queue(1)
    owner.gate.await_begun(1)
    owner.queue(2, 3, sent=lambda: given.append(None))
    owner.link.withdraw()
    assert len(given) == 2
    owner.gate.let(1)
    assert owner.link.flush(TIMEOUT)
    assert len(given) == 2


def test_a_failure_closes_the_link_and_is_told(owner: Owner) -> None:
    owner.queue(1, 2)
    owner.gate.await_begun(1)
    owner.gate.fail(PeerLost("s0", "reset"))
    assert owner.lost.wait(TIMEOUT)
    assert owner.link.closed
    assert owner.gate.closed
    assert not owner.link.flush(TIMEOUT)
    owner.link.guard(owner.gate.receive)  # the receiving thread ends by it
    assert [str(reason) for reason in owner.reasons] == ["lost s0: reset"]


def test_a_failure_of_ours_names_its_thread(owner: Owner) -> None:
    owner.gate.fail(TypeError("gaps"))
    owner.queue(1)
    assert owner.lost.wait(TIMEOUT)
    assert str(owner.reasons[0]) == "send-s0: TypeError('gaps')"


def test_who_closes_the_link_is_not_told(owner: Owner) -> None:
    owner.queue(1)
    owner.gate.await_begun(1)
    assert owner.link.close()
    assert not owner.link.close()
    owner.link.guard(owner.gate.receive)
    owner.queue(2)
    assert owner.link.is_idle
    assert not owner.reasons
