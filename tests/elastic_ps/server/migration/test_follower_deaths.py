"""Servers die whose blocks have followers: these go on, with all that anybody has seen."""

import numpy as np
import pytest

from elastic_ps.core.model import members
from elastic_ps.server.phases import BlockStatus
from elastic_ps.transport.base import Transport
from elastic_ps.transport.frame_kinds import Kind
from elastic_ps.transport.frame_metas import PullMeta
from elastic_ps.transport.frames import Frame
from elastic_ps.transport.shm_transport import ShmTransport
from elastic_ps.transport.tcp import TcpTransport
from protos import elastic_pb2 as pb
from tests.elastic_ps.server.migration.followed_job import ALL, BLOCKS, OTHERS, OWNERS, PLANS, Hold, pair, three
from tests.elastic_ps.server.server_harness import TOKEN, Jobs
from tests.elastic_ps.server.server_peers import TIMEOUT
from tests.elastic_ps.server.server_reference import ADAM
from tests.elastic_ps.waiting import until

OF_S0 = [block for block in range(BLOCKS) if OWNERS[block] == 0]
"""The blocks that s0 owns at first."""


@pytest.mark.parametrize("transport", [TcpTransport(TOKEN), ShmTransport(TOKEN)], ids=["tcp", "shm"])
def test_the_follower_of_a_dead_owner_goes_on(jobs: Jobs, transport: Transport) -> None:
    job = pair(jobs, ADAM, transport)
    for version in range(2):
        job.check_step(version)
    slabs = job.push_all(2, blocks=range(0, BLOCKS, 2))
    for worker in job.workers.values():
        worker.await_version(3, range(0, BLOCKS, 2))
    job.kill("s0")
    held = job.bury("s0", [0] * BLOCKS, [-1] * BLOCKS, ["s1"])["s1"]
    of = {
        (one.kind, block): one.version
        for one in held
        for block in members(zip(one.runs[::2], one.runs[1::2], strict=True))
    }
    assert {block for kind, block in of if kind == pb.Holding.COPY} == set(OF_S0)
    assert all(of[pb.Holding.COPY, block] == 3 - block % 2 for block in OF_S0), "what anybody has seen"
    assert not job.controls["s1"].said(pb.SWITCHED, job.prepared.id)
    job.decide(OF_S0)
    job.push_all(2, slabs)
    job.check_settled(2, slabs)
    job.check_step(3)


def test_a_plan_is_not_said_to_move_what_followers_are_sent_in_each_step(jobs: Jobs) -> None:
    job = three(jobs)
    for version in range(3):
        job.check_step(version)
    job.kill("s1")
    job.bury("s1", [0] * BLOCKS, [-1] * BLOCKS, ["s0", "s2"])
    job.decide([block for block in range(BLOCKS) if OWNERS[block] == 1])
    assert job.controls["s0"].await_answer(pb.SWITCHED, number=job.configuration.id).bytes_moved == 0


def test_an_undecided_death_is_adopted_on_no_peers_word(jobs: Jobs) -> None:
    job = pair(jobs)
    job.check_step(0)
    job.kill("s0")
    job.bury("s0", [0] * BLOCKS, [-1] * BLOCKS, ["s1"])
    slab = job.random_slab()
    job.push("w0", 1, slab, job.prepared)
    job.workers["w0"].send("s1", Frame(PullMeta(runs=((BLOCKS - 1, 1),)), job.configuration.id, 1))
    job.workers["w0"].await_kind(Kind.VALUE, "s1")
    assert not job.controls["s1"].said(pb.SWITCHED, job.prepared.id)
    job.decide(OF_S0)
    job.push("w0", 1, slab)
    other = job.random_slab()
    job.push("w1", 1, other)
    job.check_settled(1, [slab, other])


def test_an_owner_waits_for_a_dead_follower_until_its_death_is_adopted(jobs: Jobs) -> None:
    job = three(jobs)
    job.check_step(0)
    moved = job.prepare_plan(OWNERS, [2 if owner == 0 else 0 for owner in OWNERS])
    job.adopt(moved, ["s0", "s1", "s2"])
    job.commit(["s0", "s1", "s2"])
    job.check_step(1)
    job.kill("s2")
    slabs = job.push_all(2, servers=["s0", "s1"])
    mine = moved.blocks_of["s0"]
    until(lambda: (job.servers["s0"].state.store.versions[list(mine)] == 3).all())
    assert not set(job.workers["w0"].values.get(3, {})) & set(mine)
    job.bury("s2", OWNERS, [-1 if owner == 0 else 0 for owner in OWNERS], ["s0", "s1"])
    job.decide([])
    job.push_all(2, slabs)
    job.check_settled(2, slabs)
    for server in job.servers:
        job.controls[server].await_answer(pb.FOLLOWED, number=job.configuration.id)
    again = job.prepare_plan(OWNERS, OTHERS, ("s0", "s1"))
    job.adopt(again, ["s0", "s1"])
    job.check_step(3)
    job.check_copies(again)


