"""Connections between live nodes break, hang or come back: what was under way goes on, and it is told who is apart."""

import errno
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest

from elastic_ps.control import codec
from elastic_ps.core.configuration import Configuration, Member, Role
from elastic_ps.server import connections
from elastic_ps.server.connections import FOLLOW, Connections, Peer
from elastic_ps.server.copying.follow_source import FollowSource
from elastic_ps.server.service import ServerNode
from elastic_ps.transport.base import Transport
from elastic_ps.transport.frame_kinds import Kind
from elastic_ps.transport.frame_metas import HelloMeta, PingMeta
from elastic_ps.transport.frames import Frame
from elastic_ps.transport.shared_memory import Image
from elastic_ps.transport.shm_transport import ShmTransport
from elastic_ps.transport.tcp import TcpTransport
from protos import elastic_pb2 as pb
from tests.elastic_ps.server.server_harness import TOKEN, Job, Jobs
from tests.elastic_ps.server.server_peers import TIMEOUT, GatedTransport
from tests.elastic_ps.server.server_reference import ADAM, SGD, TENSORS
from tests.elastic_ps.waiting import until

TRANSPORTS = pytest.mark.parametrize("transport", [TcpTransport(TOKEN), ShmTransport(TOKEN)], ids=["tcp", "shm"])


def reset(job: Job) -> None:
    """The network resets the stream from s0 to s1; returns when it is open again."""
    state = job.servers["s0"].state
    with state.changed:
        link = state.sources["s1"].link
        link.connection._socket.shutdown(socket.SHUT_RDWR)  # type: ignore[attr-defined]  # one of the sockets' kinds
        assert state.changed.wait_for(lambda: link.closed and state.sources["s1"].link is not link, TIMEOUT)


def switch(job: Job, new: Configuration) -> None:
    for server in ("s0", "s1"):
        job.controls[server].await_answer(pb.SWITCHED, number=new.id)
    job.configuration = new


@contextmanager
def nothing_streamed(monkeypatch: pytest.MonkeyPatch, job: Job) -> Iterator[None]:
    """Inside, the owner sends no block: the background work has not come to it yet."""
    with monkeypatch.context() as patch:
        patch.setattr(FollowSource, "has_work", property(lambda _source: False))
        yield
    with job.servers["s0"].state.changed:
        job.servers["s0"].state.changed.notify_all()


@TRANSPORTS
@pytest.mark.parametrize("spec", [SGD, ADAM])
def test_a_stream_that_is_reset_between_synced_and_the_clock_goes_on(jobs: Jobs, transport: Transport, spec) -> None:
    job = jobs.begin(Job(TENSORS, spec, transport=transport))
    job.check_step(0)
    new = job.prepare_two()
    job.check_step(1)
    reset(job)
    job.check_step(2)
    job.order_arm(new, 4)
    job.check_step(3)
    switch(job, new)
    for version in (4, 5):
        job.check_step(version)


@TRANSPORTS
def test_a_stream_that_is_reset_before_synced_begins_again(jobs: Jobs, monkeypatch, transport: Transport) -> None:
    job = jobs.begin(Job(TENSORS, SGD, transport=transport))
    job.check_step(0)
    with nothing_streamed(monkeypatch, job):
        new = job.prepare_two(synced=False)
        reset(job)
        job.check_step(1)
    job.controls["s1"].await_answer(pb.SYNCED, number=new.id)
    job.order_arm(new, 3)
    job.check_step(2)
    switch(job, new)
    job.check_step(3)


def test_a_follower_hears_that_its_stream_fell_back_though_it_is_reset_then(jobs: Jobs) -> None:
    """What says so waited behind what was stuck. Nobody would answer SYNCED, and the plan would be given up."""
    job = Job(TENSORS, SGD)
    stuck = job.transports["s0"] = GatedTransport(TOKEN, Kind.SNAPSHOT)
    jobs.begin(job)
    job.check_step(0)
    new = job.prepare_two(synced=False)
    assert stuck.held.wait(TIMEOUT)
    source, version = job.servers["s0"].state.sources["s1"], 1
    while not source.fell_back and version < 60:
        job.check_step(version)
        version += 1
    assert source.fell_back
    reset(job)
    stuck.gate.set()
    assert job.controls["s1"].await_answer(pb.SYNCED, number=new.id).detail == "pause"
    job.adopt(new, ["s0", "s1"])
    job.check_step(version)


@pytest.mark.parametrize("mode", [pb.LIVE, pb.PAUSE])
def test_hand_overs_that_a_reset_has_lost_are_sent_again(jobs: Jobs, monkeypatch, mode: int) -> None:
    """The owner has switched, the transport has taken everything, and nothing of it has come."""
    job = jobs.begin(Job(TENSORS, ADAM))
    job.check_step(0)
    new = job.prepare_two(mode)
    lost = threading.Event()
    arrived = ServerNode.arrived

    def lossy(self: ServerNode, peer: Peer, frame: Frame, data: Any) -> None:
        if frame.kind is Kind.HANDOVER and not lost.is_set():
            lost.set()
            peer.link.connection.close()
            peer.link.check_open = lambda: None  # type: ignore[method-assign]
            return
        arrived(self, peer, frame, data)

    monkeypatch.setattr(ServerNode, "arrived", lossy)
    job.adopt(new, ["s0", "s1"])
    assert lost.wait(TIMEOUT)
    for version in (1, 2):
        job.check_step(version)


