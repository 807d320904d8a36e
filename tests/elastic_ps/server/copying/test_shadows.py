"""What a shadow is sent whose path is slower than training: whole versions, of which all servers choose the same."""

import threading
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from elastic_ps.control import codec
from elastic_ps.core.configuration import Configuration, Role
from elastic_ps.core.model import Model, Tensor
from elastic_ps.server.blocks.block_store import ServerBlockStore
from elastic_ps.server.connections import Connections
from elastic_ps.server.copying import shadows
from elastic_ps.server.copying.shadows import Subscription
from elastic_ps.server.phases import BlockStatus
from elastic_ps.transport import stream
from elastic_ps.transport.frame_kinds import Kind
from elastic_ps.transport.frame_metas import HelloMeta, SubscribeMeta
from elastic_ps.transport.frames import Frame
from elastic_ps.transport.shm_transport import ShmTransport
from elastic_ps.transport.tcp import TcpTransport
from protos import elastic_pb2 as pb
from tests.elastic_ps.server.server_harness import TOKEN, Job, Jobs
from tests.elastic_ps.server.server_peers import TIMEOUT
from tests.elastic_ps.server.server_reference import SGD

TENSORS = tuple(Tensor(0, f"i:{number}", (25_000,), "float32") for number in range(4))
BLOCK_BYTES = 64 << 10
MODEL = Model(TENSORS, BLOCK_BYTES)
BOUND = 100 << 10


class Outbox:
    """A connection of which a test says what waits."""

    def __init__(self) -> None:
        self.waiting = 0

    def backlog(self, _node: str) -> int:
        return self.waiting

    def is_connected(self, _node: str) -> bool:
        return True


def subscribed() -> tuple[Subscription, Outbox]:
    outbox = Outbox()
    return Subscription("w9", ServerBlockStore(Model(TENSORS[:1], BLOCK_BYTES), ()), outbox), outbox  # type: ignore[arg-type]


def greeted(job: Job) -> Any:
    """A connection of w9, which the server has accepted."""
    server = job.members["s0"]
    connection = TcpTransport(TOKEN).connect(server.host, server.port, "s0")
    connection.send(Frame(HelloMeta(node="w9", role=Role.WORKER, lane="exchange")))
    assert connection.receive().kind is Kind.ACCEPTED
    return connection


@pytest.fixture
def joining(jobs: Jobs, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Job, Any, Configuration]]:
    """A job, w9's connection, which has subscribed and reads nothing, and the plan by which it joins."""
    monkeypatch.setattr(shadows, "BACKLOG_BYTES", BOUND)
    monkeypatch.setattr(stream, "_SOCKET_BYTES", BOUND)
    job = jobs.begin(Job(TENSORS, SGD, block_bytes=BLOCK_BYTES))
    job.check_step(0)
    connection = greeted(job)
    new = job.next(["w0", "w1", "w9"], ["s0"], [0] * len(MODEL.blocks))
    job.prepare(new, ["s0"])
    connection.send(Frame(SubscribeMeta(), job.configuration.id))
    state = job.servers["s0"].state
    with state.changed:
        assert state.changed.wait_for(lambda: state.subscriptions, TIMEOUT)
    yield job, connection, new
    connection.close()


def read(connection: Any, until: int | None = None) -> dict[int, dict[int, bytes]]:
    """Blocks by version: those before a NOTICE, or until one version is whole."""
    values: dict[int, dict[int, bytes]] = {}
    while len(values.get(-1 if until is None else until, ())) < len(MODEL.blocks):
        frame = connection.receive()
        data = np.empty(frame.payload_bytes, dtype=np.uint8)
        connection.receive_into([data])
        if frame.kind is Kind.NOTICE:
            break
        low = 0
        for run in frame.runs:
            for block in range(run[0], sum(run)):
                high = low + MODEL.blocks[block].extent
                values.setdefault(frame.version, {})[block] = data[low:high].tobytes()
                low = high
    return values


def whole(blocks: dict[int, bytes]) -> bytes:
    return b"".join(blocks[block] for block in sorted(blocks))


def test_a_shadow_slower_than_training_is_owed_at_most_a_bound_and_one_version(joining) -> None:
    job, connection, new = joining
    outbox = job.servers["s0"].connections
    highest = 0
    for version in range(1, 31):
        job.check_step(version)
        highest = max(highest, outbox.backlog("w9"))
    assert BOUND < highest <= BOUND + MODEL.slab_bytes
    job.order_arm(new, 31, ["s0"])
    values = read(connection)
    assert whole(values[31]) == job.reference.slab.tobytes(), "the clock's version comes before the NOTICE"
    assert len(values) < 15


def test_a_shadow_that_shares_memory_reads_values_in_place_once_its_plan_is_armed(jobs: Jobs) -> None:
    """Copies of the clock's version came 100 to 300 ms behind the members', who waited for its first step (102 MB)."""
    job = jobs.begin(Job(TENSORS, SGD, block_bytes=BLOCK_BYTES, transport=ShmTransport(TOKEN)))
    job.check_step(0)
    new = job.next(["w0", "w1", "w9"], ["s0"], [0] * len(MODEL.blocks))
    job.prepare(new, ["s0"])
    shadow = job.add_worker("w9")
    shadow.send("s0", Frame(SubscribeMeta(), job.configuration.id if job.configuration else new.id))
    shadow.await_version(1)
    job.check_step(1)
    shadow.await_version(2)
    job.arm(new, 4)
    for version in (2, 3):
        job.check_step(version)
        shadow.await_version(version + 1)
        assert shadow.slab(version + 1).tobytes() == job.reference.slab.tobytes()
    told = [received.frame for received in shadow.received if received.frame.kind is Kind.VALUE]
    lying = {version: {bool(frame.at) for frame in told if frame.version == version} for version in (1, 2, 3, 4)}
    assert lying == {1: {False}, 2: {False}, 3: {True}, 4: {True}}
    job.configuration = new
    job.check_step(4)


