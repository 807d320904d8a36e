"""Plans move owners and followers while training goes on."""

import threading
from dataclasses import replace

import numpy as np
import pytest

from elastic_ps.control.codec import config_id_to_pb
from elastic_ps.server.background_work import BackgroundWork
from elastic_ps.server.copying import follow_source
from elastic_ps.server.phases import BlockStatus
from elastic_ps.server.state.acknowledged import NOTHING
from elastic_ps.transport.base import Transport
from elastic_ps.transport.frame_metas import SubscribeMeta
from elastic_ps.transport.frames import Frame
from elastic_ps.transport.shm_transport import ShmTransport
from elastic_ps.transport.tcp import TcpTransport
from protos import elastic_pb2 as pb
from tests.elastic_ps.server.migration.followed_job import (
    ALL,
    BLOCKS,
    OTHERS,
    OWNERS,
    PLANS,
    FollowedJob,
    Hold,
    held_update,
    three,
)
from tests.elastic_ps.server.server_harness import TOKEN, Jobs
from tests.elastic_ps.server.server_peers import TIMEOUT
from tests.elastic_ps.server.server_reference import ADAM, TENSORS
from tests.elastic_ps.waiting import until
from tests.sweeps import sweep


@pytest.mark.parametrize("how", ["clock", "adopt", "pause"])
@pytest.mark.parametrize("case", PLANS)
@pytest.mark.parametrize("transport", sweep([TcpTransport(TOKEN), ShmTransport(TOKEN)]), ids=["tcp", "shm"])
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
        new = job.prepare_plan(owners, followers)
    job.check_step(1)
    if how == "adopt":
        job.adopt(new, ["s0", "s1", "s2"])
    else:
        job.order_arm(new, 3)
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
    job.check_copies(new)


def test_a_hand_over_waits_for_the_next_follower(jobs: Jobs, monkeypatch: pytest.MonkeyPatch) -> None:
    job = three(jobs)
    job.check_step(0)
    new = job.prepare_plan(OTHERS, [2] * BLOCKS)
    hold = Hold(monkeypatch, owner="s0", follower="s2")
    slabs = job.push_all(1)
    assert hold.held.wait(TIMEOUT)
    job.order_adopt(new)
    job.controls["s1"].await_answer(pb.SWITCHED, number=new.id)
    assert not job.controls["s0"].said(pb.SWITCHED, new.id)
    assert not job.controls["s1"].said(pb.ARRIVED, new.id)
    hold.gate.set()
    job.controls["s0"].await_answer(pb.SWITCHED, number=new.id)
    job.controls["s1"].await_answer(pb.ARRIVED, number=new.id)
    job.configuration = new
    job.push_all(1, slabs, new)
    job.check_settled(1, slabs, new)
    job.check_step(2)
    job.check_copies(new)