NOBODY_COMES: Any = None
"""A listener that is not used."""


def test_a_stream_that_is_closed_before_it_is_read_is_not_waited_for(jobs: Jobs, monkeypatch) -> None:
    """Its plan is cancelled while it is being opened, or to send on it has failed. No sign of life will come on it, so
    it must not be asked for one; and that it has ended must be told: it may be needed again.
    """
    told: list[str] = []
    monkeypatch.setattr(ServerNode, "lost", lambda _self, node, _lane, _reason: told.append(node))
    job = jobs.begin(Job(TENSORS, SGD))
    bodies: list[Any] = []
    server, target = job.servers["s0"], job.members["s0"]
    own = Connections(job.transport, NOBODY_COMES, server, lambda _name, body: bodies.append(body))  # type: ignore[arg-type,return-value]
    link = own.open_follow(target, Frame(HelloMeta(node="s9", role=Role.SERVER, lane=FOLLOW)))
    assert own.links == [link]
    link.close()
    bodies[0]()  # the thread that reads it begins only now
    assert own.links == []
    assert "s0" in told  # that s9 has gone is told at the other end


def test_a_hand_over_that_comes_twice_changes_nothing(jobs: Jobs) -> None:
    job = jobs.begin(Job(TENSORS, ADAM))
    job.check_step(0)
    new = job.prepare_two()
    job.adopt(new, ["s0", "s1"])
    job.check_step(1)
    reset(job)
    job.check_step(2)
    job.commit(["s0", "s1"])
    job.check_step(3)
    with job.servers["s0"].state.changed:
        assert not job.servers["s0"].plan_steps.unfed()


class _Scarce:
    """Descriptors are used up, so that a first call fails."""

    def __init__(self, act: Any):
        self._act = act
        self.failed = 0

    def __call__(self, *arguments: Any) -> Any:
        if not self.failed:
            self.failed = 1
            raise OSError(errno.EMFILE, "Too many open files")
        return self._act(*arguments)


def test_an_owner_without_descriptors_for_a_stream_opens_it_later(jobs: Jobs, monkeypatch) -> None:
    """It would be the end of the server, and of the blocks that it has."""
    job = jobs.begin(Job(TENSORS, SGD))
    job.check_step(0)
    scarce = _Scarce(connections.Image)
    monkeypatch.setattr(connections, "Image", scarce)
    new = job.prepare_two()
    assert scarce.failed
    assert job.servers["s0"].wait(0) is None
    job.adopt(new, ["s0", "s1"])
    job.check_step(1)


def test_a_follower_that_cannot_map_memory_for_a_snapshot_gets_it_later(jobs: Jobs, monkeypatch) -> None:
    job = jobs.begin(Job(TENSORS, SGD))
    job.check_step(0)
    scarce: Any = None
    grow = Image.grow

    def scarce_grow(image: Image, nbytes: int) -> None:
        nonlocal scarce
        if threading.current_thread().name == "receive-s0":
            scarce = scarce or _Scarce(grow)
            scarce(image, nbytes)
        else:
            grow(image, nbytes)

    monkeypatch.setattr(Image, "grow", scarce_grow)
    new = job.prepare_two()
    assert scarce.failed
    assert job.servers["s1"].wait(0) is None
    job.adopt(new, ["s0", "s1"])
    job.check_step(1)


def test_a_new_owner_that_is_frozen_keeps_no_directive_waiting_and_is_told(jobs: Jobs) -> None:
    """Its kernel accepts the connection, and nobody greets."""
    job = jobs.begin(Job(TENSORS, SGD))
    with socket.create_server(("127.0.0.1", 0)) as frozen:
        job.members["s1"] = Member("s1", Role.SERVER, *frozen.getsockname())
        new = job.next(["w0", "w1"], ["s0", "s1"], job.spread(2))
        prepare = pb.Prepare(configuration=codec.configuration_to_pb(new), mode=pb.LIVE)
        aside = threading.Thread(target=lambda: job.direct("s0", prepare=prepare), daemon=True)
        aside.start()
        aside.join(TIMEOUT)
        assert not aside.is_alive()
        assert not job.controls["s0"].said(pb.PREPARED, new.id)
        assert list(job.servers["s0"].seen().apart) == ["s1"]
        job.check_step(0)
        job.direct("s0", cancel=pb.CancelPlan(configuration=codec.config_id_to_pb(new.id)))
        job.controls["s0"].await_answer(pb.CANCELLED, number=new.id)
        job.check_step(1)


