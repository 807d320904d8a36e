"""Blocks change their owner while training goes on."""

import pytest

from elastic_ps.control.codec import config_id_to_pb, data_to_pb, tensor_to_pb
from elastic_ps.core.configuration import Configuration
from elastic_ps.core.data_order import DataSpec
from elastic_ps.core.model import members, runs
from elastic_ps.core.optimizer import OptimizerSpec
from elastic_ps.server.phases import BlockStatus
from elastic_ps.transport import striped
from elastic_ps.transport.frame_kinds import Kind, Reason
from elastic_ps.transport.frame_metas import PullMeta
from elastic_ps.transport.frames import Frame
from elastic_ps.transport.shm_transport import ShmTransport
from elastic_ps.transport.tcp import TcpTransport
from protos import elastic_pb2 as pb
from tests.elastic_ps.server.server_harness import TOKEN, Job, Jobs
from tests.elastic_ps.server.server_peers import TIMEOUT, GatedTransport
from tests.elastic_ps.server.server_reference import ADAM, SGD, TENSORS


@pytest.mark.parametrize(("transport", "sockets"), [(TcpTransport, 1), (TcpTransport, 3), (ShmTransport, 1)])
@pytest.mark.parametrize("spec", [SGD, ADAM])
def test_live_follower_is_byte_equal_and_takes_over_at_the_clock(
    jobs: Jobs,
    monkeypatch: pytest.MonkeyPatch,
    spec: OptimizerSpec,
    transport: type[TcpTransport] | type[ShmTransport],
    sockets: int,
) -> None:
    monkeypatch.setattr(striped, "_STRIPED_BYTES", 1)
    job = jobs.begin(Job(TENSORS, spec, transport=transport(TOKEN, sockets)))
    job.check_step(0)
    old, new = job.configuration, job.prepare_two(synced=False)
    for version in range(1, 4):
        job.check_step(version)
    assert job.controls["s1"].await_answer(pb.SYNCED, number=new.id).detail == ""
    shared = job.servers["s0"].state.sources["s1"].link.connection.shared
    assert len(shared) == (transport is ShmTransport)
    job.check_step(4)
    job.arm(new, 7)
    job.check_step(5)
    moving = list(new.blocks_of["s1"])
    follow_target = job.servers["s1"].state
    with follow_target.changed:
        arrived = follow_target.changed.wait_for(lambda: (follow_target.store.versions[moving] == 6).all(), 0)
    if arrived:
        assert job.image("s1", moving) == job.image("s0", moving)
    assert all(image.array.any() for image in shared), "records lie in the follower's memory"
    job.check_step(6)  # everyone switches at 7
    for control in job.controls.values():
        control.await_answer(pb.SWITCHED, number=new.id)
    assert job.image("s1", moving) == job.image("s0", moving)  # the frozen copy
    assert set(job.servers["s0"].state.store.held(BlockStatus.FROZEN)) == set(moving)
    job.push("w0", 7, job.random_slab(), old)
    assert job.workers["w0"].await_kind(Kind.REFUSED).meta.reason == Reason.STALE
    job.configuration = new
    for version in range(7, 10):
        job.check_step(version)
    job.commit(["s0", "s1"])
    assert not len(job.servers["s0"].state.store.held(BlockStatus.FROZEN))
    assert job.controls["s0"].await_answer(pb.SWITCHED).bytes_moved > 0
    job.check_step(10)


