"""Followers of growing models, of rows, beside checkpoints, and in a storm of plans, deaths and resets."""

import json
from pathlib import Path

import numpy as np
import pytest

from elastic_ps.control.codec import config_id_to_pb, data_to_pb, tensor_to_pb
from elastic_ps.core.model import runs
from elastic_ps.core.optimizer import OptimizerSpec
from elastic_ps.core.sparse_rows import Rows
from elastic_ps.transport.base import Transport
from elastic_ps.transport.frame_metas import InitMeta, PullMeta, PushMeta, SubscribeMeta
from elastic_ps.transport.frames import Frame
from elastic_ps.transport.shm_transport import ShmTransport
from elastic_ps.transport.tcp import TcpTransport
from protos import elastic_pb2 as pb
from tests.elastic_ps.server.migration.followed_job import BLOCKS, FollowedJob, Hold, pair
from tests.elastic_ps.server.server_harness import TOKEN, Job, Jobs
from tests.elastic_ps.server.server_peers import TIMEOUT
from tests.elastic_ps.server.server_reference import ADAM, HYPER, SGD, TENSORS
from tests.elastic_ps.waiting import until

GROWN = Job(TENSORS, SGD)
KNOWN = len(Job(TENSORS[:2]).model.blocks)
FRESH = range(KNOWN, BLOCKS)


def grow(jobs: Jobs) -> FollowedJob:
    """A job that has made a step when a script declares more tensors: s1 owns their blocks, and s0 follows."""
    job = jobs.begin(FollowedJob(TENSORS[:2], SGD, followers=[1] * KNOWN), servers=2, assignment=[0] * KNOWN)
    job.check_step(0)
    owners, followers = [0] * KNOWN + [1] * len(FRESH), [1] * KNOWN + [0] * len(FRESH)
    number = config_id_to_pb(job.configuration.id)
    message = pb.Extend(assignment=owners, followers=followers, optimizers=[SGD.to_json()], configuration=number)
    message.tensors.extend(tensor_to_pb(tensor) for tensor in TENSORS)
    message.data.CopyFrom(data_to_pb(job.data))
    for server in ("s0", "s1"):
        job.direct(server, extend=message)
        job.controls[server].await_answer(pb.EXTENDED)
    job.workers["w1"].model = GROWN.model
    return job


def give_first_values(job: FollowedJob, server: str) -> None:
    """The chief gives them; when w1 gets them the follower has them."""
    slab = GROWN.random_slab()
    (run,) = runs(FRESH)
    frame = Frame(InitMeta(runs=(run,)), job.configuration.id, 1)
    job.workers["w0"].send(server, frame, [slab[GROWN.model.span(run)]])
    job.workers["w1"].send(server, Frame(PullMeta(runs=(run,)), job.configuration.id, 1))
    job.workers["w1"].await_version(1, FRESH)


def test_first_values_reach_the_followers_of_new_blocks(jobs: Jobs) -> None:
    job = grow(jobs)
    give_first_values(job, "s1")
    assert job.image("s0", list(FRESH)) == job.image("s1", list(FRESH)), "before anybody is told"


def test_follower_takes_first_values_where_the_owner_died_without_any(jobs: Jobs) -> None:
    job = grow(jobs)
    job.kill("s1")
    held = job.bury("s1", [0] * BLOCKS, [-1] * BLOCKS, ["s0"])["s0"]
    assert {one.kind for one in held} == {pb.Holding.OWNED}, "it has no copy of what it follows"
    job.decide(list(FRESH))
    assert job.controls["s0"].await_answer(pb.ARRIVED, number=job.configuration.id)
    give_first_values(job, "s0")


