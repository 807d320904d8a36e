"""Blocks change their owner while training goes on."""

from collections.abc import Iterator

import pytest
from server_harness import (
    ADAM,
    SGD,
    TENSORS,
    TIMEOUT,
    TOKEN,
    GatedTransport,
    Job,
    image,
    join_server,
    spread,
)

from elastic_ps.core.codec import config_id_to_pb
from elastic_ps.core.configuration import Configuration
from elastic_ps.core.data import DataSpec
from elastic_ps.core.model import runs
from elastic_ps.core.optimizer import OptimizerSpec
from elastic_ps.server.phases import Status
from elastic_ps.transport.frames import Frame, Kind, Reason
from protos import elastic_pb2 as pb


@pytest.fixture
def jobs() -> Iterator[list[Job]]:
    started: list[Job] = []
    yield started
    for job in started:
        job.close()


def begin(jobs: list[Job], job: Job, servers: int = 1, workers: int = 2) -> Job:
    jobs.append(job)
    names = [f"s{number}" for number in range(servers)]
    count = len(job.model.blocks)
    job.start([f"w{number}" for number in range(workers)], names, [block * servers // count for block in range(count)])
    return job


def arm(job: Job, configuration: Configuration, clock: int) -> None:
    for server in job.servers:
        job.direct(server, arm=pb.Arm(configuration=config_id_to_pb(configuration.id), clock=clock))
        job.controls[server].await_answer(pb.ARMED, pb.SWITCHED, pb.LATE, number=configuration.id)


@pytest.mark.parametrize("spec", [SGD, ADAM])
def test_live_follower_is_byte_equal_and_takes_over_at_the_clock(jobs: list[Job], spec: OptimizerSpec) -> None:
    job = begin(jobs, Job(TENSORS, spec))
    job.step(0)
    join_server(job, "s1")
    old, new = job.configuration, job.next(["w0", "w1"], ["s0", "s1"], spread(job, 2))
    job.prepare(new, ["s0", "s1"])
    for version in range(1, 4):
        job.step(version)
    assert job.controls["s1"].await_answer(pb.SYNCED, number=new.id).detail == ""
    job.step(4)
    arm(job, new, 7)
    job.step(5)
    moving = list(new.blocks_of["s1"])
    follower = job.servers["s1"].room
    with follower.changed:
        arrived = follower.changed.wait_for(lambda: (follower.store.versions[moving] == 6).all(), 0)
    if arrived:
        assert image(job, "s1", moving) == image(job, "s0", moving)
    job.step(6)  # everyone switches at 7
    for control in job.controls.values():
        control.await_answer(pb.SWITCHED, number=new.id)
    assert image(job, "s1", moving) == image(job, "s0", moving)  # the frozen copy
    assert set(job.servers["s0"].room.store.held(Status.FROZEN)) == set(moving)
    job.push("w0", 7, job.random_slab(), old)
    assert job.workers["w0"].await_kind(Kind.REFUSED).meta["reason"] == Reason.STALE
    job.configuration = new
    for version in range(7, 10):
        job.step(version)
    job.commit(["s0", "s1"])
    assert not len(job.servers["s0"].room.store.held(Status.FROZEN))
    assert job.controls["s0"].await_answer(pb.SWITCHED).bytes_moved > 0
    job.step(10)


def test_storm_of_server_scalings_changes_no_bit(jobs: list[Job]) -> None:
    job = begin(jobs, Job(TENSORS, SGD))
    version = 0
    for servers in (3, 2, 4, 1, 2):
        names = [f"s{number}" for number in range(servers)]
        for name in names:
            if name not in job.servers:
                join_server(job, name)
        involved = sorted({*names, *(member.id for member in job.configuration.servers)})
        for name in involved:
            if job.servers[name].wait(0) is not None:  # left in an earlier plan: a new process, a new node
                raise AssertionError(f"{name} ended")
        new = job.next(["w0", "w1"], names, spread(job, servers))
        job.prepare(new, involved)
        job.step(version)
        for name in names:
            gained = set(new.blocks_of[name]) - set(job.configuration.blocks_of.get(name, ()))
            if gained:
                job.controls[name].await_answer(pb.SYNCED, number=new.id)
        job.step(version + 1)
        for name in involved:
            job.direct(name, arm=pb.Arm(configuration=config_id_to_pb(new.id), clock=version + 3))
        job.step(version + 2)
        job.adopt(new, involved)
        job.step(version + 3)
        job.commit(names)  # a leaver stays, to join again in a later plan of this test
        version += 4


def test_leaving_server_ends_after_the_plan_is_committed(jobs: list[Job]) -> None:
    job = begin(jobs, Job(TENSORS), servers=2)
    job.step(0)
    new = job.next(["w0", "w1"], ["s1"], [0] * len(job.model.blocks))
    job.prepare(new, ["s0", "s1"])
    job.controls["s1"].await_answer(pb.SYNCED, number=new.id)
    job.adopt(new, ["s0", "s1"])
    job.step(1)
    assert job.servers["s0"].wait(0) is None
    job.commit(["s0", "s1"])
    assert job.servers["s0"].wait(TIMEOUT) == 0
    job.step(2)


def test_adoption_in_the_middle_of_a_step_keeps_what_was_updated(jobs: list[Job]) -> None:
    """Blocks of the step under way are handed over at v and v+1; the others are contributed to again."""
    job = begin(jobs, Job(TENSORS, ADAM))
    job.step(0)
    join_server(job, "s1")
    old, new = job.configuration, job.next(["w0", "w1"], ["s0", "s1"], spread(job, 2))
    job.prepare(new, ["s0", "s1"])
    job.controls["s1"].await_answer(pb.SYNCED, number=new.id)
    slabs = [job.random_slab() for _ in range(2)]
    half = range(len(job.model.blocks) // 2)
    for name, slab in zip(("w0", "w1"), slabs, strict=True):
        job.push(name, 1, slab, old, blocks=half)
    for worker in job.workers.values():
        worker.await_version(2, half)
    job.push("w0", 1, slabs[0], old)  # half a push more, which the switch drops
    job.adopt(new, ["s0", "s1"])
    for name, slab in zip(("w0", "w1"), slabs, strict=True):
        job.push(name, 1, slab, new)
    job.settle(1, slabs, ["w0", "w1"], new)
    job.step(2)


def test_pushes_that_are_earlier_than_the_hand_over_wait(jobs: list[Job]) -> None:
    job = Job(TENSORS, SGD)
    slow = job.transports["s0"] = GatedTransport(TOKEN, Kind.HANDOVER)
    begin(jobs, job)
    job.step(0)
    join_server(job, "s1")
    new = job.next(["w0", "w1"], ["s0", "s1"], spread(job, 2))
    job.prepare(new, ["s0", "s1"])
    job.controls["s1"].await_answer(pb.SYNCED, number=new.id)
    slabs = [job.random_slab() for _ in range(2)]
    for name, slab in zip(("w0", "w1"), slabs, strict=True):
        job.push(name, 1, slab, new)
    job.controls["s1"].await_answer(pb.SWITCHED, number=new.id)
    assert slow.held.wait(TIMEOUT)
    mine, theirs = new.blocks_of["s0"], new.blocks_of["s1"]
    job.workers["w0"].await_version(2, mine)
    assert not set(job.workers["w0"].values[2]) & set(theirs)
    assert not job.controls["s0"].said(pb.SWITCHED, new.id)  # the hand-over has not been sent
    slow.gate.set()
    job.settle(1, slabs, ["w0", "w1"], new)
    job.controls["s0"].await_answer(pb.SWITCHED, number=new.id)


def test_pause_migration_sends_nothing_before_the_clock(jobs: list[Job]) -> None:
    job = begin(jobs, Job(TENSORS, ADAM))
    job.step(0)
    join_server(job, "s1")
    new = job.next(["w0", "w1"], ["s0", "s1"], spread(job, 2))
    job.prepare(new, ["s0", "s1"], pb.PAUSE)
    job.step(1)
    moving = list(new.blocks_of["s1"])
    assert not image(job, "s1", moving).strip(b"\0")
    arm(job, new, 3)
    job.step(2)
    job.controls["s0"].await_answer(pb.SWITCHED, number=new.id)
    job.controls["s1"].await_answer(pb.ARRIVED, number=new.id)
    assert not job.controls["s1"].said(pb.SYNCED, new.id)
    assert image(job, "s1", moving) == image(job, "s0", moving)
    job.configuration = new
    job.step(3)


def test_without_a_clock_a_new_owner_says_when_it_has_all_its_blocks(jobs: list[Job]) -> None:
    job = begin(jobs, Job(TENSORS, data=DataSpec(True, 64, 8, consistency="async")))
    join_server(job, "s1")
    new = job.next(["w0", "w1"], ["s0", "s1"], spread(job, 2))
    job.prepare(new, ["s0", "s1"])
    job.controls["s1"].await_answer(pb.SYNCED, number=new.id)
    assert not job.controls["s1"].said(pb.ARRIVED, new.id)
    job.adopt(new, ["s0", "s1"])
    job.controls["s1"].await_answer(pb.ARRIVED, number=new.id)
    assert not len(job.servers["s1"].room.store.held(Status.FOLLOWER))
    assert not job.controls["s0"].said(pb.ARRIVED, new.id)


def test_cancelled_plan_leaves_no_trace_and_its_number_stays_refused(jobs: list[Job]) -> None:
    job = begin(jobs, Job(TENSORS))
    job.step(0)
    join_server(job, "s1")
    new = job.next(["w0", "w1"], ["s0", "s1"], spread(job, 2))
    job.prepare(new, ["s0", "s1"])
    job.controls["s1"].await_answer(pb.SYNCED, number=new.id)
    for server in ("s0", "s1"):
        job.direct(server, cancel=pb.CancelPlan(configuration=config_id_to_pb(new.id), reason="test"))
        job.controls[server].await_answer(pb.CANCELLED, number=new.id)
    assert not len(job.servers["s1"].room.store.held(Status.FOLLOWER))
    job.step(1)
    job.direct("s0", adopt=pb.Adopt(configuration=config_id_to_pb(new.id)))
    assert not job.controls["s0"].said(pb.SWITCHED, new.id)
    job.step(2)
    again = job.next(["w0", "w1"], ["s0", "s1"], spread(job, 2))
    again = Configuration(new.id._replace(number=new.id.number + 1), again.workers, again.servers, again.assignment)
    job.prepare(again, ["s0", "s1"])
    job.controls["s1"].await_answer(pb.SYNCED, number=again.id)
    job.adopt(again, ["s0", "s1"])
    job.step(3)
    assert not job.controls["s0"].failed


def test_arm_behind_the_version_is_late_and_a_later_one_counts(jobs: list[Job]) -> None:
    job = begin(jobs, Job(TENSORS))
    for version in range(3):
        job.step(version)
    new = job.next(["w0", "w1"], ["s0"], job.configuration.assignment)
    job.prepare(new, ["s0"])
    number = config_id_to_pb(new.id)
    job.direct("s0", arm=pb.Arm(configuration=number, clock=2))
    assert job.controls["s0"].await_answer(pb.LATE, number=new.id).version == 3
    job.direct("s0", arm=pb.Arm(configuration=number, clock=4))
    job.controls["s0"].await_answer(pb.ARMED, number=new.id)
    job.step(3)
    job.controls["s0"].await_answer(pb.SWITCHED, number=new.id)


def test_joining_server_without_blocks_does_not_decide(jobs: list[Job]) -> None:
    """All of no blocks have reached the clock: that must not count as having reached it."""
    job = begin(jobs, Job(TENSORS))
    job.step(0)
    join_server(job, "s1")
    new = job.next(["w0", "w1"], ["s0", "s1"], spread(job, 2))
    job.prepare(new, ["s0", "s1"])
    job.direct("s1", arm=pb.Arm(configuration=config_id_to_pb(new.id), clock=5))
    job.controls["s1"].await_answer(pb.ARMED, number=new.id)
    assert not job.controls["s1"].said(pb.SWITCHED, new.id)


def test_half_a_push_of_a_dead_worker_is_dropped(jobs: list[Job]) -> None:
    job = begin(jobs, Job(TENSORS, SGD), workers=3)
    job.step(0)
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
    again = [job.random_slab() for _ in range(2)]  # new slices
    for name, slab in zip(("w0", "w1"), again, strict=True):
        job.push(name, 1, slab, new)
    job.settle(1, again, ["w0", "w1"], new)


@pytest.mark.parametrize("mode", [pb.LIVE, pb.PAUSE])
@pytest.mark.parametrize("when", ["armed", "switched", "late"])
def test_a_death_in_the_middle_of_a_plan_loses_no_block(jobs: list[Job], mode: int, when: str) -> None:
    """Its plan builds on the one that was decided, whose hand-overs go on."""
    job = Job(TENSORS, ADAM)
    slow = job.transports["s0"] = GatedTransport(TOKEN, Kind.HANDOVER)
    begin(jobs, job, workers=3)
    job.step(0)
    join_server(job, "s1")
    new = job.next(["w0", "w1", "w2"], ["s0", "s1"], spread(job, 2))
    job.prepare(new, ["s0", "s1"], mode)
    arm(job, new, 0 if when == "late" else 3)  # late: no clock holds at s0, and s1 has one
    if when == "switched":
        for server in ("s0", "s1"):
            job.direct(server, adopt=pb.Adopt(configuration=config_id_to_pb(new.id)))
        assert slow.held.wait(TIMEOUT)
    job.configuration = new
    job.workers.pop("w2").close()
    survivors = job.next(["w0", "w1"], ["s0", "s1"], spread(job, 2))
    job.prepare(survivors, ["s1", "s0"], dead=["w2"])
    for server in ("s0", "s1"):  # another death: the plan of the first is void, what it stands on is not
        job.direct(server, cancel=pb.CancelPlan(configuration=config_id_to_pb(survivors.id)))
    job.configuration = survivors
    again = job.next(["w0"], ["s0", "s1"], spread(job, 2))
    job.workers.pop("w1").close()
    job.prepare(again, ["s0", "s1"], dead=["w1", "w2"])
    slow.gate.set()
    job.adopt(again, ["s0", "s1"])
    job.step(1)
    job.commit(["s0", "s1"])
    assert not len(job.servers["s0"].room.store.held(Status.FROZEN))
    job.step(2)


def test_values_that_have_not_come_move_as_empty(jobs: list[Job]) -> None:
    job = Job(TENSORS)
    jobs.append(job)
    job.add_server("s0")
    first = job.next(["w0"], ["s0"], [0] * len(job.model.blocks))
    job.prepare(first, ["s0"])
    job.adopt(first, ["s0"])
    job.add_server("s1")
    new = job.next(["w0"], ["s0", "s1"], spread(job, 2))
    job.prepare(new, ["s0", "s1"])
    job.controls["s1"].await_answer(pb.SYNCED, number=new.id)
    job.adopt(new, ["s0", "s1"])
    worker = job.add_worker("w0")
    job.init()
    for server, blocks in new.blocks_of.items():
        worker.send(server, Frame(Kind.PULL, new.id, 0, meta={"runs": [list(run) for run in runs(blocks)]}))
    worker.await_version(0)
    job.step(0)


def test_model_that_grows_gets_its_blocks(jobs: list[Job]) -> None:
    job = begin(jobs, Job(TENSORS[:2], SGD))
    job.step(0)
    grown = Job(TENSORS, SGD)
    message = pb.Extend(assignment=[0] * len(grown.model.blocks), optimizers=[SGD.to_json()])
    from elastic_ps.core.codec import data_to_pb, tensor_to_pb

    message.tensors.extend(tensor_to_pb(tensor) for tensor in TENSORS)
    message.data.CopyFrom(data_to_pb(job.data))
    job.direct("s0", extend=message)
    job.controls["s0"].await_answer(pb.EXTENDED)
    store = job.servers["s0"].room.store
    assert len(store.held(Status.EMPTY)) == len(grown.model.blocks) - len(job.model.blocks)
    job.step(1, None)


def test_a_follower_that_cannot_keep_up_gets_its_blocks_at_the_switch(jobs: list[Job]) -> None:
    """A stream that is stuck must not hold up the steps; it falls back to pause, and no bit is lost by it."""
    job = Job(TENSORS, ADAM)
    stuck = job.transports["s0"] = GatedTransport(TOKEN, Kind.SNAPSHOT)
    begin(jobs, job)
    job.step(0)
    join_server(job, "s1")
    new = job.next(["w0", "w1"], ["s0", "s1"], spread(job, 2))
    job.prepare(new, ["s0", "s1"])
    assert stuck.held.wait(TIMEOUT)
    source = job.servers["s0"].room.sources["s1"]
    version = 1
    while not source.fell_back and version < 60:
        job.step(version)
        version += 1
    assert source.fell_back
    assert version > 20
    stuck.gate.set()
    assert job.controls["s1"].await_answer(pb.SYNCED, number=new.id).detail == "pause"
    job.adopt(new, ["s0", "s1"])
    for later in range(version, version + 3):
        job.step(later)
