"""Checkpoints of jobs whose blocks have followers: what they hold, and what is made of them."""

from pathlib import Path

import numpy as np
import pytest

from elastic_ps.core.optimizer import OptimizerSpec
from elastic_ps.transport.base import Transport
from elastic_ps.transport.shm_transport import ShmTransport
from elastic_ps.transport.tcp import TcpTransport
from protos import elastic_pb2 as pb
from tests.elastic_ps.server.checkpoints.test_saving import manifest, save
from tests.elastic_ps.server.migration.followed_job import BLOCKS, OTHERS, OWNERS, FollowedJob, pair
from tests.elastic_ps.server.server_harness import TOKEN, Jobs
from tests.elastic_ps.server.server_reference import ADAM, SGD, TENSORS

THEIRS = [block for block in range(BLOCKS) if OWNERS[block] == 0]


def restored(jobs: Jobs, path: Path, spec: OptimizerSpec | None, before: FollowedJob) -> FollowedJob:
    """Two servers that follow each other go on from a checkpoint of a job, of which nothing has changed since."""
    job = FollowedJob(TENSORS, spec, followers=OTHERS)
    jobs.begin(job, servers=2, assignment=OWNERS, restore=f"file://{path}")
    job.reference = before.reference
    return job


@pytest.mark.parametrize("spec", [SGD, ADAM])
def test_restored_blocks_have_followers_before_the_first_step(jobs: Jobs, tmp_path: Path, spec: OptimizerSpec) -> None:
    job = pair(jobs, spec)
    for version in range(2):
        job.check_step(version)
    save(job, 3, tmp_path)
    job.check_step(2)
    again = restored(jobs, manifest(job, 3, tmp_path), spec, job)
    for name in ("s0", "s1"):
        again.controls[name].await_answer(pb.FOLLOWED, number=again.configuration.id)
        again.controls[name].await_answer(pb.ARRIVED, number=again.configuration.id)
    again.check_copies()
    again.kill("s0")
    again.bury("s0", [0] * BLOCKS, [-1] * BLOCKS, ["s1"])
    again.decide(THEIRS)
    for version in range(3, 5):
        again.check_step(version)


@pytest.mark.parametrize("transport", [TcpTransport(TOKEN), ShmTransport(TOKEN)], ids=["tcp", "shm"])
def test_a_checkpoint_that_a_death_has_stopped_is_written_by_who_goes_on(
    jobs: Jobs, tmp_path: Path, transport: Transport
) -> None:
    job = pair(jobs, ADAM, transport)
    for version in range(2):
        job.check_step(version)
    save(job, 9, tmp_path / "stopped")
    job.kill("s0")
    job.bury("s0", [0] * BLOCKS, [-1] * BLOCKS, ["s1"])
    job.decide(THEIRS)
    del job.controls["s0"]
    save(job, 4, tmp_path / "again")
    for version in range(2, 4):
        job.check_step(version)
    path = manifest(job, 4, tmp_path / "again")
    again = restored(jobs, path, ADAM, job)
    again.check_step(4)
    again.check_copies()
    assert np.array_equal(again.workers["w0"].slab(5), job.reference.slab)
