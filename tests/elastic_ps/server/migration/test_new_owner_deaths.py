"""A server dies that a plan gives blocks to, before it has them: their owners before go on."""

import pytest

from protos import elastic_pb2 as pb
from tests.elastic_ps.server.migration.test_followers import BLOCKS, OWNERS, Hold, bury, decide, die, plan, three
from tests.elastic_ps.server.server_harness import Jobs
from tests.elastic_ps.server.server_peers import TIMEOUT
from tests.elastic_ps.waiting import until

MOVING = [block for block in range(BLOCKS) if OWNERS[block] == 0]


def test_who_has_told_that_it_has_a_block_hands_it_over_to_no_dead_server(
    jobs: Jobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The follower's acknowledgement, for which the hand-over has waited, comes between the answer and the decision."""
    job = three(jobs)
    job.check_step(0)
    new = plan(job, [2 if owner == 0 else 1 for owner in OWNERS], [1 if owner == 0 else 0 for owner in OWNERS])
    hold = Hold(monkeypatch, owner="s0", follower="s1")
    slabs = [job.random_slab() for _ in range(2)]
    for name, slab in zip(("w0", "w1"), slabs, strict=True):
        job.push(name, 1, slab)
    assert hold.held.wait(TIMEOUT)
    state = job.servers["s0"].state
    until(lambda: (state.store.versions[MOVING] == 2).all())
    job.order_adopt(new)
    job.controls["s1"].await_answer(pb.SWITCHED, number=new.id)
    die(job, "s2")
    held = bury(job, "s2", OWNERS, [-1] * BLOCKS, ["s0", "s1"])["s0"]
    assert pb.Holding.LEAVING in {one.kind for one in held}
    hold.gate.set()
    until(lambda: (state.acknowledged.of("s1")[MOVING] == 2).all())
    decide(job, [])
    for name, slab in zip(("w0", "w1"), slabs, strict=True):
        job.push(name, 1, slab)
    job.check_settled(1, slabs, ["w0", "w1"], job.configuration)
    job.check_step(2)