def test_what_a_follower_has_said_of_a_plan_that_is_cancelled_counts_for_no_other(
    jobs: Jobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has dropped these copies. In pause mode it gets others at the switch, and the hand-over waits for them."""
    job = three(jobs)
    some = [2 if block == 0 else other for block, other in enumerate(OTHERS)]
    job.adopt(job.prepare_plan(OWNERS, some), ALL)  # a stream from s0 to s2 stands, whatever plans there are
    job.commit(ALL)
    job.check_step(0)
    void = job.prepare_plan(OWNERS, [2] * BLOCKS)
    hold = Hold(monkeypatch, owner="s0", follower="s2")
    slabs = job.push_all(1)
    assert hold.held.wait(TIMEOUT)
    state = job.servers["s0"].state
    times = state.acknowledged.times("s2")
    for server in ALL:
        job.direct(server, cancel=pb.CancelPlan(configuration=config_id_to_pb(void.id)))
    job.followers = [2] * BLOCKS
    new = job.next(["w0", "w1"], ALL, OTHERS)
    new = replace(new, id=new.id._replace(number=void.id.number + 1))
    job.prepare(new, ALL, pb.PAUSE)
    hold.gate.set()
    job.check_settled(1, slabs)
    assert state.acknowledged.times("s2") > times
    with state.changed:
        known = np.flatnonzero(state.acknowledged.of("s2") != NOTHING)
    assert known.tolist() == [0]
    job.adopt(new, ALL)
    for server in ("s0", "s1"):
        job.controls[server].await_answer(pb.FOLLOWED, number=new.id)
    job.check_step(2)
    job.check_copies(new)


@pytest.mark.parametrize("ends", ["adopted", "cancelled"])
def test_where_a_block_has_no_follower_yet_nobody_is_told_what_a_plans_copy_lacks(
    jobs: Jobs, monkeypatch: pytest.MonkeyPatch, ends: str
) -> None:
    """Should the owner die once the plan is armed, the copy goes on, with the ledger that the coordinator has."""
    job = jobs.begin(FollowedJob(TENSORS, ADAM, transport=TcpTransport(TOKEN)), servers=2, assignment=OWNERS)
    job.check_step(0)
    new = job.prepare_plan(OWNERS, OTHERS, ("s0", "s1"))
    hold, slabs, told = held_update(job, monkeypatch)
    mine = job.configuration.blocks_of["s0"]
    job.controls["s0"].report_soon()
    assert len(job.controls["s0"].ledger) == told
    assert not set(job.workers["w0"].values.get(2, {})) & set(mine)
    assert [one.peer for one in job.servers["s0"].seen().awaited] == ["s1"]
    if ends == "cancelled":
        for name in ("s0", "s1"):
            job.direct(name, cancel=pb.CancelPlan(configuration=config_id_to_pb(new.id)))
    else:
        hold.gate.set()
        job.adopt(new, ["s0", "s1"])
    job.check_settled(1, slabs)
    hold.gate.set()
    job.check_step(2)
    job.controls["s0"].report_soon()
    assert [entry.version for entry in job.controls["s0"].ledger[told:]] == [1, 2]


def test_a_stream_that_workers_wait_for_does_not_fall_back(jobs: Jobs, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its records may be more than fits: else they would wait for what is not sent any more."""
    job = jobs.begin(FollowedJob(TENSORS, ADAM, transport=TcpTransport(TOKEN)), servers=2, assignment=OWNERS)
    job.check_step(0)
    new = job.prepare_plan(OWNERS, OTHERS, ("s0", "s1"))
    monkeypatch.setattr(follow_source, "_RECORDS_BYTES", -1)
    job.check_step(1)
    assert not job.servers["s0"].state.sources["s1"].fell_back
    job.adopt(new, ["s0", "s1"])
    job.check_step(2)
    job.check_copies(new)


def test_a_stream_falls_back_where_every_block_has_a_follower_that_is_waited_for(
    jobs: Jobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody waits for the plan's copies, so that a follower which does nothing would be sent more and more."""
    job = three(jobs)
    job.check_step(0)
    job.prepare_plan(OWNERS, [2] * BLOCKS)
    monkeypatch.setattr(follow_source, "_RECORDS_BYTES", -1)
    job.check_step(1)
    server = job.servers["s0"]
    state, sources = server.state, server.plan_steps.sources
    assert state.sources["s2"].fell_back
    assert not state.sources["s2"].guards
    with state.changed:  # the followers of the configuration die: what the stream brought is no copy
        sources._named = [None] * BLOCKS
        sources._require()
        assert state.acknowledged.told.min() > 1


def test_what_came_of_a_stream_that_has_fallen_back_is_no_copy(jobs: Jobs) -> None:
    job = jobs.begin(FollowedJob(TENSORS, ADAM, transport=TcpTransport(TOKEN)), servers=2, assignment=OWNERS)
    job.check_step(0)
    new = job.prepare_plan(OWNERS, OTHERS, ("s0", "s1"))
    state, store = job.servers["s0"].state, job.servers["s1"].state.store
    with state.changed:
        state.sources["s1"]._fall_back()
    until(lambda: (store.versions[list(job.configuration.blocks_of["s0"])] == NOTHING).all())
    job.adopt(new, ["s0", "s1"])
    job.check_step(1)
    job.check_copies(new)


def test_a_shadow_is_sent_what_the_next_follower_acknowledges_last(jobs: Jobs, monkeypatch: pytest.MonkeyPatch) -> None:
    """It connects again just after the switch to another follower, and the job waits for its first step."""
    job = three(jobs)
    job.check_step(0)
    new = job.prepare_plan(*PLANS["refollow"])
    hold = Hold(monkeypatch, owner="s0", follower="s2")
    job.check_step(1)
    assert hold.held.wait(TIMEOUT)
    job.adopt(new, ALL)
    asleep, is_due = threading.Event(), BackgroundWork._is_due

    def look(work: BackgroundWork, sleeps: bool) -> bool:
        due = is_due(work, sleeps)
        if sleeps and not due and work._state.node == "s0" and work._state.subscriptions:
            asleep.set()
        return due

    monkeypatch.setattr(BackgroundWork, "_is_due", look)
    joiner = job.add_worker("w9")
    joiner.send("s0", Frame(SubscribeMeta(), new.id))
    assert asleep.wait(TIMEOUT)
    hold.gate.set()
    joiner.await_version(2, new.blocks_of["s0"])