def test_a_push_that_comes_again_and_ends_the_step_is_answered_before_the_switch(jobs: Jobs) -> None:
    """Some of its blocks have been updated, others are by it: those that leave are not this server's to give later."""
    job = jobs.begin(Job(TENSORS, SGD))
    job.check_step(0)
    old, new = job.configuration, job.prepare_two()
    job.arm(new, 2)
    updated = max(new.blocks_of["s1"])
    others = [block for block in old.blocks_of["s0"] if block != updated]
    slabs = [job.random_slab() for _ in range(2)]
    for worker, slab in zip(("w0", "w1"), slabs, strict=True):
        job.push(worker, 1, slab, blocks=[updated])
    job.push("w1", 1, slabs[1], blocks=others)
    w0 = job.workers["w0"]
    w0.await_version(2, [updated])
    w0.received.clear()
    job.push("w0", 1, slabs[0])
    w0.await_version(2)
    job.controls["s0"].await_answer(pb.SWITCHED, number=new.id)
    w0.wait(lambda: any(updated in members(r.frame.runs) for r in w0.received if r.frame.kind is Kind.VALUE))
    given = [r.frame for r in w0.received if r.frame.kind is Kind.VALUE and updated in members(r.frame.runs)]
    assert {frame.configuration for frame in given} == {old.id}


def test_storm_of_server_scalings_changes_no_bit(jobs: Jobs) -> None:
    job = jobs.begin(Job(TENSORS, SGD))
    version = 0
    for servers in (3, 2, 4, 1, 2):
        names = [f"s{number}" for number in range(servers)]
        for name in names:
            if name not in job.servers:
                job.join_server(name)
        involved = sorted({*names, *(member.id for member in job.configuration.servers)})
        ended = [name for name in involved if job.servers[name].wait(0) is not None]
        assert not ended, "who leaves in a plan is a new process and a new node when it joins again"
        new = job.next(["w0", "w1"], names, job.spread(servers))
        job.prepare(new, involved)
        job.check_step(version)
        for name in names:
            gained = set(new.blocks_of[name]) - set(job.configuration.blocks_of.get(name, ()))
            if gained:
                job.controls[name].await_answer(pb.SYNCED, number=new.id)
        job.check_step(version + 1)
        job.order_arm(new, version + 3, involved)
        job.check_step(version + 2)
        job.adopt(new, involved)
        job.check_step(version + 3)
        job.commit(names)  # a leaver stays, to join again in a later plan of this test
        version += 4


def test_leaving_server_ends_after_the_plan_is_committed(jobs: Jobs) -> None:
    job = jobs.begin(Job(TENSORS), servers=2)
    job.check_step(0)
    new = job.next(["w0", "w1"], ["s1"], [0] * len(job.model.blocks))
    job.prepare(new, ["s0", "s1"])
    job.controls["s1"].await_answer(pb.SYNCED, number=new.id)
    leaver = job.controls["s0"]
    leaver.reports = False
    leaver.asked.clear()
    for server in ("s0", "s1"):
        job.direct(server, adopt=pb.Adopt(configuration=config_id_to_pb(new.id)))
    assert leaver.asked.wait(TIMEOUT)
    assert pb.SWITCHED not in [answer.answer for answer in leaver.answers if answer.configuration == new.id]
    leaver.reports = True
    leaver.report_soon()
    job.adopt(new, ["s0", "s1"])
    assert [entry.version for entry in leaver.ledger] == [0], "told before it may go"
    job.controls["s1"].await_answer(pb.ARRIVED, number=new.id)  # it can be done without
    job.check_step(1)
    assert job.servers["s0"].wait(0) is None
    job.commit(["s0", "s1"])
    assert job.servers["s0"].wait(TIMEOUT) == 0
    job.check_step(2)


