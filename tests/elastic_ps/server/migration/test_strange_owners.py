"""A server takes copies only from servers of the configurations that it knows, under whatever number they come."""

import numpy as np
import pytest

from elastic_ps.core.configuration import ConfigId, Member, Role
from elastic_ps.core.errors import PeerLost
from elastic_ps.server.connections import FOLLOW
from elastic_ps.server.phases import BlockStatus
from elastic_ps.transport.base import Connection
from elastic_ps.transport.frame_kinds import Kind
from elastic_ps.transport.frame_metas import HelloMeta, RecordMeta, RefusedMeta, SnapshotMeta
from elastic_ps.transport.frames import Frame
from tests.elastic_ps.server.migration.followed_job import FollowedJob, pair
from tests.elastic_ps.server.server_harness import Jobs
from tests.elastic_ps.server.server_reference import HYPER


def stream_of(job: FollowedJob, node: str, to: str) -> Connection:
    """A server's follow stream: it has found the address that it knew of, where another process listens by now."""
    server = job.members[to]
    connection = job.transport.connect(server.host, server.port, server.id)
    connection.send(Frame(HelloMeta(node=node, role=Role.SERVER, lane=FOLLOW)))
    assert connection.receive().kind is Kind.ACCEPTED
    return connection


@pytest.mark.parametrize("number", [ConfigId(0, 7), ConfigId(1, 1)], ids=["of-a-term-before", "in-force"])
def test_a_snapshot_of_an_owner_that_nobody_knows_replaces_no_copy(jobs: Jobs, number: ConfigId) -> None:
    job = pair(jobs)
    for version in range(2):
        job.check_step(version)
    job.check_copies()
    (block, *_), state = job.configuration.blocks_of["s0"], job.servers["s1"].state
    before, size = job.image("s1", [block]), state.store.image_bytes((block, 1))
    stream = stream_of(job, "s9", to="s1")
    snapshot = SnapshotMeta(runs=((block, 1),), counts=(9,), number=1)
    stream.send(Frame(snapshot, number, 9), [np.zeros(size, dtype=np.uint8)])
    answer = stream.receive()
    assert isinstance(answer.meta, RefusedMeta)
    assert "s9 sent SNAPSHOT, but is in no configuration that this server knows" in answer.meta.detail
    assert job.image("s1", [block]) == before
    job.check_step(2)
    job.check_copies()
    stream.close()


def test_a_server_that_finds_another_where_one_listened_streams_nothing_to_it(jobs: Jobs) -> None:
    """It has not heard of the death of the one, in whose place the other was started."""
    job = pair(jobs)
    job.add_server("s2")
    replaced, copied = (
        Member("s1", Role.SERVER, job.members["s2"].host, job.members["s2"].port),
        job.servers["s2"].state.store,
    )
    hello = Frame(HelloMeta(node="s0", role=Role.SERVER, lane=FOLLOW), job.configuration.id)
    with pytest.raises(PeerLost, match="refused: this is s2, and not s1, which listened here before"):
        job.servers["s0"].connections.open_follow(replaced, hello)
    assert not job.servers["s2"].connections.links
    assert not len(copied.held(BlockStatus.FOLLOWER))


def test_a_record_of_an_owner_that_nobody_knows_updates_no_copy(jobs: Jobs) -> None:
    job = pair(jobs)
    for version in range(2):
        job.check_step(version)
    job.check_copies()
    (block, *_), before = job.configuration.blocks_of["s0"], job.image("s1", list(job.configuration.blocks_of["s0"]))
    stream = stream_of(job, "s9", to="s1")
    gradient = np.ones(job.model.blocks[block].extent, dtype=np.uint8)
    stream.send(Frame(RecordMeta(runs=((block, 1),), hyper=HYPER), job.configuration.id, 2), [gradient])
    assert stream.receive().kind is Kind.REFUSED
    assert job.image("s1", list(job.configuration.blocks_of["s0"])) == before
    stream.close()