def test_prepared_is_answered_when_the_stream_is_open(jobs: Jobs) -> None:
    job = jobs.begin(Job(TENSORS, SGD))
    job.check_step(0)
    job.join_server("s1")
    job.servers["s1"].state.standing = replace(
        job.servers["s1"].state.standing, dead=frozenset({"s0"})
    )  # so it refuses
    new = job.next(["w0", "w1"], ["s0", "s1"], job.spread(2))
    for server in ("s0", "s1"):
        job.direct(server, prepare=pb.Prepare(configuration=codec.configuration_to_pb(new), mode=pb.LIVE))
    s0, s1 = job.servers["s0"], job.servers["s1"]
    until(lambda: s0.seen().apart.get("s1"))
    assert s0.seen().apart == {"s1": "refused: s0 was declared dead"}
    assert not job.controls["s0"].said(pb.PREPARED, new.id)
    with s1.state.changed:
        s1.state.standing = replace(s1.state.standing, dead=frozenset())
    job.controls["s0"].await_answer(pb.PREPARED, number=new.id)
    job.controls["s1"].await_answer(pb.SYNCED, number=new.id)


@TRANSPORTS
def test_a_push_that_was_sent_again_is_not_taken_back_by_the_connection_before(
    jobs: Jobs, monkeypatch, transport: Transport
) -> None:
    """The old connection's thread has read the push's header and waits for its turn when the worker is back."""
    waiting, gate = threading.Event(), threading.Event()
    first: list[Any] = []
    buffers = ServerNode.buffers

    def late(self: ServerNode, peer: Peer, frame: Frame) -> Any:
        if frame.kind is Kind.PUSH and peer.node == "w0" and frame.version == 1:
            first.append(peer.link)
            if peer.link is first[0]:
                waiting.set()
                assert gate.wait(TIMEOUT)
        return buffers(self, peer, frame)

    monkeypatch.setattr(ServerNode, "buffers", late)
    job = jobs.begin(Job(TENSORS, SGD, transport=transport))
    job.check_step(0)
    slabs = [job.random_slab() for _ in range(2)]
    job.push("w0", 1, slabs[0])
    assert waiting.wait(TIMEOUT)
    assert job.workers["w0"].connect(job.members["s0"]).kind is Kind.ACCEPTED
    job.push("w0", 1, slabs[0])
    job.drain("w0")
    gate.set()
    job.push("w1", 1, slabs[1])
    job.check_settled(1, slabs)


def test_who_has_not_pushed_what_others_have_is_waited_for(jobs: Jobs) -> None:
    job = jobs.begin(Job(TENSORS, SGD))
    job.check_step(0)
    server = job.servers["s0"]
    assert not server.seen().awaited
    slab = job.random_slab()
    job.push("w1", 1, slab)
    job.drain("w1")
    assert [(one.peer, one.what) for one in server.seen().awaited] == [("w0", "its push of version 1")]
    job.push("w0", 1, slab)
    job.workers["w0"].await_version(2)
    assert not server.seen().awaited


def test_blocks_that_have_not_been_handed_over_are_waited_for(jobs: Jobs) -> None:
    job = jobs.begin(Job(TENSORS, SGD))
    job.check_step(0)
    new = job.prepare_two(pb.PAUSE)
    job.direct("s1", adopt=pb.Adopt(configuration=codec.config_id_to_pb(new.id)))
    job.controls["s1"].await_answer(pb.SWITCHED, number=new.id)
    waits = [("s0", f"its blocks of configuration {new.id}")]
    until(lambda: [(one.peer, one.what) for one in job.servers["s1"].seen().awaited] == waits)
    job.adopt(new, ["s0", "s1"])
    job.controls["s1"].await_answer(pb.ARRIVED, number=new.id)
    until(lambda: not job.servers["s1"].seen().awaited)


def test_a_worker_whose_connection_broke_is_told_until_it_is_back(jobs: Jobs) -> None:
    job = jobs.begin(Job(TENSORS, SGD))
    server = job.servers["s0"]
    job.workers["w0"].close()
    until(lambda: server.seen().apart)
    assert list(server.seen().apart) == ["w0"]
    assert job.workers["w0"].connect(job.members["s0"]).kind is Kind.ACCEPTED
    until(lambda: not server.seen().apart)


@TRANSPORTS
def test_both_ends_of_a_connection_answer_probes(jobs: Jobs, transport: Transport) -> None:
    job = jobs.begin(Job(TENSORS, SGD, transport=transport))
    job.workers["w0"].send("s0", Frame(PingMeta()))
    assert job.workers["w0"].await_kind(Kind.PONG)
    job.drain("w1")  # it is accepted a moment before the server knows its connection
    (link,) = [link for link in job.servers["s0"].seen().channels if link.peer == "w1"]
    link.probe()
    assert job.workers["w1"].await_kind(Kind.PING)
