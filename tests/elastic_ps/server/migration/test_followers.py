"""Blocks have followers, which have every update before anybody has seen it."""

import threading
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from elastic_ps.control.codec import config_id_to_pb, configuration_to_pb
from elastic_ps.core.configuration import Configuration
from elastic_ps.core.model import members, runs
from elastic_ps.core.optimizer import OptimizerSpec
from elastic_ps.server.connections import Peer
from elastic_ps.server.phases import BlockStatus
from elastic_ps.server.service import ServerNode
from elastic_ps.transport.base import Transport
from elastic_ps.transport.frame_kinds import Kind
from elastic_ps.transport.frame_metas import PullMeta
from elastic_ps.transport.frames import Frame
from elastic_ps.transport.shm_transport import ShmTransport
from elastic_ps.transport.tcp import TcpTransport
from protos import elastic_pb2 as pb
from tests.elastic_ps.server.migration.test_broken_connections import reset
from tests.elastic_ps.server.server_harness import TOKEN, Job, Jobs
from tests.elastic_ps.server.server_peers import TIMEOUT
from tests.elastic_ps.server.server_reference import ADAM, SGD, TENSORS
from tests.elastic_ps.waiting import until

BLOCKS = len(Job(TENSORS).model.blocks)
OWNERS = [block * 2 // BLOCKS for block in range(BLOCKS)]
OTHERS = [1 - owner for owner in OWNERS]


def pair(jobs: Jobs, spec: OptimizerSpec | None = SGD, transport: Transport | None = None, **more: Any) -> Job:
    """Two servers that follow each other."""
    job = Job(TENSORS, spec, followers=OTHERS, transport=transport or TcpTransport(TOKEN), **more)
    return jobs.begin(job, servers=2, assignment=OWNERS)


def three(jobs: Jobs, transport: Transport | None = None) -> Job:
    """A pair, and a third server without blocks."""
    job = pair(jobs, ADAM, transport)
    job.join_server("s2")
    return job


class Hold:
    """Keeps FOLLOWED frames from an owner until it is let go."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, owner: str = "", follower: str = ""):
        self.gate, self.held = threading.Event(), threading.Event()
        arrived = ServerNode.arrived

        def late(node: ServerNode, peer: Peer, frame: Frame, data: Any) -> None:
            concerned = owner in ("", node.state.node) and follower in ("", peer.node)
            if frame.kind is Kind.FOLLOWED and concerned and not self.gate.is_set():
                self.held.set()
                assert self.gate.wait(TIMEOUT)
            arrived(node, peer, frame, data)

        monkeypatch.setattr(ServerNode, "arrived", late)


def check_copies(job: Job, configuration: Configuration | None = None) -> None:
    """Each follower that the configuration in force names comes to hold the bytes that the owner has."""
    configuration = configuration or job.configuration
    for block in range(BLOCKS):
        owner, follower = configuration.primary(block), configuration.follower(block)
        if follower is not None:
            until(lambda o=owner, f=follower, b=block: job.image(o, [b]) == job.image(f, [b]))


@pytest.mark.parametrize("transport", [TcpTransport(TOKEN), ShmTransport(TOKEN)], ids=["tcp", "shm"])
@pytest.mark.parametrize("spec", [SGD, ADAM, None])
def test_followers_hold_the_owners_bytes(jobs: Jobs, spec: OptimizerSpec | None, transport: Transport) -> None:
    job = pair(jobs, spec, transport)
    for server in ("s0", "s1"):
        job.controls[server].await_answer(pb.FOLLOWED, number=job.configuration.id)
        job.controls[server].await_answer(pb.ARRIVED, number=job.configuration.id)
    for version in range(4):
        job.check_step(version)
        check_copies(job)
    job.commit(["s0", "s1"])
    job.check_step(4)
    check_copies(job)


@pytest.mark.parametrize("transport", [TcpTransport(TOKEN), ShmTransport(TOKEN)], ids=["tcp", "shm"])
def test_one_record_brings_what_one_push_completes(
    jobs: Jobs, monkeypatch: pytest.MonkeyPatch, transport: Transport
) -> None:
    records: list[Frame] = []
    arrived = ServerNode.arrived

    def count(node: ServerNode, peer: Peer, frame: Frame, data: Any) -> None:
        if frame.kind is Kind.RECORD:
            records.append(frame)
        arrived(node, peer, frame, data)

    monkeypatch.setattr(ServerNode, "arrived", count)
    owners = [block % 2 for block in range(BLOCKS)]
    job = Job(TENSORS, ADAM, followers=[1 - owner for owner in owners], transport=transport)
    jobs.begin(job, servers=2, assignment=owners)
    for version in range(3):
        job.check_step(version)
        check_copies(job)
    halves = [
        half
        for owned in (list(range(0, BLOCKS, 2)), list(range(1, BLOCKS, 2)))
        for half in (owned[: len(owned) // 2], owned[len(owned) // 2 :])
    ]
    for version in (1, 2):  # before, snapshots bring some
        brought = [[block for block, _ in frame.runs] for frame in records if frame.version == version]
        assert sorted(brought) == sorted(halves)


def test_nobody_is_told_what_a_follower_has_not_acknowledged(jobs: Jobs, monkeypatch: pytest.MonkeyPatch) -> None:
    job = pair(jobs)
    job.check_step(0)
    job.controls["s0"].report_soon()
    told = len(job.controls["s0"].ledger)
    hold = Hold(monkeypatch, owner="s0")
    slabs = [job.random_slab() for _ in range(2)]
    for name, slab in zip(("w0", "w1"), slabs, strict=True):
        job.push(name, 1, slab)
    mine, theirs = job.configuration.blocks_of["s0"], job.configuration.blocks_of["s1"]
    job.workers["w0"].await_version(2, theirs)
    assert hold.held.wait(TIMEOUT)
    until(lambda: (job.servers["s0"].state.store.versions[list(mine)] == 2).all())
    job.push("w1", 1, slabs[1], servers=["s0"])  # once more, on a new connection as it were
    pull = Frame(PullMeta(runs=tuple(runs(mine))), job.configuration.id, 1)
    job.workers["w0"].send("s0", pull)
    job.controls["s0"].report_soon()
    assert job.servers["s0"].report().version == 1
    assert len(job.controls["s0"].ledger) == told
    assert not set(job.workers["w0"].values.get(2, {})) & set(mine)
    assert [one.peer for one in job.servers["s0"].seen().awaited] == ["s1"]
    assert not set(job.workers["w1"].values.get(2, {})) & set(mine)
    hold.gate.set()
    job.check_settled(1, slabs, ["w0", "w1"], job.configuration)
    job.controls["s0"].report_soon()
    assert {entry.version for entry in job.controls["s0"].ledger[told:]} == {1}
    assert job.servers["s0"].report().version == 2


def test_a_stream_that_breaks_begins_again(jobs: Jobs) -> None:
    job = pair(jobs, ADAM)
    job.check_step(0)
    for version in (1, 2, 3):
        reset(job)
        job.check_step(version)
        check_copies(job)


def test_blocks_that_are_followed_by_nobody_are_told_at_once(jobs: Jobs, monkeypatch: pytest.MonkeyPatch) -> None:
    job = Job(TENSORS, SGD, followers=[other if block % 2 else -1 for block, other in enumerate(OTHERS)])
    jobs.begin(job, servers=2, assignment=OWNERS)
    job.check_step(0)
    hold = Hold(monkeypatch)
    slabs = [job.random_slab() for _ in range(2)]
    for name, slab in zip(("w0", "w1"), slabs, strict=True):
        job.push(name, 1, slab)
    job.workers["w0"].await_version(2, range(0, BLOCKS, 2))
    assert not set(job.workers["w0"].values[2]) & set(range(1, BLOCKS, 2))
    hold.gate.set()
    job.check_settled(1, slabs, ["w0", "w1"], job.configuration)


# ---- plans -----------------------------------------------------------------------------------------------------------


ALL = ("s0", "s1", "s2")


def plan(job: Job, owners: list[int], followers: list[int], servers: tuple[str, ...] = ALL) -> Configuration:
    """Prepare a plan; whoever gets copies by it has caught up."""
    job.followers = followers
    new = job.next(["w0", "w1"], servers, owners)
    old = job.configuration
    job.prepare(new, servers)
    for server in servers:
        gets = any(
            server in (new.primary(b), new.follower(b)) and old.primary(b) != server
            for b in range(BLOCKS)
            if (new.primary(b), new.follower(b)) != (old.primary(b), old.follower(b))
        )
        if gets:
            job.controls[server].await_answer(pb.SYNCED, number=new.id)
    return new


PLANS = {
    "move": ([2 if owner == 0 else owner for owner in OWNERS], OTHERS),
    "move-back": ([2 if owner == 0 else owner for owner in OWNERS], [0 if owner == 0 else 2 for owner in OWNERS]),
    "promote": (OTHERS, [2] * BLOCKS),
    "swap": (OTHERS, OWNERS),
    "refollow": (OWNERS, [2] * BLOCKS),
    "unfollow": (OWNERS, [-1] * BLOCKS),
}


@pytest.mark.parametrize("how", ["clock", "adopt", "pause"])
@pytest.mark.parametrize("case", PLANS)
@pytest.mark.parametrize("transport", [TcpTransport(TOKEN), ShmTransport(TOKEN)], ids=["tcp", "shm"])
def test_a_plan_moves_owners_and_followers(jobs: Jobs, transport: Transport, case: str, how: str) -> None:
    owners, followers = PLANS[case]
    followers = [-1 if owner == follower else follower for owner, follower in zip(owners, followers, strict=True)]
    job = three(jobs, transport)
    job.check_step(0)
    if how == "pause":
        job.followers = followers
        new = job.next(["w0", "w1"], ["s0", "s1", "s2"], owners)
        job.prepare(new, ["s0", "s1", "s2"], pb.PAUSE)
    else:
        new = plan(job, owners, followers)
    job.check_step(1)
    if how == "adopt":
        job.adopt(new, ["s0", "s1", "s2"])
    else:
        for server in job.servers:
            job.direct(server, arm=pb.Arm(configuration=config_id_to_pb(new.id), clock=3))
        job.check_step(2)
        job.adopt(new, ["s0", "s1", "s2"])  # the third owns nothing perhaps, and is told
    version = 2 if how == "adopt" else 3
    job.check_step(version)
    for server in job.servers:
        job.controls[server].await_answer(pb.ARRIVED, number=new.id)
        job.controls[server].await_answer(pb.FOLLOWED, number=new.id)
    job.commit(["s0", "s1", "s2"])
    for server in job.servers:
        store = job.servers[server].state.store
        copies = {b for b in range(BLOCKS) if new.follower(b) == server}
        assert set(store.held(BlockStatus.FOLLOWER)) == copies
        assert set(store.held(BlockStatus.PRIMARY)) == set(new.blocks_of.get(server, ()))
    job.check_step(version + 1)
    check_copies(job, new)


def test_a_hand_over_waits_for_the_next_follower(jobs: Jobs, monkeypatch: pytest.MonkeyPatch) -> None:
    job = three(jobs)
    job.check_step(0)
    new = plan(job, OTHERS, [2] * BLOCKS)
    hold = Hold(monkeypatch, owner="s0", follower="s2")
    slabs = [job.random_slab() for _ in range(2)]
    for name, slab in zip(("w0", "w1"), slabs, strict=True):
        job.push(name, 1, slab)
    assert hold.held.wait(TIMEOUT)
    job.order_adopt(new)
    job.controls["s1"].await_answer(pb.SWITCHED, number=new.id)
    assert not job.controls["s0"].said(pb.SWITCHED, new.id)
    assert not job.controls["s1"].said(pb.ARRIVED, new.id)
    hold.gate.set()
    job.controls["s0"].await_answer(pb.SWITCHED, number=new.id)
    job.controls["s1"].await_answer(pb.ARRIVED, number=new.id)
    job.configuration = new
    for name, slab in zip(("w0", "w1"), slabs, strict=True):
        job.push(name, 1, slab, new)
    job.check_settled(1, slabs, ["w0", "w1"], new)
    job.check_step(2)
    check_copies(job, new)


# ---- deaths ----------------------------------------------------------------------------------------------------------


def die(job: Job, server: str) -> None:
    job.servers.pop(server).close()
    for worker in job.workers.values():
        worker._connections.pop(server).close()


def bury(job: Job, dead: str, owners: list[int], followers: list[int], servers: list[str]) -> dict[str, Any]:
    """Prepare a death's configuration; what survivors hold."""
    job.followers = followers
    new = job.next(["w0", "w1"], servers, owners)
    new = replace(new, id=new.id._replace(number=job.prepared.id.number + 1))
    alive = list(job.servers)
    job.prepare(new, alive, dead=[dead], undecided=True)
    return {name: job.controls[name].await_answer(pb.PREPARED, number=new.id).holdings for name in alive}


def decide(job: Job, promoted: list[int]) -> None:
    new = job.prepared
    flat = [number for run in runs(promoted) for number in run]
    adopt = pb.Adopt(configuration=config_id_to_pb(new.id), decided=configuration_to_pb(new), promoted=flat)
    for name in job.servers:
        job.direct(name, adopt=adopt)
    for name in job.servers:
        job.controls[name].await_answer(pb.SWITCHED, number=new.id)
    job.configuration = new


@pytest.mark.parametrize("transport", [TcpTransport(TOKEN), ShmTransport(TOKEN)], ids=["tcp", "shm"])
def test_the_follower_of_a_dead_owner_goes_on(jobs: Jobs, transport: Transport) -> None:
    job = pair(jobs, ADAM, transport)
    for version in range(2):
        job.check_step(version)
    slabs = [job.random_slab() for _ in range(2)]
    for name, slab in zip(("w0", "w1"), slabs, strict=True):
        job.push(name, 2, slab, blocks=range(0, BLOCKS, 2))
    for worker in job.workers.values():
        worker.await_version(3, range(0, BLOCKS, 2))
    theirs = [block for block in range(BLOCKS) if OWNERS[block] == 0]
    die(job, "s0")
    held = bury(job, "s0", [0] * BLOCKS, [-1] * BLOCKS, ["s1"])["s1"]
    of = {
        (one.kind, block): one.version
        for one in held
        for block in members(zip(one.runs[::2], one.runs[1::2], strict=True))
    }
    assert {block for kind, block in of if kind == pb.Holding.COPY} == set(theirs)
    assert all(of[pb.Holding.COPY, block] == 3 - block % 2 for block in theirs), "what anybody has seen"
    assert not job.controls["s1"].said(pb.SWITCHED, job.prepared.id)
    decide(job, theirs)
    for name, slab in zip(("w0", "w1"), slabs, strict=True):
        job.push(name, 2, slab)
    job.check_settled(2, slabs, ["w0", "w1"], job.configuration)
    job.check_step(3)


def test_a_plan_is_not_said_to_move_what_followers_are_sent_in_each_step(jobs: Jobs) -> None:
    job = three(jobs)
    for version in range(3):
        job.check_step(version)
    die(job, "s1")
    bury(job, "s1", [0] * BLOCKS, [-1] * BLOCKS, ["s0", "s2"])
    decide(job, [block for block in range(BLOCKS) if OWNERS[block] == 1])
    assert job.controls["s0"].await_answer(pb.SWITCHED, number=job.configuration.id).bytes_moved == 0


def test_an_undecided_death_is_adopted_on_no_peers_word(jobs: Jobs) -> None:
    job = pair(jobs)
    job.check_step(0)
    die(job, "s0")
    bury(job, "s0", [0] * BLOCKS, [-1] * BLOCKS, ["s1"])
    slab = job.random_slab()
    job.push("w0", 1, slab, job.prepared)
    job.workers["w0"].send("s1", Frame(PullMeta(runs=((BLOCKS - 1, 1),)), job.configuration.id, 1))
    job.workers["w0"].await_kind(Kind.VALUE, "s1")
    assert not job.controls["s1"].said(pb.SWITCHED, job.prepared.id)
    decide(job, [block for block in range(BLOCKS) if OWNERS[block] == 0])
    job.push("w0", 1, slab)
    other = job.random_slab()
    job.push("w1", 1, other)
    job.check_settled(1, [slab, other], ["w0", "w1"], job.configuration)


def test_an_owner_waits_for_a_dead_follower_until_its_death_is_adopted(jobs: Jobs) -> None:
    job = three(jobs)
    job.check_step(0)
    moved = plan(job, OWNERS, [2 if owner == 0 else 0 for owner in OWNERS])
    job.adopt(moved, ["s0", "s1", "s2"])
    job.commit(["s0", "s1", "s2"])
    job.check_step(1)
    die(job, "s2")
    slabs = [job.random_slab() for _ in range(2)]
    for name, slab in zip(("w0", "w1"), slabs, strict=True):
        job.push(name, 2, slab, servers=["s0", "s1"])
    mine = moved.blocks_of["s0"]
    until(lambda: (job.servers["s0"].state.store.versions[list(mine)] == 3).all())
    assert not set(job.workers["w0"].values.get(3, {})) & set(mine)
    bury(job, "s2", OWNERS, [-1 if owner == 0 else 0 for owner in OWNERS], ["s0", "s1"])
    decide(job, [])
    for name, slab in zip(("w0", "w1"), slabs, strict=True):
        job.push(name, 2, slab)
    job.check_settled(2, slabs, ["w0", "w1"], job.configuration)
    for server in job.servers:
        job.controls[server].await_answer(pb.FOLLOWED, number=job.configuration.id)
    again = plan(job, OWNERS, OTHERS, ("s0", "s1"))
    job.adopt(again, ["s0", "s1"])
    job.check_step(3)
    check_copies(job, again)


@pytest.mark.parametrize("switched", [False, True])
def test_an_owner_dies_in_a_plan_that_moves_its_blocks(jobs: Jobs, switched: bool) -> None:
    job = three(jobs)
    job.check_step(0)
    new = plan(job, *PLANS["move"])
    job.check_step(1)
    if switched:
        job.order_adopt(new)
        job.controls["s2"].await_answer(pb.ARRIVED, number=new.id)
        job.configuration = new
    moving = [block for block in range(BLOCKS) if OWNERS[block] == 0]
    die(job, "s0")
    followers = [-1 if owner == 1 or not switched else 0 for owner in OWNERS]
    owners = [1 if owner == 0 else 0 for owner in OWNERS]
    held = bury(job, "s0", owners, followers, ["s1", "s2"])
    kinds = {one.kind for one in held["s2"]}
    assert kinds == {pb.Holding.OWNED if switched else pb.Holding.COPY}
    decide(job, [] if switched else moving)
    job.check_step(2)
    job.commit(["s1", "s2"])
    job.check_step(3)
    check_copies(job)
    assert np.all(job.servers["s2"].state.store.status[moving] == BlockStatus.PRIMARY)


def test_a_new_owner_dies_before_the_clock(jobs: Jobs) -> None:
    """Its death lets the armed plan stand: what was to be handed over to it is awaited by nobody."""
    job = three(jobs)
    job.check_step(0)
    new = plan(job, *PLANS["move"])
    for server in job.servers:
        job.direct(server, arm=pb.Arm(configuration=config_id_to_pb(new.id), clock=5))
        job.controls[server].await_answer(pb.ARMED, number=new.id)
    die(job, "s2")
    until(lambda: job.servers["s0"].state.sources["s2"].link.closed)
    bury(job, "s2", OWNERS, OTHERS, ["s0", "s1"])
    decide(job, [block for block in range(BLOCKS) if OWNERS[block] == 0])
    job.check_step(1)
    job.commit(["s0", "s1"])
    job.check_step(2)
    check_copies(job)


def test_an_old_owner_dies_with_its_hand_overs_when_others_have_switched(
    jobs: Jobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is in no configuration that they still have, and their copies are all that there is of its blocks."""
    job = three(jobs)
    job.check_step(0)
    owners, job.followers = [1 - owner for owner in OWNERS], OWNERS  # of s1 and s2
    new = job.next(["w0", "w1"], ["s1", "s2"], owners)
    job.prepare(new, ALL)
    for name in ("s1", "s2"):
        job.controls[name].await_answer(pb.SYNCED, number=new.id)
    hold = Hold(monkeypatch, owner="s0")
    slabs = [job.random_slab() for _ in range(2)]
    for name, slab in zip(("w0", "w1"), slabs, strict=True):
        job.push(name, 1, slab)
    assert hold.held.wait(TIMEOUT)
    moving = [block for block in range(BLOCKS) if OWNERS[block] == 0]
    until(lambda: (job.servers["s2"].state.store.versions[moving] == 2).all())
    job.order_adopt(new)
    for name in ("s1", "s2"):
        job.controls[name].await_answer(pb.SWITCHED, number=new.id)
    job.configuration = new
    die(job, "s0")
    hold.gate.set()
    held = bury(job, "s0", owners, OWNERS, ["s1", "s2"])
    assert {(one.kind, one.version) for one in held["s2"]} == {(pb.Holding.COPY, 2)}
    decide(job, moving)
    for name, slab in zip(("w0", "w1"), slabs, strict=True):
        job.push(name, 1, slab)
    job.check_settled(1, slabs, ["w0", "w1"], job.configuration)
    for name in ("s1", "s2"):
        job.controls[name].await_answer(pb.ARRIVED, number=job.configuration.id)
        job.controls[name].await_answer(pb.FOLLOWED, number=job.configuration.id)
    job.commit(["s1", "s2"])
    job.check_step(2)
    check_copies(job)