def test_adoption_in_the_middle_of_a_step_keeps_what_was_updated(jobs: Jobs) -> None:
    """Blocks of the step under way are handed over at v and v+1; the others are contributed to again."""
    job = jobs.begin(Job(TENSORS, ADAM))
    job.check_step(0)
    old, new = job.configuration, job.prepare_two()
    half = range(len(job.model.blocks) // 2)
    slabs = job.push_all(1, configuration=old, blocks=half)
    for worker in job.workers.values():
        worker.await_version(2, half)
    job.push("w0", 1, slabs[0], old)  # half a push more, which the switch drops
    job.adopt(new, ["s0", "s1"])
    job.push_all(1, slabs, new)
    job.check_settled(1, slabs, new)
    job.check_step(2)


def test_pushes_that_are_earlier_than_the_hand_over_wait(jobs: Jobs) -> None:
    job = Job(TENSORS, SGD)
    slow = job.transports["s0"] = GatedTransport(TOKEN, Kind.HANDOVER)
    jobs.begin(job)
    job.check_step(0)
    new = job.prepare_two()
    slabs = job.push_all(1, configuration=new)
    job.controls["s1"].await_answer(pb.SWITCHED, number=new.id)
    assert slow.held.wait(TIMEOUT)
    mine, theirs = new.blocks_of["s0"], new.blocks_of["s1"]
    job.workers["w0"].await_version(2, mine)
    assert not set(job.workers["w0"].values[2]) & set(theirs)
    assert not job.controls["s0"].said(pb.SWITCHED, new.id)  # the hand-over has not been sent
    slow.gate.set()
    job.check_settled(1, slabs, new)
    job.controls["s0"].await_answer(pb.SWITCHED, number=new.id)


def test_a_new_owner_reports_what_it_copies(jobs: Jobs) -> None:
    """Its coordinator waits for it as long as that grows; records of later steps are no progress of the copy."""
    job = jobs.begin(Job(TENSORS, ADAM))
    job.check_step(0)
    new = job.prepare_two()
    reports = {name: server.report() for name, server in job.servers.items()}
    assert reports["s1"].copied == len(job.image("s1", list(new.blocks_of["s1"])))
    assert (reports["s1"].bytes, reports["s0"].copied) == (0, 0)
    job.check_step(1)
    assert job.servers["s1"].report().copied == reports["s1"].copied


def test_pause_migration_sends_nothing_before_the_clock(jobs: Jobs) -> None:
    job = jobs.begin(Job(TENSORS, ADAM))
    job.check_step(0)
    new = job.prepare_two(pb.PAUSE)
    job.check_step(1)
    moving = list(new.blocks_of["s1"])
    assert not job.image("s1", moving).strip(b"\0")
    job.arm(new, 3)
    job.check_step(2)
    job.controls["s0"].await_answer(pb.SWITCHED, number=new.id)
    job.controls["s1"].await_answer(pb.ARRIVED, number=new.id)
    assert not job.controls["s1"].said(pb.SYNCED, new.id)
    assert job.image("s1", moving) == job.image("s0", moving)
    job.configuration = new
    job.check_step(3)


def test_without_a_clock_a_new_owner_says_when_it_has_all_its_blocks(jobs: Jobs) -> None:
    job = jobs.begin(Job(TENSORS, data=DataSpec(True, 64, 8, consistency="async")))
    new = job.prepare_two()
    assert not job.controls["s1"].said(pb.ARRIVED, new.id)
    job.adopt(new, ["s0", "s1"])
    job.controls["s1"].await_answer(pb.ARRIVED, number=new.id)
    assert not len(job.servers["s1"].state.store.held(BlockStatus.FOLLOWER))
    assert not job.controls["s0"].said(pb.ARRIVED, new.id)


def test_cancelled_plan_leaves_no_trace_and_its_number_stays_refused(jobs: Jobs) -> None:
    job = jobs.begin(Job(TENSORS))
    job.check_step(0)
    new = job.prepare_two()
    for server in ("s0", "s1"):
        job.direct(server, cancel=pb.CancelPlan(configuration=config_id_to_pb(new.id), reason="test"))
        job.controls[server].await_answer(pb.CANCELLED, number=new.id)
    assert not len(job.servers["s1"].state.store.held(BlockStatus.FOLLOWER))
    job.check_step(1)
    job.direct("s0", adopt=pb.Adopt(configuration=config_id_to_pb(new.id)))
    assert not job.controls["s0"].said(pb.SWITCHED, new.id)
    job.check_step(2)
    again = job.next(["w0", "w1"], ["s0", "s1"], job.spread(2))
    again = Configuration(new.id._replace(number=new.id.number + 1), again.workers, again.servers, again.assignment)
    job.prepare(again, ["s0", "s1"])
    job.controls["s1"].await_answer(pb.SYNCED, number=again.id)
    job.adopt(again, ["s0", "s1"])
    job.check_step(3)


def test_what_was_committed_before_is_said_again_in_a_plan_and_ends_none_of_its_streams(jobs: Jobs) -> None:
    """A new stream of directives begins with what stands."""
    job = jobs.begin(Job(TENSORS, SGD))
    new = job.prepare_two()
    job.commit(["s0", "s1"])
    for version in range(3):
        job.check_step(version)
    job.arm(new, 4)
    job.check_step(3)
    job.configuration = new
    for version in range(4, 6):
        job.check_step(version)


def test_arm_behind_the_version_is_late_and_a_later_one_counts(jobs: Jobs) -> None:
    job = jobs.begin(Job(TENSORS))
    for version in range(3):
        job.check_step(version)
    new = job.next(["w0", "w1"], ["s0"], job.configuration.assignment)
    job.prepare(new, ["s0"])
    job.order_arm(new, 2)
    assert job.controls["s0"].await_answer(pb.LATE, number=new.id).version == 3
    job.order_arm(new, 4)
    job.controls["s0"].await_answer(pb.ARMED, number=new.id)
    job.check_step(3)
    job.controls["s0"].await_answer(pb.SWITCHED, number=new.id)


def test_joining_server_without_blocks_does_not_decide(jobs: Jobs) -> None:
    """All of no blocks have reached the clock: that must not count as having reached it."""
    job = jobs.begin(Job(TENSORS))
    job.check_step(0)
    new = job.prepare_two(synced=False)
    job.order_arm(new, 5, ["s1"])
    job.controls["s1"].await_answer(pb.ARMED, number=new.id)
    assert not job.controls["s1"].said(pb.SWITCHED, new.id)


def test_half_a_push_of_a_dead_worker_is_dropped(jobs: Jobs) -> None:
    job = jobs.begin(Job(TENSORS, SGD), workers=3)
    job.check_step(0)
    slabs = [job.random_slab() for _ in range(3)]
    half = range(len(job.model.blocks) // 2)
    job.push("w2", 1, slabs[2], blocks=half)
    job.push("w0", 1, slabs[0])
    job.drain("w2")
    new = job.next(["w0", "w1"], ["s0"], job.configuration.assignment)
    job.prepare(new, ["s0"], dead=["w2"])
    assert job.controls["s0"].await_answer(pb.PREPARED, number=new.id).version == 1
    assert job.workers["w2"].connect(job.members["s0"]).kind is Kind.REFUSED
    job.adopt(new, ["s0"])
    again = job.push_all(1, configuration=new)
    job.check_settled(1, again, new)


@pytest.mark.parametrize("mode", [pb.LIVE, pb.PAUSE])
@pytest.mark.parametrize("when", ["armed", "switched", "late"])
def test_a_death_in_the_middle_of_a_plan_loses_no_block(jobs: Jobs, mode: int, when: str) -> None:
    """Its plan builds on the one that was decided, whose hand-overs go on."""
    job = Job(TENSORS, ADAM)
    slow = job.transports["s0"] = GatedTransport(TOKEN, Kind.HANDOVER)
    jobs.begin(job, workers=3)
    job.check_step(0)
    new = job.prepare_two(mode, synced=False)
    job.arm(new, 0 if when == "late" else 3)  # late: no clock holds at s0, and s1 has one
    if when == "switched":
        job.order_adopt(new)
        assert slow.held.wait(TIMEOUT)
    job.configuration = new
    job.workers.pop("w2").close()
    survivors = job.next(["w0", "w1"], ["s0", "s1"], job.spread(2))
    job.prepare(survivors, ["s1", "s0"], dead=["w2"])
    for server in ("s0", "s1"):  # another death: the plan of the first is void, what it stands on is not
        job.direct(server, cancel=pb.CancelPlan(configuration=config_id_to_pb(survivors.id)))
    job.configuration = survivors
    again = job.next(["w0"], ["s0", "s1"], job.spread(2))
    job.workers.pop("w1").close()
    job.prepare(again, ["s0", "s1"], dead=["w1", "w2"])
    slow.gate.set()
    job.adopt(again, ["s0", "s1"])
    job.check_step(1)
    job.commit(["s0", "s1"])
    assert not len(job.servers["s0"].state.store.held(BlockStatus.FROZEN))
    job.check_step(2)


def test_values_that_have_not_come_move_as_empty(jobs: Jobs) -> None:
    job = jobs.keep(Job(TENSORS))
    job.add_server("s0")
    first = job.next(["w0"], ["s0"], [0] * len(job.model.blocks))
    job.prepare(first, ["s0"])
    job.adopt(first, ["s0"])
    job.add_server("s1")
    new = job.next(["w0"], ["s0", "s1"], job.spread(2))
    job.prepare(new, ["s0", "s1"])
    job.controls["s1"].await_answer(pb.SYNCED, number=new.id)
    job.adopt(new, ["s0", "s1"])
    worker = job.add_worker("w0")
    job.init()
    for server, blocks in new.blocks_of.items():
        worker.send(server, Frame(PullMeta(runs=[list(run) for run in runs(blocks)]), new.id, 0))
    worker.await_version(0)
    job.check_step(0)


def test_an_extend_of_a_configuration_that_was_left_moves_no_block(jobs: Jobs) -> None:
    """Found by the simulated world: it had been sent again on a new stream, and peers told of the switch meanwhile."""
    job = jobs.begin(Job(TENSORS, SGD))
    job.check_step(0)
    old, new = job.configuration, job.prepare_two()
    job.arm(new, 2)
    job.check_step(1)
    for control in job.controls.values():
        control.await_answer(pb.SWITCHED, number=new.id)
    job.configuration = new
    stale = pb.Extend(assignment=old.assignment, optimizers=[SGD.to_json()], configuration=config_id_to_pb(old.id))
    stale.tensors.extend(tensor_to_pb(tensor) for tensor in TENSORS)
    stale.data.CopyFrom(data_to_pb(job.data))
    for name, server in job.servers.items():
        job.direct(name, extend=stale)
        assert server.state.standing.current == new
    job.check_step(2)


def test_model_that_grows_gets_its_blocks(jobs: Jobs) -> None:
    job = jobs.begin(Job(TENSORS[:2], SGD))
    job.check_step(0)
    grown = Job(TENSORS, SGD)
    number = config_id_to_pb(job.configuration.id)
    message = pb.Extend(assignment=[0] * len(grown.model.blocks), optimizers=[SGD.to_json()], configuration=number)
    message.tensors.extend(tensor_to_pb(tensor) for tensor in TENSORS)
    message.data.CopyFrom(data_to_pb(job.data))
    message.growth = 2
    job.direct("s0", extend=message)
    assert job.controls["s0"].await_answer(pb.EXTENDED).growth == 2, "which of two Extends it answers"
    store = job.servers["s0"].state.store
    assert len(store.held(BlockStatus.EMPTY)) == len(grown.model.blocks) - len(job.model.blocks)
    job.check_step(1, None)


def test_a_follower_that_cannot_keep_up_gets_its_blocks_at_the_switch(jobs: Jobs) -> None:
    """A stream that is stuck must not hold up the steps; it falls back to pause, and no bit is lost by it."""
    job = Job(TENSORS, ADAM)
    stuck = job.transports["s0"] = GatedTransport(TOKEN, Kind.SNAPSHOT)
    jobs.begin(job)
    job.check_step(0)
    new = job.prepare_two(synced=False)
    assert stuck.held.wait(TIMEOUT)
    source = job.servers["s0"].state.sources["s1"]
    version = 1
    while not source.fell_back and version < 60:
        job.check_step(version)
        version += 1
    assert source.fell_back
    assert version > 20
    stuck.gate.set()
    assert job.controls["s1"].await_answer(pb.SYNCED, number=new.id).detail == "pause"
    job.adopt(new, ["s0", "s1"])
    for later in range(version, version + 3):
        job.check_step(later)