@pytest.mark.parametrize("switched", [False, True])
def test_an_owner_dies_in_a_plan_that_moves_its_blocks(jobs: Jobs, switched: bool) -> None:
    job = three(jobs)
    job.check_step(0)
    new = job.prepare_plan(*PLANS["move"])
    job.check_step(1)
    if switched:
        job.order_adopt(new)
        job.controls["s2"].await_answer(pb.ARRIVED, number=new.id)
        job.configuration = new
    store = job.servers["s2"].state.store
    until(lambda: (store.versions[OF_S0] == 2).all())  # workers did not wait for it, as it was to own them only
    job.kill("s0")
    followers = [-1 if owner == 1 or not switched else 0 for owner in OWNERS]
    owners = [1 if owner == 0 else 0 for owner in OWNERS]
    held = job.bury("s0", owners, followers, ["s1", "s2"])
    kinds = {one.kind for one in held["s2"]}
    assert kinds == {pb.Holding.OWNED if switched else pb.Holding.COPY}
    job.decide([] if switched else OF_S0)
    job.check_step(2)
    job.commit(["s1", "s2"])
    job.check_step(3)
    job.check_copies()
    assert np.all(store.status[OF_S0] == BlockStatus.PRIMARY)


def test_a_new_owner_dies_before_the_clock(jobs: Jobs) -> None:
    """Its death lets the armed plan stand: what was to be handed over to it is awaited by nobody."""
    job = three(jobs)
    job.check_step(0)
    new = job.prepare_plan(*PLANS["move"])
    job.order_arm(new, 5)
    for server in job.servers:
        job.controls[server].await_answer(pb.ARMED, number=new.id)
    job.kill("s2")
    until(lambda: job.servers["s0"].state.sources["s2"].link.closed)
    job.bury("s2", OWNERS, OTHERS, ["s0", "s1"])
    job.decide(OF_S0)
    job.check_step(1)
    job.commit(["s0", "s1"])
    job.check_step(2)
    job.check_copies()


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
    slabs = job.push_all(1)
    assert hold.held.wait(TIMEOUT)
    store = job.servers["s2"].state.store
    until(lambda: (store.versions[store.held(BlockStatus.FOLLOWER)] == 2).all())
    job.order_adopt(new)
    for name in ("s1", "s2"):
        job.controls[name].await_answer(pb.SWITCHED, number=new.id)
    job.configuration = new
    job.kill("s0")
    hold.gate.set()
    held = job.bury("s0", owners, OWNERS, ["s1", "s2"])
    assert {(one.kind, one.version) for one in held["s2"]} == {(pb.Holding.COPY, 2)}
    job.decide(OF_S0)
    job.push_all(1, slabs)
    job.check_settled(1, slabs)
    for name in ("s1", "s2"):
        job.controls[name].await_answer(pb.ARRIVED, number=job.configuration.id)
        job.controls[name].await_answer(pb.FOLLOWED, number=job.configuration.id)
    job.commit(["s1", "s2"])
    job.check_step(2)
    job.check_copies()


def test_who_has_told_that_it_has_a_block_hands_it_over_to_no_dead_server(
    jobs: Jobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The follower's acknowledgement, for which the hand-over has waited, comes between the answer and the decision."""
    job = three(jobs)
    job.check_step(0)
    new = job.prepare_plan([2 if owner == 0 else 1 for owner in OWNERS], [1 if owner == 0 else 0 for owner in OWNERS])
    hold = Hold(monkeypatch, owner="s0", follower="s1")
    slabs = job.push_all(1)
    assert hold.held.wait(TIMEOUT)
    state = job.servers["s0"].state
    until(lambda: (state.store.versions[OF_S0] == 2).all())
    job.order_adopt(new)
    job.controls["s1"].await_answer(pb.SWITCHED, number=new.id)
    job.kill("s2")
    held = job.bury("s2", OWNERS, [-1] * BLOCKS, ["s0", "s1"])["s0"]
    assert pb.Holding.LEAVING in {one.kind for one in held}
    hold.gate.set()
    until(lambda: (state.acknowledged.of("s1")[OF_S0] == 2).all())
    job.decide([])
    job.push_all(1, slabs)
    job.check_settled(1, slabs)
    job.check_step(2)
