"""Followers in an async job, where each push is an update of its own."""

import pytest

from elastic_ps.server.blocks.applied_batches import BatchId
from elastic_ps.transport.frame_kinds import Kind
from protos import elastic_pb2 as pb
from tests.elastic_ps.server.migration.followed_job import BLOCKS, OTHERS, OWNERS, Hold, pair
from tests.elastic_ps.server.migration.test_async_moves import DATA, check_exchange, check_settled, push
from tests.elastic_ps.server.migration.test_broken_connections import reset
from tests.elastic_ps.server.server_harness import Jobs
from tests.elastic_ps.server.server_peers import TIMEOUT
from tests.elastic_ps.server.server_reference import ADAM, SGD
from tests.elastic_ps.waiting import until

SPECS = pytest.mark.parametrize("spec", [SGD, ADAM])


@SPECS
def test_a_follower_takes_over_what_workers_have_seen(jobs: Jobs, spec) -> None:
    job = pair(jobs, spec, data=DATA)
    for step, worker in enumerate(("w0", "w1", "w0")):
        check_exchange(job, worker, step // 2, step)
        job.check_copies()
    reset(job)
    check_exchange(job, "w1", 1, 3)
    job.check_copies()
    slab, batch = job.random_slab(), BatchId("w0", 2)
    push(job, "w0", 2, 4, slab, batch)
    check_settled(job, "w0", 2, slab)
    theirs = [block for block in range(BLOCKS) if OWNERS[block] == 0]
    job.kill("s0")
    job.bury("s0", [0] * BLOCKS, [-1] * BLOCKS, ["s1"])
    job.decide(theirs)
    job.workers["w1"].values.clear()
    push(job, "w1", 2, 4, slab, batch)  # the batch of one who is gone: every block has taken it
    job.workers["w1"].await_version(3)
    assert job.workers["w1"].slab(3).tobytes() == job.reference.slab.tobytes()
    check_exchange(job, "w1", 3, 5)


def test_a_push_is_answered_when_the_follower_has_it(jobs: Jobs, monkeypatch: pytest.MonkeyPatch) -> None:
    job = pair(jobs, data=DATA)
    check_exchange(job, "w0", 0, 0)
    hold = Hold(monkeypatch, owner="s0")
    first, second = job.random_slab(), job.random_slab()
    push(job, "w0", 1, 1, first)
    assert hold.held.wait(TIMEOUT)
    mine, theirs = (list(job.configuration.blocks_of[server]) for server in ("s0", "s1"))
    for server, blocks in (("s0", mine), ("s1", theirs)):  # each takes them in the same order
        until(lambda server=server, blocks=blocks: (job.servers[server].state.store.versions[blocks] == 2).all())
    push(job, "w1", 0, 2, second)
    until(lambda: (job.servers["s0"].state.store.versions[mine] == 3).all())
    assert not set(job.workers["w0"].values.get(2, {})) & set(mine)
    hold.gate.set()
    for slab in (first, second):
        job.reference.update([slab], [job.data.global_batch])
    for worker, version in (("w0", 2), ("w1", 1)):
        job.workers[worker].await_version(version)
    assert OTHERS != OWNERS
    check_exchange(job, "w0", 2, 3)


def test_an_owner_that_has_switched_answers_no_push_of_blocks_that_leave(
    jobs: Jobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = pair(jobs, data=DATA)
    job.join_server("s2")
    check_exchange(job, "w0", 0, 0)
    new = job.prepare_plan(
        [2 if owner == 0 else owner for owner in OWNERS], [1 if owner == 0 else 0 for owner in OWNERS]
    )
    hold = Hold(monkeypatch, owner="s0")
    slab = job.random_slab()
    push(job, "w0", 1, 1, slab)
    assert hold.held.wait(TIMEOUT)
    job.order_adopt(new)
    outbox, sent = job.servers["s0"].state.outbox, []
    monkeypatch.setattr(outbox, "send", lambda node, frame, *payload: sent.append(frame.kind))
    until(lambda: job.servers["s0"].state.standing.config_id == new.id)
    hold.gate.set()
    job.controls["s0"].await_answer(pb.SWITCHED, number=new.id)
    assert Kind.VALUE not in sent
    push(job, "w0", 1, 1, slab, configuration=new)
    check_settled(job, "w0", 1, slab)