def test_a_shadow_that_another_plan_goes_on_without_is_owed_no_more_when_that_is_armed(joining) -> None:
    """Its machine may be gone, and nothing closes its connection for a while. Found by the world (396378970451)."""
    job, _, new = joining
    server = job.servers["s0"]
    job.direct("s0", cancel=pb.CancelPlan(configuration=codec.config_id_to_pb(new.id), reason="w9 is gone"))
    other = job.next(["w0", "w1"], ["s0"], [0] * len(MODEL.blocks))
    other = replace(other, id=new.id._replace(number=new.id.number + 1))
    job.prepare(other, ["s0"])
    job.order_arm(other, 31, ["s0"])
    for version in range(1, 31):
        job.check_step(version)
        assert server.connections.backlog("w9") <= BOUND + MODEL.slab_bytes
    assert server.state.subscriptions.keys() == {"w9"}


def test_a_shadow_that_has_gone_is_forgotten_when_no_plan_takes_it(joining) -> None:
    job, connection, new = joining
    state = job.servers["s0"].state
    connection.close()
    with state.changed:
        assert state.changed.wait_for(lambda: not state.outbox.is_connected("w9"), TIMEOUT)
    assert state.subscriptions.keys() == {"w9"}, "it may come back"
    job.direct("s0", cancel=pb.CancelPlan(configuration=codec.config_id_to_pb(new.id), reason="w9 is gone"))
    assert not state.subscriptions


def test_a_shadow_that_has_gone_is_forgotten_when_a_plan_without_it_is_committed(joining) -> None:
    job, connection, new = joining
    state = job.servers["s0"].state
    job.direct("s0", cancel=pb.CancelPlan(configuration=codec.config_id_to_pb(new.id), reason="not wanted now"))
    assert state.subscriptions.keys() == {"w9"}, "it is here, and the next plan may take it"
    connection.close()
    with state.changed:
        assert state.changed.wait_for(lambda: not state.outbox.is_connected("w9"), TIMEOUT)
    other = job.next(["w0", "w1"], ["s0"], [0] * len(MODEL.blocks))
    other = replace(other, id=new.id._replace(number=new.id.number + 1))
    job.prepare(other, ["s0"])
    job.adopt(other, ["s0"])
    job.commit(["s0"])
    assert not state.subscriptions


def test_a_slow_shadow_gets_the_latest_version_once_training_stands_still(joining) -> None:
    job, connection, _ = joining
    for version in range(1, 21):
        job.check_step(version)
    values = read(connection, until=21)
    assert whole(values[21]) == job.reference.slab.tobytes()


def test_a_shadow_that_connects_again_is_sent_all_again(joining, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where whoever copies looks at it just before its connection counts: nothing else may come to wake it."""
    job, connection, _ = joining
    server = job.servers["s0"]
    state, register, looks = server.state, Connections._register, Subscription.has_work
    read(connection, until=1)
    connection.close()
    with state.changed:
        assert state.changed.wait_for(lambda: ("w9", "exchange") in server._broken, TIMEOUT)
    looked = threading.Event()

    def look(shadow: Subscription) -> bool:
        looked.set()
        return bool(looks.fget(shadow))  # type: ignore[attr-defined]

    def register_late(*given: Any) -> Any:
        monkeypatch.setattr(Subscription, "has_work", property(look))
        with state.changed:
            state.changed.notify_all()
        assert looked.wait(TIMEOUT)
        with state.changed:  # it sleeps
            return register(*given)

    monkeypatch.setattr(Connections, "_register", register_late)
    again = greeted(job)
    assert whole(read(again, until=1)[1]) == job.reference.slab.tobytes()
    again.close()


def test_servers_whose_paths_differ_send_versions_in_common() -> None:
    (slow, behind), (fast, ahead) = subscribed(), subscribed()
    sent: dict[Subscription, list[int]] = {slow: [], fast: []}
    for version in range(1, 200):
        behind.waiting = 2 * shadows.BACKLOG_BYTES if version < 40 and version % 3 else 0
        ahead.waiting = 2 * shadows.BACKLOG_BYTES if version == 2 else 0
        for shadow, versions in sent.items():
            if shadow.takes(version, armed=False):
                versions.append(version)
            assert shadow.takes(version, armed=False) == (version in versions), "all blocks of a version or none"
    assert len(sent[slow]) < len(sent[fast]) < 199
    late = [version for version in sent[slow] if version > 40]
    assert len(late) >= 3
    assert set(late) <= set(sent[fast])


def test_an_armed_plans_shadow_gets_every_version() -> None:
    shadow, outbox = subscribed()
    outbox.waiting = 1 << 30
    assert not shadow.takes(2, armed=False)
    assert [shadow.takes(version, armed=True) for version in (3, 4, 5)] == [True] * 3


def test_what_was_left_out_is_owed_until_it_is_sent() -> None:
    shadow, outbox = subscribed()
    store = shadow._store
    store.status[:] = BlockStatus.PRIMARY
    shadow.sent((0, len(store.status)))
    assert not shadow.has_work
    shadow.owes((0, 1))
    assert shadow.has_work
    outbox.waiting = 2 * shadows.BACKLOG_BYTES
    assert not shadow.has_work