def test_a_checkpoint_is_saved_when_followers_have_what_it_holds(
    jobs: Jobs, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    job = pair(jobs, ADAM)
    job.check_step(0)
    hold = Hold(monkeypatch, owner="s0")
    for server in job.servers:
        job.direct(server, save=pb.Save(clock=2, url=f"file://{tmp_path}"))
    slabs = job.push_all(1)
    job.controls["s1"].await_answer(pb.SAVED)
    assert hold.held.wait(TIMEOUT)
    assert pb.SAVED not in [one.answer for one in job.controls["s0"].answers]
    hold.gate.set()
    saved = job.controls["s0"].await_answer(pb.SAVED)
    assert sorted(map(int, json.loads(saved.detail)["blocks"])) == list(job.configuration.blocks_of["s0"])
    job.check_settled(1, slabs)


def test_a_shadow_is_sent_nothing_that_a_follower_lacks(jobs: Jobs, monkeypatch: pytest.MonkeyPatch) -> None:
    job = pair(jobs)
    job.check_step(0)
    shadow = job.add_worker("w9")
    hold = Hold(monkeypatch, owner="s0")
    slabs = job.push_all(1)
    assert hold.held.wait(TIMEOUT)
    mine = job.configuration.blocks_of["s0"]
    until(lambda: (job.servers["s0"].state.store.versions[list(mine)] == 2).all())
    for server in ("s0", "s1"):
        shadow.send(server, Frame(SubscribeMeta(), job.configuration.id))
    shadow.await_version(2, job.configuration.blocks_of["s1"])
    assert not set(shadow.values[2]) & set(mine)
    hold.gate.set()
    shadow.await_version(2)
    job.check_settled(1, slabs)
    assert np.array_equal(shadow.slab(2), job.reference.slab)


def push_rows(job: FollowedJob, worker: str, version: int, rows: Rows) -> None:
    """A worker's rows of the first tensor, which one server has; of all others nothing."""
    tensor = job.model.blocks_of[0]
    configuration = job.configuration
    for server, blocks in configuration.blocks_of.items():
        held = [block for block in blocks if block in tensor]
        meta = {"hyper": HYPER} if configuration.ranks[worker] == 0 else {}
        absent = tuple(runs(block for block in blocks if block not in held))
        job.workers[worker].send(server, Frame(PushMeta(absent=absent, **meta), configuration.id, version, 4))
        for run in runs(held):
            per = 10 * 4
            low = (job.model.blocks[run[0]].offset) // per
            high = low + sum(job.model.blocks[block].nbytes for block in range(run[0], sum(run))) // per
            part = rows.between(range(low, high))
            frame = Frame(PushMeta(runs=(run,), rows=(len(part),), **meta), configuration.id, version, 4)
            job.workers[worker].send(server, frame, list(part.payload()))


@pytest.mark.parametrize("transport", [TcpTransport(TOKEN), ShmTransport(TOKEN)], ids=["tcp", "shm"])
@pytest.mark.parametrize("lazy", [False, True])
def test_rows_reach_the_followers(jobs: Jobs, transport: Transport, lazy: bool) -> None:
    spec = OptimizerSpec("sgd", {"momentum": 0.9, "lazy_update": lazy})
    job = pair(jobs, spec, transport)
    rng = np.random.default_rng(3)
    for version in range(4):
        for worker in ("w0", "w1"):
            numbers = np.sort(rng.choice(40, 5, replace=False)).astype(np.int64)
            push_rows(job, worker, version, Rows(numbers, rng.normal(size=(5, 10)).astype(np.float32)))
        until(lambda v=version: all((s.state.store.versions == v + 1).all() for s in job.servers.values()))
        job.check_copies()


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("transport", [TcpTransport(TOKEN), ShmTransport(TOKEN)], ids=["tcp", "shm"])
def test_a_storm_of_plans_deaths_and_resets_changes_no_bit(jobs: Jobs, transport: Transport, seed: int) -> None:
    rng = np.random.default_rng(seed)
    job = pair(jobs, ADAM if seed % 2 else SGD, transport)
    job.join_server("s2")
    job.check_step(0)
    version, joined = 1, 3
    for _ in range(5):
        alive = sorted(job.servers)
        if len(alive) < 3:
            job.join_server(f"s{joined}")
            joined += 1
            alive = sorted(job.servers)
        owners = rng.integers(len(alive), size=BLOCKS)
        followers = (owners + rng.integers(1, len(alive), size=BLOCKS)) % len(alive)
        new = job.prepare_plan(owners.tolist(), followers.tolist(), tuple(alive))
        job.check_step(version)
        job.order_arm(new, version + 2, alive)
        job.check_step(version + 1)
        job.adopt(new, alive)
        for name in alive:
            job.controls[name].await_answer(pb.ARRIVED, number=new.id)
            job.controls[name].await_answer(pb.FOLLOWED, number=new.id)
        job.commit(alive)
        version += 2
        lose_one(job, version, rng)
        version += 1
        job.check_copies()


def lose_one(job: FollowedJob, version: int, rng: np.random.Generator) -> None:
    """In the middle of a step a server dies, and its followers go on."""
    old = job.configuration
    half = sorted(rng.choice(BLOCKS, BLOCKS // 2, replace=False).tolist())
    slabs = job.push_all(version, blocks=half)
    if rng.random() < 0.5:
        job.workers["w0"].await_version(version + 1, half)
    dead = str(rng.choice(sorted(job.servers)))
    job.kill(dead)
    left = sorted(job.servers)
    lost = [block for block in range(BLOCKS) if old.primary(block) == dead]
    owners = [old.follower(b) if b in lost else old.primary(b) for b in range(BLOCKS)]
    followers = [None if b in lost or old.follower(b) == dead else old.follower(b) for b in range(BLOCKS)]
    numbers = [left.index(one) if one is not None else -1 for one in followers]
    held = job.bury(dead, [left.index(one) for one in owners], numbers, left)
    has = {(name, block): (one.kind, one.version) for name in held for one in held[name] for block in blocks(one)}
    for block in lost:
        kind, copied = has[old.follower(block), block]
        assert kind == pb.Holding.COPY
        assert copied >= max(v for w in job.workers.values() for v in w.values if block in w.values[v])
    job.decide(lost)
    job.push_all(version, slabs)
    job.check_settled(version, slabs)
    for name in left:
        job.controls[name].await_answer(pb.FOLLOWED, number=job.configuration.id)
        job.controls[name].await_answer(pb.ARRIVED, number=job.configuration.id)
    job.commit(left)


def blocks(holding: pb.Holding) -> list[int]:
    found = zip(holding.runs[::2], holding.runs[1::2], strict=True)
    return [block for first, count in found for block in range(first, first + count)]
